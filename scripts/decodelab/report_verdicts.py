"""One verdict in words: the answer with its number, and what a sceptic asks for.

In: `Findings` and the catalogue. Out: `Bullet`s and Markdown text. A sentence that states a result
is looked up under `<kind>.<verdict>`; none is written for one study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from decodelab import markdown, numbers, report_estimates, report_noise
from decodelab.findings import Findings, Verdict, values
from decodelab.markdown import Md
from decodelab.report_labels import asked_label, metric_label, statistic
from decodelab.words import Words

# Of the evidence, what is a change: points where the effect is.
_CHANGES = ("effect", "interval", "smallest_effect", "smallest_detectable")
GUARD_CODES = ("guard_worse", "guard_open", "guard_no_value")  # told by each guard's own line


@dataclass
class Bullet:
    text: Md
    under: list[Md] = field(default_factory=list)


def answer(findings: Findings, verdict: Verdict, words: Words, coarse: bool = False) -> Md:
    """What was found, as one clause with its number; `coarse` for the summary, which has no line of
    evidence below it: there the number bears its own interval.
    """
    metric = verdict.get("metric") or ""
    target = verdict.get("target")
    bounds = verdict.get("expected") or findings.question(verdict).get("expected")
    change = report_estimates.change(verdict)
    value = report_estimates.value(findings, verdict, coarse)
    places: dict[str, object] = {
        "metric": asked_label(findings, verdict, words),
        "baseline": verdict.get("baseline") or numbers.DASH,
        "candidate": verdict.get("candidate") or numbers.DASH,
        "before": numbers.show(
            metric, verdict.get("baseline_value"), bare=numbers.unit_moves(metric)
        ),
        "after": numbers.show(metric, verdict.get("candidate_value")),
        "effect": _with_interval(
            points(verdict, change.value, words),
            points(verdict, change.interval, words) if coarse else numbers.DASH,
            words,
        ),
        "value": value.value,
        "target": numbers.target(metric, target),
        "expected": numbers.expected(metric, bounds) if bounds else numbers.DASH,
        "series": _series(findings, verdict, words),
        "refused": refused(findings, verdict, words),
    }
    guarded = verdict.get("guarded") or []
    if guarded:
        places["guarded"] = markdown.joined(
            [metric_label(words, name) for name in guarded], words.say("sentence.comma")
        )
    if screened_out(verdict):
        return words.say("answer.screened_out", **places)
    key = "guarded" if guarded else state(findings, verdict)
    if key == "inconclusive" and _counted(verdict) is not None:
        key, places["n"] = "counted", numbers.count(_counted(verdict))
    text = words.say(f"answer.{verdict['kind']}.{key}", **places)
    return markdown.joined(
        [text, *_clauses(findings, verdict, words, coarse)], words.say("sentence.and")
    )


def state(findings: Findings, verdict: Verdict) -> str:
    """The verdict, or `unmeasured` where it is invalid only because its runs still wait."""
    return "unmeasured" if unmeasured(findings, verdict) else str(verdict["verdict"])


def points(verdict: Verdict, shown: str, words: Words) -> str:
    """A change as it is shown, with the word for points of a share where it is no relative one."""
    known = verdict.get("in_points") and shown != numbers.DASH
    return words.say("evidence.in_points", value=shown) if known else shown


def _counted(verdict: Verdict) -> float | None:
    """How many requests the share of a threshold is of, where their number set its interval."""
    arms = verdict.get("population") or []
    if verdict["kind"] != "threshold" or verdict.get("method") not in ("score", "score_t"):
        return None
    of = "ok" if verdict.get("metric") == "cache_hit" else "attempted"
    return arms[0][of] if arms else None


def unmeasured(findings: Findings, verdict: Verdict) -> bool:
    """Whether nothing is wrong with the data but that it is not there yet."""
    given = verdict.get("reasons") or []
    waiting = [item for item in given if item.get("code") == "not_measured"]
    notes = [item for item in given if item.get("code") == "launches_missing"]
    if verdict["verdict"] != "invalid" or not waiting or len(waiting) + len(notes) < len(given):
        return False
    tried = {run["name"] for run in findings.missing() if run["why"] == "invalid"}
    return not tried & {name for item in waiting for name in (item.get("runs") or "").split(", ")}


def screened_out(verdict: Verdict) -> bool:
    """Whether there is no answer since an arm was screened out: no noise, a run that was not made."""
    if verdict["verdict"] != "inconclusive":
        return False
    return any(item.get("code") == "screened_out" for item in verdict.get("reasons") or [])


def refused(findings: Findings, verdict: Verdict, words: Words) -> Md:
    """The arms that cannot start: as judged, else by their starts, else those it may be."""
    arms = [arm for arm in (verdict.get("baseline"), verdict.get("candidate")) if arm]
    failed = verdict.get("refused") or [arm for arm in arms if findings.refused([arm])]
    return names(failed or arms, words)


def level_fact(findings: Findings, verdict: Verdict, words: Words) -> Md:
    """A measured level in round figures, for the report's last line."""
    metric = verdict.get("metric") or ""
    bounds = verdict.get("expected") or findings.question(verdict).get("expected")
    return words.say(
        f"next.level.{verdict['verdict']}",
        metric=asked_label(findings, verdict, words),
        value=numbers.about(
            metric,
            report_estimates.raw_value(verdict),
            report_estimates.limits(findings, verdict),
        ),
        expected=numbers.expected(metric, bounds) if bounds else numbers.DASH,
    )


