"""The weighted score in its readings, TTFT by prompt length, and an evaluator's own account.

In: `Findings` (scores and ttft_buckets of verdicts.json, evaluator_check of the index). Out: `Table`s.
Scores stand beside their populations, and are ranked only within one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import markdown, numbers
from decodelab.evaluator_check import AGREES, DIFFERS
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import metric_label
from decodelab.report_tables import Table
from decodelab.report_verdicts import names
from decodelab.vocabulary import SCORES
from decodelab.words import Words

_PARTS = (
    "batch_wall_s",
    "output_tps_wall",
    "e2e_tps_mean",
    "e2e_tps_p10",
    "input_tps_wall",
    "input_tps_mean",
    "cache_tps_wall",
    "cache_tps_warm",
)
Row = Mapping[str, Any]


def tables(findings: Findings, words: Words) -> list[Table]:
    scores = findings.judged.get("scores") or {}
    found = [
        *_scores(findings, scores, words),
        _buckets(findings.judged.get("ttft_buckets") or [], words),
        *_checks(findings, words),
    ]
    return [item for item in found if item is not None]


def _scores(findings: Findings, scores: Row, words: Words) -> list[Table]:
    runs: list[Row] = scores.get("runs") or []
    if not runs:
        return []
    lead = ("run", "validity", "counts")
    head = [*(words.say(f"table.{name}") for name in lead), words.say("score.population")]
    scored = Table(
        [*head, *(metric_label(words, name) for name in SCORES)],
        ["left", "left"] + ["right"] * (2 + len(SCORES)),
        [_scored(row, words) for row in runs],
        title=words.say("score.title"),
        notes=_notes(scores, runs, words),
    )
    parts = Table(
        [words.say("table.run"), *(metric_label(words, name) for name in _PARTS)],
        ["left"] + ["right"] * len(_PARTS),
        [
            [markdown.code(row["run"]), *(numbers.show(n, row.get(n)) for n in _PARTS)]
            for row in runs
        ],
        title=words.say("score.parts"),
        notes=[words.say("score.parts_note")],
    )
    return [scored, parts]


def _scored(row: Row, words: Words) -> list[str]:
    return [
        markdown.code(row["run"]),
        words.say(f"state.{row['validity']}"),
        f"{numbers.count(row['n_ok'])} / {numbers.count(row['n_attempted'])}",
        numbers.count(row.get("population")),
        *(numbers.show(name, row.get(name)) for name in SCORES),
    ]


def _notes(scores: Row, runs: list[Row], words: Words) -> list[Md]:
    notes = [words.say("score.readings"), words.say("score.never")]
    rankings = scores.get("rankings") or []
    for ranking in rankings:
        notes.append(
            words.say(
                "score.ranking",
                reading=metric_label(words, ranking["reading"]),
                population=str(ranking["population"]),
                runs=names(ranking["runs"], words),
            )
        )
    if not rankings and len(runs) > 1:
        notes.append(words.say("score.no_ranking"))
    told = [row["run"] for row in runs if row.get("told")]
    if told:
        notes.append(words.say("score.told", runs=names(told, words)))
    empty = [row["run"] for row in runs if not row["n_ok"]]
    if empty:
        notes.append(words.say("score.none", runs=names(empty, words)))
    return notes


def _buckets(rows: list[Row], words: Words) -> Table | None:
    if not rows:
        return None
    columns = ("bucket", "n", "n_ttft", "p50", "p90", "mean")
    return Table(
        [words.say("table.run"), *(words.say(f"buckets.{name}") for name in columns)],
        ["left", "left", "right", "right", "right", "right", "right"],
        [
            [
                markdown.code(row["run"]),
                words.say(f"buckets.{row['bucket']}"),
                numbers.count(row["n"]),
                numbers.count(row["n_ttft"]),
                *(numbers.show("ttft_s", row[f"{name}_s"]) for name in columns[3:]),
            ]
            for row in rows
        ],
        title=words.say("buckets.title"),
    )


def _checks(findings: Findings, words: Words) -> list[Table]:
    """An imported submission: the evaluator's figures, ours from its rows, and the difference."""
    entries = (findings.published or {}).get("runs") or {}
    return [
        _check(run, entry["evaluator_check"], words)
        for run, entry in entries.items()
        if entry.get("evaluator_check")
    ]


def _check(run: str, lines: list[Row], words: Words) -> Table:
    shown = [line for line in lines if line["theirs"] is not None or line["ours"] is not None]
    states = [line["state"] for line in shown]
    columns = ("metric", "theirs", "ours", "difference", "basis", "state")
    return Table(
        [words.say(f"evaluator.{name}") for name in columns],
        ["left", "right", "right", "right", "left", "left"],
        [
            [
                markdown.code(line["metric"]),
                *(_figure(line[name]) for name in columns[1:4]),
                words.say(f"evaluator.{line['basis']}"),
                words.say(f"evaluator.{line['state']}"),
            ]
            for line in shown
        ],
        title=words.say(
            "evaluator.title",
            run=run,
            agree=str(states.count(AGREES)),
            differ=str(states.count(DIFFERS)),
            n=str(len(shown)),
        ),
        notes=[words.say("evaluator.note")],
    )


def _figure(value: float | None) -> str:
    return numbers.exact(value)
