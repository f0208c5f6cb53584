"""Two sides of run files, side by side: are they alike, how far are they apart, what may be said.

In: run records (decodelab.run/1), one or more a side. Out: `Sides`, its differences and warnings,
and one `Result` a metric. A file needs no plan; the index or DONE.json beside it tells its start,
and without one each file counts as a start of its own.

Two intervals that must not be mixed up. Over requests: the median by order statistics, and the
shift between the sides by inverting the Mann-Whitney test (Hodges-Lehmann); both are free of a
distribution and speak of these very starts only. Over starts: the judge's own effect (`effects`),
which is what the verdict rests on."""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

from decodelab import (
    arms,
    effects,
    numbers,
    reasons,
    records,
    start_identity,
    stats,
    verdict_making,
)
from decodelab.tables import Row, Tables
from decodelab.vocabulary import METRICS

# Shares are not among them: of a few requests they are counts, and no restart floor bounds them.
SHARES = ("success_rate", "cache_hit", "goodput")
CHOICES = tuple(
    name
    for name, metric in METRICS.items()
    if metric.level in ("request", "run") and name not in (*SHARES, "queue_s")
)
# Must be equal; older records have no digest of the prompt: the tokens it came to stand in (`arms`).
SETTINGS = (
    "scenario",
    "max_tokens",
    "concurrency",
    "requests",
    "warmup",
    "temperature",
    "ignore_eos",
    "extra_body",
    "cache",
    "prompt_sha256",
)
# Where a record says nothing of these, they were not asked for: a closed loop, no least length.
UNASKED = ("rate", "arrivals", "min_tokens")
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
# What may change how a run was measured, and not what was asked of the server.
NOT_ALIKE = (
    ("client", "digest"),
    ("client", "stamp_source"),
    ("run", "http"),
    ("run", "model"),
    ("run", "continuous_usage_stats"),
    ("run", "return_token_ids"),
)
ALPHA = 1.0 - effects.CONFIDENCE
NO_PLAN: dict[str, Any] = {"variants": {}}


@dataclass(frozen=True)
class File:
    path: Path
    name: str  # unique over both sides
    record: Mapping[str, Any]
    row: Row
    requests: list[Row]
    identity: start_identity.Facts  # of its start; empty where that is not on record


@dataclass(frozen=True)
class Sides:
    a: list[File]
    b: list[File]

    @property
    def files(self) -> list[File]:
        return [*self.a, *self.b]

    @property
    def tables(self) -> Tables:
        return Tables(
            {file.name: file.row for file in self.files},
            {file.name: file.requests for file in self.files},
            [],
        )


