"""The tables of docs/vllm-metrics.md.

In:  pairs of the recorded streams, comparisons and turns of the live server. Out: Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fidelity.table import markdown

from engine_metrics.definitions import Metric, Pair
from engine_metrics.live import Compared, Load, Turn, median
from engine_metrics.server_side import Beside, Counter

EQUAL, THEIR_WAY, UNEQUAL = "equal", "equal by their definition", "UNEQUAL"
CLOSE = 1e-9  # of the value: both sides compute with doubles from the same decimal times
_SECONDS = 1e-9


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=_SECONDS)


def verdict(pair: Pair) -> str:
    if close(pair.ours, pair.theirs):
        return EQUAL
    return THEIR_WAY if close(pair.ours_their_way, pair.theirs) else UNEQUAL


def definitions(metrics: Sequence[Metric]) -> str:
    lines = [[m.name, m.ours, m.theirs, m.why or "none"] for m in metrics]
    return markdown(["metric", "ours", "`vllm bench serve`", "difference"], lines)


def streams(found: Mapping[str, Sequence[Pair]]) -> str:
    head = ["stream", "metric", "ours", "theirs", "ours, by their definition", "verdict"]
    lines = []
    for name, pairs in found.items():
        for pair in pairs:
            values = (pair.ours, pair.theirs, pair.ours_their_way)
            shown = [value(one, pair.metric.unit) for one in values]
            lines.append([name, pair.metric.name, *shown, verdict(pair)])
    return markdown(head, lines)


def value(number: float | None, unit: str) -> str:
    if number is None:
        return "not known"
    if unit == "s":
        return f"{number * 1e3:.3f} ms"
    if unit in ("tokens", "requests"):
        return f"{number:.0f}"
    return f"{number:.4g} {unit}".strip()


def live(load: Load, compared: Sequence[Compared]) -> str:
    head = [
        "metric",
        "ours",
        "ours, by their definition",
        "theirs",
        "difference",
        "A/A spread",
        "verdict",
    ]
    lines = []
    for one in compared:
        if not one.is_known:
            lines.append([one.name, *["not known"] * 5, "not known"])
            continue
        medians = [median(values) for values in (one.ours, one.ours_their_way, one.theirs)]
        shown = [value(x, one.unit) for x in (*medians, one.difference, one.spread)]
        lines.append([one.name, *shown, live_verdict(one)])
    return f"{load.name}; {len(compared[0].ours)} runs of each client\n\n" + markdown(head, lines)


def live_verdict(one: Compared) -> str:
    if one.difference == 0 and one.spread == 0:
        return "equal"
    return "within the A/A spread" if one.agrees else "BEYOND the A/A spread"


def server(load: Load, turns: Sequence[Turn]) -> str:
    head = ["metric", "ours", "vLLM's `/metrics`", "ours − theirs", "A/A spread", "verdict"]
    columns = list(zip(*(turn.beside for turn in turns if turn.beside), strict=True))
    lines = [server_line(column) for column in columns]
    return f"{load.name}; {len(columns[0])} runs of ours\n\n" + markdown(head, lines)


def server_line(column: Sequence[Beside]) -> list[str]:
    counter = column[0].counter
    if not all_known(column):
        name = f"{counter.name}: {counter.ours}"
        return [name, "not known", counter.theirs, "not known", "not known", "not known"]
    ours, theirs, apart = (median(known(column, what)) for what in ("ours", "theirs", "apart"))
    spread = spread_of(column)
    names = [f"{counter.name}: {counter.ours}", f"{value(theirs, counter.unit)} ({counter.theirs})"]
    shown = [value(x, counter.unit) for x in (ours, apart, spread)]
    return [names[0], shown[0], names[1], shown[1], shown[2], server_verdict(column)]


def known(column: Sequence[Beside], what: str) -> list[float]:
    if what == "apart":
        return [a - b for a, b in zip(known(column, "ours"), known(column, "theirs"), strict=True)]
    return [getattr(one, what) for one in column]


def all_known(column: Sequence[Beside]) -> bool:
    return not any(one.ours is None or one.theirs is None for one in column)


def spread_of(column: Sequence[Beside]) -> float:
    """The farthest that two runs of one client on this server are apart, by either account."""
    return max(max(x) - min(x) for x in (known(column, "ours"), known(column, "theirs")))


def server_verdict(column: Sequence[Beside]) -> str:
    counter: Counter = column[0].counter
    if not all_known(column):
        return UNEQUAL if counter.exact else "not known"
    apart = known(column, "apart")
    if counter.exact:
        return "equal in each run" if not any(apart) else "UNEQUAL"
    within = abs(median(apart)) <= spread_of(column)
    return "within the A/A spread" if within else f"beyond the spread: {counter.why}"


def whys(counters: Sequence[Counter]) -> str:
    return "\n".join(f"- {one.name}: {one.why}." for one in counters if one.why)
