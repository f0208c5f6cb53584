"""What is read from each kind of server log: the cause of a failed start, and what was degraded.

In: start_logs/*.log, minimal logs. UPDATE_GOLDEN=1 writes start_logs/expected.json anew; read the
difference before you commit it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cargo import start_cause
from decodelab import degradation

LOGS = Path(__file__).parent / "start_logs"
EXPECTED = LOGS / "expected.json"


def seen(path: Path) -> dict[str, Any]:
    text = path.read_bytes().decode("utf-8")
    return {**start_cause.explain(text), "degraded": degradation.degradations(text)}


def test_each_log_is_read_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    got = {path.stem: seen(path) for path in sorted(LOGS.glob("*.log"))}
    if os.environ.get("UPDATE_GOLDEN"):
        text = json.dumps(got, ensure_ascii=False, indent=1)
        EXPECTED.write_text(text + "\n", encoding="utf-8")
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    with capsys.disabled():
        print("\nstart logs: log, expected, got")
        for name, found in got.items():
            print(f"  {name:36} {expected[name]['class']:20} {found['class']}")
    assert got == expected
