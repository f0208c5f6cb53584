"""What each number of a report is: value at full precision, as printed, and the rows that it is from.

In: `Findings`. Out: plain entries. A figure of an arm has a value for each of its runs, which the
tables write as a range; a verdict has its effect, interval and floor with their method; a target,
an accelerator and a start have theirs. `printed` holds every form in which the pages write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from decodelab import numbers
from decodelab.columns import COLUMNS
from decodelab.findings import Arm, Findings, Row, Verdict
from decodelab.tables import TEXT

Entry = dict[str, Any]

# Numbers of a run's row that say what was asked for, not what came.
_ASKED = {"concurrency", "requests", "max_tokens", "start"}
# Of a verdict: a value of its metric, a change, a size.
_VALUES = ("baseline_value", "candidate_value", "value")
_CHANGES = ("effect", "needed_effect")
_SIZES = ("smallest_effect", "floor", "drift_allowance", "smallest_detectable", "worse_by")


def metrics(table: str) -> list[str]:
    """The columns of a table that hold figures, in its order."""
    return [name for name in COLUMNS[table] if name not in TEXT and name not in _ASKED]


def arms(findings: Findings) -> dict[str, Entry]:
    """Each arm once, by a name that tells it apart: variant, workload, concurrency; its runs and the
    experiments that have it."""
    groups: dict[tuple[str, ...], tuple[Arm, list[str]]] = {}
    for experiment in findings.experiments:
        for arm in findings.arms(experiment):
            groups.setdefault(arm.names, (arm, []))[1].append(experiment)
    named: dict[str, Entry] = {}
    for arm, experiments in groups.values():
        name = f"{arm.variant} {arm.workload} c{arm.concurrency}"
        number = 1
        while (name if number == 1 else f"{name} ({number})") in named:
            number += 1
        named[name if number == 1 else f"{name} ({number})"] = {
            "experiments": experiments,
            "variant": arm.variant,
            "workload": arm.workload,
            "concurrency": arm.concurrency,
            "runs": [run for run in arm.names if run in findings.runs],
            "without_result": [run for run in arm.names if run not in findings.runs],
        }
    return named


def of_arms(findings: Findings, named: Mapping[str, Entry]) -> Iterator[Entry]:
    """Each figure of each arm. Invalid runs give no figures but their share of successes."""
    for name, arm in named.items():
        rows = [findings.runs[run] for run in arm["runs"]]
        usable = [row for row in rows if row.get("validity") != "invalid"]
        for metric in metrics("runs"):
            of = rows if metric == "success_rate" else usable
            known = [row for row in of if _is_number(row.get(metric))]
            if known:
                yield {
                    "id": f"arm {name}: {metric}",
                    "of": "arm",
                    "arm": name,
                    "metric": metric,
                    "printed": printed(metric, [row[metric] for row in known]),
                    "values": {row["run"]: exact(row[metric]) for row in known},
                    **_counts(metric, known),
                }


def _counts(metric: str, rows: Iterable[Row]) -> dict[str, Any]:
    """How many requests and fresh starts the figure is of."""
    rows = list(rows)
    of = "n_attempted" if metric.startswith(("adj_", "success_rate", "goodput")) else "n_ok"
    starts = {row.get("start_id") for row in rows}
    return {"n_requests": sum(int(row.get(of) or 0) for row in rows), "n_launches": len(starts)}


def printed(metric: str, values: list[float]) -> list[str]:
    """As the tables write it (with its unit, and without where the head has it), as sentences do."""
    forms = [
        numbers.show_range(metric, values, bare=bare, coarse=coarse)
        for bare, coarse in ((False, False), (True, False), (False, True), (True, True))
    ]
    if numbers.unit(metric) == "s" and len(values) == 1:
        forms.append(numbers.milliseconds(values[0]))
    if len(values) == 1:
        forms.append(numbers.about(metric, values[0]))
    return list(dict.fromkeys(form for form in forms if form != numbers.DASH))


def exact(value: Any) -> Any:
    """A number as JSON can hold it: with all its digits, whole ones without a point."""
    if not math.isfinite(value):
        return str(value)  # an adjusted percentile that falls on a failed request
    return int(value) if float(value).is_integer() else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def of_verdicts(findings: Findings) -> Iterator[Entry]:
    for verdict in findings.verdicts:
        metric = verdict.get("metric") or ""
        point = " ".join(f"{key}={value}" for key, value in (verdict.get("point") or {}).items())
        yield {
            "id": f"verdict {verdict['id']} {point}".strip(),
            "of": "verdict",
            "verdict": verdict["id"],
            "experiment": verdict["experiment"],
            "kind": verdict["kind"],
            "metric": metric,
            "point": verdict.get("point"),
            "word": verdict["verdict"],
            "baseline": verdict.get("baseline"),
            "candidate": verdict.get("candidate"),
            "runs": verdict.get("runs") or [],
            "n_requests": verdict.get("n_requests"),
            "n_launches": verdict.get("n_launches"),
            "method": verdict.get("method"),
            "floor_source": verdict.get("floor_source"),
            "numbers": dict(_judged(verdict, metric)),
            **_guards(verdict),
        }


def _guards(verdict: Verdict) -> dict[str, Any]:
    guards = [
        {
            "metric": guard["metric"],
            "method": guard.get("method"),
            "floor_source": guard.get("floor_source"),
            "numbers": dict(_judged(guard, guard["metric"])),
        }
        for guard in verdict.get("guards") or []
    ]
    return {"guards": guards} if guards else {}


def _judged(verdict: Mapping[str, Any], metric: str) -> Iterator[tuple[str, Entry]]:
    """Name -> value and printed forms, of what is known."""
    for name in _VALUES:
        if _is_number(verdict.get(name)):
            yield name, _number(verdict[name], printed(metric, [verdict[name]]))
    for name in _CHANGES:
        if _is_number(verdict.get(name)):
            forms = [numbers.effect(verdict[name], digits) for digits in (1, 0)]
            yield name, _number(verdict[name], list(dict.fromkeys(forms)))
    for name in _SIZES:
        if _is_number(verdict.get(name)):
            yield name, _number(verdict[name], [numbers.size(verdict[name])])
    if known := _bounds(verdict.get("interval")):
        yield "interval", {"value": known, "printed": [numbers.interval(verdict["interval"])]}
    if known := _bounds(verdict.get("value_interval")):
        shown = printed(metric, list(verdict["value_interval"]))
        yield "value_interval", {"value": known, "printed": shown}
    target = verdict.get("target")
    if isinstance(target, Mapping) and _is_number(target.get("value")):
        yield "target", _number(target["value"], [numbers.target(metric, dict(target))])


def _number(value: float, forms: list[str]) -> Entry:
    return {"value": exact(value), "printed": forms}


def _bounds(value: Any) -> list[Any] | None:
    whole = bool(value) and all(_is_number(bound) for bound in value)
    return [exact(bound) for bound in value] if whole else None


def of_targets(findings: Findings) -> Iterator[Entry]:
    """Each run against each target: what was measured, and by how much it lies beside it."""
    for gate in findings.judged.get("gates") or []:
        metric = gate["metric"]
        figures: dict[str, Entry] = {}
        for name in ("value", "adjusted"):
            if _is_number(gate.get(name)):
                figures[name] = _number(gate[name], printed(metric, [gate[name]]))
        for name in ("margin", "needed"):
            if _is_number(gate.get(name)):
                signs = [gate[name], -gate[name]] if name == "needed" else [gate[name]]
                figures[name] = _number(gate[name], [numbers.effect(one) for one in signs])
        yield {
            "id": f"target {gate['run']}: {metric}",
            "of": "target",
            "run": gate["run"],
            "metric": metric,
            "target": numbers.target(metric, gate.get("target"), gate.get("op")),
            "n_requests": gate.get("n"),
            "numbers": figures,
        }


def of_accelerators(findings: Findings) -> Iterator[Entry]:
    for run, rows in findings.gpus.items():
        for row in rows:
            for metric in metrics("gpus"):
                if _is_number(row.get(metric)):
                    yield {
                        "id": f"accelerator {run} {row.get('scope')} {row.get('uuid')}: {metric}",
                        "of": "accelerator",
                        "run": run,
                        "scope": row.get("scope"),
                        "accelerator": row.get("uuid"),
                        "metric": metric,
                        **_number(row[metric], printed(metric, [row[metric]])),
                    }


def of_starts(findings: Findings) -> Iterator[Entry]:
    for row in findings.starts:
        if _is_number(row.get("ready_s")):
            yield {
                "id": f"start {row.get('start_id')} {row['variant']}: ready_s",
                "of": "start",
                "start_id": row.get("start_id"),
                "variant": row["variant"],
                "metric": "ready_s",
                **_number(row["ready_s"], printed("ready_s", [row["ready_s"]])),
            }
