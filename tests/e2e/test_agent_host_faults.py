"""The host agent on a host that is in trouble: disks, clocks, locks, locales, dead agents.

Each fault ends in a clear outcome or error with the host's own words; what was finished stays
valid, and the next submit goes on. Mounts need root; without it those tests are skipped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cargo import procs, whole
from tests.e2e.fakes.agent_lab import FAKES, REPO, Lab, digest

KIB = 1024
TRIES = 20


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose working folder is a file system of 6 MB of its own; the cargo lies elsewhere."""
    disk = tmp_path / "small disk"
    disk.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", "size=6m", "none", str(disk))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no right to mount")
    lab = Lab(disk / "work", tmp_path / "cargo")
    left = []
    try:
        yield lab
        left = lab.close()
    finally:
        lab.close()
        run("umount", "-l", str(disk))
    assert left == []


def fill(lab: Lab, leave_kib: int = 0) -> Path:
    """Use up the disk but for so much."""
    filler = lab.workdir.parent / "filler"
    with open(filler, "ab", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(b"x" * 4 * KIB)
    os.truncate(filler, max(0, filler.stat().st_size - leave_kib * KIB))
    return filler


def check_finished(lab: Lab, number: int) -> dict:
    """The outcome; every run it calls done is whole, and no half one counts."""
    outcome = lab.outcome(number)
    assert outcome, lab.log()
    for name, found in outcome["runs"].items():
        if found["attempt"] is None:
            continue
        folder = lab.folder(number) / "runs" / name / found["attempt"]
        done = json.loads((folder / "DONE.json").read_text())
        for file, wanted in done["files"].items():
            assert whole.sha256_of(str(folder / file)) == wanted
        if found["status"] == "done":
            record = json.loads((folder / "run.json").read_text())
            assert record["summary"]["n_ok"] == record["run"]["requests"]
    assert not list((lab.folder(number) / "runs").glob("*/.*"))
    return outcome


# ---------------------------------------------------------------------- disk
def test_a_full_disk_at_submit(small: Lab) -> None:
    small.submit(small.order(1))
    small.until_idle()
    filler = fill(small)
    many = [small.order(number, runs=30) for number in (2, 3)]
    error = small.refused("submit", stdin={"owner": "me", "orders": many})
    assert "No space left on device" in error and "Hint: free space" in error
    status = small.status(1)
    assert status["launch"]["state"] == "finished" and status["queue"] == []
    filler.unlink()
    small.submit(*many[:1])
    small.call("stop", "--wait", "20")
    small.until_idle()
    check_finished(small, 1)


@pytest.mark.parametrize("phase", ["stage", "run_begin", "run_end"])
def test_a_disk_that_fills_up_during_a_launch(small: Lab, phase: str) -> None:
    """While it loads, in its first run, in its second: it ends, says why, and can be taken up."""
    runs = [small.run(17), small.run(18, max_tokens=300, telemetry=True), small.run(19)]
    order, later = small.order(1, "--start-s", "1", runs=runs), small.order(2)
    small.submit(order, later)
    small.until_event(1, phase)
    filler = fill(small)
    small.until_idle()
    outcome = check_finished(small, 1)
    assert (outcome["status"], outcome["reason"]) == ("invalid", "no_space")
    assert "no space left" in outcome["cause"]["root_cause"].lower()
    states = [found["status"] for found in outcome["runs"].values()]
    assert "done" not in states[1:]
    halted = small.status()["halted"]  # the next launch would meet the same disk
    assert halted and "no space left" in halted["reason"].lower()
    assert small.outcome(2) is None
    filler.unlink()
    small.call("forget", "--launch", digest(1), "--purge")
    small.submit(order, later)
    small.until_idle()
    for number in (1, 2):
        again = check_finished(small, number)
        assert again["status"] == "done", (again, small.log())
        assert {found["status"] for found in again["runs"].values()} == {"done"}


def test_a_disk_with_room_for_the_last_words_only(small: Lab) -> None:
    """Results no longer fit when they are sealed; the reserve has room for how it ended."""
    runs = [small.run(17, requests=1), small.run(18, requests=300, concurrency=8, max_tokens=4)]
    small.submit(small.order(1, runs=runs))
    small.until_event(1, "run_end")
    filler = fill(small, leave_kib=32)
    small.until_idle()
    outcome = check_finished(small, 1)
    assert (outcome["status"], outcome["reason"]) == ("invalid", "no_space")
    assert [found["status"] for found in outcome["runs"].values()] == ["done", "not_started"]
    assert small.log().count("Traceback") <= 1
    filler.unlink()


def test_no_room_even_for_the_outcome(small: Lab) -> None:
    """The agent ends in words; the order stays queued, and the next submit goes on with it."""
    order = small.order(1, runs=[small.run(17), small.run(18, max_tokens=400)])
    small.submit(order)
    small.until_event(1, "run_end")
    (small.workdir / "reserve").unlink()
    small.until(lambda: fill(small) and not small.processes(), 40)  # no freed block stays free
    filler = fill(small)
    assert small.outcome(1) is None
    status = small.status(1)
    assert status["agent"]["alive"] is False and status["queue"] == [digest(1)]
    assert "No space left on device" in status["agent"]["trouble"]
    assert len(status["sealed"]) >= 1
    filler.unlink()
    small.submit(order)
    small.until_idle()
    outcome = check_finished(small, 1)
    assert outcome["status"] == "done"
    assert {found["status"] for found in outcome["runs"].values()} == {"done"}
    assert outcome["runs"][digest(17)]["attempt"].endswith("-1")
    assert len([e for e in small.events(1) if e["event"] == "run_end"]) == 2  # none made twice


def test_a_stop_on_a_full_disk(small: Lab) -> None:
    small.submit(small.order(1, runs=[small.run(17), small.run(18, max_tokens=4000)]))
    small.until_event(1, "run_end")
    fill(small)
    assert small.call("stop", "--wait", "30", "--owner", "me")["stopped"] is True
    small.until_idle()
    outcome = check_finished(small, 1)
    assert outcome["runs"][digest(17)]["status"] == "done"


def make_read_only(target: str) -> None:
    """What is open for writing stays so; what was opened between the two mounts forbids the second."""
    for _ in range(TRIES):
        run("mount", "--bind", target, target)
        try:
            return run("mount", "-o", "remount,ro,bind", target)
        except subprocess.CalledProcessError as problem:
            refused = problem
            run("umount", "--lazy", target)
    raise refused


def test_a_disk_that_becomes_read_only(small: Lab) -> None:
    order = small.order(1, runs=[small.run(17), small.run(18, max_tokens=600)])
    small.submit(order)
    small.until_event(1, "run_end")
    target = str(small.workdir)
    make_read_only(target)
    try:
        small.until(lambda: not small.processes(), 40)
        status = small.status(1)
        assert status["agent"]["alive"] is False
        assert "Read-only file system" in status["agent"]["trouble"]
        error = small.refused("submit", stdin={"owner": "me", "orders": [order]})
        assert "Read-only file system" in error and "hosts.<name>.workdir" in error
    finally:
        run("umount", target)
    small.submit(order)
    small.until_idle()
    outcome = check_finished(small, 1)
    assert outcome["status"] == "done"
    assert {found["status"] for found in outcome["runs"].values()} == {"done"}


def test_a_working_folder_that_cannot_be_made(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    lab.workdir = tmp_path / "a file" / "work"
    request = {"owner": "me", "orders": []}
    error = lab.refused("submit", stdin=request)
    assert "Not a directory" in error or "File exists" in error
    assert str(tmp_path / "a file") in error
    if os.getuid() == 0:
        lab.workdir = Path("/proc/none")
        assert "No such file or directory" in lab.refused("submit", stdin=request)
    lab.workdir = tmp_path / "work dir"


# ---------------------------------------------------------------------- /tmp noexec, locales
def test_nothing_is_executed_from_tmp(tmp_path: Path) -> None:
    """With /tmp mounted noexec, in a mount namespace, a launch with a setup script comes to its end."""
    base = Path("/var/tmp") / f"decodelab-test-{os.getpid()}"
    base.mkdir()
    lab = Lab(base / "work")
    try:
        (base / "setup.sh").write_text("export A=1\n")
        order = {**lab.order(1, "--children", "1"), "setup": str(base / "setup.sh")}
        python = os.path.realpath(sys.executable)  # the environment itself may lie in /tmp
        order["server"]["argv"][0] = python
        order["server"]["argv"][2] = str(base / "fake_server.py")
        shutil.copy(FAKES / "fake_server.py", base)
        request = base / "request.json"
        request.write_text(json.dumps({"owner": "me", "orders": [order]}))
        words = f"'{python}' -S '{lab.cargo}/agent.py' submit --workdir '{lab.workdir}'"
        mounted = f"mount -t tmpfs -o noexec none /tmp && exec {words} <'{request}'"
        done = subprocess.run(["unshare", "-m", "sh", "-c", mounted], capture_output=True)
        if b"unshare" in done.stderr or b"mount" in done.stderr:
            pytest.skip("no right to mount")
        assert done.returncode == 0, done.stderr
        lab.until_idle()
        outcome = check_finished(lab, 1)
        assert outcome["status"] == "done", (outcome, lab.log())
    finally:
        assert lab.close() == []
        shutil.rmtree(base)


@pytest.fixture(scope="module")
def gbk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zh_CN.GBK locale of our own."""
    folder = tmp_path_factory.mktemp("locales")
    made = subprocess.run(
        ["localedef", "-i", "zh_CN", "-f", "GBK", str(folder / "zh_CN.GBK")], capture_output=True
    )
    if not (folder / "zh_CN.GBK").exists():
        pytest.skip(f"no locale: {made.stderr.decode()}")
    return folder


@pytest.mark.parametrize("locale", ["C", "POSIX", "zh_CN.GBK"])
def test_the_locale_says_nothing_about_paths_and_texts(
    locale: str, gbk: Path, tmp_path: Path
) -> None:
    lab = Lab(tmp_path / "工作 目录 ü")
    lab.env = {"PATH": os.environ["PATH"], "LC_ALL": locale, "LOCPATH": str(gbk)}
    try:
        if locale == "zh_CN.GBK":
            words = ["-c", "import sys; print(sys.getfilesystemencoding())"]
            told = subprocess.run([sys.executable, *words], env=lab.env, capture_output=True)
            assert told.stdout.strip() == b"gbk"
        script = lab.workdir / "设置.sh"
        script.write_text("export WORD=数据\n")
        order = lab.order(1, "--print-env", env={"OTHER": "größe"}, model="模型")
        answer = lab.submit({**order, "setup": str(script), "label": "变体 ü"}, owner="主人")
        assert answer["queued"] == [digest(1)]
        lab.until_idle()
        outcome = check_finished(lab, 1)
        assert outcome["status"] == "done", (outcome, lab.log())
        (start,) = lab.folder(1).glob("start-*")
        record = json.loads((start / "start.json").read_text())
        assert record["setup"]["path"] == str(script) and record["setup"]["set"] == {"WORD": "数据"}
        log = (start / "server.log").read_text(errors="replace")
        assert "WORD=" in log and str(lab.workdir) in record["argv"]
        assert json.loads((lab.folder(1) / "order.json").read_text())["owner"] == "主人"
    finally:
        assert lab.close() == []


def test_input_that_is_no_utf_8(lab: Lab) -> None:
    argv = [lab.python, "-S", str(lab.cargo / "agent.py"), "submit", "--workdir", str(lab.workdir)]
    done = subprocess.run(argv, input=b'{"owner": "\xff"}', capture_output=True)
    assert done.returncode == 1 and b"not UTF-8, at byte 11" in done.stdout


def python_3_9() -> str | None:
    for path in (*Path.home().glob(".pyenv/versions/3.9*/bin/python"), Path("/usr/bin/python3.9")):
        if path.exists():
            return str(path)
    return None


def test_the_agent_runs_on_python_3_9(lab: Lab) -> None:
    found = python_3_9()
    if found is None:
        pytest.skip("no python 3.9 here")
    lab.python = found
    order = lab.order(1, runs=[lab.run(17, telemetry=True), lab.run(18)])
    lab.submit({**order, "setup": str(REPO / "tests" / "e2e" / "fakes" / "setup.sh")})
    lab.until_idle()
    outcome = check_finished(lab, 1)
    assert outcome["status"] == "done", (outcome, lab.log())


# ---------------------------------------------------------------------- clock
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


@pytest.mark.skipif(FAKETIME is None, reason="no libfaketime")
@pytest.mark.parametrize("step", ["+5h", "-5h"])
def test_a_clock_that_is_stepped_during_a_run(lab: Lab, step: str) -> None:
    """All deadlines are monotonic: nothing ends early or late, and no start is confused.

    On Python 3.9, whose sleep is a select: libfaketime breaks the clock_nanosleep of later ones.
    """
    found = python_3_9()
    if found is None:
        pytest.skip("no python 3.9 here")
    lab.python = found
    stamp = lab.workdir / "clock"
    stamp.write_text("+0\n")
    lab.env = {
        **os.environ,
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }
    runs = [lab.run(17), lab.run(18, max_tokens=400, limit_s=30.0, telemetry=True), lab.run(19)]
    honest = {"LD_PRELOAD": None}  # for the server
    first = lab.order(1, runs=runs, life_s=100.0, env=honest)
    lab.submit(first, lab.order(2, env=honest))
    lab.until(lambda: lab.names(1).count("run_begin") == 2)
    stamp.write_text(step + "\n")
    lab.until_idle()
    outcome, second = check_finished(lab, 1), check_finished(lab, 2)
    assert outcome["status"] == second["status"] == "done"
    assert {found["status"] for found in outcome["runs"].values()} == {"done"}
    for path in lab.folder(1).glob("runs/*/*/run.json"):
        summary = json.loads(path.read_text())["summary"]
        assert 0 < summary["ttft_s"]["p10"] < 60 and summary["decode_rate"]["n"] == 2
    moved = outcome["t_end"] - outcome["t_begin"]
    assert abs(moved) > 4 * 3600  # it was stepped, in the agent's own eyes
    events = lab.events(1)
    assert [e["m"] for e in events] == sorted(e["m"] for e in events)
    assert events[-1]["event"] == "launch_end" and events[-1]["m"] - events[0]["m"] < 100
    assert set(outcome["starts"]).isdisjoint(second["starts"])
    assert lab.status()["kept"] == [digest(1), digest(2)]


# ---------------------------------------------------------------------- dead agents
def test_records_of_another_boot_or_a_reused_pid_touch_nobody(lab: Lab) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    lab.started.append(stranger)
    me = procs.identify(stranger.pid)
    assert me is not None
    (lab.workdir / "live").mkdir(parents=True)
    pair = [me.pid, me.start_time]
    reused = [me.pid, me.start_time - 7]
    for name, boot, who in (("a", "another-boot", pair), ("b", procs.boot_id(), reused)):
        facts = {"mark": name, "log": "/none", "log_id": None, "cwd": "/none", "boot_id": boot}
        facts |= {"agent": {}, "keeper": who, "members": [who]}
        (lab.workdir / "live" / f"{name}.json").write_text(json.dumps(facts))
    for boot, start in (("another-boot", me.start_time), (procs.boot_id(), me.start_time - 7)):
        record = {"pid": me.pid, "start_time": start, "boot_id": boot, "current": digest(9)}
        (lab.workdir / "agent.json").write_text(json.dumps(record))
        assert lab.status()["agent"]["alive"] is False
    lab.submit(lab.order(1))
    lab.until_idle()
    assert check_finished(lab, 1)["status"] == "done"
    assert stranger.poll() is None and list((lab.workdir / "live").iterdir()) == []


# ---------------------------------------------------------------------- the host lock
def test_a_lock_file_of_another_user(lab: Lab, tmp_path: Path) -> None:
    """It may not be written, and holds all the same: the holder is told as someone."""
    place = tmp_path / "locks"
    place.mkdir()
    lock = place / "host.lock"
    lock.write_text("")
    if os.getuid() == 0:  # root may write everything but a read-only mount
        run("mount", "--bind", str(place), str(place))
        run("mount", "-o", "remount,ro,bind", str(place))
    else:
        lock.chmod(0o444)
    try:
        with open(lock) as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            lab.submit(lab.order(1), host_lock=str(lock))
            waiting = lab.until_event(1, "lock_wait")
            assert (waiting["owner"], waiting["since"], waiting["doing"]) == ("someone", None, None)
            time.sleep(0.3)
            assert "start_begin" not in lab.names(1)
        lab.until_idle()
        assert check_finished(lab, 1)["status"] == "done" and lock.read_text() == ""
        assert json.loads((lab.folder(1) / "order.json").read_text())["submitted"][
            "host_lock"
        ] == str(lock)
        missing = str(place / "no.lock")
        lab.submit(lab.order(2), host_lock=missing)
        lab.until_idle()
        outcome = check_finished(lab, 2)
        if os.getuid() == 0:
            assert (outcome["status"], outcome["reason"]) == ("invalid", "lock_unusable")
            assert "Read-only file system" in outcome["cause"]["root_cause"]
    finally:
        if os.getuid() == 0:
            run("umount", str(place))


def test_a_lock_whose_folder_is_missing_is_told_at_once(lab: Lab) -> None:
    request = {"owner": "me", "orders": [lab.order(1)], "host_lock": "/no/such/folder/x.lock"}
    error = lab.refused("submit", stdin=request)
    assert "/no/such/folder" in error and "Hint:" in error
    assert lab.status()["queue"] == []


@pytest.mark.parametrize("wait", ["soon", -1, True])
def test_a_wait_that_is_no_time(lab: Lab, wait: object) -> None:
    request = {"owner": "me", "orders": [lab.order(1)], "lock_wait_s": wait}
    assert "lock_wait_s" in lab.refused("submit", stdin=request)
