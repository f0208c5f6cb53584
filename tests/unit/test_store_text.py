"""What the store writes can always be read, whatever bytes a host's words hold."""

from __future__ import annotations

import json
from pathlib import Path

from decodelab.store import write_json


def test_bytes_that_are_no_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    value = {"set": {"BAD": "\udcff\udcfe", "GOOD": "解码"}}
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_bytes().decode("utf-8")
    assert "解码" in text and json.loads(text) == value
