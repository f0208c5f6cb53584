"""What the profiles say that a decode step goes to, in a sentence: for the bottleneck section and the summary.

In: `Findings` (through `step_judgement`) and the catalogue. Out: `Bullet`s and Markdown. Nothing is ranked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from decodelab import markdown, numbers, report_profile, step_groups, step_judgement
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_profile_tables import region_label
from decodelab.report_verdicts import Bullet
from decodelab.step_groups import Group
from decodelab.step_judgement import Judgement, Part
from decodelab.words import Words


def bullets(findings: Findings, words: Words) -> list[Bullet]:
    """One an arm, and one a given profile."""
    found = []
    for group in step_groups.groups(findings):
        judged = step_judgement.judge(list(group.profiles.values()))
        name = report_profile.title(findings, group, words)
        told = _sentence(judged, group, words)
        under = [_classes(judged, words)] if judged.classes else []
        found.append(Bullet(words.say("step.told", name=name, text=told), under))
    return found


def summary(findings: Findings, words: Words) -> list[Md]:
    """At most one line: of the first arm of which a valid profile says what leads."""
    for group in step_groups.groups(findings):
        judged = step_judgement.judge(list(group.profiles.values()))
        if judged.state == "clear" and group.arm is not None:
            name = report_profile.title(findings, group, words)
            return [words.say("step.told", name=name, text=_sentence(judged, group, words))]
    return []


def _sentence(judged: Judgement, group: Group, words: Words) -> Md:
    if judged.state == "unranked":
        return words.say(f"step.unranked.{judged.why}")
    if judged.state == "order":
        return words.say(
            "step.order", order=_order(judged, words), overhead=_overhead(group, words)
        )
    step = numbers.show("region_ms", judged.step_ms)
    if judged.state == "tie":
        return words.say("step.tie", step=step, names=_parts(judged.leading, _class_label, words))
    text = words.say(
        "step.most" if judged.most else "step.largest",
        step=step,
        what=words.say(f"step.class.{judged.leading[0].name}"),
        **_figures(judged.leading[0]),
    )
    return markdown.joined([text, *_inside(judged, words)], words.say("sentence.semicolon"))


def _inside(judged: Judgement, words: Words) -> list[Md]:
    """Which region of the class that leads; nothing where the class is one thing."""
    if judged.leading[0].name not in ("work", "host") or not judged.regions:
        return []
    if len(judged.regions) > 1:
        return [words.say("step.regions_level", names=_parts(judged.regions, region_label, words))]
    first = judged.regions[0]
    free = numbers.times(1.0 / (1.0 - first.share) if first.share < 1.0 else None)
    label = region_label(first.name, words)
    return [words.say("step.region", region=label, free=free, **_figures(first))]


def _class_label(name: str, words: Words) -> Md:
    return words.say(f"step.class.{name}")


def _figures(part: Part) -> dict[str, str]:
    return {
        "ms": numbers.show("region_ms", part.ms),
        "share": numbers.show("region_share", part.share),
    }


def _parts(parts: Iterable[Part], label: object, words: Words) -> Md:
    assert callable(label)
    told = [words.say("step.part", name=label(p.name, words), **_figures(p)) for p in parts]
    return markdown.joined(told, words.say("sentence.comma"))


def _classes(judged: Judgement, words: Words) -> Md:
    """All of the step by class, in an order that ranks nothing."""
    told = sorted(judged.classes, key=lambda part: step_judgement.CLASSES.index(part.name))
    return words.say("step.classes", parts=_parts(told, _class_label, words))


def _order(judged: Judgement, words: Words) -> Md:
    groups: Sequence[Md] = [
        markdown.joined([markdown.code(name) for name in group], words.say("step.level"))
        for group in judged.order
    ]
    return markdown.joined(groups, words.say("step.before"))


def _overhead(group: Group, words: Words) -> Md:
    """The timers of a sync profile cost what they cost: printed, never judged."""
    told = [(one.overhead or {}).get("overhead") for one in group.usable.values()]
    known = list(dict.fromkeys(numbers.effect(value) for value in told if value is not None))
    return Md("/".join(known)) if known else words.say("profile.not_known")
