"""One arm of a question: its runs, one value per launch, and what keeps it from being used.

In: run names, the metric, the tables. Out: `Arm`. A launch's value is the median over its
successful requests of a per-request metric, or the run's own figure of a run metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decodelab import effective, flags, reasons, region_metric, start_identity
from decodelab.tables import Row, Tables
from decodelab.vocabulary import EVENT_METRICS, METRICS

TOKEN_TOLERANCE = 0.005  # of completion tokens per request
PROMPT_TOLERANCE = 0.02  # a run's salt may cost a token or two
CACHE_TOLERANCE = 0.05  # of the hit share
# More tokens an event than this need counts; a held-back marker or half a character stays below.
MANY_TOKENS = 1.3
# A median gap below this share of the time per token: most events came on the heels of another.
ON_THE_HEELS = 0.2


@dataclass
class Arm:
    variant: str
    names: list[str]
    rows: list[Row]  # the measured runs
    requests: list[Row]  # their successful requests
    launches: dict[str, float] = field(default_factory=dict)  # launch -> value
    missing: list[str] = field(default_factory=list)
    metric: str = ""

    @property
    def invalid(self) -> list[Row]:
        return [row for row in self.rows if row["validity"] == "invalid"]

    @property
    def spoilt(self) -> list[Row]:
        """The invalid runs that give the metric no value: that all requests failed is itself the
        answer to a question about the success rate.
        """
        rows = self.invalid
        return [r for r in rows if not only_failures(r)] if self.metric == "success_rate" else rows

    @property
    def suspect(self) -> list[str]:
        return [row["run"] for row in self.rows if row["validity"] == "suspect"]

    @property
    def n_requests(self) -> int:
        return len(self.requests)

    @property
    def population(self) -> dict[str, float | None]:
        """Requests sent and succeeded over all measured runs; None where nothing was measured."""
        if not self.rows:
            return {"attempted": None, "ok": None, "success_rate": None}
        sent = sum(row["n_attempted"] or 0 for row in self.rows)
        ok = sum(row["n_ok"] or 0 for row in self.rows)
        return {"attempted": sent, "ok": ok, "success_rate": ok / sent if sent else None}

    @property
    def value(self) -> float | None:
        """The arm's middle: the mean over launches."""
        return statistics.fmean(self.launches.values()) if self.launches else None


def only_failures(row: Row) -> bool:
    """Whether a run is invalid for nothing but that every request it sent failed."""
    return row["reasons"] == "no_success" and bool(row["n_attempted"])


def build(variant: str, names: Sequence[str], metric: str, tables: Tables) -> Arm:
    rows = [tables.runs[name] for name in names if name in tables.runs]
    ok = [r for row in rows for r in tables.requests.get(row["run"], []) if r["outcome"] == "ok"]
    arm = Arm(
        variant,
        list(names),
        rows,
        ok,
        missing=[n for n in names if n not in tables.runs],
        metric=metric,
    )
    measure(arm, metric, tables)
    return arm


def launch_of(row: Row) -> str:
    """The server start that a run belongs to; without a name on record it is its variant's own."""
    return row["start_id"] or f"{row['variant']}-start{row['start']}"


def measure(arm: Arm, metric: str, tables: Tables) -> None:
    """One value per launch; runs of one launch are put together."""
    arm.metric = metric
    per_launch: dict[str, list[float]] = {}
    per_request = METRICS[metric].level == "request" and metric != "itl_s"
    column = "itl_s_p50" if metric == "itl_s" else metric
    for row in arm.rows:
        launch = launch_of(row)
        if per_request:
            own = [r for r in tables.requests.get(row["run"], []) if r["outcome"] == "ok"]
            found = [r[metric] for r in own if r.get(metric) is not None]
        else:
            found = [row[column]] if row.get(column) is not None else []
        per_launch.setdefault(launch, []).extend(found)
    arm.launches = {key: statistics.median(values) for key, values in per_launch.items() if values}


