"""Raw result files of any origin -> run records (schema of cargo.record).

In:  a JSON, JSON-lines, CSV or TSV file: our own record, a list of requests, or arrays side by
side; and the field map.
Out: a `Reading`: the record, and an account of what was read as what, what was left over and what
cannot be computed.

Only times and token counts are read, never a foreign tool's own rates: those are recomputed by the
one definition. What a file does not say stays null. A shape that is not understood is a
RawShapeError that names what was looked for.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cargo import record as run_record
from decodelab import evaluator_rows
from decodelab.fieldmap import FieldMap, index, is_empty, plain, walk
from decodelab.foreign_request import (
    ABSOLUTE,
    COUNTS,
    DURATIONS,
    Account,
    derive_figures,
    number,
    read_request,
)
from decodelab.raw_shape import RawShapeError as RawShapeError

FILE_NAME = re.compile(
    r"^decode_(?P<rest>.+)_c(?P<concurrency>\d+)_t(?P<max_tokens>\d+)_r(?P<requests>\d+)"
)

# What each figure needs; a figure counts as computable for a request when its column is known.
FIGURES = {
    "TTFT": ("ttft_s", "a TTFT, or times of the start and the first token"),
    "Output TPS (decode_tps)": (
        "decode_tps",
        "output tokens, TTFT and the end of the stream or last token",
    ),
    "decode_rate": (
        "decode_rate",
        "output tokens, tokens of the first delta, first and last token",
    ),
    "official Output TPS (e2e_tps)": ("e2e_tps", "output tokens and the whole request's time"),
    "Input TPS": ("input_tps", "prompt tokens and TTFT"),
    "cache hit": ("cached_tokens", "cached tokens"),
    "request timeline": ("t_start_s", "absolute times of each request"),
    "inter-token latency": ("events", "times of the output events, and of the request's start"),
}


@dataclass
class Reading:
    path: Path
    shape: str
    record: dict[str, Any]
    account: Account

    @property
    def missing(self) -> list[str]:
        """Request fields that no success carries."""
        ok = _successes(self.record)
        return [name for name in run_record.REQUEST_FIELDS if all(r.get(name) is None for r in ok)]

    @property
    def not_computable(self) -> list[tuple[str, str, int, int]]:
        """(figure, what it needs, successes without it, successes)."""
        ok = _successes(self.record)
        without = {
            name: sum(r.get(column) is None for r in ok) for name, (column, _) in FIGURES.items()
        }
        lines = [(name, FIGURES[name][1], n, len(ok)) for name, n in without.items() if n or not ok]
        if self.record["summary"].get("output_tps_total") is None:
            lines.append(
                (
                    "total Output TPS",
                    "output tokens and the run's wall time or all times",
                    len(ok),
                    len(ok),
                )
            )
        return lines


def _successes(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [r for r in record["requests"] if r["outcome"] == "ok" and not r.get("warmup")]


# ---------------------------------------------------------------- reading a file


def read_run(path: Path, mapping: FieldMap) -> Reading:
    """The run record in `path`, converted where it is foreign."""
    if evaluator_rows.recognised(path):
        record, account = evaluator_rows.read(path), Account()
        account.note(f"rows of the public evaluator, with {record['evaluator']['account']}")
        return Reading(path, "the public evaluator's rows", record, account)
    data = load(path)
    if isinstance(data, dict) and str(data.get("schema", "")).startswith("decodelab.run/"):
        faults = run_record.problems(data)
        if faults:
            raise RawShapeError(path, f"a record of schema {run_record.SCHEMA}", "; ".join(faults))
        return Reading(path, f"our own record, {data['schema']}", data, Account())
    shape, rows, top = _rows(path, data, mapping)
    account = Account()
    requests = [read_request(i, row, mapping, account) for i, row in enumerate(rows)]
    clock = _shift_to_zero(requests)
    for name, value in mapping.tables["request_defaults"].items():
        if any(request[name] is None for request in requests):
            account.note(f"{name}: not in the file; taken as {value} (request_defaults)")
            for request in requests:
                request[name] = value if request[name] is None else request[name]
    for request in requests:
        derive_figures(request)
    record = {
        "schema": run_record.SCHEMA,
        "source": "imported",
        "provenance": f"imported from {path.name}",
        "run": _run(path, top, requests, mapping, account),
        "client": None,
        "clock": clock,
        "requests": requests,
    }
    record["summary"] = _summary(record, top, mapping, account)
    _leftovers(rows, top, mapping, account)
    return Reading(path, shape, record, account)


def load(path: Path) -> Any:
    """The file's content: JSON, or a list of rows from JSON lines, CSV or TSV."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RawShapeError(path, "a text file in UTF-8", str(error)) from error
    if path.suffix.lower() in (".csv", ".tsv"):
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        return list(csv.DictReader(text.splitlines(), delimiter=delimiter))
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            rows = [json.loads(line) for line in lines]
        except ValueError:
            raise RawShapeError(
                path, "JSON, JSON lines, .csv or .tsv", f"no JSON: {error}"
            ) from None
        return rows


