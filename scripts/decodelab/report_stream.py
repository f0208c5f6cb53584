"""What the streams of an experiment's arms show: bursts, tokens behind an end, tags; usable or not.

In: `Findings` (verdicts.json's `stream` of the experiment) and the catalogue. Out: `Bullet`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import flags, markdown, numbers
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import variant_label
from decodelab.report_verdicts import Bullet
from decodelab.words import Words


def bullets(findings: Findings, experiment: str, words: Words) -> list[Bullet]:
    """One an arm that makes several tokens a step: the sentence, and under it each finding."""
    judged = (findings.judged.get("experiments") or {}).get(experiment) or {}
    entries = [entry for entry in judged.get("stream") or [] if not _never_ran(findings, entry)]
    return [Bullet(_sentence(findings, e, words), _under(findings, e, words)) for e in entries]


def _never_ran(findings: Findings, entry: Mapping[str, Any]) -> bool:
    """It could not start: said in the section already."""
    return not entry["runs"] and findings.refused(_variants(findings, entry))


def _variants(findings: Findings, entry: Mapping[str, Any]) -> list[str]:
    """The variant, or the cells of the grid that have the entry's flags."""
    known = findings.plan.get("variants") or {}
    if entry["variant"] in known:
        return [entry["variant"]]
    return [
        name
        for name, variant in known.items()
        if variant.get("grid") == entry["variant"]
        and {
            flag: str(value) for flag, value in flags.bursts(variant.get("canonical") or {}).items()
        }
        == entry["flags"]
    ]


def _arm(findings: Findings, entry: Mapping[str, Any], words: Words) -> Md:
    """The variant; of a grid its cells with these flags."""
    told = " ".join(f"{flag} {value}" for flag, value in entry["flags"].items())
    if entry["variant"] in (findings.plan.get("variants") or {}):
        return words.say(
            "stream.arm", label=variant_label(findings, entry["variant"], words), flags=told
        )
    return words.say("stream.arm", label=markdown.code(entry["variant"]), flags=told)


def _sentence(findings: Findings, entry: Mapping[str, Any], words: Words) -> Md:
    alone = not entry["faults"] and entry["control_not_told"]
    key = entry["usable"] if entry["runs"] else "no_runs"
    if alone and entry["runs"]:
        key = "control_not_told"
    because = [
        words.say(f"stream.fault_{item['code']}", n=str(item["n"]))
        for item in alone or entry["faults"]
    ]
    return words.say(
        f"stream.{key}",
        arm=_arm(findings, entry, words),
        because=markdown.joined(because, words.say("sentence.semicolon")),
    )


def _under(findings: Findings, entry: Mapping[str, Any], words: Words) -> list[Md]:
    lines = [_arrivals(entry["arrivals"], words)] if entry["runs"] else []
    if entry["split_tags"]:
        lines.append(words.say("stream.split", n=str(entry["split_tags"])))
    if entry["tool_calls"] and not any(f["code"] == "broken_calls" for f in entry["faults"]):
        lines.append(words.say("stream.calls_whole", n=str(entry["tool_calls"])))
    for item in entry["also_in_control"]:
        fault = words.say(f"stream.fault_{item['code']}", n=str(item["n"]))
        control = markdown.code(entry["control"])
        lines.append(words.say("stream.also_in_control", fault=fault, control=control))
    missing = (
        []
        if not entry["runs"]
        else [words.say(f"stream.missing_{code}") for code in entry["not_told"]]
    )
    if missing:
        text = markdown.joined(missing, words.say("sentence.semicolon"))
        lines.append(words.say("stream.missing", text=text))
    return lines


def _arrivals(found: Mapping[str, Any], words: Words) -> Md:
    kind = found["kind"] or "unknown"
    return words.say(
        f"stream.arrive_{kind}",
        k=numbers.count(found["k"]),
        share=numbers.show("multi_token_share", found["share"]),
        step=numbers.milliseconds(found["step_s"]),
    )