def unusable(
    arm: Arm, plan: Mapping[str, Any], tables: Tables
) -> tuple[str, list[dict[str, str]]] | None:
    """(verdict, reasons) where the arm alone forbids an answer: it cannot start, was not measured,
    or is invalid.
    """
    if not arm.rows:
        out = [tables.absent.get(name) or {} for name in arm.names]
        if out and all(item.get("why") == "screened_out" for item in out):
            return "inconclusive", [reasons.screened_out(arm.variant, out[0])]
        refused = _start(arm, tables, ("not_possible",))
        if refused is not None:
            cause = refused["root_cause"] or refused["cause_class"] or "-"
            return "not_possible", [
                reasons.reason("not_possible", variant=arm.variant, cause=cause)
            ]
        failed = _start(arm, tables, ("failed", "died"))
        if failed is not None:
            cause = failed["root_cause"] or failed["cause_class"] or "-"
            return "invalid", [reasons.reason("start_invalid", variant=arm.variant, cause=cause)]
        runs = ", ".join(arm.names) or arm.variant
        return "invalid", [{**reasons.reason("not_measured", runs=runs), "runs": runs}]
    # Both at once: who measures a late run again should not learn only then that an option was ignored.
    spoilt = [reasons.run_invalid(row["run"], row["reasons"]) for row in arm.spoilt]
    ignored = not_in_effect(arm, plan, tables)
    if spoilt or ignored:
        return "invalid", [*spoilt, *ignored]
    unprofiled = region_metric.unusable(arm, tables)
    if unprofiled:
        return "invalid", unprofiled
    if not arm.launches:
        runs = ", ".join(row["run"] for row in arm.rows)
        return "invalid", [reasons.reason("no_value", metric=arm.metric, runs=runs)]
    return None


def not_in_effect(arm: Arm, plan: Mapping[str, Any], tables: Tables) -> list[dict[str, str]]:
    """What the arm's starts were asked for and did not do."""
    variant = plan["variants"].get(arm.variant, {})
    used = {row["start_id"] for row in arm.rows}
    mine = [s for s in tables.starts if s["variant"] == arm.variant and s["start_id"] in used]
    found = [reason for start in mine for reason in effective.differences(variant, start)]
    return [reason for n, reason in enumerate(found) if reason not in found[:n]]


def _start(arm: Arm, tables: Tables, states: Iterable[str]) -> Row | None:
    wanted = set(states)
    return next(
        (s for s in tables.starts if s["variant"] == arm.variant and s["status"] in wanted), None
    )


def mismatches(
    base: Arm, cand: Arm, plan: Mapping[str, Any], tables: Tables, same_workload: bool
) -> list[dict[str, str]]:
    """What makes two usable arms incomparable."""
    out = []
    if same_workload:
        out += _tokens(base, cand)
        out += _cache(base, cand)
    sources = [", ".join(sorted({str(row["source"]) for row in arm.rows})) for arm in (base, cand)]
    if sources[0] != sources[1]:
        out.append(reasons.reason("sources_differ", a=sources[0], b=sources[1]))
    out += _identities(base, cand, plan, tables)
    out += region_metric.mismatch(base, cand, plan)
    return out + event_mismatches(base, cand, plan)