@dataclass(frozen=True)
class Figures:
    """One side of one metric."""

    starts: list[float]  # the value of each start
    values: list[float]  # of each request; of a run's metric, of each start
    median: float | None
    interval: tuple[float, float] | None  # None: too few values for one

    @property
    def n(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Shift:
    change: float  # relative, B against A
    interval: tuple[float, float] | None  # None: too few values for one


@dataclass(frozen=True)
class Result:
    metric: str
    over: str  # "requests" | "starts": what the values are
    a: Figures
    b: Figures
    shift: Shift | None
    change: effects.Estimate | None  # over starts; the plain relative change, B against A
    verdict: str
    why: list[str]


# -------------------------------------------------------------------------------------- reading
def load(a: Iterable[Path], b: Iterable[Path]) -> Sides:
    """Raises records.UnreadableRecord, which names the file."""
    return Sides([_file(path, "A") for path in _once(a)], [_file(path, "B") for path in _once(b)])


def _once(paths: Iterable[Path]) -> list[Path]:
    """A file that is named twice is one measurement."""
    return list({path.resolve(): path for path in paths}.values())


def _file(path: Path, side: str) -> File:
    record = records.read_record(path)
    try:
        known = _beside(path)
        entry = {**known, "start_id": known.get("start_id") or str(path.resolve())}
        run = records.make_run(_planned(record, side, path), entry, record)
        records.judge_validity(run)
        row, requests = stats.run_row(run, {}), list(stats.request_rows(run))
        identity = start_identity.facts(_start(path, known.get("start_id")))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise records.UnreadableRecord(f"{path}: a field has the wrong type: {error}") from error
    return File(path, row["run"], record, row, requests, identity)


def _planned(record: Mapping[str, Any], side: str, path: Path) -> dict[str, Any]:
    run = record["run"]
    limit = run.get("max_tokens")
    return {
        "name": f"{side} {path}",
        "variant": side,
        "workload": run.get("scenario"),
        "scenario": run.get("scenario"),
        "start": None,
        "concurrency": run.get("concurrency"),
        "requests": run.get("requests"),
        "max_tokens": math.inf if limit is None else limit,
    }


def _beside(path: Path) -> Mapping[str, Any]:
    """What the published index, or the raw folder's receipt, knows of the file."""
    try:
        entries = records.load_index(path.parent)["runs"].values()
    except records.UnreadableRecord:
        entries = ()
    for entry in entries:
        if entry.get("file") == path.name:
            return {name: entry.get(name) for name in ("start_id", "status", "reasons")}
    try:
        done = json.loads((path.parent / "DONE.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_this = path.name == "run.json" and isinstance(done, dict)
    return {name: done.get(name) for name in ("start_id", "status", "reasons")} if is_this else {}


def _start(path: Path, start_id: Any) -> Mapping[str, Any]:
    """The start.json of a run's start: in the published index, or in the raw store's folder."""
    try:
        entries = records.load_index(path.parent)["starts"]
    except records.UnreadableRecord:
        entries = []
    for entry in entries:
        if start_id is not None and entry.get("start_id") == start_id and entry.get("start_json"):
            told: Mapping[str, Any] = entry["start_json"]
            return told
    try:
        # start<k>/<run>/<attempt>/run.json stands beside start<k>/start-<id>/start.json
        file = path.parents[2] / f"start-{start_id}" / "start.json"
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


# -------------------------------------------------------------------------------------- likeness
def differences(sides: Sides, metric: str) -> list[str]:
    """What makes the files unlike: key, both values, both files. Each is held to the first one."""
    first, *others = sides.files
    return [text for other in others for text in _unlike(first, other, metric, sides.tables)]


def _unlike(first: File, other: File, metric: str, tables: Tables) -> list[str]:
    out = []
    runs = first.record["run"], other.record["run"]
    for key in (*SETTINGS, *UNASKED):
        one, two = runs[0].get(key), runs[1].get(key)
        said = key in UNASKED or (one is not None and two is not None)
        if said and one != two and not (key == "prompt_sha256" and _drawn_anew(*runs)):
            out.append(f"{key}: {_value(one)} in {first.path}, {_value(two)} in {other.path}")
    pair = [arms.build(file.row["variant"], [file.name], metric, tables) for file in (first, other)]
    for reason in arms.mismatches(pair[0], pair[1], NO_PLAN, tables, same_workload=True):
        out.append(f"{reason['en']} ({first.path}, {other.path})")
    return out


def _drawn_anew(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Synthetic prompts of one length whose words come from unlike seeds, as those of two starts
    do: no more unlike than two salts.
    """
    asked = [(run.get("prompt_sizing") or {}).get("asked") for run in (one, two)]
    return asked[0] is not None and asked[0] == asked[1] and one.get("seed") != two.get("seed")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def warnings(sides: Sides) -> list[str]:
    """What keeps nobody from comparing, and should be known."""
    out = []
    for where, key in NOT_ALIKE:
        found = {(file.record.get(where) or {}).get(key) for file in sides.files} - {None}
        if len(found) > 1:
            texts = ", ".join(sorted(map(str, found)))
            out.append(f"not measured alike: {where}.{key} differs: {texts}")
    # Without a plan nobody knows what was varied on purpose.
    told = [file.identity for file in sides.a], [file.identity for file in sides.b]
    for key, one, two in start_identity.differences(*told, set()):
        out.append(f"not one identity: {key} differs: {one}, {two}")
    shared = {file.row["start_id"] for file in sides.a} & {file.row["start_id"] for file in sides.b}
    if shared:
        out.append(f"A and B share a start: no restart lies between them ({len(shared)} shared)")
    for absent, paths in _absent(sides).items():
        out.append(f"not on record, so not compared: {absent} ({', '.join(paths)})")
    for file in sides.files:
        row = file.row
        if row["validity"] != "valid":
            out.append(f"{file.path}: {row['validity']}: {reasons.validity(row['reasons'], 1)}")
        if row["n_ok"] < row["n_attempted"]:
            lost = row["n_attempted"] - row["n_ok"]
            out.append(f"{file.path}: figures are over successes; {lost} of its requests failed")
        if row["start_id"] == str(file.path.resolve()) and len(sides.files) > 2:
            out.append(f"{file.path}: its start is not on record; taken as one of its own")
    return out


def _absent(sides: Sides) -> dict[str, list[str]]:
    """The files by what they do not say."""
    out: dict[str, list[str]] = {}
    for file in sides.files:
        settings = file.record["run"]
        names = [key for key in SETTINGS if settings.get(key) is None]
        names += [key for key in COUNTS if file.row[key] is None]
        if names:
            out.setdefault(", ".join(names), []).append(str(file.path))
    return out


# -------------------------------------------------------------------------------------- the answer
def compare(sides: Sides, metric: str, smallest: float = verdict_making.SMALLEST_EFFECT) -> Result:
    """The question is the judge's: is B better than A by at least `smallest`?"""
    tables = sides.tables
    pair = [
        arms.build(side, [file.name for file in files], metric, tables)
        for side, files in (("A", sides.a), ("B", sides.b))
    ]
    over = "requests" if METRICS[metric].level == "request" and metric != "itl_s" else "starts"
    a, b = (_figures(arm, over) for arm in pair)
    shift = shift_of(a.values, b.values)
    stops = [stop for arm in pair if (stop := arms.unusable(arm, NO_PLAN, tables)) is not None]
    if stops:
        why = [reason["en"] for _, found in stops for reason in found]
        return Result(metric, over, a, b, shift, None, "invalid", why)
    better = -1 if METRICS[metric].direction == "lower" else 1
    try:
        change = effects.compared(pair[0].launches, pair[1].launches, metric)
        toward = effects.compared(pair[0].launches, pair[1].launches, metric, better)
    except effects.NoRelativeChange:
        why = [reasons.reason("no_relative_change")["en"]]
        return Result(metric, over, a, b, shift, None, "inconclusive", why)
    verdict = verdict_making.word(toward, smallest)
    return Result(metric, over, a, b, shift, change, verdict, [_says(verdict, toward, smallest)])


def _says(verdict: str, toward: effects.Estimate, smallest: float) -> str:
    if verdict == "supported":
        return "B is better than A"
    if verdict == "refuted":
        worse = "; it is worse" if toward.interval[1] < 0 else ""
        return f"B is not better than A by {numbers.size(smallest)} or more{worse}"
    return "these files cannot tell"


def _figures(arm: arms.Arm, over: str) -> Figures:
    starts = list(arm.launches.values())
    values = starts
    if over == "requests":
        values = [r[arm.metric] for r in arm.requests if r.get(arm.metric) is not None]
    median = float(np.median(values)) if values else None
    return Figures(starts, values, median, median_interval(values))


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Between two order statistics; None for fewer than six values, which allow no interval."""
    if not values:
        return None
    found = scipy_stats.quantile_test(values, p=0.5).confidence_interval(effects.CONFIDENCE)
    low, high = float(found.low), float(found.high)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def shift_of(a: Sequence[float], b: Sequence[float]) -> Shift | None:
    """How far b lies from a, relative: the median of all pairwise changes, and every change that
    the Mann-Whitney test does not reject at 5 %.
    """
    if not a or not b or not all(math.isfinite(v) and v > 0 for v in (*a, *b)):
        return None
    changes = np.sort(np.subtract.outer(np.log(b), np.log(a)), axis=None)
    middle = math.expm1(float(np.median(changes)))
    outside = _rejected(len(a), len(b))
    if outside == 0:
        return Shift(middle, None)
    low, high = float(changes[outside - 1]), float(changes[len(changes) - outside])
    return Shift(middle, (math.expm1(low), math.expm1(high)))


def _rejected(n: int, m: int) -> int:
    """How many of the smallest values of U the two-sided test rejects."""

    def p_value(u: int) -> float:
        """Of samples without ties that have just this U: b's values beat a's u times."""
        above, rest = divmod(u, n)
        b = [n + 1.0 + i for i in range(above)]
        b += [rest + 0.5] if above < m else []
        b += [-float(i) for i in range(m - len(b))]
        return float(scipy_stats.mannwhitneyu(b, range(1, n + 1)).pvalue)

    return bisect.bisect_right(range(n * m // 2 + 1), ALPHA, key=p_value)
