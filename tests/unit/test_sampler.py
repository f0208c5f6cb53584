"""The sampler as a process: ticks, stamps, raw text, tools that are missing, slow, mad or hang."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cargo import smi_sampler
from cargo.smi_choice import Choice

SAMPLER = Path(smi_sampler.__file__)


def sh(text: str) -> list[str]:
    """A tool whose command says already what is asked, so that it is called as it is."""
    return ["/bin/sh", "-c", text, "smi", "-q"]


def argv_of(out: Path, *words: str, tool: list[str]) -> list[str]:
    told = () if "--tool" in words else ("--tool", "ixsmi")
    return [sys.executable, "-S", str(SAMPLER), "--out", str(out), *told, *words, "--", *tool]


def sample(tmp_path: Path, *words: str, tool: list[str]) -> tuple[dict[str, Any], list[Any]]:
    out = tmp_path / "capture.jsonl"
    done = subprocess.run(argv_of(out, *words, tool=tool), capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return read(out)


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    head, *records = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return head, records


def wait_for(true: Any) -> None:
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true()


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_raw_text_on_absolute_ticks(tmp_path: Path) -> None:
    tool = ["/bin/echo", "0, 29 %, é", "-q"]
    words = ["--interval", "0.1", "--duration", "0.95", "--source", "simulated"]
    before = time.monotonic()
    head, records = sample(tmp_path, *words, tool=tool)
    assert head["schema"] == "decodelab.capture/1" and head["provenance"] is None
    assert (head["source"], head["tool"]) == ("simulated", "ixsmi")
    assert head["argv"] == tool and head["clock"]["monotonic_s"] >= before
    assert head["wanted_interval_s"] == 0.1 and head["interval_s"] >= 0.1
    assert len(head["cost_s"]) == 3 and set(Choice._fields) <= set(head)
    assert 1 <= len(records) <= 10  # ten ticks; a loaded machine may miss some, never add any
    for record in records:
        assert (record["rc"], record["out"], record["err"]) == (0, "0, 29 %, é -q\n", "")
        assert record["m0"] <= record["m1"] and record["w0"] <= record["w1"]
        assert abs(record["w0"] - time.time()) < 60 and "trouble" not in record
    assert all(a["m1"] <= b["m0"] for a, b in itertools.pairwise(records))


def test_a_slow_tool_is_called_as_often_as_it_can_be(tmp_path: Path) -> None:
    tool = sh("sleep 0.15; echo x")
    head, records = sample(tmp_path, "--interval", "0.1", "--duration", "1.5", tool=tool)
    assert head["wanted_interval_s"] == 0.1 and head["interval_s"] >= 0.45
    assert 1 <= len(records) <= 4
    assert all(a["m1"] <= b["m0"] for a, b in itertools.pairwise(records))


def test_a_missing_tool_is_one_record_that_says_so(tmp_path: Path) -> None:
    head, records = sample(tmp_path, tool=["no-such-smi", "-q"])
    assert head["tool"] == "ixsmi" and head["argv"] == []
    assert head["tried"] == ["no-such-smi: not found"]
    assert len(records) == 1 and records[0]["rc"] is None and "no-such-smi" in records[0]["trouble"]


def test_a_host_without_any_tool_is_no_trouble(tmp_path: Path) -> None:
    head, records = sample(tmp_path, "--tool", "auto", tool=["no-such-smi"])
    assert (head["tool"], head["asked"], records) == ("none", "auto", [])
    assert head["tried"] == ["no-such-smi: not found"]


def test_failures_of_the_tool_are_kept_as_they_are(tmp_path: Path) -> None:
    tool = sh("echo half; echo lost GPU >&2; exit 9")
    _, records = sample(tmp_path, "--duration", "0.1", tool=tool)
    assert (records[0]["rc"], records[0]["out"], records[0]["err"]) == (9, "half\n", "lost GPU\n")


def test_a_call_that_hangs_is_ended_and_what_it_said_is_kept(tmp_path: Path) -> None:
    words = ["--interval", "0.1", "--duration", "0.5", "--call-timeout", "0.3"]
    head, records = sample(tmp_path, *words, tool=sh("echo half; sleep 60"))
    assert head["form"] is None or not head["cost_s"]
    assert 1 <= len(records) <= 2
    assert records[0]["rc"] is None and records[0]["trouble"] == "no answer within 0.3 s"
    assert records[0]["out"] == "half\n" and records[0]["m1"] - records[0]["m0"] >= 0.3


def test_a_tool_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    out, smi = tmp_path / "capture.jsonl", tmp_path / "smi"

    def install() -> None:
        (tmp_path / "new").write_text("#!/bin/sh\necho here\n")
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").rename(smi)

    install()
    process = subprocess.Popen(argv_of(out, "--interval", "0.05", tool=[str(smi), "-q"]))
    wait_for(lambda: lines(out) >= 3)
    smi.unlink()
    wait_for(lambda: "No such file" in out.read_text())
    install()
    seen = lines(out)
    wait_for(lambda: lines(out) >= seen + 3)
    process.terminate()
    assert process.wait(20) == 0
    _, records = read(out)
    assert records[0]["out"] == records[-1]["out"] == "here\n"
    gone = [record for record in records if record["rc"] is None]
    assert gone and {record["trouble"] for record in gone} == {"No such file or directory"}


def test_a_tool_gone_mad_cannot_fill_the_disk(tmp_path: Path) -> None:
    words = ["--interval", "0.05", "--max-bytes", "200000", "--duration", "60"]
    _, records = sample(tmp_path, *words, tool=sh("head -c 50000 /dev/zero | tr '\\0' x"))
    assert len(records) == 4  # three of 50 kB, and one that says why it is the last
    assert [len(record["out"]) for record in records] == [50000] * 3 + [0]
    assert "full" in records[-1]["trouble"]
    assert (tmp_path / "capture.jsonl").stat().st_size < 200000


def test_term_ends_it_after_one_more_call(tmp_path: Path) -> None:
    """The call that runs may have begun before the end of the run; the last one has not."""
    out = tmp_path / "capture.jsonl"
    gate = tmp_path / "gate"
    tool = sh(f"echo; while [ -e {gate} ]; do sleep 0.01; done; echo whole")
    process = subprocess.Popen(argv_of(out, "--interval", "0.05", tool=tool))
    wait_for(lambda: lines(out) >= 2)
    gate.touch()
    seen = lines(out)
    time.sleep(0.5)  # a call runs now, or is about to
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    gate.unlink()
    assert process.wait(20) == 0
    _, records = read(out)
    assert {record["out"] for record in records} == {"\nwhole\n"}
    assert len(records) <= seen + 3 and records[-1]["m0"] >= told > records[-2]["m0"]


def test_term_ends_a_long_pause_at_once(tmp_path: Path) -> None:
    out = tmp_path / "capture.jsonl"
    process = subprocess.Popen(argv_of(out, "--interval", "600", tool=sh("echo x")))
    wait_for(lambda: lines(out) >= 2)
    process.terminate()
    assert process.wait(20) == 0
    assert len(read(out)[1]) == 2


def test_term_while_it_looks_for_a_tool(tmp_path: Path) -> None:
    out, begun = tmp_path / "capture.jsonl", tmp_path / "begun"
    tool = sh(f"touch {begun}; sleep 1; echo x")
    process = subprocess.Popen(argv_of(out, tool=tool))
    wait_for(begun.exists)
    process.terminate()
    assert process.wait(20) == 0
    head, records = read(out)
    assert head["tried"][-1] == "asked to end before a call was found" and len(records) == 1


def test_what_was_chosen_once_is_kept(tmp_path: Path) -> None:
    calls, kept = tmp_path / "calls", tmp_path / "choice.json"
    tool = sh(f"echo x >>{calls}; echo x")
    words = ["--duration", "0.01", "--choice", str(kept)]
    first, _ = sample(tmp_path, *words, tool=tool)
    made = lines(calls)
    second, _ = sample(tmp_path, *words, tool=tool)
    assert lines(calls) == made + 1, "only its sample"
    assert {**second, "clock": 0} == {**first, "clock": 0}
    kept.write_text("{")  # half a file is none
    third, _ = sample(tmp_path, *words, tool=tool)
    assert third["argv"] == first["argv"] and json.loads(kept.read_text())


def test_a_line_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        argv_of(Path("/dev/full"), tool=sh("echo x")), capture_output=True, timeout=60
    )
    assert done.returncode == smi_sampler.NOT_WRITTEN and b"/dev/full" in done.stderr


@pytest.mark.parametrize("data", ["\\377\\376", "\\302\\205", "\\342\\200\\250"])
def test_any_bytes_make_one_line(tmp_path: Path, data: str) -> None:
    _, records = sample(tmp_path, "--duration", "0.01", tool=sh(f"printf 'a{data}b'"))
    wanted = {"\\377\\376": r"a\xff\xfeb", "\\302\\205": "a\x85b", "\\342\\200\\250": "a\u2028b"}
    assert [record["out"] for record in records] == [wanted[data]]