def event_mismatches(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """What makes the arms incomparable in a metric that rests on when events came."""
    if base.metric.startswith("itl_s"):
        return _gaps(base, cand, plan)
    return _bursts(base, cand, plan) if base.metric in EVENT_METRICS else []


def _tokens(base: Arm, cand: Arm) -> list[dict[str, str]]:
    out = []
    for name, tolerance in (
        ("completion_tokens", TOKEN_TOLERANCE),
        ("prompt_tokens", PROMPT_TOLERANCE),
    ):
        a, b = _per_request(base, name), _per_request(cand, name)
        if a is not None and b is not None and abs(a - b) > tolerance * max(a, b):
            out.append(reasons.reason("tokens_differ", what=name, a=f"{a:g}", b=f"{b:g}"))
    return out


def _cache(base: Arm, cand: Arm) -> list[dict[str, str]]:
    a, b = _hit(base), _hit(cand)
    if a is None or b is None or abs(a - b) <= CACHE_TOLERANCE:
        return []
    return [reasons.reason("cache_state_differs", a=f"{a:.1%}", b=f"{b:.1%}")]


def unchecked(base: Arm, cand: Arm) -> list[dict[str, str]]:
    """What only one of two arms of the same workload tells, so that it cannot be compared."""
    out = []
    for name in ("completion_tokens", "prompt_tokens", "cached_tokens"):
        silent = [arm for arm in (base, cand) if arm.requests and not _known(arm, name)]
        if len(silent) == 1:
            out.append(reasons.reason("not_compared", what=name, variant=silent[0].variant))
    return out


def _known(arm: Arm, *names: str) -> list[Row]:
    """The requests that tell all of these: one that does not must not hide the others."""
    return [r for r in arm.requests if all(r[name] is not None for name in names)]


def _per_request(arm: Arm, name: str) -> float | None:
    known = _known(arm, name)
    return statistics.fmean(r[name] for r in known) if known else None


def _hit(arm: Arm) -> float | None:
    known = _known(arm, "prompt_tokens", "cached_tokens")
    prompt = sum(r["prompt_tokens"] for r in known)
    return sum(r["cached_tokens"] for r in known) / prompt if prompt else None


def _identities(
    base: Arm, cand: Arm, plan: Mapping[str, Any], tables: Tables
) -> list[dict[str, str]]:
    """Engine, model or machine that differ, between the arms or inside one, and were not varied."""
    told = [plan["variants"].get(arm.variant, {}) for arm in (base, cand)]
    found = start_identity.differences(
        _facts(base, tables), _facts(cand, tables), start_identity.varied(*told)
    )
    return [reasons.reason("identity_differs", key=key, a=a, b=b) for key, a, b in found]


def _facts(arm: Arm, tables: Tables) -> list[start_identity.Facts]:
    starts = {row["start_id"] for row in arm.rows}
    return [start_identity.of_row(s) for s in tables.starts if s["start_id"] in starts]


def _bursts(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """A decode rate leaves out the first delta's tokens, so it must be known how many those were.

    An arm whose events are as many as its tokens shows it; one with fewer must carry counts.
    """
    differing = _burst_flags(base, cand, plan)
    known = [_tokens_an_event(arm) for arm in (base, cand)]
    uncounted = [share for share in known if share is None or share > MANY_TOKENS]
    unlike = None not in known and abs(known[0] - known[1]) > MANY_TOKENS - 1  # type: ignore[operator]
    if not uncounted or not (differing or unlike):
        return []
    what = differing[0] if differing else "tokens per event"
    return [reasons.reason("token_counts_needed", flag=what)]


def _burst_flags(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> list[str]:
    """The flags that make bursts and are not alike in both arms."""
    told = [plan["variants"].get(arm.variant, {}).get("canonical") or {} for arm in (base, cand)]
    a, b = flags.bursts(told[0]), flags.bursts(told[1])
    return [flag for flag in {**a, **b} if a.get(flag) != b.get(flag)]


def _gaps(base: Arm, cand: Arm, plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """Gaps between events are times per token in both arms alike, or in none: else they measure two
    things. Counts do not help here: a burst of single tokens has a count on each and no gaps.
    """
    differing = _burst_flags(base, cand, plan)
    events = [_events_hold(arm) for arm in (base, cand)]
    heels = [_on_the_heels(arm) for arm in (base, cand)]
    unlike = None not in events and abs(events[0] - events[1]) > MANY_TOKENS - 1  # type: ignore[operator]
    if not (differing or unlike or (None not in heels and heels[0] != heels[1])):
        return []
    what = differing[0] if differing else "tokens per event" if unlike else "gaps between events"
    return [reasons.reason("events_in_bursts", what=what)]


def _on_the_heels(arm: Arm) -> bool | None:
    """Whether most events of the arm came right behind another; None if it is not on record."""
    pairs = [(row["itl_s_p50"], row["tpot_s_p50"]) for row in arm.rows]
    if not pairs or any(gap is None or not tpot for gap, tpot in pairs):
        return None
    return all(gap < ON_THE_HEELS * tpot for gap, tpot in pairs)


def _tokens_an_event(arm: Arm) -> float | None:
    """Tokens per output event; 1 where every event carries its own count; None if not on record."""
    if arm.rows and all(row["multi_token_share"] is not None for row in arm.rows):
        return 1.0
    return _events_hold(arm)


def _events_hold(arm: Arm) -> float | None:
    known = _known(arm, "n_events", "completion_tokens")
    events = sum(r["n_events"] for r in known)
    return sum(r["completion_tokens"] for r in known) / events if events else None
