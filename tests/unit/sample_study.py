"""A small study in memory: plan, published runs and index, for the tests of the reading steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cargo import record
from decodelab import stats
from decodelab.columns import COLUMNS
from decodelab.flags import canonical
from decodelab.tables import Tables

TARGETS = {
    "e2e_tps_p10": {"op": ">=", "value": 20.0},
    "ttft_s_p90": {"op": "<=", "value": 5.0},
    "success_rate": {"op": ">=", "value": 0.99},
}


def request(
    index: int = 0, start: float = 0.0, ttft: float = 0.5, rate: float = 10.0, tokens: int = 101
) -> dict[str, Any]:
    """A success whose decode_rate is exactly `rate` (one token in the first delta)."""
    out = record.blank_request(index)
    first = start + ttft
    out.update(
        outcome="ok",
        t_start_s=start,
        t_first_s=first,
        t_last_s=first + (tokens - 1) / rate,
        t_end_s=first + (tokens - 1) / rate + 0.01,
        n_first_delta=1,
        prompt_tokens=40,
        cached_tokens=0,
        completion_tokens=tokens,
        n_events=tokens,
    )
    return out


def run_record(
    requests: list[dict[str, Any]], planned: int | None = None, **more: Any
) -> dict[str, Any]:
    requests = [{**r, **worked(r)} for r in requests]
    return {
        "schema": record.SCHEMA,
        "source": "measured",
        "provenance": None,
        "run": {"requests": len(requests) if planned is None else planned},
        "client": {
            "stamp_source": "kernel",
            "loop_late_max_s": 0.0,
            "reads": 100,
            "coalesced_reads": 0,
        },
        "clock": {"t0_monotonic_s": 1000.0, "t0_wall": None},
        "requests": requests,
        "summary": record.summarise(requests),
        **more,
    }


def worked(r: dict[str, Any]) -> dict[str, Any]:
    times = [r[f"t_{name}_s"] for name in ("start", "first", "last", "end")]
    found = record.derive(*times, r["prompt_tokens"], r["completion_tokens"], r["n_first_delta"])
    return {name: value for name, value in found.items() if value is not None}


def planned_run(
    name: str,
    variant: str = "base",
    concurrency: int = 1,
    start: int = 1,
    workload: str = "short",
    **more: Any,
) -> dict[str, Any]:
    return {
        "name": name,
        "capture": None,
        "variant": variant,
        "workload": workload,
        "scenario": "short",
        "start": start,
        "concurrency": concurrency,
        "requests": 4,
        "max_tokens": 101,
        "experiments": [],
        **more,
    }


class Study:
    """Collects runs; writes them as a published folder, or turns them into tables at once."""

    def __init__(self, flags: dict[str, dict[str, Any]] | None = None, **plan: Any) -> None:
        variants = {
            name: {"flags": given, "canonical": canonical(given, "vllm-v0")}
            for name, given in (flags or {}).items()
        }
        self.plan: dict[str, Any] = {
            "schema": "decodelab.plan/1",
            "source": "measured",
            "targets": TARGETS,
            "variants": variants,
            "runs": [],
            "experiments": {},
            **plan,
        }
        self.index: dict[str, Any] = {"runs": {}, "captures": {}, "starts": [], "missing": []}
        self.files: dict[str, dict[str, Any]] = {}

    def add(
        self,
        name: str,
        requests: list[dict[str, Any]] | None,
        status: str = "done",
        data: dict[str, Any] | None = None,
        **planned: Any,
    ) -> None:
        """A planned run; without requests it was never measured."""
        entry = planned_run(name, **planned)
        self.plan["runs"].append(entry)
        if requests is None and data is None:
            return
        self.files[f"{name}.json"] = data or run_record(requests or [])
        start_id = f"{entry['variant']}-{entry['start']}"
        self.index["runs"][name] = {
            "file": f"{name}.json",
            "start_id": start_id,
            "status": status,
            "reasons": [],
        }

    def refuse(
        self, variant: str, cause: str = "ValueError: no", status: str = "not_possible"
    ) -> None:
        why = {
            "class": "feature_not_supported_by_backend",
            "root_cause": cause,
            "line": 3,
            "hint": {"en": "e", "zh": "z"},
        }
        self.index["starts"].append(
            {
                "variant": variant,
                "server": "s",
                "start": 1,
                "start_id": f"{variant}-1",
                "status": status,
                "cause": why,
            }
        )

    def ask(self, experiment: str, *questions: dict[str, Any], **more: Any) -> None:
        blank = {
            "direction": "higher",
            "smallest_effect": 0.05,
            "target": None,
            "expected": None,
            "explains_gap_to": None,
            "points": [],
        }
        asked = [{**blank, "id": f"{experiment}_{n}", **q} for n, q in enumerate(questions, 1)]
        self.plan["experiments"][experiment] = {
            "name": experiment,
            "questions": asked,
            "then": {},
            **more,
        }

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_text(json.dumps(data), encoding="utf-8")
        (folder / "index.json").write_text(json.dumps(self.index), encoding="utf-8")
        return folder

    def tables(self, folder: Path) -> Tables:
        import aggregate

        rows = aggregate.build(self.plan, self.write(folder), folder)
        full = {
            name: [{c: row.get(c) for c in COLUMNS[name]} for row in table]
            for name, table in rows.items()
        }
        requests: dict[str, list[stats.Row]] = {}
        for row in full["requests"]:
            requests.setdefault(row["run"], []).append(row)
        return Tables({row["run"]: row for row in full["runs"]}, requests, full["starts"])


def compare(
    baseline: list[str],
    candidate: list[str],
    base: str = "base",
    cand: str = "cand",
    concurrency: int = 1,
) -> dict[str, Any]:
    return {
        "concurrency": concurrency,
        "baseline_variant": base,
        "candidate_variant": cand,
        "baseline_workload": "short",
        "candidate_workload": "short",
        "baseline": baseline,
        "candidate": candidate,
    }
