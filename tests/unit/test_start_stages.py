"""Stages of a start: told from the lines of V0 and V1, limited, never backwards."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_config import SMALL

from cargo import start_stages
from cargo.start_stages import LIMITED, NAMES, STAGES, StageWatch
from decodelab import config, forecast, plan, start_orders
from decodelab.progress import Progress
from decodelab.shape import schema
from decodelab.store import Store

REPO = Path(__file__).resolve().parents[2]
LIMITS: dict[str, Any] = {"start_s": 10_000, "silence_s": 300, "probe_s": 60}
WORKER = "\x1b[1;36m(VllmWorkerProcess pid=49045)\x1b[0;0m "

# (line, the stage that it begins, or None), in the order of a start
V0 = [  # 0.6.3 on CoreX, TP 4
    ("INFO 07-12 09:51:10 importing.py:10] Triton not installed; certain GPU functions", None),
    ("INFO 07-12 09:51:17 api_server.py:530] vLLM API server version 0.6.3", "engine_init"),
    (
        "INFO 07-12 09:51:17 api_server.py:531] args: Namespace(host='0.0.0.0', port=8000, "
        "max_model_len=100000, max_seq_len_to_capture=8192, enforce_eager=False)",
        None,
    ),
    (
        "INFO 07-12 09:51:28 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: "
        "model='/m', dtype=torch.float16, max_seq_len=100000, enforce_eager=True",
        None,
    ),
    ("INFO 07-12 09:51:28 selector.py:115] Using XFormers backend.", None),
    (WORKER + "INFO 07-12 09:51:37 multiproc_worker_utils.py:216] Worker ready; awaiting", None),
    ("INFO 07-12 09:51:38 model_runner.py:1065] Starting to load model /m...", "weights"),
    (WORKER + "INFO 07-12 09:51:38 selector.py:115] Using XFormers backend.", None),
    ("Loading safetensors checkpoint shards:   4% Completed | 1/26 [00:01<00:41,  1.64s/it]", None),
    (
        WORKER + "INFO 07-12 09:52:15 model_runner.py:1076] Loading model weights took 16.2 GB",
        "kv_cache",
    ),
    ("Loading safetensors checkpoint shards: 100% Completed | 26/26 [00:36<00:00]", None),
    ("INFO 07-12 09:52:25 distributed_gpu_executor.py:57] # GPU blocks: 18275, # CPU blocks", None),
    (
        "INFO 07-12 09:52:26 model_runner.py:1402] Capturing the model for CUDA graphs.",
        "graph_capture",
    ),
    ("INFO 07-12 09:52:30 model_runner.py:1530] Graph capturing finished in 4 secs.", "listening"),
    ("INFO 07-12 09:52:30 launcher.py:19] Available routes are:", None),
    ("INFO:     Started server process [1]", None),
    ("INFO:     Application startup complete.", None),
    ("INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)", None),
]
API, CORE = "(APIServer pid=1) ", "(EngineCore_DP0 pid=2) "
V1 = [  # 0.11 to 0.32
    ("INFO 08-26 09:11:57 [__init__.py:241] Automatically detected platform cuda.", None),
    (
        API + "INFO 08-26 09:12:01 [api_server.py:1805] vLLM API server version 0.11.0",
        "engine_init",
    ),
    (
        API + "INFO 11-29 16:44:19 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        None,
    ),
    (API + "INFO 11-29 16:44:19 [api_utils.py:286] non-default args: {'model_tag': '/m'}", None),
    (API + "INFO 08-26 09:12:07 [model.py:733] Resolved architecture: Qwen3MoeForCausalLM", None),
    (API + "INFO 08-26 09:12:07 [model.py:2152] Using max model len 32768", None),
    (CORE + "INFO 08-26 09:12:15 [core.py:133] Initializing a V1 LLM engine (v0.11.0) with", None),
    (CORE + "INFO 08-26 09:12:20 [gpu_model_runner.py:1] Starting to load model /m...", "weights"),
    (
        CORE + "INFO 08-26 09:12:40 [default_loader.py:501] Loading weights took 9.01 seconds",
        "kv_cache",
    ),
    (CORE + "INFO 08-26 09:12:40 [gpu_model_runner.py:2] Model loading took 16.2 GiB", None),
    (CORE + "INFO 08-26 09:12:52 [backends.py:5] Dynamo bytecode transform time: 4.22 s", None),
    (CORE + "INFO 08-26 09:13:10 [monitor.py:34] torch.compile takes 21.5 s in total", None),
    (
        CORE + "INFO 08-26 09:13:11 [kv_cache_utils.py:1087] GPU KV cache size: 1,606,912 tokens",
        None,
    ),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|", "graph_capture"),
    (
        CORE + "INFO 08-26 09:13:31 [gpu_model_runner.py:4] Graph capturing finished in 20",
        "listening",
    ),
    (
        CORE + "INFO 08-26 09:13:31 [core.py:210] init engine (profile, create kv cache) took 51",
        None,
    ),
    (
        API + "INFO 08-26 09:13:38 [entry.py:140] Starting vLLM server on http://127.0.0.1:8123",
        None,
    ),
    ("INFO:     Application startup complete.", None),
]
# the end of a failed log -> the stage it was in
FAILED = {
    "vllm: error: unrecognized arguments: --num-scheduler-steps 4": "imports",
    "[BI100 startup] starting init_device\n[BI100 worker] start method=init_device": "engine_init",
    "INFO x.py:1] # GPU blocks: 16371, # CPU blocks: 0": "kv_cache",
    "ImportError: libcudart.so.12: cannot open shared object file": "imports",
    "Killed": "imports",
}


@pytest.mark.parametrize("log", [V0, V1], ids=["v0", "v1"])
def test_each_stage_begins_with_its_line(log: list[tuple[str, str | None]]) -> None:
    watch = StageWatch(LIMITS)
    for t_s, (line, begins) in enumerate(log):
        assert watch.line(line, float(t_s)) == (begins is not None), line
        assert begins in (None, watch.stage), line
    assert watch.reach("health", 30.0) and watch.reach("probe", 31.0)
    assert [row["stage"] for row in watch.table(40.0)] == list(NAMES)
    assert sum(row["seconds"] for row in watch.table(40.0)) == pytest.approx(40.0)


@given(st.sampled_from([stage for stage in STAGES if stage.begins]), st.data())
def test_every_line_that_begins_a_stage_is_looked_at(stage: Any, data: st.DataObject) -> None:
    assert stage.begins
    line = data.draw(st.from_regex(stage.begins))
    assert start_stages.stage_of(line) is not None


@pytest.mark.parametrize("log", FAILED)
def test_where_a_failed_start_was(log: str) -> None:
    watch = StageWatch(LIMITS)
    for line in log.split("\n"):
        watch.line(line, 1.0)
    assert watch.stage == FAILED[log]


def test_the_log_says_the_context_that_is_in_effect() -> None:
    for log, tokens in ((V0, 100_000), (V1, 32_768)):
        watch = StageWatch(LIMITS, context=262_144)
        for line, _ in log:
            watch.line(line, 1.0)
        assert watch.context == tokens


@given(st.permutations([line for line, _ in V0 + V1]), st.integers(0, 200))
def test_it_never_goes_backwards(lines: list[str], cut: int) -> None:
    """Whatever the order of ranks and restarts, and however the lines are cut."""
    watch, seen = StageWatch(LIMITS), []
    for t_s, line in enumerate(lines):
        watch.line(line[: cut or None], float(t_s))
        seen.append(NAMES.index(watch.stage))
    assert seen == sorted(seen)
    times = [row["t_s"] for row in watch.table(100.0)]
    assert times == sorted(times) and all(row["seconds"] >= 0 for row in watch.table(100.0))


@given(st.text(), st.binary())
def test_any_line_may_come(text: str, raw: bytes) -> None:
    watch = StageWatch(LIMITS)
    for line in (text, raw.decode("utf-8", "replace")):
        watch.line(line, 0.0)
    assert watch.overdue(1e9, 0.0, text) is not None


# ---------------------------------------------------------------------- limits


def test_a_stage_over_its_limit_is_named_with_its_time_and_last_line() -> None:
    bar = "shards:  0%|  | 0/26\rshards:  4%|x | 1/26 [00:01]"
    for stages, t_s, why in (
        ({}, 1840.0, "no progress in the log for 1800 s"),
        ({"weights": 100}, 140.0, "its limit is 100 s"),
    ):
        watch = StageWatch({**LIMITS, "stages": stages})
        watch.line("INFO model_runner.py:1065] Starting to load model /m...", 40.0)
        assert watch.overdue(t_s, 10.0, bar) is None
        assert watch.overdue(t_s + 0.5, 10.0, bar) == (
            f"stage weights (loading weights) lasted {t_s - 39.5:.1f} s; {why}; "
            "last line: shards:  4%|x | 1/26 [00:01]"
        )


def test_each_limit_has_its_words() -> None:
    watch = StageWatch({**LIMITS, "start_s": 50})
    assert watch.overdue(50.1, 0.0) == (
        "stage imports (Python imports) lasted 50.1 s; not ready within 50 s; the log is empty"
    )
    words = watch.overdue(49.0, 300.5)
    assert words and "no line in the log for 300 s" in words
    watch.reach("probe", 10.0)
    assert watch.overdue(69.0, 0.0) is not None and watch.limit_s() == 60


def test_profiling_scales_with_the_context_and_so_does_silence_in_it() -> None:
    """At 262,144 tokens 387 s without a line are healthy, at 100,000 a start takes 80 s in all."""
    for context, limit_s in ((None, 300), (32_768, 300), (100_000, 457.8), (262_144, 1200)):
        watch = StageWatch(LIMITS, context)
        watch.line("Loading model weights took 16.2 GB", 0.0)
        assert watch.stage == "kv_cache"
        assert watch.limit_s() == pytest.approx(limit_s, rel=1e-3)
        assert watch.silence_s() == pytest.approx(limit_s, rel=1e-3)
        watch.line("Capturing the model for CUDA graphs", 1.0)
        assert watch.limit_s() == 600 and watch.silence_s() == 300


def test_a_limit_that_a_person_wrote_is_taken_as_it_is() -> None:
    watch = StageWatch({**LIMITS, "stages": {"kv_cache": 500, "imports": 7}}, 262_144)
    assert watch.limit_s() == 7
    watch.line("Loading model weights took 16.2 GB", 0.0)
    assert watch.limit_s() == 500


def test_an_engine_that_is_not_understood_has_only_the_limits_of_the_whole() -> None:
    watch = StageWatch(LIMITS)
    watch.line("main: loading model from /m.gguf", 1.0)
    watch.reach("health", 2.0)  # it listens long before it is ready
    assert watch.limit_s() is None and watch.overdue(9_999.0, 1.0) is None
    quiet = StageWatch(LIMITS)  # VLLM_LOGGING_LEVEL=WARNING: it works, and names no stage
    for t_s in range(10, 420, 60):
        quiet.line("WARNING 07-15 10:21:07 x.py:1] something", float(t_s))
        assert quiet.overdue(t_s + 59.0, 59.0) is None
    watch.line("INFO x] Automatically detected platform cuda.", 3.0)
    assert watch.limit_s() == 120


# Starts that work, however long it takes: (seconds, line), the last is when it is ready.
WORKER_OF = "(Worker_TP{} pid={}) INFO "
AT_WORK: dict[str, list[tuple[float, str]]] = {
    "a compilation that takes longer than the stage's limit": [
        (5, "vLLM API server version 0.11.0"),
        (100, "Loading weights took 66.6 seconds"),
        *((t, "INFO [backends.py:1] Compiling a graph for dynamic shape") for t in range(110, 900, 60)),
        (900, "Available KV cache memory: 10 GiB"),
    ],
    "a rank whose weights come slowly": [
        (30, "Starting to load model"),
        (60, WORKER_OF.format(0, 1) + "Loading weights took 30 seconds"),
        *((t, WORKER_OF.format(1, 2) + f"Loading safetensors: {t}") for t in range(61, 700, 20)),
        (700, "Application startup complete"),
    ],
    "an engine that profiles in silence while its peer is done": [
        (50, "(EngineCore_DP0 pid=1) Loading weights took 30 s"),
        (60, "(EngineCore_DP1 pid=2) Loading weights took 40 s"),
        (100, "(EngineCore_DP0 pid=1) INFO init engine (profile, create kv cache) took 40 s"),
        (300, "(EngineCore_DP1 pid=2) INFO init engine (profile, create kv cache) took 240 s"),
        (301, "Application startup complete"),
    ],
    "a supervisor's second attempt": [
        (5, "vLLM API server version 0.6.3"),
        (80, "Capturing CUDA graphs"),
        (90, "Graph capturing finished in 9 secs"),
        (97, "vLLM API server version 0.6.3"),
        (130, "Starting to load model /m"),
        *((t, f"shard {t} is read") for t in range(140, 700, 200)),
        (701, "Application startup complete."),
    ],
    "a model whose draft has a context of its own": [
        (10, "Using max model len 262144"),
        (12, "Using max model len 4096"),
        (60, "Loading weights took 30 s"),
        (500, "Available KV cache memory"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", AT_WORK)
def test_no_default_limit_ends_a_start_that_works(name: str) -> None:
    watch, heard = StageWatch(LIMITS), 0.0
    for t_s, line in AT_WORK[name]:
        assert watch.overdue(t_s, t_s - heard) is None, watch.overdue(t_s, t_s - heard)
        watch.line(line, t_s)
        heard = t_s


def test_a_log_without_line_ends_has_its_stages(tmp_path: Path) -> None:
    watch = StageWatch(LIMITS)
    said = "INFO x] vLLM API server version 0.6.3INFO x] Using max model len 26"
    assert watch.unfinished(said, 20.0) and watch.context is None  # the number may be cut
    said += "2144INFO x] Starting to load model"
    assert watch.unfinished(said, 40.0)
    assert (watch.stage, watch.context) == ("weights", 262_144)
    bar = "shards: 1%"
    for t_s in range(50, 4000, 290):
        assert watch.overdue(t_s, 10.0, said + bar) is None
        assert not watch.unfinished(said + bar, float(t_s))
    assert "no progress in the log for 1800 s" in str(watch.overdue(5_800.0, 10.0, said))


def test_our_own_polls_are_no_progress() -> None:
    watch = StageWatch(LIMITS)
    watch.line("INFO:     Application startup complete.", 1.0)
    watch.reach("health", 2.0)
    for t_s in range(3, 122):
        watch.line('INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Unavailable', float(t_s))
        assert watch.overdue(t_s, 0.0) is None
    assert "no progress in the log for 120 s" in str(watch.overdue(122.5, 0.0))


def test_a_stage_is_that_of_the_slowest_known_process() -> None:
    watch = StageWatch({**LIMITS, "stages": {"kv_cache": 100}})
    for rank in (0, 1):
        watch.line(WORKER_OF.format(rank, rank) + "Starting to load model /m", 10.0)
    watch.line(WORKER_OF.format(0, 0) + "Loading weights took 20 s", 30.0)
    assert (watch.stage, watch.working) == ("kv_cache", "weights")
    assert watch.overdue(200.0, 100.0) is None  # a limit given for kv_cache has not begun
    stuck = watch.overdue(400.0, 301.0)
    assert stuck and stuck.startswith("stage weights (loading weights) lasted ")
    watch.line(WORKER_OF.format(1, 1) + "Loading weights took 390 s", 420.0)
    assert watch.working == "kv_cache" and watch.overdue(520.0, 100.0) is None
    assert "its limit is 100 s" in str(watch.overdue(520.5, 0.0))
    # rank 1 may say nothing more: what the engine says for all of them holds
    watch.line(WORKER_OF.format(0, 0) + "Capturing CUDA graphs", 530.0)
    assert watch.working == "kv_cache"
    watch.line(CORE + "INFO init engine (profile, create kv cache) took 51 s", 540.0)
    assert watch.working == "listening"


def test_a_context_that_only_the_log_tells_stretches_the_whole() -> None:
    for asked, more_s in ((None, 900), (131_072, 600), (262_144, 0), (500_000, 0)):
        watch = StageWatch({**LIMITS, "start_s": 600}, asked)
        assert watch.start_s() == 600
        watch.line("Using max model len 262144", 1.0)
        assert watch.start_s() == 600 + more_s and watch.newly_longer_s() == more_s
        assert watch.newly_longer_s() == 0


# ---------------------------------------------------------------------- the config


def test_the_schema_has_the_table() -> None:
    described = schema()["$defs"]["stages"]["properties"]
    assert tuple(described) == LIMITED
    for stage in STAGES:
        if stage.name in described:
            assert f"{stage.limit_s:g} s" in described[stage.name]["description"]
    assert f"{start_stages.CONTEXT_TOKENS:,}" in described["kv_cache"]["description"]


def planned(**changes: Any) -> dict[str, Any]:
    raw = yaml.safe_load(SMALL)
    for path, value in changes.items():
        *above, key = path.split("__")
        part = raw
        for name in above:
            part = part.setdefault(name, {})
        part[key] = value
    return plan.expand(config.fill(raw), REPO)


def launch_of(document: dict[str, Any], variant: str) -> dict[str, Any]:
    return next(x for x in document["launches"] if x["variant"] == variant)


def test_host_and_variant_override_the_studys_limits() -> None:
    document = planned(
        limits={"start_s": 100, "stages": {"weights": 1, "imports": 2}},
        hosts__here__limits={"silence_s": 11, "stages": {"imports": 22}},
        variants__fast__limits={"start_s": 333, "stages": {"kv_cache": 3}},
    )
    base = start_orders.limits(document, launch_of(document, "base"))
    fast = start_orders.limits(document, launch_of(document, "fast"))
    assert (base["start_s"], base["silence_s"], base["probe_s"]) == (100, 11, 60)
    assert base["stages"] == {"weights": 1, "imports": 22}
    assert (fast["start_s"], fast["stages"]) == (333, {"weights": 1, "imports": 22, "kv_cache": 3})


def test_limits_are_no_part_of_a_digest() -> None:
    changed = planned(
        hosts__here__limits={"silence_s": 11}, variants__fast__limits={"start_s": 333}
    )
    plain = planned()
    assert [x["digest"] for x in changed["launches"]] == [x["digest"] for x in plain["launches"]]


@pytest.mark.parametrize(
    ("asked", "more_s"),
    [(262_144, 900), ("256K", 900), ("1M", 4500), ("131.072k", 300), (-1, 0), ("auto", 0)],
)
def test_a_long_context_gives_the_whole_start_more_time(asked: Any, more_s: float) -> None:
    document = planned(server__flags={"--max-model-len": asked})
    base = start_orders.limits(document, launch_of(document, "base"))
    assert base["start_s"] == 600 + more_s


@pytest.mark.parametrize(
    ("host", "flags", "wanted"),
    [
        ({"devices": 4}, {}, ("auto", [0, 1, 2, 3], 4, False)),
        ({"devices": [1, 3]}, {}, ("auto", [1, 3], 2, False)),
        ({"devices": "any"}, {"-tp": 2, "-pp": 2}, ("auto", None, 4, True)),
        ({"devices": 1, "device_check": True}, {}, ("on", [0], 1, False)),
        ({"devices": 1, "device_check": False}, {}, None),
        ({"devices": 1, "simulated": True}, {}, None),
    ],
)
def test_which_devices_must_compute(
    host: dict[str, Any], flags: dict[str, Any], wanted: Any
) -> None:
    document = planned(
        server__flags=flags, **{f"hosts__here__{key}": value for key, value in host.items()}
    )
    found = start_orders.device_check(document, document["launches"][0])
    told = found and (found["mode"], found["devices"], found["need"], found["choose"])
    assert told == wanted


def test_any_needs_the_check(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(SMALL.replace("devices: 4", "devices: any, device_check: false"))
    with pytest.raises(config.ConfigError, match="false beside devices: any"):
        config.load(file, None, tmp_path)


# ---------------------------------------------------------------------- what a person sees


def put(store: Store, launch: dict[str, Any], name: str, **facts: Any) -> None:
    folder = store.start_root(launch["server"], launch["start"]) / f"start-{name}"
    folder.mkdir(parents=True)
    done = {"files": {}, "status": "done", "start_id": name, "reasons": []}
    (folder / "DONE.json").write_text(json.dumps(done))
    (folder / "start.json").write_text(json.dumps({"start_id": name, **facts}))


def test_earlier_starts_tell_when_it_is_ready(tmp_path: Path) -> None:
    document, store = planned(), Store(tmp_path)
    base, fast = (launch_of(document, name) for name in ("base", "fast"))
    assert forecast.start_history(document, base, store) is None
    for name, ready_s in (("a", 80.0), ("b", 100.0), ("c", 90.0)):
        stages = [{"stage": "imports", "t_s": 0.0}, {"stage": "weights", "t_s": 28.0}]
        put(store, fast, name, ready_s=ready_s, stages=stages)
    put(store, fast, "failed", ready_s=None, stages=[{"stage": "imports", "t_s": 0.0}])
    own = forecast.start_history(document, fast, store)
    assert own and (own.starts, own.same) == (3, "variant")
    assert own.ready_in_s("weights") == 62.0 and own.ready_in_s("imports") == 90.0
    assert own.ready_in_s("graph_capture") is None
    other = forecast.start_history(document, base, store)
    assert other and (other.starts, other.same) == (3, "model")


def test_progress_tells_the_stage_and_the_expected_end() -> None:
    out = io.StringIO()
    progress = Progress("v1", 1, 1, 600.0, 0.0, out=out)
    event = {"event": "stage", "stage": "weights", "words": "loading weights", "t_s": 28.4}
    progress.show({**event, "t_s": 0.2})  # a start that is quick needs no line for each stage
    assert out.getvalue() == ""
    progress.show(event)
    assert "start: loading weights, 28 s after its begin  [" in out.getvalue()
    progress.earlier = forecast.StartHistory(3, "variant", {"weights": 62.0})
    progress.show(event)
    assert "; ready about " in out.getvalue()
    assert "by 3 earlier starts of this variant" in out.getvalue()
