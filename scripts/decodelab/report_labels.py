"""What things are called in a report: variants, metrics, the parameters of a grid.

In: names of the plan and of table columns. Out: Markdown labels in the words of a catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence

from decodelab import markdown, numbers
from decodelab.findings import Arm, Findings, Row, Verdict
from decodelab.markdown import Md
from decodelab.words import Words


def variant_label(findings: Findings, name: str, words: Words) -> Md:
    label = words.pick(findings.variant(name).get("label"))
    return markdown.prose(label) if label else markdown.code(name)


def metric_label(words: Words, metric: str) -> Md:
    """`ttft_s_p90` -> TTFT P90; a metric that the catalogue does not know keeps its own name."""
    name = numbers.column(metric)
    if f"metric.{name}" in words:
        return words.say(f"metric.{name}")
    adjusted, base, which = numbers.split(metric)
    if f"metric.{base}" not in words or (which and f"statistic.{which}" not in words):
        return markdown.code(metric)
    label = words.say(f"metric.{base}")
    if which:
        label = words.say(f"statistic.{which}", metric=label)
    return words.say("statistic.adjusted", metric=label) if adjusted else label


def asked_label(findings: Findings, verdict: Verdict, words: Words) -> Md:
    """The metric of a verdict; one of a step's region with the region."""
    label = metric_label(words, verdict.get("metric") or "")
    region = verdict.get("region") or findings.question(verdict).get("region")
    return words.say("metric.of_region", metric=label, region=region) if region else label


def statistic(metric: str, row: Row) -> str:
    """The column of runs.csv that holds a question's metric for one run."""
    name = numbers.column(metric)
    candidates = (name, f"{name}_median", f"{name}_p50", f"{name}_mean_all")
    return next((candidate for candidate in candidates if candidate in row), name)


def rate_of(findings: Findings, run: str) -> float | None:
    """The rate of an open loop, as planned, else as its record says; None for a closed loop."""
    digest = findings.planned.get(run, {}).get("run")
    told = (findings.plan.get("points") or {}).get(digest) or {}
    found: float | None = told.get("rate") or findings.runs.get(run, {}).get("rate")
    return found or None


def load_of(findings: Findings, arm: Arm, words: Words) -> str:
    """What stands under `concurrency`: an open loop has a rate, and its concurrency is a cap."""
    rate = rate_of(findings, arm.names[0])
    if rate is None:
        return str(arm.concurrency)
    shown = numbers.plain("rate", rate)
    return words.say("table.open_loop", rate=shown, cap=str(arm.concurrency))


def cell_parameters(findings: Findings, variants: Sequence[str]) -> list[str]:
    flags: dict[str, None] = {}
    for name in variants:
        flags.update(dict.fromkeys(findings.variant(name).get("cell") or {}))
    return list(flags)


def parameter_name(flag: str) -> Md:
    return markdown.code(flag.lstrip("-").removeprefix("enable-").replace("-", "_"))


def setting(value: object) -> str:
    if value is True or value is False:
        return "on" if value else "off"
    return numbers.DASH if value is None else str(value)


def capture_tool(findings: Findings, arms: Sequence[Arm]) -> str:
    """The SMI tool's name, as the capture files carry it."""
    captures = [findings.planned[name].get("capture") for arm in arms for name in arm.names]
    return next((capture.split("_")[0] for capture in captures if capture), "SMI")
