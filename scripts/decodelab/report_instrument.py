"""The measuring instrument in a report: the load client's own floor on the host, how well it kept up
in each run, what its gaps are made of, what was declared, and whether a second client agrees.

In: `Findings` and the catalogue. Out: `Table`s; one that no run has anything for is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import markdown, numbers, report_server
from decodelab.columns import FAILURES
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_annex import reasons
from decodelab.report_labels import metric_label
from decodelab.report_per_run import RUN, Column, code, figure, several, short_time, table
from decodelab.report_tables import Table
from decodelab.report_verdicts import names
from decodelab.words import Words

_LATE = Column(
    "instrument.loop_late",
    lambda row: several(
        numbers.milliseconds(row.get("loop_late_p99_s")),
        numbers.milliseconds(row.get("loop_late_max_s")),
    ),
)
_OPEN = Column(
    "instrument.open",
    lambda row: several(
        numbers.show("concurrency_mean", row.get("concurrency_mean")),
        numbers.count(row.get("concurrency_max")),
    ),
)
_CLIENT = (
    RUN,
    code("instrument.stamps", "stamp_source"),
    figure("instrument.cpu", "cpu_share"),
    _LATE,
    short_time("instrument.lag", "client_lag_p99_s"),
    figure("instrument.blurred", "blurred_share"),
    _OPEN,
)
_GAPS = (
    RUN,
    short_time("instrument.itl_p50", "itl_s_p50"),
    short_time("instrument.itl_p90", "itl_s_p90"),
    figure("instrument.counted", "itl_counted_share", note="instrument.counted_note"),
    figure("instrument.single", "itl_single_share", note="instrument.single_note"),
    figure("instrument.several", "multi_token_share", note="instrument.several_note"),
)
_SCHEDULE = (
    RUN,
    Column("instrument.rate", lambda row: numbers.plain("rate", row.get("rate"))),
    Column("instrument.rate_kept", lambda row: numbers.show("rate_kept", row.get("rate_kept"))),
    code("instrument.arrivals", "arrivals"),
    short_time("instrument.late_p99", "schedule_late_p99_s"),
    short_time("instrument.late_max", "schedule_late_max_s"),
    _OPEN,
)
# The measured columns stay where they are empty: a declaration that nobody could check must not look
# checked.
_CACHE = (
    RUN,
    code("instrument.cache_declared", "cache"),
    figure("instrument.cache_usage", "cache_hit", stays=True),
    figure("instrument.cache_server", "server_cache_hit", stays=True),
)
# Of a cross-check; the other client's column is the same with `cross_` before it.
_CHECKED = ("ttft_s_p50", "decode_rate_median", "itl_s_p50", "completion_tokens")


def tables(findings: Findings, words: Words) -> list[Table]:
    rows = list(findings.runs.values())
    by_client = [row for row in rows if row.get("stamp_source") or row.get("cpu_share") is not None]
    in_gaps = [row for row in rows if row.get("itl_s_p50") is not None]
    by_schedule = [row for row in rows if row.get("rate") is not None]
    sized = [row for row in rows if row.get("prompt_asked_tokens") is not None]
    held_to_cache = [row for row in rows if row.get("cache") in ("cold", "warm")]
    found = [
        _floor(findings, words),
        _per_run("client", by_client, _CLIENT, words),
        _per_run("gaps", in_gaps, _GAPS, words),
        _per_run("schedule", by_schedule, _SCHEDULE, words),
        _per_run("sized", sized, _sized(words), words, _problems(sized, words)),
        _per_run("cache", held_to_cache, (*_CACHE, _checked_by(words)), words),
        _cross_check(rows, words),
        *report_server.tables(findings, words),
    ]
    return [item for item in found if item is not None]


def _per_run(
    what: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    words: Words,
    more: Sequence[Md] = (),
) -> Table | None:
    title, note = words.say(f"instrument.{what}_title"), words.say(f"instrument.{what}_note")
    return table(rows, columns, title, [note, *more], words)


def _problems(sized: Sequence[Row], words: Words) -> list[Md]:
    """What went wrong while prompts were sized, each text once with its runs."""
    by_text: dict[str, list[str]] = {}
    for row in sized:
        if row.get("prompt_problem"):
            by_text.setdefault(row["prompt_problem"], []).append(row["run"])
    return [
        words.say("instrument.sized_problem", runs=names(runs, words), text=text)
        for text, runs in by_text.items()
    ]


def _checked_by(words: Words) -> Column:
    """Which of the two measured columns the declaration could be held to."""

    def by(row: Row) -> Md:
        said = row.get("cached_tokens") is not None or row.get("cache_hit") is not None
        counted = row.get("server_cache_hits") is not None
        return words.say(f"cache_checked.{'usage' if said else 'server' if counted else 'nobody'}")

    return Column("instrument.cache_checked", by, "left")


def _sized(words: Words) -> tuple[Column, ...]:
    def got(row: Row) -> str:
        ends = [row.get("prompt_least_tokens"), row.get("prompt_most_tokens")]
        return numbers.show_range("prompt_tokens", ends)

    def how(row: Row) -> str:
        by = row.get("prompt_sized_by")
        return words.say(f"sized.{by}") if f"sized.{by}" in words else numbers.DASH

    asked = Column("instrument.asked", lambda row: numbers.count(row["prompt_asked_tokens"]))
    return RUN, asked, Column("instrument.got", got), Column("instrument.how", how, "left")


# the floor of the host ----------------------------------------------------------------------------


def floors(findings: Findings) -> list[Mapping[str, Any]]:
    """What the starts carry, each measurement once: it is made once for a host and a client."""
    starts = (findings.published or {}).get("starts") or []
    given = [(entry.get("start_json") or {}).get("client_floor") for entry in starts]
    return list({json.dumps(floor, sort_keys=True): floor for floor in given if floor}.values())


def _floor(findings: Findings, words: Words) -> Table | None:
    """A table if any measurement came off; one that failed is a note under it, or all there is."""
    found = floors(findings)
    if not found:
        return None
    problems = list(dict.fromkeys(str(f["problem"]) for f in found if f.get("problem")))
    notes = [words.say("instrument.no_floor", text=problem) for problem in problems]
    columns = (
        Column("instrument.client", _client_of, "left"),
        Column("instrument.floor_load", _load_of),
        Column("instrument.stamps", lambda f: markdown.code(f.get("stamp_source") or numbers.DASH)),
        Column("instrument.floor_lag", _lags_of),
        Column("instrument.floor_cpu", _cpu_of),
        Column("instrument.floor_ttft", lambda f: numbers.milliseconds(f.get("ttft_floor_s"))),
        Column("instrument.floor_lost", _lost_of),
    )
    host = findings.plan.get("host")
    title = words.say(
        "instrument.floor_title", host=markdown.code(host) if host else words.say("report.no_host")
    )
    measured = [dict(floor) for floor in found if not floor.get("problem")]
    note = words.say("instrument.floor_note")
    made = table(measured, columns, title, [note, *notes], words)
    return made or Table([], [], [], title=title, notes=notes)


def _client_of(floor: Mapping[str, Any]) -> Md:
    client = floor.get("client") or {}
    parts = [str(client[name]) for name in ("version", "digest") if client.get(name)]
    return markdown.code(" ".join(parts) or numbers.DASH)


def _load_of(floor: Mapping[str, Any]) -> str:
    streams, rate = floor.get("streams"), floor.get("rate_hz")
    if streams is None or rate is None:
        return numbers.DASH
    return f"{numbers.count(streams)} × {numbers.plain('rate', rate)}/s"


def _lags_of(floor: Mapping[str, Any]) -> str:
    names = ("lag_p50_s", "lag_p99_s", "lag_max_s")
    return several(*(numbers.milliseconds(floor.get(name)) for name in names))


def _cpu_of(floor: Mapping[str, Any]) -> str:
    value = floor.get("cpu_us_per_event")
    return f"{numbers.fixed(value, 1)} µs" if value is not None else numbers.DASH


def _lost_of(floor: Mapping[str, Any]) -> str:
    return several(numbers.count(floor.get("lost")), numbers.count(floor.get("events")))


# the second client --------------------------------------------------------------------------------


def _cross_check(rows: Sequence[Row], words: Words) -> Table | None:
    """Three lines a run: its own client, the other one, and how far they are apart."""
    lines: list[list[str]] = []
    for row in rows:
        if row.get("cross_n_attempted") is None:
            continue
        own = [_checked(name, row.get(name)) for name in _CHECKED]
        other = [_checked(name, row.get(f"cross_{name}")) for name in _CHECKED]
        apart = [numbers.effect(_change(row.get(n), row.get(f"cross_{n}"))) for n in _CHECKED]
        clients = [markdown.code(row.get(name) or numbers.DASH) for name in ("http", "cross_http")]
        clients[1] = _doubted(clients[1], row.get("cross_validity"), words)
        lines += [
            [markdown.code(row["run"]), clients[0], *own, _counts(row, "")],
            ["", clients[1], *other, _counts(row, "cross_")],
            ["", words.say("instrument.apart"), *apart, ""],
        ]
    notes = [
        words.say("instrument.no_cross", run=row["run"], text=row["cross_problem"])
        for row in rows
        if row.get("cross_problem")
    ]
    notes += [
        words.say(
            "instrument.cross_doubt", run=row["run"], text=reasons(row["cross_reasons"], words)
        )
        for row in rows
        if row.get("cross_reasons")
    ]
    if not lines and not notes:
        return None
    title = words.say("instrument.cross_title")
    if not lines:
        return Table([], [], [], title=title, notes=notes)
    head = [words.say("table.run"), words.say("instrument.client")]
    head += [metric_label(words, name) for name in _CHECKED] + [words.say("table.counts")]
    align = ["left", "left", *["right"] * (len(_CHECKED) + 1)]
    return Table(head, align, lines, title, [words.say("instrument.cross_note"), *notes])


def _doubted(client: Md, validity: str | None, words: Words) -> Md:
    """The second client's name, and what its own record is worth where that is not all."""
    if validity in (None, "valid"):
        return client
    return markdown.joined([client, words.say(f"state.{validity}")], " · ")


def _checked(name: str, value: float | None) -> str:
    return numbers.milliseconds(value) if name == "itl_s_p50" else numbers.show(name, value)


def _counts(row: Row, which: str) -> str:
    """Successes of those sent, and how the others ended."""
    ok, sent = row.get(f"{which}n_ok"), row.get(f"{which}n_attempted")
    lost = {name: row.get(f"{which}n_{name}") for name in FAILURES}
    ends = ", ".join(f"{name} {numbers.count(n)}" for name, n in lost.items() if n)
    text = f"{numbers.count(ok)} / {numbers.count(sent)}"
    return f"{text} ({ends})" if ends else text


def _change(own: float | None, other: float | None) -> float | None:
    return None if not own or other is None else other / own - 1
