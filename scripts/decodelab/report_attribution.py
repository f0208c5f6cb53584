"""What a percentile gate sits on: a sentence for each gate and run, and a short table of its requests.

In: `Findings` (the attribution of verdicts.json). Out: `Table`s whose title is the sentence. A gate
that is met has nothing to attribute; of very many runs only the sentences are printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers
from decodelab.attribution import NOT_REACHABLE, REACHABLE
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import metric_label
from decodelab.report_tables import Table
from decodelab.words import Words

MOST_REQUESTS = 5  # in a table and in a sentence
MOST_TABLES = 12
_TIMES = ("queue_s", "prefill_s", "decode_s", "e2e_s")
# Of each kind of gate: the terms that could meet it alone, and the column whose digits they are shown in.
_NEEDS = {
    "e2e_tps": (("ttft", "needed_ttft_s", "ttft_s"), ("decode", "needed_decode_rate", "decode_rate")),
    "ttft_s": (("prefill", "needed_prefill_s", "ttft_s"), ("queue", "needed_queue_s", "ttft_s")),
}  # fmt: skip
_STRICTEST = {"decode": max}  # the others are upper limits: the least of them holds for all
Row = Mapping[str, Any]


def tables(findings: Findings, words: Words) -> list[Table]:
    rows = [row for row in findings.judged.get("attribution") or [] if _worth_telling(row)]
    if not rows:
        return []
    intro = Table([], [], [], title=words.say("attribution.title"), notes=[])
    if any(request["prefill_s"] is not None for row in rows for request in row["requests"]):
        intro.notes.append(words.say("attribution.estimate"))
    return [intro, *(_one(row, words, len(rows) <= MOST_TABLES) for row in rows)]


def _worth_telling(row: Row) -> bool:
    return bool(row["requests"]) and row["met"] is not True


def _one(row: Row, words: Words, whole: bool) -> Table:
    sentence = markdown.joined(_sentences(row, words), words.say("attribution.between"))
    if not whole or not any(_known(request) for request in row["requests"]):
        return Table([], [], [], title=sentence)
    base = _base(row)
    head = [
        words.say("attribution.request"),
        metric_label(words, base),
        *(words.say(f"attribution.{name}") for name in _TIMES),
        *(words.say(f"attribution.needed_{term}") for term, _, _ in _NEEDS[base]),
    ]
    shown = row["requests"][:MOST_REQUESTS]
    rows = [_request(request, base, row, words) for request in shown]
    left = len(row["requests"]) - len(shown)
    notes = [words.say_n("attribution.more", left)] if left else []
    return Table(head, ["right"] * len(head), rows, title=sentence, notes=notes)


def _request(request: Row, base: str, row: Row, words: Words) -> list[str]:
    return [
        str(request["index"]),
        numbers.show(base, request["value"]),
        *(numbers.show("e2e_s", request[name]) for name in _TIMES),
        *(_need(request, term, column, shown, words) for term, column, shown in _NEEDS[base]),
    ]


def _need(request: Row, term: str, column: str, shown: str, words: Words) -> str:
    state = request.get(f"{term}_alone")
    if state == NOT_REACHABLE:
        return words.say("attribution.not_reachable")
    sign = ">=" if term == "decode" else "<="
    known = state == REACHABLE and request.get(column) is not None
    return f"{sign} {numbers.show(shown, request[column])}" if known else numbers.DASH


def _sentences(row: Row, words: Words) -> list[Md]:
    requests = row["requests"]
    indexes = [str(request["index"]) for request in requests[:MOST_REQUESTS]]
    more = numbers.ELLIPSIS if len(requests) > MOST_REQUESTS else ""
    said = [
        words.say_n(
            "attribution.sits",
            len(requests),
            metric=metric_label(words, row["metric"]),
            value=numbers.show(row["metric"], row["value"]),
            run=row["run"],
            requests=", ".join(indexes) + more,
        ),
        _shares(row, words),
    ]
    said += [_alone(row, *term, words) for term in _NEEDS[_base(row)]]
    if row.get("queue_measured_s") is not None:
        mean = numbers.show("queue_s", row["queue_measured_s"])
        said.append(words.say("attribution.measured_queue", value=mean))
    if row.get("n_failed"):
        said.append(words.say_n("attribution.failed", row["n_failed"]))
    return [sentence for sentence in said if sentence]


def _shares(row: Row, words: Words) -> Md:
    shares = row["shares"]
    names = [n for n in ("queue_s", "prefill_s", "decode_s") if shares.get(n) is not None]
    if "prefill_s" not in names and shares.get("ttft_s") is not None:
        names = ["ttft_s", *(name for name in names if name == "decode_s")]
    if not set(names) - {"queue_s"}:
        return words.say("attribution.not_on_record")
    parts = [words.say(f"attribution.share_{n}", share=numbers.size(shares[n])) for n in names]
    return words.say_n(
        "attribution.shares",
        len(row["requests"]),
        parts=markdown.joined(parts, words.say("sentence.comma")),
    )


def _alone(row: Row, term: str, column: str, shown: str, words: Words) -> Md:
    """What this term alone would have to be on the requests that miss the target."""
    states = [request.get(f"{term}_alone") for request in row["requests"]]
    if None in states:
        return Md("")
    target = numbers.target(row["metric"], row["target"], row["op"])
    lost = states.count(NOT_REACHABLE)
    if lost:
        key = f"attribution.{term}_cannot"
        return words.say_n(key, len(states), target=target, lost=str(lost))
    needs = [request[column] for request in row["requests"]]
    strictest = _STRICTEST.get(term, min)(needs)
    return words.say(
        f"attribution.{term}_alone", target=target, value=numbers.show(shown, strictest)
    )


def _known(request: Row) -> bool:
    return request["ttft_s"] is not None


def _base(row: Row) -> str:
    return str(row["metric"]).rpartition("_")[0]
