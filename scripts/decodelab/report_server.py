"""What the server itself counted over each run, beside what the client saw: a report's second
opinion on its figures.

In: `Findings` and the catalogue. Out: `Table`s; none where no run has such a count.
"""

from __future__ import annotations

from decodelab import markdown, numbers
from decodelab.findings import Findings, Row
from decodelab.markdown import Md
from decodelab.report_per_run import RUN, Column, figure, several, short_time, table
from decodelab.report_tables import Table
from decodelab.words import Words


def _beside(head: str, server: str, client: str) -> Column:
    """The server's count and the client's; only where there is one of the server."""

    def text(row: Row) -> str:
        if row.get(server) is None:
            return numbers.DASH
        return several(numbers.count(row[server]), numbers.count(row.get(client)))

    return Column(head, text)


_COUNTS = (
    RUN,
    _beside("server.prompt_tokens", "server_prompt_tokens", "sent_prompt_tokens"),
    _beside("server.completion_tokens", "server_generation_tokens", "sent_completion_tokens"),
    Column("server.preemptions", lambda row: numbers.count(row.get("server_preemptions"))),
    figure("server.cache_hit", "server_cache_hit"),
)
_TIMES = (
    RUN,
    figure("server.queue_mean", "queue_s"),
    figure("server.queue_p99", "queue_p99_s"),
    short_time("server.itl_mean", "server_itl_s"),
    short_time("server.itl_p99", "server_itl_p99_s"),
)
_CLIENTS = (
    short_time("server.client_tpot", "tpot_s_p50"),
    short_time("server.client_itl", "itl_s_p50"),
)
_ESTIMATED = ("queue_p99_s", "server_itl_p99_s")
_TIMED = ("queue_s", "server_itl_s", *_ESTIMATED)


def tables(findings: Findings, words: Words) -> list[Table]:
    rows = list(findings.runs.values())
    timed = [row for row in rows if any(row.get(name) is not None for name in _TIMED)]
    found = (
        table(
            rows,
            _COUNTS,
            words.say("server.counts_title"),
            [words.say("server.counts_note")],
            words,
        ),
        table(
            timed,
            (*_TIMES, *_CLIENTS),
            words.say("server.times_title"),
            _notes(timed, words),
            words,
        ),
    )
    return [item for item in found if item is not None]


def _notes(rows: list[Row], words: Words) -> list[Md]:
    estimated = any(row.get(name) is not None for row in rows for name in _ESTIMATED)
    first = [words.say("server.p99_note", mark=markdown.code(numbers.DASH))] if estimated else []
    return [*first, words.say("server.times_note")]
