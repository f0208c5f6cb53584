"""The telemetry of a run as rows: its columns in runs.csv, its samples, and one row an accelerator.

In: `records.Run` with its capture, what was declared of its accelerators. Out: rows (dicts) with the
columns of columns.py. A value not known is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from decodelab import (
    records,
    telemetry,
    telemetry_boards,
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


def run_figures(run: records.Run, declared: Declared) -> tuple[Row, list[str]]:
    """The telemetry columns of runs.csv, and the reasons that make the run suspect."""
    if run.capture is None:
        return {}, []
    by_gpu = _by_gpu(run)
    few = [Doubt("telemetry_fewer_gpus")] if telemetry_gpus.too_few(by_gpu, declared) else []
    row, codes, doubts = _of_keys(run, None)
    doubts += few
    used = telemetry_gpus.in_use(by_gpu, declared)
    if used is None:
        doubts.append(Doubt("telemetry_gpus_in_use_unknown"))
    else:
        mine, _, theirs = _of_keys(run, used.keys)
        mine |= _told(mine, [*theirs, *few])
        row |= {f"{name}_in_use": mine[name] for name in (*MINE, "smi_validity", "smi_reasons")}
        row |= {"gpus_in_use": len(used.keys), "gpus_in_use_by": used.by}
    row |= {"smi_rejected": len(run.capture.rejected), **_told(row, doubts)}
    return row | telemetry_sampler.columns(run.capture), [*codes, *(doubt.code for doubt in few)]


def gpu_rows(run: records.Run, declared: Declared) -> Iterator[Row]:
    """One row an accelerator, one for those in use and one for all."""
    if run.capture is None:
        return
    by_gpu = _by_gpu(run)
    used = telemetry_gpus.in_use(by_gpu, declared)
    few = telemetry_gpus.too_few(by_gpu, declared)
    indices = telemetry_gpus.indices(by_gpu)
    for key, samples in by_gpu.items():
        row = {"gpu": indices[key], "uuid": key, "name": samples[0].reading.name}
        yield {**_group_row(run, [key], "gpu", used), **row}
    doubts = [Doubt("telemetry_fewer_gpus")] if few else []
    if used:
        yield _group_row(run, used.keys, "in_use", used, doubts)
    if by_gpu:
        yield _group_row(run, None, "all", used, doubts)


def _group_row(
    run: records.Run,
    keys: Sequence[str] | None,
    scope: str,
    used: InUse | None,
    more: Sequence[Doubt] = (),
) -> Row:
    row, _, doubts = _of_keys(run, keys)
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


def _by_gpu(run: records.Run) -> dict[str, list[telemetry.Sample]]:
    return telemetry_window.by_accelerator(run.capture.samples if run.capture else [])


def _of(run: records.Run, keys: Sequence[str] | None) -> list[telemetry.Sample]:
    """The samples of these accelerators; None: of the whole capture."""
    samples = run.capture.samples if run.capture else []
    return [s for s in samples if keys is None or s.reading.key in keys]


def _of_keys(run: records.Run, keys: Sequence[str] | None) -> tuple[Row, list[str], list[Doubt]]:
    """The figures of some accelerators with those that need the run's tokens, the codes that make
    the run suspect, and every doubt.
    """
    found = _figures(run, _of(run, keys))
    row, doubts = _derived(run, found), list(found.doubts)
    if any(r["outcome"] != "ok" and records.gave_output(r) for r in run.requests):
        # The window holds their joules, and the sum of the successes' tokens not their tokens.
        doubts += [Doubt("telemetry_failed_output", name) for name in PER_TOKEN if row[name]]
    rejected = _rejected(run)
    mine = telemetry_rejected.total(
        counts for key, counts in rejected.items() if keys is None or key in keys
    )
    row["smi_rejected_why"] = telemetry_rejected.written(mine)
    return row, list(found.reasons), doubts


def _rejected(run: records.Run) -> Mapping[str, telemetry_rejected.Counts]:
    assert run.capture is not None
    return telemetry_rejected.by_accelerator(run.capture.samples, run.capture.rejected)


def _figures(run: records.Run, samples: Sequence[telemetry.Sample]) -> WindowFigures:
    """Of some of the capture's samples, in the run's window and its phases."""
    assert run.capture is not None
    window, zero = records.window(run), records.zero_of(run)
    phases = None
    if window is not None and zero is not None:
        phases = telemetry_phases.split(run.requests, window, zero)
    found = telemetry_window.figures(
        samples,
        len(run.capture.records),
        window,
        run.capture.interval_s,
        phases,
        telemetry_boards.silent(_by_gpu(run)),
        _rejected(run),
    )
    if "reconstructed" in (run.record.get("source"), run.capture.header.get("source")):
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
