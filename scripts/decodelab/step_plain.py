"""Plain tables, as people and their scripts write them, as step profiles.

In: text with a header line, columns parted by tabs, commas or semicolons:

- shares: `name,share` (see `plain_shares`);
- regions: `region` and a time (`ms_mean`, `mean_ms_per_token_per_rank`, ...) or a share; a run, phase or rank a column;
- kernels: `kernel` with a time (`cuda_time_ms`, ...) or a share, calls, category. `rank` is its place there.

Out: a `Profile` for each run that the file names (of one that names none, ""); ValueError, with the line, where the
text is no such table. Columns of other names are passed over. Times that a table calls its own step's are
milliseconds a step; the times of kernels are totals, as no such table tells of how many steps.

Timers that synchronise before each region inflate the step: such a table may order regions and states no shares.
It says so itself (`mode`, a comment line, its name), or its regions take longer than the step.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from decodelab import plain_shares, step_kernels, step_regions
from decodelab.step_table import Kernel, Problem, Profile, Region, Table

CLOSED = 0.03  # that the regions' sum may exceed the step by
COLUMNS = {
    "run": ("run",),
    "phase": ("phase",),
    "mode": ("mode",),
    "region": ("region",),
    "calls": ("calls_per_step", "calls_per_forward", "calls_per_token"),
    "ms": (
        "ms_mean",
        "mean_ms",
        "mean_ms_per_step",
        "mean_ms_per_token",
        "mean_ms_per_token_per_rank",
    ),
    "p50": ("ms_p50", "p50_ms"),
    "p90": ("ms_p90", "p90_ms"),
    "step": ("step_ms", "step_ms_mean"),
    "share": ("share", "share_pct", "pct"),
    "kernel": ("kernel", "name"),
    "total": ("cuda_time_ms", "gpu_time_ms", "device_time_ms", "total_ms", "time_ms"),
    "of_device": ("pct_of_cuda", "pct_of_gpu", "share", "share_pct", "pct"),
    "count": ("calls", "count", "total_calls"),
    "category": ("category",),
    "rank": ("rank",),
}
# what tables call the classes of `step_kernels`
CATEGORIES = {
    **{c: c for c in step_kernels.CLASSES},
    "comm": "collective",
    "nccl": "collective",
    "elem": "elementwise",
    "attn": "attention",
    "gdn": "linear_attention",
    "sampling": "sampler",
    "memcpy": "copy",
    "matmul": "gemm",
}
HOST_CALL = "overhead"  # of the runtime, no time of the device
_CALL = re.compile(r"^(cuda|hip|cu)[A-Z]\w+$")
_SYNC = re.compile(r"sync", re.IGNORECASE)
_HEADS = "name,share, or region with a time or a share, or kernel with a time or a share"


@dataclass(frozen=True)
class Row:
    where: str
    cells: Mapping[str, str]
    columns: Mapping[str, str]  # what -> its column here

    def text(self, what: str) -> str:
        return self.cells.get(self.columns.get(what, ""), "").strip()

    def number(self, what: str) -> float | None:
        """None where there is no such column or nothing in it."""
        text = self.text(what)
        if not text or text in ("-", "—"):
            return None
        try:
            value = float(text.removesuffix("%"))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise ValueError(
                f"{self.where}: {text!r} in {self.columns[what]}, a number from 0 expected"
            )
        return value

    def share(self, what: str) -> float | None:
        value = self.number(what)
        if value is None:
            return None
        percent = "pct" in self.columns[what] or self.text(what).endswith("%")
        return plain_shares.share(self.where, f"{value}%" if percent else value)


def read(text: str, name: str) -> dict[str, Profile]:
    """Profiles by run. `name`: the file's, as told in them."""
    lines = text.lstrip("\ufeff").splitlines(keepends=True)
    comments = "".join(line for line in lines if line.startswith("#"))
    body = [
        (n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")
    ]
    head = body[0][1] if body else ""
    delimiter = next((d for d in "\t;" if d in head), ",")
    if [c.strip() for c in head.split(delimiter)] in (["name", "share"], [""]):
        return {"": _shares(plain_shares.of_csv(text.lstrip("\ufeff")), name)}
    columns = [c.strip() for c in next(csv.reader([head], delimiter=delimiter))]
    of_regions = "region" in columns and _has(columns, "ms", "p50", "share")
    of_kernels = _has(columns, "kernel") and _has(columns, "total", "of_device")
    if not of_regions and not of_kernels:
        raise ValueError(f"columns {columns}, wanted {_HEADS}")
    rows = _rows(body[1:], columns, delimiter)
    if not of_regions:
        return _by_run(rows, lambda own: _kernels(own, name))
    told_sync = bool(_SYNC.search(comments) or _SYNC.search(name))
    return _by_run(rows, lambda own: _regions(own, name, told_sync))


def shares_of_json(text: str, name: str) -> Profile:
    return _shares(plain_shares.of_json(text), name)


def _has(columns: list[str], *wanted: str) -> bool:
    return any(c in columns for what in wanted for c in COLUMNS[what])


def _rows(body: list[tuple[int, str]], columns: list[str], delimiter: str) -> list[Row]:
    twice = next((c for c in columns if columns.count(c) > 1), None)
    if twice is not None:
        raise ValueError(f"column {twice} stands there twice")
    known = {
        what: next(c for c in names if c in columns)
        for what, names in COLUMNS.items()
        if any(c in columns for c in names)
    }
    out = []
    for n, line in body:
        try:
            cells = next(csv.reader(io.StringIO(line), delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"line {n}: {error}") from error
        if len(cells) != len(columns):
            raise ValueError(f"line {n}: {len(cells)} cells, {len(columns)} expected")
        out.append(Row(f"line {n}", dict(zip(columns, cells, strict=True)), known))
    if not out:
        raise ValueError("no rows in it")
    return out


def _by_run(rows: list[Row], profile: Callable[[list[Row]], Profile]) -> dict[str, Profile]:
    runs = dict.fromkeys(row.text("run") for row in rows)
    return {run: profile([row for row in rows if row.text("run") == run]) for run in runs}


# shares -------------------------------------------------------------------------------------------


def _shares(shares: Mapping[str, float], name: str) -> Profile:
    regions = tuple(
        Region(region, None, None, None, None, share) for region, share in shares.items()
    )
    table = Table("all", None, None, None, None, None, regions)
    return Profile("regions", None, (name,), None, (table,))


def _ceiling(share: float | None) -> float | None:
    return 1 / (1 - share) if share is not None and share < 1 else None


# regions ------------------------------------------------------------------------------------------


def _regions(rows: list[Row], name: str, told_sync: bool) -> Profile:
    groups = dict.fromkeys((row.text("phase") or "all", _rank(row)) for row in rows)
    for phase in {p for p, _ in groups}:
        if phase not in (*step_regions.PHASES, "all"):
            raise ValueError(
                f"phase {phase!r}, one of {', '.join(step_regions.PHASES)}, all expected"
            )
    tables, doubts = [], []
    sync = told_sync or any(row.text("mode") == "sync" for row in rows)
    for phase, rank in groups:
        own = [r for r in rows if (r.text("phase") or "all", _rank(r)) == (phase, rank)]
        table = _table(phase, rank, own)
        over = table.closure is not None and table.closure > CLOSED
        if over and not sync:
            doubts.append(Problem("more_than_the_step", {"phase": phase, "closure": table.closure}))
        sync = sync or over
        tables.append(table)
    if sync:
        tables = [_ordered_only(t) for t in tables]
    mode = "sync" if sync else next((row.text("mode") for row in rows if row.text("mode")), None)
    ranks = {rank for _phase, rank in groups} - {None}
    return Profile(
        "regions", mode, (name,), len(ranks) or None, tuple(tables), doubts=tuple(doubts)
    )


def _rank(row: Row) -> int | None:
    number = row.number("rank")
    if number is None:
        return None
    if number != int(number):
        raise ValueError(f"{row.where}: rank {number:g}, a whole number expected")
    return int(number)


def _table(phase: str, rank: int | None, rows: list[Row]) -> Table:
    seen: set[str] = set()
    regions = []
    steps = {s for row in rows if (s := row.number("step")) is not None}
    if len(steps) > 1:
        raise ValueError(f"{rows[0].where}: {len(steps)} different step times in one table")
    step = next(iter(steps), None)
    for row in rows:
        region = row.text("region")
        if not region:
            raise ValueError(f"{row.where}: a region expected")
        if region in seen:
            raise ValueError(f"{row.where}: {region} stands there twice")
        seen.add(region)
        ms, share = row.number("ms"), row.share("share")
        if share is None and ms is not None and step:
            share = ms / step
        regions.append(
            Region(region, row.number("calls"), row.number("p50"), row.number("p90"), ms, share)
        )
    times = [r.ms_mean for r in regions if r.ms_mean is not None]
    whole = step is not None and len(times) == len(regions)
    closure = sum(times) / step - 1 if whole and step else None
    if not (closure is not None and closure > CLOSED):
        plain_shares.of_one_whole(r.share for r in regions if r.share is not None)
    stated = tuple(_with_ceiling(r) for r in regions)
    return Table(phase, rank, None, None, None, step, stated, closure=closure)


def _with_ceiling(region: Region) -> Region:
    return _replaced(region, share=region.share, ceiling=_ceiling(region.share))


def _ordered_only(table: Table) -> Table:
    regions = tuple(_replaced(r, share=None, ceiling=None) for r in table.regions)
    return _replaced(table, regions=regions)


def _replaced(thing: Any, **fields: Any) -> Any:
    return type(thing)(**{**{f: getattr(thing, f) for f in thing.__dataclass_fields__}, **fields})


# kernels ------------------------------------------------------------------------------------------


def _kernels(rows: list[Row], name: str) -> Profile:
    kernels = [_kernel(row) for row in rows]
    names = [k.name for k in kernels]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{rows[len(names) - 1 - names[::-1].index(twice)].where}: {twice} stands there twice"
        )
    plain_shares.of_one_whole(k.share for k in kernels if k.share is not None)
    doubts = [Problem("steps_not_told", {"file": name})]
    ops = [n for n in names if n.startswith("aten::")]
    if ops and len(ops) < len(names):
        doubts.append(Problem("ops_among_kernels", {"names": ops}))
    calls = [k.name for k in kernels if k.category == HOST_CALL]
    if calls:
        doubts.append(Problem("host_calls_among_kernels", {"names": calls}))
    table = Table("all", None, None, None, None, None, tuple(_classes(kernels)))
    return Profile(
        "kernels", None, (name,), None, (table,), doubts=tuple(doubts), kernels=tuple(kernels)
    )


def _kernel(row: Row) -> Kernel:
    name = row.text("kernel")
    if not name:
        raise ValueError(f"{row.where}: a kernel expected")
    given = row.text("category").lower()
    category = CATEGORIES.get(given, given) or step_kernels.region_of(name)
    if _CALL.match(name):
        category = HOST_CALL
    return Kernel(
        name,
        category,
        None,
        None,
        row.share("of_device"),
        total_ms=row.number("total"),
        total_calls=row.number("count"),
    )


def _classes(kernels: Iterable[Kernel]) -> Iterable[Region]:
    """Shares of the device's time, so no ceiling of the step; a class of which one kernel tells no share has none."""
    mine = [k for k in kernels if k.category != HOST_CALL]
    for category in sorted({k.category for k in mine}, key=step_regions.order):
        own = [k for k in mine if k.category == category]
        share, total = _sum(k.share for k in own), _sum(k.total_ms for k in own)
        yield Region(category, None, None, None, None, share, total_ms=total)


def _sum(values: Iterable[float | None]) -> float | None:
    told = list(values)
    return None if any(v is None for v in told) else math.fsum(v for v in told if v is not None)
