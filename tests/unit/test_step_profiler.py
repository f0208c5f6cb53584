"""The step profiler inside processes of its own: a fake V0 engine, a device with its own clock, old Pythons."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_engines import write_torch, write_v0

PROFILER = Path(__file__).resolve().parents[2] / "scripts/cargo/profiler"
PREFILL = "[Sequences(True, 7, 0)]"
DECODE = "[Sequences(False, 1, 0)]"
V0_START = """
    from vllm.distributed.parallel_state import GroupCoordinator
    from vllm.engine.llm_engine import LLMEngine
    from vllm.worker.worker import Sequences
    """


class Bench:
    """A folder with a package tree, a specification and what the profiled processes wrote."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / "tree"
        self.tree.mkdir()
        self.spec: dict[str, Any] = {"schema": "decodelab.profile_spec/1", "mode": "event"}
        self.spec.update(regions={}, skip=[], timeline_steps=2, folder=str(root / "profile"))

    def env(self, profiled: bool = True) -> dict[str, str]:
        (self.root / "spec.json").write_text(json.dumps(self.spec), encoding="utf-8")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DECODELAB"))}
        env["PYTHONPATH"] = f"{PROFILER}:{self.tree}"
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        return env | ({"DECODELAB_PROFILE": str(self.root / "spec.json")} if profiled else {})

    def run(self, code: str, python: str = sys.executable, profiled: bool = True) -> str:
        """What the code printed; raises with its words when it failed."""
        call = subprocess.run(
            [python, "-c", textwrap.dedent(code)],
            env=self.env(profiled),
            capture_output=True,
            text=True,
        )
        assert call.returncode == 0 and not call.stderr, call.stderr
        return call.stdout

    def files(self) -> list[list[dict[str, Any]]]:
        found = sorted(
            (self.root / "profile").glob("steps-*.jsonl"), key=lambda p: p.stat().st_mtime
        )
        return [[json.loads(line) for line in p.read_text().splitlines()] for p in found]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for lines in self.files() for line in lines if line["kind"] == kind]

    def steps(self, role: str, phase: str | None = None) -> list[dict[str, Any]]:
        mine = [s for s in self.lines("step") if s["role"] == role]
        return [s for s in mine if phase in (None, s["phase"])]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def v0(bench: Bench) -> Bench:
    write_v0(bench.tree)
    return bench


def drive(orders: str, engine: str = "LLMEngine", group: str = "GroupCoordinator(2)") -> str:
    return textwrap.dedent(V0_START) + textwrap.dedent(f"""
        engine = {engine}({group}, {orders})
        while engine.scheduler.orders:
            assert engine.step() == [0]
        """)


# ------------------------------------------------------------------ the table of V0
def test_v0_counts_what_was_called_and_closes_exactly(v0: Bench) -> None:
    v0.run(drive(f"[{PREFILL}] + [{DECODE}] * 20"))
    worker = v0.steps("worker")
    assert [s["phase"] for s in worker] == ["prefill"] + ["decode"] * 20
    assert [s["i"] for s in worker] == list(range(21))  # the profiling pass before is no step
    assert [s["tokens"] for s in worker][:2] == [7, 1]
    for step in worker:
        calls = {name: row[0] for name, row in step["regions"].items()}
        assert calls == {
            "prepare": 1,
            "handover": 1,
            "forward": 1,
            "attention": 3,
            "moe": 3,
            "collective": 3,
            "mlp": 3,
            "logits": 1,
            "sampler": 1,
            "sync": 1,
        }
        named = sum(row[2] for row in step["regions"].values())
        assert named + step["self"] == step["t1"] - step["t0"]
        assert len(step["calls"]["collective"]) == 3


