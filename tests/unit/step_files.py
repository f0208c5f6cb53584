"""Small event files of the step profiler, written by hand: one decode loop of known times (ms)."""

from __future__ import annotations

import json
from typing import Any

MS = 1_000_000
HYBRID = {
    "text_config": {
        "num_hidden_layers": 40,
        "layer_types": ["full_attention" if n % 4 == 3 else "linear_attention" for n in range(40)],
        "num_experts": 256,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
}
DENSE = {"num_hidden_layers": 2}
MOE = {"num_hidden_layers": 2, "num_experts": 8, "decoder_sparse_step": 1, "mlp_only_layers": []}
# ms of each region of one worker's step, exclusive; calls
WORK = {
    "prepare": (1, 0.4),
    "forward": (1, 1.0),
    "attention": (2, 0.6),
    "moe": (2, 1.4),
    "logits": (1, 0.2),
    "sampler": (1, 0.3),
    "sync": (1, 0.1),
}
ENGINE = {"scheduler": (1, 0.3), "handover": (1, 0.2), "output": (1, 0.4)}
TARGETS = ("scheduler", "handover", "output", *WORK)


def ns(ms: float) -> int:
    return round(ms * MS)


def times(regions: dict[str, tuple[int, float]]) -> dict[str, list[int]]:
    return {name: [calls, ns(ms), ns(ms)] for name, (calls, ms) in regions.items()}


def header(pid: int, ppid: int = 1, mode: str = "event") -> dict[str, Any]:
    return {
        "kind": "header",
        "schema": "decodelab.steps/1",
        "pid": pid,
        "ppid": ppid,
        "mode": mode,
        "t_ns": 0,
    }


def model(config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    told = {"enforce_eager": True, "tp_size": 1, "tp_rank": 0, "pp_size": 1, "pp_rank": 0}
    return {"kind": "model", "config": MOE if config is None else config, **told, **more}


def targets(*regions: str, found: bool = True) -> list[dict[str, Any]]:
    why = None if found else "no such class"
    return [
        {
            "kind": "target",
            "region": r,
            "target": f"vllm:{r}.f",
            "era": "V1",
            "found": found,
            "why": why,
        }
        for r in regions
    ]


def step(
    i: int,
    t0: float,
    t1: float,
    regions: dict[str, tuple[int, float]],
    role: str = "worker",
    phase: str = "decode",
    own: float = 0.0,
    **more: Any,
) -> dict[str, Any]:
    return {
        "kind": "step",
        "i": i,
        "role": role,
        "phase": phase,
        "reqs": 1,
        "tokens": 1,
        "t0": ns(t0),
        "t1": ns(t1),
        "self": ns(own),
        "regions": times(regions),
        **more,
    }


def worker_steps(
    n: int = 40,
    work: dict[str, tuple[int, float]] | None = None,
    rest: float = 0.9,
    first: int = 0,
    begin: float = 1000.0,
    own: float = 0.0,
    **more: Any,
) -> list[dict[str, Any]]:
    """Steps of a worker with so many ms between the end of one and the begin of the next."""
    work = WORK if work is None else work
    took = sum(ms for _, ms in work.values()) + own
    return [
        step(
            first + k,
            begin + k * (took + rest),
            begin + k * (took + rest) + took,
            work,
            own=own,
            **more,
        )
        for k in range(n)
    ]


def engine_steps(workers: list[dict[str, Any]], own: float = 0.0) -> list[dict[str, Any]]:
    """Around each worker's step: schedule and half the handover before it, the rest behind it."""
    before = ns(ENGINE["scheduler"][1] + ENGINE["handover"][1] / 2)
    behind = ns(ENGINE["output"][1] + ENGINE["handover"][1] / 2)
    return [
        {
            **step(w["i"], 0, 0, ENGINE, role="engine", own=own),
            "t0": w["t0"] - before,
            "t1": w["t1"] + behind,
        }
        for w in workers
    ]


def lines(*told: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    flat = [one for item in told for one in (item if isinstance(item, list) else [item])]
    return [json.dumps(one) for one in flat]


def one_process(**more: Any) -> list[str]:
    """Worker and engine in one process; the worker's steps take 4 ms of a cycle of 4.9."""
    given = {"model": model(), "workers": worker_steps(), **more}
    return lines(
        header(7),
        targets(*TARGETS),
        given["model"],
        [
            s
            for pair in zip(given["workers"], engine_steps(given["workers"]), strict=True)
            for s in pair
        ],
    )


def spans(workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every region of each step, one behind the other."""
    out = []
    for worker in workers:
        at, told = worker["t0"], []
        for name, (_calls, inclusive, _exclusive) in worker["regions"].items():
            told.append([name, 0, at, at + inclusive])
            at += inclusive
        out.append({"kind": "spans", "i": worker["i"], "role": "worker", "spans": told})
    return out
