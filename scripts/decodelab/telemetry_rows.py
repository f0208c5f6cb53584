"""The telemetry of a run as rows: its columns in runs.csv, its samples, and one row an accelerator.

In: `records.Run` with its capture, what was declared of its accelerators. Out: rows (dicts) with the
columns of columns.py. A value not known is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import (
    records,
    telemetry,
    telemetry_boards,
    telemetry_curve,
    telemetry_gpus,
    telemetry_phases,
    telemetry_rejected,
    telemetry_sampler,
    telemetry_wedged,
    telemetry_window,
)
from decodelab.columns_telemetry import MINE
from decodelab.telemetry_gpus import Declared, InUse
from decodelab.telemetry_window import Doubt, WindowFigures

Row = dict[str, Any]

# Rest on when a sample was taken within the run.
_TIMED = re.compile(r"_(?:window|prefill|decode)$")
PER_TOKEN = ("tokens_per_joule", "joules_per_token")
# Said beside a figure that is as good as any.
HARMLESS = ("telemetry_board_power", "telemetry_gpus_in_use_unknown")


def sample_rows(run: records.Run) -> Iterator[Row]:
    if run.capture is None:
        return
    origin = _origin(run)
    for sample in run.capture.samples:
        reading = sample.reading
        yield {
            "run": run.planned["name"],
            "t_s": None if origin is None or sample.t is None else sample.t - origin,
            "gpu": reading.gpu,
            "uuid": reading.key,
            **reading.values,
            "record": sample.record,
        }


def _origin(run: records.Run) -> float | None:
    """The run's first t0 on the capture's clock; for a relative capture, its own zero."""
    zero = records.zero_of(run)
    starts = [r["t_start_s"] for r in run.requests if r["t_start_s"] is not None]
    if zero is None:
        return None
    return (
        zero + min(starts)
        if starts
        else (zero if not run.capture or not run.capture.monotonic else None)
    )


@dataclass(frozen=True)
class _Sampled:
    """What holds for a whole capture, whichever of its accelerators are looked at."""

    run: records.Run
    capture: telemetry.Capture
    by_gpu: Mapping[str, Sequence[telemetry.Sample]]
    silent: Mapping[str, str]  # dies whose board's draw another die carries
    rejected: Mapping[str, telemetry_rejected.Counts]
    window: telemetry_curve.Span | None
    phases: telemetry_phases.Phases | None
    used: InUse | None
    few: list[Doubt]

    @classmethod
    def of(cls, run: records.Run, capture: telemetry.Capture, declared: Declared) -> _Sampled:
        by_gpu = telemetry_window.by_accelerator(capture.samples)
        window, zero = records.window(run), records.zero_of(run)
        phases = None
        if window is not None and zero is not None:
            phases = telemetry_phases.split(run.requests, window, zero)
        few = telemetry_gpus.too_few(by_gpu, declared)
        return cls(
            run,
            capture,
            by_gpu,
            telemetry_boards.silent(by_gpu),
            telemetry_rejected.by_accelerator(capture.samples, capture.rejected),
            window,
            phases,
            telemetry_gpus.in_use(by_gpu, declared),
            [Doubt("telemetry_fewer_gpus")] if few else [],
        )


def run_figures(run: records.Run, declared: Declared) -> tuple[Row, list[str]]:
    """The telemetry columns of runs.csv, and the reasons that make the run suspect."""
    if run.capture is None:
        return {}, []
    sampled = _Sampled.of(run, run.capture, declared)
    used, few = sampled.used, sampled.few
    row, codes, doubts = _of_keys(sampled, None)
    doubts += few
    if used is None:
        doubts.append(Doubt("telemetry_gpus_in_use_unknown"))
    else:
        mine, _, theirs = _of_keys(sampled, used.keys)
        mine |= _told(mine, [*theirs, *few])
        row |= {f"{name}_in_use": mine[name] for name in (*MINE, "smi_validity", "smi_reasons")}
        row |= {"gpus_in_use": len(used.keys), "gpus_in_use_by": used.by}
    row |= {"smi_rejected": len(run.capture.rejected), **_told(row, doubts)}
    return row | telemetry_sampler.columns(run.capture), [*codes, *(doubt.code for doubt in few)]


def gpu_rows(run: records.Run, declared: Declared) -> Iterator[Row]:
    """One row an accelerator, one for those in use and one for all."""
    if run.capture is None:
        return
    sampled = _Sampled.of(run, run.capture, declared)
    indices = telemetry_gpus.indices(sampled.by_gpu)
    for key, samples in sampled.by_gpu.items():
        row = {"gpu": indices[key], "uuid": key, "name": samples[0].reading.name}
        yield {**_group_row(sampled, [key], "gpu"), **row}
    if sampled.used:
        yield _group_row(sampled, sampled.used.keys, "in_use", sampled.few)
    if sampled.by_gpu:
        yield _group_row(sampled, None, "all", sampled.few)


def _group_row(
    sampled: _Sampled, keys: Sequence[str] | None, scope: str, more: Sequence[Doubt] = ()
) -> Row:
    run, used = sampled.run, sampled.used
    row, _, doubts = _of_keys(sampled, keys)
    if scope == "gpu":  # the tokens are the work of all that are in use, not of one
        row |= dict.fromkeys(PER_TOKEN)
        doubts = [doubt for doubt in doubts if doubt.about not in PER_TOKEN]
    told = _told(row, [*doubts, *more])
    mine = None if used is None else "yes" if set(keys or ()) <= set(used.keys) else "no"
    return {
        "run": run.planned["name"],
        "variant": run.planned["variant"],
        "start_id": run.entry.get("start_id"),
        "source": run.record.get("source"),
        "scope": scope,
        "in_use": mine if scope == "gpu" else None,
        "in_use_by": used.by if used else None,
        **row,
        "validity": told["smi_validity"],
        "reasons": told["smi_reasons"],
    }


def _of_keys(sampled: _Sampled, keys: Sequence[str] | None) -> tuple[Row, list[str], list[Doubt]]:
    """The figures of some accelerators (None: of the whole capture) with those that need the run's
    tokens, the codes that make the run suspect, and every doubt.
    """
    run = sampled.run
    found = _figures(sampled, keys)
    row, doubts = _derived(run, found), list(found.doubts)
    if any(r["outcome"] != "ok" and records.gave_output(r) for r in run.requests):
        # The window holds their joules, and the sum of the successes' tokens not their tokens.
        doubts += [Doubt("telemetry_failed_output", name) for name in PER_TOKEN if row[name]]
    mine = telemetry_rejected.total(
        counts for key, counts in sampled.rejected.items() if keys is None or key in keys
    )
    row["smi_rejected_why"] = telemetry_rejected.written(mine)
    return row, list(found.reasons), doubts


def _figures(sampled: _Sampled, keys: Sequence[str] | None) -> WindowFigures:
    """Of some accelerators' samples, in the run's window and its phases."""
    capture = sampled.capture
    samples = [s for s in capture.samples if keys is None or s.reading.key in keys]
    found = telemetry_window.figures(
        samples,
        len(capture.records),
        sampled.window,
        capture.interval_s,
        sampled.phases,
        sampled.silent,
        sampled.rejected,
    )
    if "reconstructed" in (sampled.run.record.get("source"), capture.header.get("source")):
        # When a reconstructed sample was taken within its run is the reconstruction's free choice.
        values = {k: None if _TIMED.search(k) else v for k, v in found.values.items()}
        found = WindowFigures(values, found.reasons, (Doubt("telemetry_reconstructed"),))
    if telemetry_wedged.wedged(samples):  # its 100 % would pass for load
        doubts = (*found.doubts, Doubt("telemetry_wedged", "util_pct"))
        return WindowFigures(found.values, (*found.reasons, "telemetry_wedged"), doubts)
    return found


def _derived(run: records.Run, found: WindowFigures) -> Row:
    """The figures, and those that need the run's tokens."""
    tokens, energy = run.summary["completion_tokens"], found.values["energy_j_window"]
    known = tokens is not None and energy is not None
    return {
        **found.values,
        "tokens_per_joule": tokens / energy if known and energy else None,
        "joules_per_token": energy / tokens if known and tokens else None,
    }


def _told(row: Row, doubts: Sequence[Doubt]) -> Row:
    """Validity of the window's figures, and every reason with what it is about."""
    core = [row[f"{metric}_mean_window"] for metric in telemetry_window.CORE]
    serious = [doubt for doubt in doubts if doubt.code not in HARMLESS]
    about_core = [d for d in serious if d.about in ("", *telemetry_window.CORE)]
    none = all(value is None for value in core)
    validity = "invalid" if none else "suspect" if about_core or None in core else "valid"
    told = (f"{d.code}:{d.about}" if d.about else d.code for d in doubts)
    return {"smi_validity": validity, "smi_reasons": ";".join(dict.fromkeys(told)) or None}
