"""The SMI sampler by itself: ticks, stamps, raw text, tools that are missing, slow or hang."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SAMPLER = Path(__file__).resolve().parents[2] / "scripts" / "cargo" / "smi_sampler.py"


def sample(tmp_path: Path, *words: str, tool: list[str]) -> tuple[dict[str, Any], list[Any]]:
    out = tmp_path / "capture.jsonl"
    argv = [sys.executable, "-S", str(SAMPLER), "--out", str(out), *words, "--", *tool]
    done = subprocess.run(argv, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")
    return read(out)


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    head, *records = [json.loads(line) for line in path.read_text().splitlines()]
    return head, records


def test_raw_text_on_absolute_ticks(tmp_path: Path) -> None:
    tool = ["/bin/echo", "-n", "0, 29 %, é"]
    words = ["--interval", "0.1", "--duration", "0.95", "--source", "simulated", "--tool", "ixsmi"]
    before = time.monotonic()
    head, records = sample(tmp_path, *words, tool=tool)
    assert head["schema"] == "decodelab.capture/1" and head["provenance"] is None
    assert (head["source"], head["tool"], head["interval_s"]) == ("simulated", "ixsmi", 0.1)
    assert head["argv"] == tool and head["clock"]["monotonic_s"] >= before
    assert 5 <= len(records) <= 10  # ten ticks; a loaded machine may miss some, never add any
    for record in records:
        assert (record["rc"], record["out"], record["err"]) == (0, "0, 29 %, é", "")
        assert record["m0"] <= record["m1"] and abs(record["w0"] - time.time()) < 60
        tick = (record["m0"] - records[0]["m0"]) / 0.1
        assert tick > -0.2
    assert all(a["m1"] <= b["m0"] for a, b in itertools.pairwise(records))


def test_a_slow_tool_skips_ticks_and_never_overlaps(tmp_path: Path) -> None:
    tool = ["/bin/sh", "-c", "sleep 0.15; echo x"]
    _, records = sample(tmp_path, "--interval", "0.1", "--duration", "1.5", tool=tool)
    assert 2 <= len(records) <= 8
    assert all(a["m1"] <= b["m0"] for a, b in itertools.pairwise(records))


def test_a_missing_tool_is_one_record_that_says_so(tmp_path: Path) -> None:
    head, records = sample(tmp_path, tool=["no-such-smi", "-q"])
    assert head["argv"] == ["no-such-smi", "-q"]
    assert len(records) == 1 and records[0]["rc"] is None and "no-such-smi" in records[0]["err"]


def test_failures_of_the_tool_are_kept_as_they_are(tmp_path: Path) -> None:
    tool = ["/bin/sh", "-c", "echo half; echo lost GPU >&2; exit 9"]
    _, records = sample(tmp_path, "--duration", "0.1", tool=tool)
    assert (records[0]["rc"], records[0]["out"], records[0]["err"]) == (9, "half\n", "lost GPU\n")


def test_a_call_that_hangs_is_ended(tmp_path: Path) -> None:
    words = ["--interval", "0.1", "--duration", "0.5", "--call-timeout", "0.3"]
    _, records = sample(tmp_path, *words, tool=["/bin/sleep", "60"])
    assert 1 <= len(records) <= 2
    assert records[0]["rc"] is None and records[0]["err"] == "no answer within 0.3 s"
    assert 0.3 <= records[0]["m1"] - records[0]["m0"] < 3


def test_term_ends_it_after_the_call_that_runs(tmp_path: Path) -> None:
    out = tmp_path / "capture.jsonl"
    tool = ["/bin/sh", "-c", "sleep 0.4; echo whole"]
    argv = [sys.executable, "-S", str(SAMPLER), "--out", str(out), "--interval", "30", "--", *tool]
    process = subprocess.Popen(argv)
    end = time.monotonic() + 10
    while (not out.exists() or not out.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)  # the first call runs now
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    _, records = read(out)
    assert [record["out"] for record in records] == ["whole\n"]


def test_term_ends_a_long_pause_at_once(tmp_path: Path) -> None:
    out = tmp_path / "capture.jsonl"
    argv = [sys.executable, "-S", str(SAMPLER), "--out", str(out), "--interval", "60", "--", "true"]
    process = subprocess.Popen(argv)
    end = time.monotonic() + 10
    while (not out.exists() or out.read_text().count("\n") < 2) and time.monotonic() < end:
        time.sleep(0.01)
    begin = time.monotonic()
    process.terminate()
    assert process.wait(10) == 0 and time.monotonic() - begin < 2
