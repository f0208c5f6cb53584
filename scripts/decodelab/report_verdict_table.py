"""Many verdicts in rows, for a question with many candidates.

In: `Findings`, the verdicts of one experiment and the catalogue. Out: one `Table`; the same facts as
the sentences of `report_verdicts`, each reason once below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import markdown, numbers, report_estimates, report_noise
from decodelab.findings import Findings, Verdict
from decodelab.markdown import Md
from decodelab.report_labels import asked_label
from decodelab.report_tables import Table
from decodelab.report_verdicts import names, point, points, reasons, state, word
from decodelab.words import Words

MANY = 4  # more verdicts are written as a table


def table(findings: Findings, verdicts: Sequence[Verdict], words: Words) -> Table:
    head = [
        words.say(f"table.{key}")
        for key in ("verdict", "candidate", "baseline", "metric_name", "point")
    ]
    head += [
        words.say(f"table.{key}")
        for key in ("before_after", "effect", "interval", "floor", "population", "n")
    ]
    rows = []
    for verdict in verdicts:
        metric = verdict.get("metric") or ""
        before, after = verdict.get("baseline_value"), report_estimates.raw_value(verdict)
        told = report_estimates.change(verdict)
        counts = [numbers.count(n) for n in verdict.get("n_requests") or [] if n is not None]
        launches = [numbers.count(n) for n in verdict.get("n_launches") or [] if n is not None]
        rows.append(
            [
                word(state(findings, verdict), words),
                markdown.code(verdict.get("candidate") or numbers.DASH),
                markdown.code(verdict.get("baseline") or numbers.DASH),
                asked_label(findings, verdict, words),
                point(verdict, words) or numbers.DASH,
                _before_after(metric, before, after),
                points(verdict, told.value, words),
                points(verdict, told.interval, words),
                numbers.size(verdict.get("floor")),
                report_noise.population(verdict),
                f"{'/'.join(counts) or numbers.DASH} · {'/'.join(launches) or numbers.DASH}",
            ]
        )
    return Table(head, ["left"] * 5 + ["right"] * 6, rows, notes=_reason_notes(verdicts, words))


def _before_after(metric: str, before: float | None, after: float | None) -> str:
    if before is None and after is None:
        return numbers.DASH
    return f"{numbers.show(metric, before, bare=True)} → {numbers.show(metric, after)}"


def _reason_notes(verdicts: Sequence[Verdict], words: Words) -> list[Md]:
    """Each reason once, with the candidates that it is about; a refused start is told with its log
    line.
    """
    about: dict[Md, dict[str, None]] = {}
    told = [verdict for verdict in verdicts if verdict["verdict"] != "not_possible"]
    for verdict in told:
        for text in [*report_noise.guard_lines(verdict, words), *reasons(verdict, words)]:
            about.setdefault(text, {})[verdict.get("candidate") or verdict["id"]] = None
    everyone = {verdict.get("candidate") or verdict["id"] for verdict in told}
    return [
        text
        if set(owners) == everyone
        else words.say("sentence.about", names=names(owners, words), text=text)
        for text, owners in about.items()
    ]
