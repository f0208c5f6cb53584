"""How each of the other load clients is called, and what it reports.

In:  where its command is, the emitter's base URL, the numbers of a load, a folder of its own.
Out: argv; after the run a `Reported`, in seconds, from the file that it wrote.

Written for GuideLLM 0.8.1, AIPerf 0.13.0, evalscope 1.14.1 and vLLM 0.32.0. They name the gap between
tokens differently: `gaps` says whether the percentiles are over all gaps or over each request's mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Task(NamedTuple):
    base_url: str
    streams: int
    requests: int
    tokens: int  # of each request
    tokenizer: str
    folder: Path


class Reported(NamedTuple):
    ok: int
    tokens: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None


class Cli(NamedTuple):
    program: str  # as found on PATH
    words: Callable[[Task], list[str]]
    read: Callable[[Task], Reported]
    gaps: str  # all | request means
    env: dict[str, str]


def vllm_words(task: Task) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", task.base_url, "--model", "emitter", "--tokenizer", task.tokenizer),
        *("--dataset-name", "random", "--random-input-len", "16"),
        *("--random-output-len", str(task.tokens), "--num-prompts", str(task.requests)),
        *("--max-concurrency", str(task.streams), "--ignore-eos", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(task.folder), "--result-filename", "vllm.json"),
    ]


def vllm_read(task: Task) -> Reported:
    found = load(task.folder / "vllm.json")
    ms = [found[f"{p}_{name}_ms"] / 1e3 for name in ("ttft", "itl") for p in ("p50", "p99")]
    return Reported(found["completed"], found["total_output_tokens"], *ms)


def guidellm_words(task: Task) -> list[str]:
    return [
        *("run", "--backend", f"kind=openai_http,target={task.base_url},model=emitter"),
        *("--profile", f"kind=concurrent,streams={task.streams}"),
        *("--constraint", f"kind=max_requests,count={task.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={task.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={task.tokens}"),
        *("--output", f"kind=json,path={task.folder / 'guidellm.json'}", "--disable-console"),
    ]


def guidellm_read(task: Task) -> Reported:
    metrics = load(task.folder / "guidellm.json")["benchmarks"][0]["metrics"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    tables = [metrics[name]["successful"]["percentiles"] for name in names]
    ms = [table[p] / 1e3 for table in tables for p in ("p50", "p99")]
    tokens = metrics["output_token_count"]["successful"]["total_sum"]
    return Reported(metrics["request_totals"]["successful"], tokens, *ms)


def evalscope_words(task: Task) -> list[str]:
    return [
        *("perf", "--api", "openai", "--url", f"{task.base_url}/v1/chat/completions"),
        *("--model", "emitter", "--prompt", "hello there", "--stream", "--no-test-connection"),
        *("--parallel", str(task.streams), "-n", str(task.requests)),
        *("--max-tokens", str(task.tokens), "--min-tokens", str(task.tokens)),
        *("--outputs-dir", str(task.folder), "--no-timestamp", "--name", "evalscope"),
    ]


def evalscope_read(task: Task) -> Reported:
    summary_file = next((task.folder / "evalscope").rglob("benchmark_summary.json"))
    summary = load(summary_file)
    lines = load(summary_file.with_name("benchmark_percentile.json"))
    by_name = {line["Percentiles"]: line for line in lines}
    ms = [by_name[p][f"{name} (ms)"] / 1e3 for name in ("TTFT", "ITL") for p in ("50%", "99%")]
    ok = summary["Success Requests"]
    return Reported(ok, ok * summary["Avg Output Tokens"], *ms)


def aiperf_words(task: Task) -> list[str]:
    return [
        *("profile", "--model", "emitter", "--url", task.base_url, "--endpoint-type", "chat"),
        *("--streaming", "--concurrency", str(task.streams)),
        *("--request-count", str(task.requests), "--isl", "16", "--osl", str(task.tokens)),
        *("--tokenizer", task.tokenizer, "--use-server-token-count", "--ui-type", "none"),
        *("--artifact-dir", str(task.folder / "aiperf"), "--no-gpu-telemetry"),
        "--no-server-metrics",
    ]


def aiperf_read(task: Task) -> Reported:
    found = load(task.folder / "aiperf" / "profile_export_aiperf.json")
    tables = [found[name] for name in ("time_to_first_token", "inter_chunk_latency")]
    ms = [table[p] / 1e3 for table in tables for p in ("p50", "p99")]
    return Reported(round(found["request_count"]["avg"]), found["total_output_tokens"]["avg"], *ms)


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


OFFLINE = {"HF_HUB_OFFLINE": "1"}
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
PEERS: dict[str, Cli] = {
    "vllm bench serve": Cli("vllm", vllm_words, vllm_read, "all", {**OFFLINE, **QUIET}),
    "GuideLLM": Cli("guidellm", guidellm_words, guidellm_read, "request means", OFFLINE),
    "evalscope": Cli("evalscope", evalscope_words, evalscope_read, "all", OFFLINE),
    # offline, it takes a folder's path for the name of a repository and refuses it
    "AIPerf": Cli("aiperf", aiperf_words, aiperf_read, "all", {}),
}
