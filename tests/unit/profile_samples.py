"""Step profiles made by hand, as the readers make them: numbers of a small MoE model on two ranks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodelab import findings, profiled_runs, step_table
from decodelab.findings import Findings
from decodelab.step_table import Kernel, Problem, Profile, Region, Table

FIXTURE = Path(__file__).resolve().parents[1] / "golden" / "report" / "fixture"
# region: calls, mean ms, P90 - P50
DECODE: dict[str, tuple[float, float, float]] = {
    "scheduler": (1, 0.8, 0.2),
    "handover": (1, 0.4, 0.1),
    "prepare": (1, 1.5, 0.2),
    "forward": (1, 6.0, 0.5),
    "attention": (10, 4.0, 0.3),
    "linear_attention": (30, 7.5, 0.4),
    "moe": (40, 26.0, 1.2),
    "collective": (80, 9.0, 1.0),
    "logits": (1, 1.7, 0.1),
    "sampler": (1, 0.9, 0.1),
    "sync": (1, 2.0, 0.3),
    "output": (1, 0.6, 0.1),
    "unattributed": (1, 0.5, 0.1),
}
WAIT = {"collective": (6.2, 2.8)}  # wait, transfer
TARGETS = (
    {
        "region": "sampler",
        "target": "vllm.v1.sample.sampler:Sampler.forward",
        "found": True,
        "why": None,
        "era": "V1",
    },
    {
        "region": "my_norm",
        "target": "vllm.layernorm:Norm.forward",
        "found": False,
        "why": "no such class",
        "era": "V1",
    },
)


def table(
    regions: Mapping[str, tuple[float, float, float]],
    phase: str = "decode",
    steps: int | None = 381,
    stated: bool = True,
    wait: Mapping[str, tuple[float, float]] = WAIT,
    closure: float | None = -0.008,
) -> Table:
    step_ms = sum(ms for _, ms, _ in regions.values())
    rows = []
    for name, (calls, ms, spread) in regions.items():
        share = ms / step_ms if stated else None
        ceiling = 1 / (1 - share) if share is not None and share < 1 else None
        split = wait.get(name, (None, None))
        times = (ms * 0.99, ms * 0.99 + spread, ms)
        rows.append(Region(name, calls, *times, share, ceiling, *split))
    return Table(phase, None, steps, step_ms * 0.99, step_ms * 1.04, step_ms, tuple(rows), closure)


def changed(regions: Mapping[str, tuple[float, float, float]], **ms: float) -> dict[str, Any]:
    """The same with other mean times."""
    return {**regions, **{name: (*_calls(regions, name), value, 0.2) for name, value in ms.items()}}


def _calls(regions: Mapping[str, tuple[float, float, float]], name: str) -> tuple[float]:
    return (regions.get(name, (1, 0, 0))[0],)


def event(*tables: Table, **more: Any) -> Profile:
    given: dict[str, Any] = {
        "source": "events",
        "mode": "event",
        "files": ("profile-4711.jsonl", "profile-4712.jsonl"),
        "ranks": 2,
        "tables": tables or (table(DECODE),),
        "targets": TARGETS,
        "overhead": {
            "profiled": 0.0629,
            "twin": 0.0605,
            "overhead": 0.0397,
            "metric": "itl_s_p50",
            "launches": 1,
        },
        "same_output": {"same": 4, "compared": 4, "differ": []},
    }
    return Profile(**{**given, **more})


PREFILL = table(
    {"forward": (1, 30.0, 3), "attention": (10, 22.0, 2), "moe": (40, 160.0, 9)}, "prefill", 4
)
MIXED = table({"forward": (1, 31.0, 3), "moe": (40, 170.0, 9)}, "mixed", 2)


def sync() -> Profile:
    regions = {**DECODE, "attention": (10, 13.0, 0.5), "linear_attention": (30, 13.3, 0.5)}
    return event(
        table(regions, stated=False),
        mode="sync",
        overhead={
            "profiled": 0.1126,
            "twin": 0.062,
            "overhead": 0.816,
            "metric": "itl_s_p50",
            "launches": 1,
        },
        doubts=(Problem("overhead_of_sync", {"overhead": 0.816}),),
    )


def trace() -> Profile:
    regions = {
        "collective": (82, 16.0, 0.6),
        "copy": (740, 12.5, 0.4),
        "gemm": (200, 10.0, 0.4),
        "moe": (120, 5.3, 0.2),
        "attention": (40, 5.0, 0.2),
        "unattributed": (1, 26.4, 1.0),
    }
    kernels = tuple(
        Kernel(f"void fenceWait<{n}>(float*, int)", category, 972.0 / (n + 1), 10.9 / (n + 1), 0.2)
        for n, category in enumerate(["collective", "gemm", "copy", "tp_other"] * 3)
    )
    return Profile(
        source="trace",
        mode=None,
        files=("rank0.json.gz",),
        ranks=1,
        tables=(table(regions, "all", 12, wait={}, closure=None),),
        gpu_busy_share=0.648,
        gap_ms_per_step=24.9,
        launches_per_step=3072.0,
        kernels=kernels,
    )


# Every code of the contract with the figures that its sentence wants.
PROBLEMS = (
    Problem("no_steps", {"processes": 0, "untold": 0, "troubles": []}),
    Problem("target_missing", {"regions": ["moe"]}),
    Problem("not_closed", {"closure": -0.071, "limit": 0.03, "rank": None}),
    Problem(
        "calls_unlike_config",
        {"region": "attention", "rank": 0, "expected": 40, "seen": 36, "steps": 380, "of": 381},
    ),
    Problem("inner_not_seen", {"regions": ["attention", "moe"], "hint": "--enforce-eager"}),
    Problem("ranks_disagree", {"region": "moe", "spread": 0.14, "limit": 0.1}),
    Problem("rank_missing", {"expected": 4, "found": 3, "missing": [2]}),
    Problem("overhead", {"overhead": 0.31, "limit": 0.15, "metric": "itl_s_p50", "launches": 1}),
    Problem("no_twin", {"twin": "noparser_unprofiled"}),
    Problem("output_differs", {"same": 3, "compared": 4, "differ": [2]}),
    Problem("output_not_compared", {"why": "not_greedy", "twin": "noparser_unprofiled"}),
    Problem("dropped", {"steps": 120}),
    Problem("too_few_steps", {"steps": 3, "least": 20}),
    Problem("other_schema", {"found": ["decodelab.steps/2"], "known": "decodelab.steps/1"}),
)
DOUBTS = (
    Problem("incomplete", {"lines": 1, "complete": False}),
    Problem("collective_check", {"gate_ms": 1.1, "transfer_ms": 2.8, "calls": 80.0}),
    Problem("targets_not_found", {"regions": ["my_norm"]}),
)


def spans(step: int, begin: float = 0.0, layers: int = 4) -> list[list[Any]]:
    """A step of a few layers, from `begin` on."""
    out: list[list[Any]] = [
        ["prepare", 0, begin, begin + 1.5],
        ["forward", 0, begin + 1.5, begin + 50.0],
    ]
    at, ms = begin + 2.0, 47.0 / layers
    for _ in range(layers):
        out += [["attention", 1, at, at + 0.2 * ms], ["moe", 1, at + 0.25 * ms, at + 0.9 * ms]]
        out += [["collective", 2, at + 0.7 * ms, at + 0.88 * ms]]
        at += ms
    return [
        *out,
        ["logits", 0, begin + 50.2, begin + 52.0],
        ["sampler", 0, begin + 52.1, begin + 53.0 + step],
    ]


def timeline(
    ranks: Sequence[int] = (0, 1), steps: int = 3, layers: int = 4
) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"rank": rank, "step": step, "phase": "decode", "spans": spans(step, 60.0 * step, layers)}
        for step in range(steps)
        for rank in ranks
    )


def write(
    folder: Path, runs: Mapping[str, Profile], given: Mapping[str, Profile] | None = None
) -> None:
    """tables/profiles.json of a study."""
    told: dict[str, Any] = {"schema": profiled_runs.SCHEMA}
    told["profiles"] = {name: step_table.to_json(one) for name, one in runs.items()}
    told["given"] = {name: step_table.to_json(one) for name, one in (given or {}).items()}
    path = folder / "tables" / "profiles.json"
    path.write_text(json.dumps(told), encoding="utf-8")


def study(
    runs: Mapping[str, Profile],
    given: Mapping[str, Profile] | None = None,
    traces: Sequence[str] = (),
) -> Findings:
    """The small study of the report's golden text, with profiles of its runs."""
    found = findings.load(
        FIXTURE / "plan.json", FIXTURE / "tables", FIXTURE / "verdicts.json", FIXTURE / "runs"
    )
    return dataclasses.replace(
        found, profiles=dict(runs), given_profiles=dict(given or {}), traces=frozenset(traces)
    )
