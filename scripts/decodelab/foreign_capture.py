"""An SMI capture of any origin -> a capture record (schema decodelab.capture/1): header and raw
records.

In:  a JSON or JSON-lines file: our own capture, or a list of records with the tool's text (or
parsed values per GPU) under names of the field map. Out: {header fields, "records": [{m0, m1, w0,
rc, out, err}]} and an Account.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from decodelab.fieldmap import FieldMap, Found, index, plain
from decodelab.foreign_request import Account, moment, number
from decodelab.importing import RawShapeError, describe, load

SCHEMA = "decodelab.capture/1"
EPOCH_FROM_S = 1e9  # a time beyond this is a wall clock's, not a monotonic one's


def read_capture_file(path: Path, mapping: FieldMap) -> tuple[dict[str, Any], Account]:
    """The capture in `path`, converted where it is foreign."""
    data = load(path)
    account = Account()
    if (
        isinstance(data, list)
        and data
        and isinstance(data[0], dict)
        and data[0].get("schema") == SCHEMA
    ):
        data = {**data[0], "records": data[1:]}  # as sampled: a header line, then one line a call
    if isinstance(data, dict) and data.get("schema") == SCHEMA:
        if not isinstance(data.get("records"), list):
            raise RawShapeError(path, f"a list of records ({SCHEMA})", describe(data))
        return data, account
    rows, top = _rows(path, data, mapping)
    records = [_record(path, row, mapping, account) for row in rows]
    header_names = index(top, mapping.names("run_containers"))
    header: dict[str, Any] = dict.fromkeys(("tool", "argv", "interval_s"))
    for name in mapping.fields("capture_header"):
        hit = mapping.find(header_names, "capture_header", name)
        if hit is not None:
            header[name] = number(hit.value) if name == "interval_s" else hit.value
            account.take("", hit, name)
    if header["tool"] is None:
        header["tool"] = path.stem.partition("_")[0]
        account.note(f"tool: {header['tool']}, from the file's name")
    capture = {
        "schema": SCHEMA,
        "source": "imported",
        "provenance": f"imported from {path.name}",
        **header,
        "clock": None,
        "records": records,
    }
    return capture, account


def _rows(path: Path, data: Any, mapping: FieldMap) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(data, list) and data:
        return data, {}
    if isinstance(data, dict):
        wanted = [plain(name) for name in mapping.names("capture_lists")]
        for key, value in data.items():
            if plain(key) in wanted and isinstance(value, list) and value:
                return value, {k: v for k, v in data.items() if k != key}
    names = ", ".join(mapping.names("capture_lists"))
    raise RawShapeError(
        path, f"SMI records: a list at the top or under one of [{names}]", describe(data)
    )


def _record(path: Path, row: Any, mapping: FieldMap, account: Account) -> dict[str, Any]:
    record: dict[str, Any] = {
        "m0": None,
        "m1": None,
        "w0": None,
        "rc": None,
        "out": None,
        "err": "",
    }
    if isinstance(row, str):
        return {**record, "out": row}
    if not isinstance(row, dict):
        raise RawShapeError(path, "an object or a text for each SMI record", describe(row))
    names = index(row, [])
    hits = {
        name: hit
        for name in mapping.fields("capture")
        if (hit := mapping.find(names, "capture", name))
    }
    for name, hit in hits.items():
        if name in ("out", "err"):
            record[name] = hit.value if isinstance(hit.value, str) else record[name]
        elif name == "rc":
            rc = number(hit.value)
            record["rc"] = None if rc is None else int(rc)
        else:
            _place_time(record, name, hit)
        account.take("records[].", hit, name)
    if record["out"] is None:
        record["out"] = _from_values(path, row, mapping, account)
    return record


def _place_time(record: dict[str, Any], name: str, hit: Found) -> None:
    """A time is a wall time if it is an epoch or a text, else one of the monotonic clock."""
    value = moment(hit)
    if value is None:
        return
    record["w0" if value > EPOCH_FROM_S else "m0" if name == "w0" else name] = value
    if record["m1"] is None:
        record["m1"] = record["m0"]


def _from_values(path: Path, row: Mapping[str, Any], mapping: FieldMap, account: Account) -> str:
    """Values that somebody parsed before us as `--query-gpu` text: one reader reads all."""
    wanted = [plain(name) for name in mapping.names("capture_gpu_lists")]
    gpus = next(
        (v for k, v in row.items() if plain(k) in wanted and isinstance(v, list) and v), None
    )
    if gpus is None or not all(isinstance(gpu, dict) for gpu in gpus):
        texts = ", ".join(mapping.names_of("capture", "out"))
        looked_for = (
            f"in each SMI record a text under one of [{texts}], "
            f"or a list of GPUs under one of [{', '.join(wanted)}]"
        )
        raise RawShapeError(path, looked_for, describe(row))
    account.note("the records hold parsed values and no text: written again as --query-gpu text")
    columns = mapping.fields("capture_gpu")
    found = [
        [mapping.find(index(gpu, []), "capture_gpu", name) for name in columns] for gpu in gpus
    ]
    kept = [i for i, _ in enumerate(columns) if any(cells[i] is not None for cells in found)]
    for i in kept:
        hit = next(cells[i] for cells in found if cells[i] is not None)
        account.take("records[].gpus[].", hit, columns[i])  # type: ignore[arg-type]
    lines = [", ".join(columns[i] for i in kept)]
    for cells in found:
        lines.append(
            ", ".join("[N/A]" if (cell := cells[i]) is None else str(cell.value) for i in kept)
        )
    return "\n".join(lines) + "\n"


def align(capture: dict[str, Any], run: Mapping[str, Any]) -> bool:
    """Put an imported capture on the clock of its imported run; False if they may not share one.

    They do if, read on one clock, the samples and the requests overlap. Wall times become seconds
    on the run's own zero; monotonic ones stay and are marked as the run's clock.
    """
    clock = run.get("clock") or {}
    imported = capture["source"] == run.get("source") == "imported"
    spans = [(r["t_start_s"], r["t_end_s"]) for r in run["requests"] if r["t_end_s"] is not None]
    spans = [(start, end) for start, end in spans if start is not None]
    if not imported or not spans:
        return False
    begin, end = min(start for start, _ in spans), max(end for _, end in spans)
    if clock.get("t0_wall"):
        zero = datetime.fromisoformat(clock["t0_wall"]).timestamp()
        times = [None if r["w0"] is None else r["w0"] - zero for r in capture["records"]]
    elif clock.get("t0_monotonic_s") is not None:
        zero = clock["t0_monotonic_s"]
        times = [None if r["m0"] is None else r["m0"] - zero for r in capture["records"]]
    else:
        return False
    if not any(t is not None and begin <= t <= end for t in times):
        return False
    if clock.get("t0_wall"):
        for record, t in zip(capture["records"], times, strict=True):
            record["m0"] = record["m1"] = t
    else:
        capture["clock"] = {"monotonic_s": zero, "wall": None}
    return True