def _clauses(findings: Findings, verdict: Verdict, words: Words, coarse: bool) -> list[Md]:
    """What belongs to the answer of some questions only."""
    clauses = []
    if coarse and verdict["kind"] in ("threshold", "level"):
        clauses += _interval_of_value(findings, verdict, words)
    if coarse and verdict["kind"] == "scaling":
        clauses += _best_step(verdict, words)
    if verdict.get("point") and verdict["kind"].startswith("compare"):
        clauses.append(words.say("answer.point", point=point(verdict, words)))
    gap = _gap(verdict)
    if gap:
        clauses.append(
            words.say(
                f"gap.{gap}",
                needed=points(verdict, numbers.effect(verdict.get("needed_effect"), 0), words),
            )
        )
    clauses += _waiting(findings, verdict, words)
    if not coarse:
        clauses += _decode_beside(findings, verdict, words)
    row = next(
        (findings.runs[name] for name in verdict.get("runs") or [] if name in findings.runs), None
    )
    if verdict["kind"] == "level" and row and numbers.split(verdict["metric"])[1] == "util_pct":
        power = row.get("power_w_mean_all")
        if power is not None:
            shown = numbers.power_of_cap(power, row.get("power_cap_w"))
            clauses.append(words.say("answer.power", power=shown))
    return clauses


def _with_interval(shown: str, interval: str, words: Words) -> str:
    if interval == numbers.DASH:
        return shown
    return words.say("answer.with_interval", value=shown, interval=interval)


def _interval_of_value(findings: Findings, verdict: Verdict, words: Words) -> list[Md]:
    shown = report_estimates.value(findings, verdict).interval
    if shown == numbers.DASH or verdict["verdict"] in ("invalid", "not_possible"):
        return []
    return [words.say("evidence.value_interval", value=shown)]


def _best_step(verdict: Verdict, words: Words) -> list[Md]:
    """Of a curve the step that the verdict rests on, against the lowest concurrency."""
    told = report_estimates.change(verdict)
    at = (verdict.get("point") or {}).get("concurrency")
    if told.value == numbers.DASH or at is None:
        return []
    shown = _with_interval(told.value, told.interval, words)
    return [words.say("answer.best_step", concurrency=numbers.count(at), effect=shown)]


def _waiting(findings: Findings, verdict: Verdict, words: Words) -> list[Md]:
    """Beside a rate over concurrency, what it did to the wait for the first token."""
    if verdict["kind"] != "scaling" or verdict["verdict"] in ("invalid", "not_possible"):
        return []
    rows = [findings.runs[name] for name in verdict.get("runs") or [] if name in findings.runs]
    known = [
        row
        for row in rows
        if row.get("ttft_s_p90") is not None and row.get("concurrency") is not None
    ]
    if len(known) < 2 or numbers.split(verdict["metric"])[1] == "ttft_s":
        return []
    ordered = sorted(known, key=lambda row: row["concurrency"])
    first, last = (
        numbers.show("ttft_s_p90", row["ttft_s_p90"], coarse=True)
        for row in (ordered[0], ordered[-1])
    )
    return [
        words.say(
            "answer.waiting", metric=metric_label(words, "ttft_s_p90"), first=first, last=last
        )
    ]


def _decode_beside(findings: Findings, verdict: Verdict, words: Words) -> list[Md]:
    """Beside a rate of another definition the one that earlier reports call Output TPS."""
    if numbers.split(verdict.get("metric") or "")[1] not in ("decode_rate", "e2e_tps"):
        return []
    rows = [findings.runs[name] for name in verdict.get("runs") or [] if name in findings.runs]
    column = "decode_tps_p10"
    shown = numbers.show_range(column, [row.get(column) for row in rows], coarse=True)
    if shown == numbers.DASH or verdict["verdict"] in ("invalid", "not_possible"):
        return []
    return [words.say("answer.decode_beside", metric=metric_label(words, column), value=shown)]


def point(verdict: Verdict, words: Words) -> Md:
    """Where on a curve the comparison stands: `concurrency 2`."""
    parts = []
    for name, value in (verdict.get("point") or {}).items():
        if name == "rate":
            parts.append(words.say("answer.at_rate", rate=numbers.plain("rate", value)))
            continue
        label = words.say(f"table.{name}") if f"table.{name}" in words else markdown.code(name)
        shown = f"{value:g}" if isinstance(value, int | float) else str(value)
        parts.append(words.say("answer.at", name=label, value=shown))
    return markdown.joined(parts, words.say("sentence.comma"))


