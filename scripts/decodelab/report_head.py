"""The head of every page: title, days, what it is about, and where its data comes from.

In: `Findings` and the catalogue. Out: Markdown text, the same on the report and on its summary.
"""

from __future__ import annotations

import re

from decodelab import markdown, numbers, report_environment, report_experiment
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.words import Words


def title(findings: Findings, words: Words) -> Md:
    text = words.pick(findings.plan.get("title"))
    return (
        markdown.prose(text)
        if text and text != findings.plan["study"]
        else words.say("report.title")
    )


def date(findings: Findings) -> str:
    """The days on which the servers were started; of a replay the day that its study carries."""
    days = sorted(
        {day for row in findings.runs.values() for day in _days(row.get("start_id") or "")}
    )
    named = _days(str(findings.plan.get("date") or findings.plan["study"]))
    days = named or days
    if not days:
        return numbers.DASH
    return days[0] if days[0] == days[-1] else f"{days[0]} {numbers.ELLIPSIS} {days[-1]}"


def _days(text: str) -> list[str]:
    match = re.match(r"(\d{4})-?(\d{2})-?(\d{2})(?=T|-|$|\D)", text)
    return ["-".join(match.groups())] if match else []


def about(findings: Findings, words: Words) -> Md:
    host = findings.plan.get("host")
    return words.say(
        "report.about",
        study=markdown.code(findings.plan["study"]),
        host=markdown.code(host) if host else words.say("report.no_host"),
        sources=report_experiment.sources(findings, None, words),
    )


def banner(findings: Findings, words: Words) -> list[Md]:
    sources = findings.sources()
    lines = [words.say(f"banner.{source}") for source in sources] or [words.say("banner.none")]
    if sources and not findings.runs:
        lines.append(words.say("banner.starts_only"))
    if len(sources) > 1:
        lines.append(words.say("banner.mixed"))
    urls = report_environment.attached(findings)
    lines += [words.say("banner.attached", url=url) for url in urls]
    waiting = [run for run in findings.missing() if run["why"] in ("pending", "invalid")]
    if waiting:
        lines.append(words.say_n("banner.partial", len(waiting)))
    return lines