def _rows(
    path: Path, data: Any, mapping: FieldMap
) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """(shape in words, one object a request, the object around them)."""
    if isinstance(data, list):
        if data and all(isinstance(row, dict) for row in data):
            return "a list of requests", _known(path, data, mapping), {}
        raise RawShapeError(path, "a list of request objects", describe(data))
    if isinstance(data, dict):
        inner = [n for n in mapping.names("request_list_inside") if isinstance(data.get(n), dict)]
        objects = [("", data), *((f"{name}.", data[name]) for name in inner)]
        for prefix, obj in objects:
            for key, value in obj.items():
                named = plain(key) in map(plain, mapping.names("request_lists"))
                if (
                    named
                    and isinstance(value, list)
                    and value
                    and all(isinstance(row, dict) for row in value)
                ):
                    around = {k: v for k, v in obj.items() if k != key}
                    return (
                        f"a list of requests under {prefix}{key}",
                        _known(path, value, mapping),
                        around,
                    )
        for prefix, obj in objects:
            columns = _columns(obj, mapping)
            if columns:
                n = len(next(iter(columns.values())))
                rows = [{key: values[i] for key, values in columns.items()} for i in range(n)]
                around = {k: v for k, v in obj.items() if k not in columns}
                return f"arrays side by side ({prefix}{', '.join(columns)})", rows, around
    names = ", ".join(mapping.names("request_lists"))
    inside = ", ".join(mapping.names("request_list_inside"))
    looked_for = (
        f"a list of request objects under one of [{names}], at the top or inside one of "
        f"[{inside}]; or at least two arrays of one length, such as ttfts and output_lens"
    )
    raise RawShapeError(path, looked_for, describe(data))


def _known(path: Path, rows: list[dict[str, Any]], mapping: FieldMap) -> list[dict[str, Any]]:
    """`rows`, if one of them has a time or token count of a known name."""
    wanted = [*ABSOLUTE, *DURATIONS, *COUNTS]
    for row in rows:
        names = index(row, mapping.names("containers"))
        if any(mapping.find(names, "request", name) for name in wanted):
            return rows
    looked_for = "in each request a key for at least one of " + ", ".join(wanted)
    raise RawShapeError(path, looked_for, f"{len(rows)} objects, the first {describe(rows[0])}")


def _columns(obj: Mapping[str, Any], mapping: FieldMap) -> dict[str, list[Any]]:
    """The arrays of `obj` that are known request fields, if two or more have one length."""
    fields = mapping.fields("request")
    by_length: dict[int, dict[str, list[Any]]] = {}
    for key, value in obj.items():
        names = index({key: value}, [])
        if isinstance(value, list) and any(mapping.find(names, "request", f) for f in fields):
            by_length.setdefault(len(value), {})[key] = value
    best = max(by_length.values(), key=len, default={})
    return best if len(best) >= 2 else {}


