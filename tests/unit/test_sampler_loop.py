"""A tool in its own loop: its ticks whole, its end told, and when it is worth it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cargo import smi_call, smi_loop, smi_sampler
from cargo.smi_call import Call
from cargo.smi_choice import Choice, Chooser

# Like nvidia-smi on a host where it takes long to start; `ends` ends the loop with half a row.
SLOW = """#!{python} -S
import os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as f:
    f.write(" ".join(words) + "\\n")
if not words:
    print("| NVIDIA-SMI 550.54  Driver Version: 550.54 |")
    sys.exit()
time.sleep({start_s})
loops = [float(w.split("=")[1]) / 1000 for w in words if w.startswith("--loop-ms=")]
fields = words[0].split("=")[1].split(",")
for tick in range(1 if not loops else {ends}):
    for i in range({rows} if loops else 2):
        row = ", ".join("%d" % (i if name == "index" else tick) for name in fields)
        print(row, flush=True)
    time.sleep(loops[0] if loops else 0)
if loops:
    sys.stdout.write("0, 1")
"""


def slow(tmp_path: Path, start_s: float = 0.3, ends: int = 10**6, rows: int = 2) -> Path:
    path = tmp_path / "nvidia-smi"
    facts = {"python": sys.executable, "log": str(tmp_path / "calls")}
    path.write_text(SLOW.format(start_s=start_s, ends=ends, rows=rows, **facts))
    path.chmod(0o755)
    return path


def never() -> bool:
    return False


def ticks(text: str, n: int, interval_s: float = 1.0) -> list[Call]:
    found = []
    loop = smi_loop.ticks(["/bin/sh", "-c", text], dict(os.environ), interval_s, never)
    for done in loop:
        found.append(done)
        if len(found) == n:
            break
    loop.close()
    return found


def after(count: int) -> Callable[[], bool]:
    """True from the so manieth look on."""
    looks = iter(range(10**9))
    return lambda: next(looks) >= count


def test_each_tick_is_a_call_between_its_stamps() -> None:
    text = "while :; do echo 0, 1; echo 1, 2; sleep 0.5; done"
    begin = time.monotonic()
    found = ticks(text, 3)
    assert [done.out for done in found] == [b"0, 1\n1, 2\n"] * 3
    stamps = [stamp for done in found for stamp in (done.m0, done.m1)]
    in_order = [begin, *stamps, time.monotonic()]
    assert in_order == sorted(in_order)
    assert all(done.rc is None and done.trouble == "" for done in found)
    assert found[2].m1 - found[1].m1 >= 0.4


def test_a_row_in_two_pieces_is_never_parted() -> None:
    first, second, *_ = ticks("echo 0, 1; printf '1, '; sleep 0.6; echo 2; sleep 300", 2)
    assert (first.out, second.out) == (b"0, 1\n", b"1, 2\n")


def test_a_loop_that_ends_says_so_and_keeps_half_a_row() -> None:
    (only,) = ticks("echo 0, 1; printf '1, '; echo killed >&2; exit 3", 2)
    assert (only.out, only.err, only.trouble) == (b"0, 1\n1, ", b"killed\n", "its loop ended")


def test_a_daemon_that_holds_the_pipe_does_not_hold_the_loop() -> None:
    (only,) = ticks("sleep 300 & echo x", 2)
    assert (only.out, only.trouble) == (b"x\n", "its loop ended")


def test_a_loop_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_loop, "SILENCE_S", 0.0)
    first, last = ticks("echo x; sleep 300", 3, interval_s=0.6)
    assert first.out == b"x\n" and last.trouble == "silent for 0.6 s"
    assert first.m1 <= last.m0 <= last.m1


def test_a_loop_gone_mad_is_cut() -> None:
    (only,) = ticks("yes", 2)
    assert only.trouble == "out goes on and on" and len(only.out) == 2 << 20


def test_a_loop_that_does_not_start() -> None:
    (only,) = smi_loop.ticks(["/no/such/smi"], {}, 1.0, never)
    assert only.trouble == "No such file or directory"


def test_a_loop_that_even_kill_does_not_end_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Any] = []
    start, ended = smi_call.start, smi_call.ended

    def stays(process: Any) -> bool:
        ended(process)
        return False

    def counted(*words: Any) -> Any:
        starts.append(words)
        return start(*words)

    monkeypatch.setattr(smi_call, "ended", stays)
    monkeypatch.setattr(smi_call, "start", counted)
    monkeypatch.setattr(smi_loop, "SILENCE_S", 0.0)
    fd = os.open(tmp_path / "capture.jsonl", os.O_WRONLY | os.O_CREAT)
    sampler = smi_sampler.Sampler(fd, 1.0, 1 << 20)
    loop = ["/bin/sleep", "100"]
    told = ("nvidia-smi", "auto", "csv", ["/bin/true"], ["index"], loop, [], 0.3, 0.3, [], [])
    sampler.run(Choice(*told), 5.0)
    os.close(fd)
    records = [json.loads(x) for x in (tmp_path / "capture.jsonl").read_text().splitlines()]
    troubles = [record["trouble"] for record in records]
    assert troubles == ["silent for 0.3 s", "its loop is not killable"]
    assert len(starts) == 1 and sampler.dead_end


def test_what_is_here_when_it_is_stopped_is_kept() -> None:
    argv = ["/bin/sh", "-c", "while :; do echo x; sleep 0.02; done"]
    found = list(smi_loop.ticks(argv, dict(os.environ), 1.0, after(200)))
    assert b"".join(done.out for done in found).startswith(b"x\nx\n")
    assert all(done.trouble == "" for done in found)


def choose(tool: Path, interval_s: float) -> Any:
    env = {**os.environ, "PATH": str(tool.parent)}
    return Chooser("nvidia-smi", [], env, interval_s).choose()


def test_it_loops_where_a_call_takes_too_long_for_the_interval(tmp_path: Path) -> None:
    choice = choose(slow(tmp_path), 0.5)
    assert choice.loop == [*choice.argv, "--loop-ms=500"] and choice.interval_s == 0.5
    assert min(choice.cost_s) >= 0.3 and "0.5 s, by the tool's own loop" in choice.tried[-1]
    choice = choose(slow(tmp_path), 600.0)
    assert choice.loop == [] and choice.interval_s == 600.0


@pytest.mark.parametrize(
    ("told", "why"), [({"rows": 1}, "other rows"), ({"ends": 1}, "its loop ended")]
)
def test_a_loop_that_is_not_sure_is_not_used(
    tmp_path: Path, told: dict[str, int], why: str
) -> None:
    choice = choose(slow(tmp_path, **told), 0.5)
    assert choice.loop == [] and choice.interval_s >= 0.9 and why in choice.tried[-2]
    assert "3 times what a call takes" in choice.tried[-1]


def test_the_sampler_starts_a_dead_loop_again_and_ends_with_a_call(tmp_path: Path) -> None:
    out = tmp_path / "capture.jsonl"
    tool = slow(tmp_path, ends=3)
    argv = [sys.executable, "-S", smi_sampler.__file__, "--out", str(out), "--interval", "0.5"]
    process = subprocess.Popen([*argv, "--tool", "nvidia-smi", "--", str(tool)])
    end = time.monotonic() + 60
    while time.monotonic() < end and (not out.exists() or out.read_text().count("ended") < 2):
        time.sleep(0.02)
    told = time.monotonic()
    process.terminate()
    assert process.wait(30) == 0
    head, *records = [json.loads(line) for line in out.read_text().split("\n")[:-1]]
    assert head["loop"] and head["interval_s"] == 0.5
    troubles = [record.get("trouble", "") for record in records]
    assert troubles.count("its loop ended") >= 2 and set(troubles) == {"", "its loop ended"}
    assert records[-1]["rc"] == 0 and records[-1]["m0"] >= told
    assert all(a["m1"] <= b["m1"] for a, b in itertools.pairwise(records))
    halves = [r for r in records if not r["out"].endswith("\n")]
    assert len(halves) == troubles.count("its loop ended"), "half a row comes only at its end"
