"""What of the step profiler's files belongs to a run: windows, torn lines, a full disk."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cargo import profiling
from cargo.profiling import Profiling, StepsFile, Window

ASKED = {"mode": "sync", "regions": {}, "skip": [], "timeline_steps": 8}


def line(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


@given(st.lists(st.integers(1, 90)), st.lists(st.sampled_from(["step", "header", "flushed"])))
def test_a_growing_file_gives_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], kinds: list[str]
) -> None:
    """However the writer's writes fall, torn in the middle of a line or not."""
    text = b"".join(line(kind=kind, i=n) for n, kind in enumerate(kinds))
    path = tmp_path_factory.mktemp("grow") / "steps-1.jsonl"
    path.write_bytes(b"")
    steps, seen, at = StepsFile(str(path)), [], 0
    for size in [*cuts, len(text)]:
        with path.open("ab") as f:
            f.write(text[at : at + size])
        at += size
        steps.answers(0)
        seen += [said["i"] for _, said in steps.news()]
    assert seen == [n for n, kind in enumerate(kinds) if kind == "step"]
    assert len(steps.head) == kinds.count("header") and steps.broken == 0


def test_a_window_takes_what_began_in_it_and_the_spans_of_that() -> None:
    window = Window(10, 20)
    steps = [{"t0": t, "i": t, "role": "worker"} for t in (9, 10, 20, 21)] + [
        {"i": 3},
        {"t0": None},
    ]
    assert [window.takes(step) for step in steps] == [False, True, True, False, False, False]
    spans = [(10, "worker"), (15, "worker"), (21, "worker"), (15, "engine"), (None, "worker")]
    assert [window.holds({"i": i, "role": role}) for i, role in spans] == [
        True,
        True,
        False,
        False,
        False,
    ]


def made(folder: Path) -> Profiling:
    profiling = Profiling(ASKED, str(folder), lambda: {7})
    profiling.prepare(private=True)
    return profiling


def test_a_secret_may_grow_where_nobody_else_looks(tmp_path: Path) -> None:
    made(tmp_path)
    assert (tmp_path / "profile").stat().st_mode & 0o077 == 0


def test_a_process_that_was_gone_before_the_run_is_not_missed(tmp_path: Path) -> None:
    one = made(tmp_path)
    (tmp_path / "profile/steps-8.jsonl").write_bytes(line(kind="header"))
    (tmp_path / "profile/steps-7.jsonl").write_bytes(line(kind="header") + b"no json\n")
    one.begin()
    with (tmp_path / "profile/steps-7.jsonl").open("ab") as f:
        f.write(line(kind="step", t0=time.monotonic_ns(), i=0, role="worker"))
        f.write(line(kind="flushed", token=1))
    run = tmp_path / "run"
    run.mkdir()
    assert one.collect(str(run), time.monotonic_ns(), time.sleep) is False, "a line is broken"
    told = json.loads((run / "profile.json").read_text())
    assert [
        (p["pid"], p["answered"], p["broken_lines"], p["steps"]) for p in told["processes"]
    ] == [
        (7, True, 1, 1),
        (8, True, 0, 0),
    ]
    assert told["requests_begin_ns"] is None, "there is no run record"


def test_a_full_disk_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(tmp_path)
    one.begin()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(profiling.whole, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        one.collect(str(tmp_path), time.monotonic_ns(), time.sleep)


def test_the_servers_own_path_stays_behind_ours(tmp_path: Path) -> None:
    one = Profiling(ASKED, str(tmp_path), set)
    assert one.env({})["PYTHONPATH"] == profiling.HERE
    assert one.env({"PYTHONPATH": "/a:/b", "X": "1"}) == {
        "PYTHONPATH": f"{profiling.HERE}:/a:/b",
        "X": "1",
        "DECODELAB_PROFILE": f"{tmp_path}/profile/spec.json",
    }