def describe(data: Any) -> str:
    if isinstance(data, Mapping):
        kinds = [f"{key} ({_kind(value)})" for key, value in list(data.items())[:24]]
        return "an object with the keys " + (", ".join(kinds) or "(none)")
    if isinstance(data, list):
        return f"a list of {len(data)}" + (f", the first is {_kind(data[0])}" if data else "")
    return _kind(data)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {len(value)}"
    return (
        "object"
        if isinstance(value, Mapping)
        else "null"
        if value is None
        else type(value).__name__
    )


# ---------------------------------------------------------------- the run around the requests


def _shift_to_zero(requests: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Make the earliest start the zero, and return the run's clock: wall for epoch times."""
    starts = [r["t_start_s"] for r in requests if r["t_start_s"] is not None]
    zero = min(starts, default=None)
    for request in requests:
        if zero is None or request["t_start_s"] is None:
            request.update(dict.fromkeys(ABSOLUTE))
            continue
        request.update(
            {name: request[name] - zero for name in ABSOLUTE if request[name] is not None}
        )
        if request["events"]:
            request["events"]["t_s"] = [t - zero for t in request["events"]["t_s"]]
    if zero is None:
        return None
    if zero > 1e9:
        return {"t0_monotonic_s": None, "t0_wall": datetime.fromtimestamp(zero, UTC).isoformat()}
    return {"t0_monotonic_s": zero, "t0_wall": None}


def _run(
    path: Path,
    top: Mapping[str, Any],
    requests: list[dict[str, Any]],
    mapping: FieldMap,
    account: Account,
) -> dict[str, Any]:
    run: dict[str, Any] = dict.fromkeys(run_record.RUN_FIELDS)
    names = index(top, mapping.names("run_containers"))
    for name in mapping.fields("run"):
        hit = mapping.find(names, "run", name)
        if hit is None or isinstance(hit.value, list):
            continue
        value = (
            number(hit.value)
            if name in ("concurrency", "requests", "max_tokens", "temperature")
            else hit.value
        )
        if value is None:
            continue
        run[name] = int(value) if name in ("concurrency", "requests", "max_tokens") else value
        account.take("", hit, f"run.{name}")
    parts = FILE_NAME.match(path.stem)
    for name in ("concurrency", "requests", "max_tokens") if parts else ():
        if run[name] is None and parts is not None:
            run[name] = int(parts[name])
            account.note(f"run.{name}: from the file's name")
    if run["requests"] is None:
        run["requests"] = sum(not r["warmup"] for r in requests)
    return run


def _summary(
    record: dict[str, Any], top: Mapping[str, Any], mapping: FieldMap, account: Account
) -> dict[str, Any]:
    given: dict[str, float] = {}
    names = index(top, mapping.names("summary_containers"))
    for name in mapping.fields("summary"):
        hit = mapping.find(names, "summary", name)
        value = number(hit.value) if hit is not None else None
        if hit is None or value is None:
            continue
        given[name] = value * (hit.factor or 1.0 if name in ("wall_s", "ttft_s_p90") else 1.0)
        account.take(
            "",
            hit,
            f"summary.{name}",
            "used if requests carry no times" if name == "wall_s" else "compared only",
        )
    summary = run_record.summarise(record["requests"], given.get("wall_s"))
    ours = {**summary, "ttft_s_p90": (summary["ttft_s"] or {}).get("p90")}
    for name, value in given.items():
        if isinstance(ours[name], int | float) and not math.isclose(
            ours[name], value, rel_tol=0.02, abs_tol=0.01
        ):
            account.note(f"{name}: the file says {value:g}, its requests give {ours[name]:g}")
    return summary


def _leftovers(
    rows: list[dict[str, Any]], top: Mapping[str, Any], mapping: FieldMap, account: Account
) -> None:
    taken = {key for key, _ in account.read}
    seen = {f"requests[].{path}": value for row in rows for path, value in walk(row)}
    seen.update(dict(walk(top)))
    for path, value in seen.items():
        if path in account.ignored or any(path == t or path.startswith(f"{t}.") for t in taken):
            continue
        why = mapping.ambiguous(path.rpartition(".")[2]) or mapping.ambiguous(
            path.removeprefix("requests[].")
        )
        account.ignored[path] = why or (
            "empty" if is_empty(value) else "no field of ours by this name"
        )
