"""The profile of a decode step in an experiment's section: what it is worth, its tables, where its files are.

In: `Findings` and the catalogue. Out: `Block`s of finished text. An invalid profile says why and shows no figure of a
region; one in mode sync gives an order only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import (
    markdown,
    numbers,
    report_annex,
    report_profile_tables,
    report_profile_told,
    step_export,
    step_groups,
)
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import metric_label, variant_label
from decodelab.report_tables import Table
from decodelab.report_verdicts import Bullet
from decodelab.step_groups import Group
from decodelab.step_table import Profile, Region
from decodelab.words import Words

MAX_FILES = 4  # of one launch, named
MAX_TARGETS = 8
NOT_IMPORTED = "not imported"  # by any process: a module of another engine or version


@dataclass
class Block:
    title: Md
    facts: list[Bullet]
    tables: list[Table]


def blocks(findings: Findings, experiment: str | None, words: Words) -> list[Block]:
    """`experiment` None: what the config gives of a variant that no experiment has."""
    found = step_groups.of_experiment(findings, experiment)
    return [_block(findings, group, words) for group in found]


def _block(findings: Findings, group: Group, words: Words) -> Block:
    usable = list(group.usable.values())
    facts = [_state(group, words), *_invalid(group, words)]
    tables: list[Table | None] = []
    if group.states_shares:
        facts += _step(usable, words, group.arm is None)
        facts += _collectives(usable, words) + _device(usable, words)
        tables.append(report_profile_tables.shares(usable, words))
        tables.append(report_profile_tables.other_phases(usable, words))
        tables += [
            report_profile_tables.kernels(name, one, words) for name, one in group.usable.items()
        ]
    elif usable:
        tables.append(report_profile_tables.order(usable, words))
    facts += _checks(group, words) + _doubts(usable, words) + _missing_targets(group, words)
    facts += _files(findings, group, words)
    return Block(title(findings, group, words), facts, [table for table in tables if table])


def title(findings: Findings, group: Group, words: Words) -> Md:
    if group.arm is None:
        (name,) = group.profiles
        return words.say("profile.title_given", name=name)
    return words.say(
        "profile.title",
        variant=variant_label(findings, group.arm.variant, words),
        load=group.arm.workload,
        concurrency=str(group.arm.concurrency),
    )


# what it is worth ---------------------------------------------------------------------------------


def _state(group: Group, words: Words) -> Bullet:
    of, n = str(len(group.profiles)), len(group.usable)
    state = "valid" if group.states_shares else "order" if n else "invalid"
    how = list(dict.fromkeys(_how(one, words) for one in group.profiles.values()))
    shown = markdown.joined(how, words.say("sentence.comma"))
    if group.arm is None:
        return Bullet(words.say(f"profile.state_given.{state}", how=shown))
    return Bullet(words.say(f"profile.state.{state}", n=str(n), of=of, how=shown))


def _how(profile: Profile, words: Words) -> Md:
    """What it was read from, and for timers of ours how they timed."""
    key = f"profile.source.{profile.source}"
    source = words.say(key) if key in words else markdown.code(profile.source)
    if profile.source != "events" and profile.mode is None:
        return source
    mode = markdown.code(profile.mode) if profile.mode else words.say("profile.not_known")
    return markdown.joined(
        [source, words.say("profile.mode", mode=mode)], words.say("sentence.comma")
    )


def _invalid(group: Group, words: Words) -> list[Bullet]:
    """Every launch that is invalid, with each of its reasons."""
    bullets = []
    for name, one in group.profiles.items():
        if not one.valid:
            why = report_profile_told.sentences("problem", one.problems, words)
            bullets.append(Bullet(words.say("profile.invalid", run=name), why))
    return bullets


def _step(profiles: Sequence[Profile], words: Words, given: bool) -> list[Bullet]:
    tables = [table for one in profiles if (table := one.table()) is not None]
    if not tables:
        return [Bullet(words.say("profile.no_decode_steps"))]
    ranks = dict.fromkeys(numbers.count(one.ranks) for one in profiles)
    if all(table.step_ms_p50 is None and table.steps is None for table in tables):
        return []  # a plain table that tells no steps
    text = words.say(
        "profile.step_given" if given else "profile.step",
        p50=numbers.show_range("region_ms", [table.step_ms_p50 for table in tables]),
        p90=numbers.show_range("region_ms", [table.step_ms_p90 for table in tables]),
        steps=numbers.show_range("n_steps", [table.steps for table in tables]),
        ranks="/".join(ranks),
        **({} if given else {"launches": str(len(profiles))}),
    )
    return [Bullet(text)]


def _checks(group: Group, words: Words) -> list[Bullet]:
    """Closure, overhead and output of each launch, whatever they say: no figure of a region is among them."""
    bullets = []
    for name, one in group.profiles.items():
        parts = [_closure(one, words), _overhead(one, words), _output(one, words)]
        text = markdown.joined([part for part in parts if part], words.say("sentence.semicolon"))
        if text:
            bullets.append(Bullet(words.say("profile.checks", run=name, text=text)))
    return bullets


def _closure(profile: Profile, words: Words) -> Md | None:
    table = profile.table()
    if table is None or table.closure is None:
        return None
    return words.say("profile.closure", value=numbers.effect(table.closure))


def _overhead(profile: Profile, words: Words) -> Md | None:
    told = profile.overhead
    if not told or told.get("overhead") is None:
        return words.say("profile.overhead_not_known") if profile.source == "events" else None
    metric = str(told.get("metric") or "")
    return words.say(
        "profile.overhead",
        value=numbers.effect(told["overhead"]),
        metric=metric_label(words, metric) if metric else numbers.DASH,
        profiled=_value(metric, told.get("profiled")),
        twin=_value(metric, told.get("twin")),
    )


def _value(metric: str, told: Any) -> Md:
    """A figure of the metric; a run is told by its name."""
    return markdown.code(told) if isinstance(told, str) else Md(numbers.show(metric, told))


def _output(profile: Profile, words: Words) -> Md | None:
    told: Mapping[str, Any] = profile.same_output or {}
    same, compared = told.get("same"), told.get("compared")
    if same is None:
        return words.say("profile.output_not_compared") if profile.source == "events" else None
    key = "profile.output_same" if same is True or same == compared else "profile.output_differs"
    return words.say(key, n=numbers.count(compared))


def _doubts(profiles: Iterable[Profile], words: Words) -> list[Bullet]:
    told = [doubt for one in profiles for doubt in one.doubts]
    lines = report_profile_told.sentences("doubt", told, words)
    return [Bullet(words.say("profile.doubtful", text=line)) for line in lines]


# what else it tells -------------------------------------------------------------------------------


def _collectives(profiles: Sequence[Profile], words: Words) -> list[Bullet]:
    """Time in collectives, waiting for the slowest rank apart from the transfer."""
    found = [
        r for one in profiles if (t := one.table()) for r in t.regions if r.region == "collective"
    ]
    if not found:
        return []

    def shown(values: Iterable[float | None]) -> str:
        return numbers.show_range("region_ms", list(values))

    if any(region.wait_ms is None or region.transfer_ms is None for region in found):
        whole = shown(region.ms_mean for region in found)
        return [Bullet(words.say("profile.collective_whole", value=whole))]
    text = words.say(
        "profile.collective",
        value=shown(region.ms_mean for region in found),
        wait=shown(region.wait_ms for region in found),
        transfer=shown(region.transfer_ms for region in found),
        calls=_calls(found),
    )
    return [Bullet(text)]


def _calls(regions: Sequence[Region]) -> str:
    return "/".join(dict.fromkeys(numbers.per_step(r.calls_per_step) for r in regions))


def _device(profiles: Sequence[Profile], words: Words) -> list[Bullet]:
    """What only a trace of the device knows."""
    busy = [one.gpu_busy_share for one in profiles]
    gaps = [one.gap_ms_per_step for one in profiles]
    launches = dict.fromkeys(
        numbers.per_step(one.launches_per_step)
        for one in profiles
        if one.launches_per_step is not None
    )
    if not launches and all(value is None for value in (*busy, *gaps)):
        return []
    text = words.say(
        "profile.device",
        busy=numbers.show_range("region_share", busy),
        gaps=numbers.show_range("region_ms", gaps),
        launches="/".join(launches) or numbers.DASH,
    )
    return [Bullet(text)]


def _missing_targets(group: Group, words: Words) -> list[Bullet]:
    """What was asked to be timed and is not in this engine: reported, never ignored."""
    missing: dict[tuple[str, str], str | None] = {}
    for one in group.profiles.values():
        found = {target.get("region") for target in one.targets if target.get("found")}
        for target in one.targets:
            if target.get("found") is False and target.get("region") not in found:
                key = (str(target.get("region")), str(target.get("target")))
                missing.setdefault(key, target.get("why"))
    if not missing:
        return []
    never = [region for (region, _), why in missing.items() if why == NOT_IMPORTED]
    under = [
        words.say_n("profile.targets_not_imported", never.count(region), region=region)
        for region in dict.fromkeys(never)
    ]
    under += [
        words.say(
            "profile.target",
            region=region,
            target=target,
            why=report_profile_told.figure("why", why, words),
        )
        for (region, target), why in missing.items()
        if why != NOT_IMPORTED
    ]
    more = len(under) - MAX_TARGETS
    if more > 1:
        under = [*under[:MAX_TARGETS], words.say("profile.more_targets", n=str(more))]
    return [Bullet(words.say("profile.targets"), under)]


# where its files are ------------------------------------------------------------------------------


def _files(findings: Findings, group: Group, words: Words) -> list[Bullet]:
    if group.arm is None:
        (one,) = group.profiles.values()
        return [Bullet(words.say("profile.files_given", files=_named(one.files, words)))]
    lines = [_of_run(findings, name, one, words) for name, one in group.profiles.items()]
    return [Bullet(words.say("profile.files"), lines)]


def _of_run(findings: Findings, name: str, profile: Profile, words: Words) -> Md:
    entry = report_annex.published_run(findings, name)
    parts = [words.say("profile.raw", run=name, files=_named(profile.files, words))]
    if entry.get("raw"):
        parts.append(words.say("profile.raw_folder", raw=entry["raw"]))
    if name in findings.traces:
        parts.append(words.say("profile.trace", link=_trace(findings, name)))
    return markdown.joined(parts, words.say("sentence.comma"))


def _named(files: Sequence[str], words: Words) -> Md:
    names = [markdown.code(file) for file in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        names.append(words.say("profile.more_files", n=str(len(files) - MAX_FILES)))
    return markdown.joined(names, words.say("sentence.comma")) if names else Md(numbers.DASH)


def _trace(findings: Findings, run: str) -> Md:
    """Reports stand in report/<study>/, traces in results/<study>/traces/, unless it is a partial one."""
    own = f"../../results/{findings.plan['study']}/{step_export.FOLDER}"
    path = f"{findings.traces_at or own}/{run}{step_export.SUFFIX}"
    return Md(f"[{markdown.code(path.replace('../', ''))}]({path})")
