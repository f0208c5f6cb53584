"""The published folder: a run's second opinion lies beside it, and leaves with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cargo import whole
from decodelab import published
from decodelab.store import StoreError, sha256_of

NAME = "decode_v0.5_short_c1_t4_r2"
PLAN: dict[str, Any] = {
    "runs": [{"name": NAME, "variant": "v0.5", "launch": "l", "run": "r", "start": 1}]
}


def receipts(root: Path, second: Any = None) -> dict[str, Any]:
    """One run in the store, with `second` as what httpx made of it."""
    attempt = root / "raw/attempt"
    attempt.mkdir(parents=True, exist_ok=True)
    (attempt / "run.json").write_text('{"source": "measured"}')
    if second is not None:
        (attempt / "cross_check.json").write_text(json.dumps(second))
    whole.seal(str(attempt), {"start_id": "s"}, "done", [])
    entry = {"path": "raw/attempt", "status": "done", "reasons": [], "start_id": "s"}
    return {"l": {"status": "done", "server": "x", "starts": {}, "runs": {"r": entry}}}


@pytest.mark.parametrize(
    "second", [{"source": "measured", "run": {"http": "httpx"}}, {"problem": "stopped"}]
)
def test_a_cross_check_is_published_beside_its_run(tmp_path: Path, second: dict[str, Any]) -> None:
    folder = tmp_path / "runs"
    index = published.publish_runs(PLAN, receipts(tmp_path, second), tmp_path, folder)
    entry = index["runs"][NAME]
    copy = folder / f"{NAME}.cross_check.json"
    assert entry["cross_check"] == copy.name
    assert json.loads(copy.read_text()) == second
    assert entry["cross_check_sha256"] == sha256_of(copy)
    assert json.loads((folder / published.RUNS_INDEX).read_text()) == index
    again = published.publish_runs(PLAN, receipts(tmp_path, second), tmp_path, folder)
    assert again == index and copy.is_file()

    published.publish_runs({"runs": []}, {}, tmp_path, folder)
    assert [file.name for file in folder.iterdir()] == [published.RUNS_INDEX]


def test_a_run_without_one_says_nothing_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    index = published.publish_runs(PLAN, receipts(tmp_path), tmp_path, folder)
    assert not {"cross_check", "cross_check_sha256"} & set(index["runs"][NAME])
    assert not list(folder.glob("*cross_check*"))


def test_a_cross_check_that_was_changed_is_refused(tmp_path: Path) -> None:
    known = receipts(tmp_path, {"problem": "stopped"})
    (tmp_path / "raw/attempt/cross_check.json").write_text("{}")
    with pytest.raises(StoreError, match=r"cross_check.json: content differs"):
        published.publish_runs(PLAN, known, tmp_path, tmp_path / "runs")