def _gap(verdict: Verdict) -> str | None:
    """Whether the measured effect could close the gap to the target: the interval decides, not the
    estimate.
    """
    needed, bounds = verdict.get("needed_effect"), verdict.get("interval")
    if needed is None or verdict["verdict"] in ("invalid", "not_possible"):
        return None
    if needed <= 0:
        return None  # the target is met, there is no gap
    if not verdict["kind"].startswith("compare"):
        return "needs"
    if verdict.get("explains_gap") is not None:
        return "could" if verdict["explains_gap"] else "cannot"
    if not bounds or any(bound is None for bound in bounds):
        return None
    if bounds[1] < needed:
        return "cannot"
    return "could" if bounds[0] >= needed else "open"


def _series(findings: Findings, verdict: Verdict, words: Words) -> Md:
    """The metric at each concurrency of a scaling question."""
    rows = [findings.runs[name] for name in verdict.get("runs") or [] if name in findings.runs]
    metric = verdict.get("metric") or ""
    items = []
    for concurrency in sorted(
        {row["concurrency"] for row in rows if row.get("concurrency") is not None}
    ):
        group = [row for row in rows if row.get("concurrency") == concurrency]
        shown = numbers.show_range(metric, values(group, statistic(metric, group[0])))
        items.append(
            words.say("answer.series_item", concurrency=numbers.count(concurrency), value=shown)
        )
    return markdown.joined(items, words.say("sentence.comma"))


def question_text(findings: Findings, verdict: Verdict, words: Words) -> Md:
    ask = words.pick(findings.question(verdict).get("ask"))
    if ask:
        return markdown.prose(ask)
    metric = verdict.get("metric") or ""
    return words.say(
        f"ask.{verdict['kind']}",
        metric=asked_label(findings, verdict, words),
        baseline=verdict.get("baseline") or numbers.DASH,
        candidate=verdict.get("candidate") or numbers.DASH,
        target=numbers.target(metric, verdict.get("target")),
        direction=words.say(f"direction.{verdict.get('direction') or 'none'}"),
    )


def word(verdict: str, words: Words) -> Md:
    return words.say(f"verdict.{verdict}")


def evidence(findings: Findings, verdict: Verdict, words: Words) -> Md:
    """Effect, interval, floor, what could be seen at all, and n: what a sceptic asks for."""
    parts = []
    for key in (
        "effect",
        "interval",
        "value_interval",
        "smallest_effect",
        "floor",
        "drift_allowance",
        "smallest_detectable",
    ):
        shown = _evidence_value(findings, key, verdict)
        if shown != numbers.DASH:
            if key in _CHANGES:
                shown = points(verdict, shown, words)
            parts.append(words.say(_evidence_key(key, verdict, words), value=shown))
    for key in ("n_requests", "n_launches"):
        counts = [numbers.count(n) for n in verdict.get(key) or [] if n is not None]
        if counts:
            parts.append(words.say(f"evidence.{key}", value=" / ".join(counts)))
    succeeded = report_noise.population(verdict)
    if succeeded != numbers.DASH:
        parts.append(words.say("evidence.population", value=succeeded))
    return markdown.joined(parts, words.say("sentence.semicolon"))


def _evidence_key(key: str, verdict: Verdict, words: Words) -> str:
    """A floor says where it comes from; the effect of a threshold is its distance to the target."""
    special = verdict.get("floor_source") if key == "floor" else verdict["kind"]
    name = f"evidence.{key}.{special}"
    return name if name in words else f"evidence.{key}"


def _evidence_value(findings: Findings, key: str, verdict: Verdict) -> str:
    if key == "value_interval":
        return report_estimates.value(findings, verdict).interval
    if key in ("effect", "interval"):
        told = report_estimates.change(verdict)
        return told.value if key == "effect" else told.interval
    return numbers.size(verdict.get(key))


def verdict_bullets(findings: Findings, verdicts: Sequence[Verdict], words: Words) -> list[Bullet]:
    bullets = []
    for verdict in verdicts:
        text = words.say(
            "sentence.verdict",
            word=word(state(findings, verdict), words),
            ask=question_text(findings, verdict, words),
            answer=answer(findings, verdict, words),
        )
        told = evidence(findings, verdict, words)
        under = [told] if told else []
        under += report_noise.guard_lines(verdict, words)
        bullets.append(Bullet(text, under + reasons(verdict, words)))
    return bullets


def reasons(verdict: Verdict, words: Words) -> list[Md]:
    told = (item for item in verdict.get("reasons") or [] if item.get("code") not in GUARD_CODES)
    texts = [markdown.escape(words.pick(item) or item.get("code") or "") for item in told]
    if verdict.get("suspect_runs"):
        texts.append(words.say("evidence.suspect", runs=names(verdict["suspect_runs"], words)))
    return [text for text in texts if text]


def names(items: Iterable[str], words: Words, most: int | None = None) -> Md:
    """Each as code; of more than `most` the first ones and how many are left."""
    told = [markdown.code(item) for item in items]
    text = markdown.joined(told[:most], words.say("sentence.comma"))
    left = len(told) - len(told[:most])
    return Md(f"{text} {numbers.ELLIPSIS} (+{left})") if left else text