def test_v0_exclusive_times_are_those_that_the_parts_took(v0: Bench) -> None:
    v0.run(drive(f"[{DECODE}] * 30"))
    least = {
        "attention": 0.9,
        "moe": 1.5,
        "collective": 0.6,
        "logits": 0.1,
        "sampler": 0.1,
        "mlp": 0.15,
    }
    for region, ms in least.items():
        found = sorted(s["regions"][region][2] for s in v0.steps("worker", "decode"))
        assert found[0] >= ms * 1e6
        assert found[len(found) // 4] < ms * 1.3e6 + 1e5  # a loaded machine only adds


def test_v0_engine_in_the_same_process_has_the_workers_time_taken_off(v0: Bench) -> None:
    v0.run(drive(f"[{PREFILL}] + [{DECODE}] * 5"))
    engine, worker = v0.steps("engine"), v0.steps("worker")
    assert [s["phase"] for s in engine] == [s["phase"] for s in worker]
    for mine, its in zip(engine, worker, strict=True):
        assert set(mine["regions"]) == {"scheduler", "handover", "output"}
        calls, inclusive, exclusive = mine["regions"]["handover"]
        assert calls == 1 and inclusive - exclusive >= its["t1"] - its["t0"]
        named = sum(row[2] for row in mine["regions"].values()) + mine["self"]
        assert named + (inclusive - exclusive) == mine["t1"] - mine["t0"]


def test_v0_model_and_targets_are_told(v0: Bench) -> None:
    v0.spec["regions"] = {
        "mine": "vllm.model_executor.models.tiny:TinyForCausalLM.nothing",
        "whose": "vllm.model_executor.models.tiny:Nobody.forward",
        "bad": "not a target",
    }
    v0.run(drive(f"[{DECODE}]"))
    (model,) = v0.lines("model")
    assert model["config"] == {"num_hidden_layers": 3, "num_experts": 8, "rope": {"theta": 1.0}}
    assert (model["enforce_eager"], model["tp_size"], model["tp_rank"]) == (True, 2, None)
    assert model["modules"] == {"attention": 3, "moe": 3, "mlp": 3}
    told = {t["target"]: t for t in v0.lines("target")}
    assert told["vllm.worker.model_runner:CUDAGraphRunner.forward"]["found"]
    assert told["vllm.model_executor.models.tiny:TinyMLP.forward"]["era"] == "model"
    assert told["vllm.attention.layer:MLAAttention.forward"]["why"] == "no such class"
    assert (
        told["vllm.model_executor.models.tiny:TinyForCausalLM.nothing"]["why"] == "no such method"
    )
    assert told["vllm.model_executor.models.tiny:Nobody.forward"]["why"] == "no such class"
    assert any("bad" in line["text"] for line in v0.lines("trouble"))
    kinds = [line["kind"] for line in v0.files()[0]]
    assert kinds[:2] == ["header", "table"] and kinds[-1] == "end"


def test_v0_other_rank_begins_its_step_when_the_order_has_come(v0: Bench) -> None:
    v0.run(
        textwrap.dedent(V0_START)
        + textwrap.dedent("""
        import queue, threading, time
        from vllm.worker.worker import Order, Worker
        inbox = queue.Queue()
        driver = Worker(GroupCoordinator(2))
        driver.group.broadcast_tensor_dict = inbox.put
        other = Worker(GroupCoordinator(2, inbox))
        def loop():
            while other.execute_model(None) is not None:
                pass
        thread = threading.Thread(target=loop)
        thread.start()
        for groups in ([Sequences(True, 7, 0)], [Sequences(False, 1, 0), Sequences(False, 1, 0)]):
            time.sleep(0.3)
            driver_input = driver.model_runner.prepare_model_input(groups)
            inbox.put(driver_input)
        inbox.put({})
        thread.join()
        """)
    )
    worker = v0.steps("worker")
    assert [(s["phase"], s["reqs"], s["tokens"]) for s in worker] == [
        ("prefill", 1, 7),
        ("decode", 2, 2),
    ]
    for step in worker:
        assert step["t1"] - step["t0"] < 250e6  # without the 0.3 s that it waited
        assert sum(r[2] for r in step["regions"].values()) + step["self"] == step["t1"] - step["t0"]


def test_a_step_that_raised_is_told_apart_and_the_error_is_the_engines_own(v0: Bench) -> None:
    out = v0.run(
        textwrap.dedent(V0_START)
        + textwrap.dedent("""
        engine = LLMEngine(GroupCoordinator(1), [[Sequences(False, 1, "bad")], [Sequences(False, 1, 0)]])
        try:
            engine.step()
        except ZeroDivisionError as fault:
            print(fault)
        engine.step()
        """)
    )
    assert out.strip() == "a forward that fails"
    assert [s.get("failed", False) for s in v0.steps("worker")] == [True, False]
    assert all("collective" not in s["regions"] for s in v0.steps("worker"))  # one rank: none


def test_awaited_executor_is_a_handover_and_other_tasks_are_not_of_the_step(v0: Bench) -> None:
    v0.run(
        textwrap.dedent(V0_START)
        + textwrap.dedent(f"""
        import asyncio
        from vllm.engine.async_llm_engine import _AsyncLLMEngine
        async def main():
            async def steps():
                engine = _AsyncLLMEngine(GroupCoordinator(2), [{DECODE}] * 4)
                while engine.scheduler.orders:
                    assert await engine.step_async() == [0]
            await asyncio.gather(steps(), steps())
        asyncio.run(main())
        """)
    )
    engine = v0.steps("engine")
    assert len(engine) == 8
    for step in engine:
        assert step["regions"]["handover"][0] == step["regions"]["scheduler"][0] == 1
        assert step["regions"]["handover"][2] >= 1.9e6  # it slept for 2 ms
        assert step["self"] >= 0


def test_skip_and_a_region_of_the_user(v0: Bench) -> None:
    v0.spec["skip"] = ["attention", "mlp"]
    v0.spec["regions"] = {"kernel": "vllm.attention.backends.flash_attn:FlashAttentionImpl.forward"}
    v0.run(drive(f"[{DECODE}] * 2"))
    for step in v0.steps("worker"):
        assert "attention" not in step["regions"] and "mlp" not in step["regions"]
        assert step["regions"]["kernel"][0] == 3
    assert not any(row[0] in ("attention", "mlp") for row in v0.lines("table")[0]["targets"])


def test_timeline_keeps_the_first_steps_after_quiet(v0: Bench) -> None:
    code = drive(f"[{PREFILL}] + [{DECODE}] * 5").rstrip()
    again = f"\nimport time\ntime.sleep(0.3)\nengine.scheduler.orders += [{DECODE}] * 5\n"
    v0.run(code + again + "while engine.scheduler.orders: engine.step()\n")
    kept = [line for line in v0.lines("spans") if line["role"] == "worker"]
    assert [line["i"] for line in kept] == [1, 2, 6, 7]
    steps = {s["i"]: s for s in v0.steps("worker")}
    for line in kept:
        assert len(line["spans"]) == sum(r[0] for r in steps[line["i"]]["regions"].values())
        forward = next(s for s in line["spans"] if s[0] == "forward")
        inner = [s for s in line["spans"] if s[0] in ("attention", "moe", "mlp")]
        assert len(inner) == 9
        assert all(
            s[1] == forward[1] + 1 and forward[2] <= s[2] <= s[3] <= forward[3] for s in inner
        )


def test_timeline_is_kept_again_under_load(v0: Bench) -> None:
    """The first steps after a quiet period are the warm-up's, which readers drop."""
    soon = "import decodelab_profiler.recorder as recorder\nrecorder.AGAIN_NS = 0\n"
    v0.run(soon + textwrap.dedent(drive(f"[{PREFILL}] + [{DECODE}] * 5")))
    kept = [line["i"] for line in v0.lines("spans") if line["role"] == "worker"]
    assert kept == [1, 2, 3, 4, 5]


# ------------------------------------------------------------------ a device with its own clock
def on_device(orders: str) -> str:
    return (
        "import torch\n"
        + textwrap.dedent(V0_START)
        + textwrap.dedent(f"""
        engine = LLMEngine(GroupCoordinator(2), {orders}, torch.device("cuda"))
        while engine.scheduler.orders:
            torch.cuda.waits = 0
            assert engine.step() == [0]
            print(torch.cuda.waits, torch.cuda.Event.made)
        """)
    )


def test_event_mode_times_the_device_with_one_synchronise_a_step(v0: Bench) -> None:
    write_torch(v0.tree)
    out = v0.run(on_device(f"[{DECODE}] * 10"))
    waits, made = zip(*(map(int, line.split()) for line in out.splitlines()), strict=True)
    assert set(waits) == {2}  # the engine's own and ours
    assert made[-1] == made[0]  # events are used again
    for step in v0.steps("worker"):
        device = step["device"]
        calls = step["calls"]["collective"]
        assert len(calls) == 3 and sum(calls) == device["collective"][1]
        inner = device["moe"][1] - device["moe"][2]
        assert inner == device["collective"][1]
        begin, took = step["device_span"]
        assert sum(row[2] for row in device.values()) <= took
        assert begin >= 0 and took >= 3.35e6
        assert step["sync_ns"] >= 0
    # A host that was kept waiting lets the device idle inside a region: the least is what was queued.
    truth = {"moe": 1.5e6, "collective": 0.6e6, "attention": 0.9e6, "mlp": 0.15e6, "logits": 0.1e6}
    for region, ns in truth.items():
        least = min(s["device"][region][2] for s in v0.steps("worker"))
        assert ns * 0.999 <= least <= ns * 1.05 + 1e4
    assert (
        min(s["regions"]["moe"][2] for s in v0.steps("worker")) < 0.5e6
    )  # the host only queues it
    spans = [line for line in v0.lines("spans") if line["role"] == "worker"]
    steps = {s["i"]: s for s in v0.steps("worker")}
    for line in spans:
        assert all(s[2] >= steps[line["i"]]["t0"] - 1e5 for s in line["device_spans"])
        depth = {s[0]: s[1] for s in line["device_spans"]}
        assert depth["collective"] == depth["moe"] + 1 == depth["forward"] + 2


def test_sync_mode_puts_the_devices_time_on_the_clock(v0: Bench) -> None:
    write_torch(v0.tree)
    v0.spec["mode"] = "sync"
    v0.run(on_device(f"[{DECODE}] * 10"))
    for step in v0.steps("worker"):
        assert "device" not in step
        assert step["regions"]["moe"][2] >= 1.5e6 and step["regions"]["attention"][2] >= 0.9e6


def test_a_device_that_cannot_be_timed_does_not_stop_the_engine(v0: Bench) -> None:
    write_torch(v0.tree)
    broken = "import torch\ndef fail(self): raise RuntimeError('no events here')\n"
    code = on_device(f"[{DECODE}] * 3").replace("import torch\n", broken, 1)
    v0.run(code.replace("engine = ", "torch.cuda.Event.record = fail\nengine = ", 1))
    assert len(v0.steps("worker")) == 3
    assert not any("device" in s for s in v0.steps("worker"))
    assert all(
        s["untimed"] for s in v0.steps("worker")
    )  # the host's times alone are none of the step
    assert any("no events here" in line["text"] for line in v0.lines("trouble"))


# ------------------------------------------------------------------ the file
def test_without_the_variable_nothing_is_wrapped_and_nothing_written(v0: Bench) -> None:
    code = drive(f"[{DECODE}]") + "\nprint(hasattr(LLMEngine.step, '__wrapped__'))\n"
    code += "import sys\nprint('decodelab_profiler' in sys.modules)\n"
    assert v0.run(code, profiled=False).split() == ["False", "False"]
    assert not (v0.root / "profile").exists()


def test_a_process_without_an_engine_leaves_no_file(bench: Bench) -> None:
    bench.spec["regions"] = {"bad": "nonsense"}
    bench.run("import json, multiprocessing.util")
    assert not (bench.root / "profile").exists()


def test_an_unreadable_specification_is_told_and_the_server_runs(bench: Bench) -> None:
    env = bench.env() | {"DECODELAB_PROFILE": str(bench.root / "none.json")}
    call = subprocess.run(
        [sys.executable, "-c", "print(1)"], env=env, capture_output=True, text=True
    )
    assert call.stdout == "1\n" and "did not start" in call.stderr


def test_the_next_sitecustomize_still_runs(bench: Bench) -> None:
    (bench.tree / "sitecustomize.py").write_text("import sys\nsys.seen_other = True\n")
    for profiled in (True, False):
        code = "import sys, sitecustomize\nprint(sys.seen_other, sitecustomize.__file__)"
        out = bench.run(code, profiled=profiled).split()
        assert out == ["True", str(bench.tree / "sitecustomize.py")]


def test_flush_is_answered_after_all_steps_before_it(v0: Bench) -> None:
    token = f"""
        import json, os, time
        folder = {str(v0.root / "profile")!r}
        with open(folder + "/new", "w") as file:
            json.dump({{"token": 41}}, file)
        os.rename(folder + "/new", folder + "/flush.json")
        path = folder + "/steps-%d.jsonl" % os.getpid()
        while not os.path.exists(path) or '"flushed"' not in open(path).read():
            time.sleep(0.02)
        print(open(path).read().splitlines()[-1])
        """
    code = drive(f"[{DECODE}] * 50")
    code = f"import os\nos.makedirs({str(v0.root / 'profile')!r})\n" + code
    assert json.loads(v0.run(code + textwrap.dedent(token))) == {"kind": "flushed", "token": 41}
    kinds = [line["kind"] for line in v0.files()[0]]
    at = kinds.index("flushed")
    assert kinds[:at].count("step") == 100 and kinds[at + 1 :] == ["end"]


def test_kill_loses_at_most_the_last_buffer(v0: Bench) -> None:
    code = drive(f"[{DECODE}] * 100000")
    (v0.root / "code.py").write_text(code)
    process = subprocess.Popen([sys.executable, str(v0.root / "code.py")], env=v0.env())
    path = v0.root / f"profile/steps-{process.pid}.jsonl"
    while not path.exists() or path.stat().st_size < 40_000:
        assert process.poll() is None
        time.sleep(0.02)
    killed = time.monotonic_ns()
    process.send_signal(signal.SIGKILL)
    process.wait()
    text = path.read_text()
    assert text.endswith("\n")  # whole lines
    worker = [s["i"] for s in v0.steps("worker")]
    assert worker == list(range(len(worker))) and len(worker) > 10
    assert killed - v0.steps("worker")[-1]["t1"] < 2e9  # 0.2 s on a machine that is not loaded


def test_overflow_is_counted_never_silent(v0: Bench) -> None:
    code = drive(f"[{DECODE}] * 8")
    small = (
        "from decodelab_profiler import writer\nwriter.MOST_STEPS = 60\nwriter.WRITE_EVERY_S = 60\n"
    )
    v0.run(small + code)
    (dropped,) = v0.lines("dropped")
    assert len(v0.lines("step")) + dropped["steps"] == 16 and dropped["steps"] > 0


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing fork", "multiprocessing spawn"])
def test_a_child_has_a_file_of_its_own(v0: Bench, how: str) -> None:
    start, end = (
        (
            "child = os.fork()\nif not child:\n    work(2)\n    import sys; sys.exit(0)",
            "os.waitpid(child, 0)",
        )
        if how == "os.fork"
        else (
            f"child = multiprocessing.get_context({how.split()[1]!r}).Process(target=work, args=(2,))\n"
            "child.start()",
            "child.join()",
        )
    )
    body = drive(f"[{DECODE}] * n").replace("\n", "\n    ")
    code = f"import os, multiprocessing\ndef work(n):\n    {body}\n"
    code += "if __name__ == '__main__':\n    work(3)\n"
    code += textwrap.indent(f"{start}\nwork(4)\n{end}\n", "    ")
    (v0.root / "code.py").write_text(code)
    call = subprocess.run(
        [sys.executable, "-W", "ignore", str(v0.root / "code.py")],
        env=v0.env(),
        capture_output=True,
        text=True,
    )
    assert call.returncode == 0 and not call.stderr
    counts = {}
    for lines in v0.files():
        assert lines[0]["kind"] == "header" and lines[-1]["kind"] == "end"
        worker = [s["i"] for s in lines if s["kind"] == "step" and s["role"] == "worker"]
        assert worker == list(range(len(worker)))
        assert any(t["kind"] == "target" and t["found"] for t in lines)
        counts[lines[0]["ppid"]] = len(worker)
    assert sorted(counts.values()) == [2, 7]


# ------------------------------------------------------------------ what may be a target
def test_generators_coroutines_and_bound_kinds(bench: Bench) -> None:
    (bench.tree / "engine.py").write_text(
        textwrap.dedent("""
        import time
        def work():
            time.sleep(0.002)
        class Worker:
            def execute_model(self, order):
                stream = self.stream()
                assert next(stream) == 1
                time.sleep(1)  # of the consumer
                assert stream.send("x") == "x"
                try:
                    next(stream)
                except StopIteration as end:
                    assert end.value == "end"
                stream = self.stream()
                next(stream)
                try:
                    stream.throw(KeyError("k"))
                except KeyError:
                    pass
                assert self.fixed(3) == 3 and type(self).made(4) == (type(self), 4)
                return "done"
            def stream(self):
                work()
                sent = yield 1
                work()
                yield sent
                return "end"
            @staticmethod
            def fixed(x):
                return x
            @classmethod
            def made(cls, x):
                return cls, x
            value = 7
        class Order:
            phase, reqs, tokens = "decode", 1, 1
        """)
    )
    rows = (
        "from decodelab_profiler import targets\n"
        "targets.TARGETS[:] = [targets.Target('worker', 'step', 'sim', 'engine', 'Worker.execute_model')]\n"
    )
    names = {"stream": "stream", "fixed": "fixed", "made": "made", "value": "value"}
    bench.spec["regions"] = {k: f"engine:Worker.{v}" for k, v in names.items()}
    # The table is read when the profiler starts, so it is started once more with the other one.
    code = (
        rows
        + f"import decodelab_profiler\ndecodelab_profiler.start({str(bench.root / 'spec.json')!r})\n"
    )
    code += "import engine\nassert engine.Worker().execute_model(engine.Order()) == 'done'\n"
    env = bench.env()
    env.pop("DECODELAB_PROFILE")
    call = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert call.returncode == 0, call.stderr
    (step,) = bench.steps("worker")
    assert 4e6 <= step["regions"]["stream"][2] < 1e9  # without its consumer's time
    assert step["regions"]["fixed"][0] == step["regions"]["made"][0] == 1
    told = {t["region"]: t["why"] for t in bench.lines("target")}
    assert told["value"] == "no such method"


def test_what_binds_in_another_way_goes_on_to_do_so(bench: Bench) -> None:
    """Inherited class and static methods, callables that take no instance; what a function cannot stand for is left."""
    (bench.tree / "engine.py").write_text(
        textwrap.dedent("""
        import functools
        import operator
        class Base:
            @staticmethod
            def fixed(x):
                return x
            @classmethod
            def made(cls, x):
                return cls, x
        class Layer(Base):
            class Inner:
                def run(self):
                    return "inner"
            class Part:
                pass
            plus = operator.add
            half = functools.partial(operator.mul, 2)
            @functools.lru_cache(maxsize=4)
            def kept(self, x):
                return x
            def plain(self):
                return "plain"
        def check():
            layer = Layer()
            assert layer.fixed(3) == Layer.fixed(3) == 3
            assert layer.made(4) == Layer.made(4) == (Layer, 4) and Base.made(5) == (Base, 5)
            assert layer.plus(1, 2) == 3 and layer.half(4) == 8
            assert layer.kept(5) == 5 and Layer.kept.cache_info().currsize == 1
            assert isinstance(Layer.Part(), Layer.Part) and Layer.Inner().run() == "inner"
            assert layer.plain() == "plain"
        """)
    )
    names = ("fixed", "made", "plus", "half", "kept", "Part", "Inner.run", "plain", "__init__")
    bench.spec["regions"] = {name: f"engine:Layer.{name}" for name in names}
    bench.spec["regions"]["again"] = "engine:Layer.plain"
    bench.spec["regions"]["c"] = "array:array.append"
    bench.run("import engine, array\nengine.check()\n")
    told = {t["region"]: t["why"] for t in bench.lines("target")}
    assert {name for name, why in told.items() if why is None} == {
        *("fixed", "made", "plus", "half", "Inner.run", "plain")
    }
    assert told["kept"] == told["Part"] == "no plain method"
    assert told["__init__"] == "no such method" and told["again"] == "timed as plain already"
    assert "immutable type" in told["c"] or "built-in" in told["c"]


def test_a_module_that_was_only_looked_for_is_seen_when_it_is_imported(v0: Bench) -> None:
    v0.run("""
        import importlib.util
        assert importlib.util.find_spec("vllm.core.scheduler").loader is not None
        try:
            importlib.util.find_spec("vllm.core.missing")
        except ModuleNotFoundError:
            pass
        import vllm.core.scheduler
        """)
    (one,) = [t for t in v0.lines("target") if t["region"] == "scheduler"]
    assert one["found"]


def test_a_finder_that_asks_all_others_again_meets_ours_once(v0: Bench) -> None:
    v0.run("""
        import importlib.util, sys
        class Asks:
            busy = False
            def find_spec(self, name, path=None, target=None):
                if Asks.busy:
                    return None
                Asks.busy = True
                try:
                    return importlib.util.find_spec(name)
                finally:
                    Asks.busy = False
        sys.meta_path.insert(1, Asks())
        import vllm.core.scheduler
        """)
    assert [t["found"] for t in v0.lines("target") if t["region"] == "scheduler"] == [True]


def test_an_imported_module_keeps_its_loader_and_source(v0: Bench) -> None:
    out = v0.run("""
        import inspect, importlib, pickle
        import vllm.core.scheduler as module
        print(type(module.__spec__.loader).__name__, type(module.__loader__).__name__)
        print(inspect.getsource(module).count("class Scheduler"))
        print(pickle.loads(pickle.dumps(module.Scheduler.schedule)) is module.Scheduler.schedule)
        try:
            import vllm.core.missing
        except ModuleNotFoundError as fault:
            print(fault.name)
        """)
    assert out.split() == ["SourceFileLoader"] * 2 + ["1", "True", "vllm.core.missing"]


PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
OTHERS = [p for p in PYENV.glob("versions/3.*/bin/python") if int(p.parts[-3].split(".")[1]) >= 8]
PYTHONS = [Path(sys.executable), *sorted(OTHERS)]


@pytest.mark.parametrize("python", PYTHONS, ids=lambda p: p.parts[-3])
def test_every_python_of_the_eras_can_load_it(v0: Bench, python: Path) -> None:
    v0.run(drive(f"[{PREFILL}] + [{DECODE}] * 3"), python=str(python))
    assert len(v0.steps("worker")) == 4
    assert v0.steps("worker", "decode")[0]["regions"]["attention"][0] == 3


# ------------------------------------------------------------------ the page
def test_the_page_has_the_table_of_targets() -> None:
    from cargo.profiler.decodelab_profiler.targets import MODEL_CLASSES, TARGETS

    rows = ["| era | kind | region | target |", "|---|---|---|---|"]
    rows += [f"| {t.era} | {t.kind} | {t.region} | `{t.module}:{t.name}` |" for t in TARGETS]
    rows += [
        f"| model | region | {r} | classes of the model called `*{e}` |"
        for r, e in MODEL_CLASSES.items()
    ]
    page = Path(__file__).resolve().parents[2] / "docs/step-profiler.md"
    mark = "test_step_profiler.py -->\n"
    head, _, _ = page.read_text(encoding="utf-8").partition(mark)
    text = head + mark + "\n" + "\n".join(rows) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text


def test_every_region_of_the_table_is_in_the_vocabulary() -> None:
    from cargo.profiler.decodelab_profiler.targets import TARGETS
    from decodelab.step_regions import REGIONS

    timed = {t.region for t in TARGETS if t.kind in ("region", "around")}
    # the engine's own time, a model's classes, of traces
    assert timed == set(REGIONS) - {"engine", "mlp", "launch_gap"}
