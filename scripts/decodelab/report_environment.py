"""Section two of a report: what was declared about the service, its variants, and what its starts
showed.

In: `Findings` and the catalogue. Out: `Bullet`s. A value of a flag or variable that names a secret
is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from decodelab import flags, markdown, numbers
from decodelab.findings import Findings, values
from decodelab.markdown import Md
from decodelab.report_labels import parameter_name, setting, variant_label
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

HIDDEN = "***"


def facts(findings: Findings, words: Words) -> list[Bullet]:
    given = findings.plan.get("facts") or {}
    lines: list[str] = given.get(words.language) or next(
        (given[name] for name in given if given[name]), []
    )
    return [Bullet(markdown.prose(line)) for line in lines]


def variants(findings: Findings, words: Words) -> list[Bullet]:
    """Each variant by what sets it apart from the one it extends; a grid in one line."""
    used = {run["variant"] for run in findings.planned.values()}
    bullets, grids = [], set()
    for name, variant in (findings.plan.get("variants") or {}).items():
        grid = variant.get("grid")
        if grid and grid not in grids:
            grids.add(grid)
            bullets.append(Bullet(_grid(findings, grid, words)))
        elif not grid and (name in used or _is_parent(findings, name)):
            bullets.append(Bullet(variant_line(findings, name, words)))
    return bullets


def variant_line(findings: Findings, name: str, words: Words) -> Md:
    variant = findings.variant(name)
    label = _titled(findings, name, words)
    if variant.get("attach"):
        return words.say("environment.attached", label=label, url=address(variant["attach"]))
    parent = parent_of(findings, name)
    if not parent:
        own = [_flag(flag, value, words) for flag, value in (variant.get("flags") or {}).items()]
        text = markdown.joined([*own, *_environment(variant.get("env") or {}, words)], " ")
        return words.say(
            "environment.base", label=label, flags=text or words.say("environment.same")
        )
    changes = markdown.joined(
        _changes(variant, findings.variant(parent), words), words.say("sentence.semicolon")
    )
    return words.say(
        "environment.extends",
        label=label,
        parent=markdown.code(parent),
        changes=changes or words.say("environment.same"),
    )


def attached(findings: Findings) -> list[str]:
    """The addresses of the servers that the study only talks to."""
    used = {run["variant"] for run in findings.planned.values()}
    urls = [findings.variant(name).get("attach") for name in sorted(used)]
    return list(dict.fromkeys(address(url) for url in urls if url))


def address(url: str) -> str:
    """A URL without a name and password in it."""
    return re.sub(r"//[^/@]*@", "//", str(url))


def parent_of(findings: Findings, name: str) -> str | None:
    """What a variant is told against: the one that it extends, else the first that has all flags of
    the base.
    """
    variant = findings.variant(name)
    if variant.get("extends"):
        return str(variant["extends"])
    whole = [
        n
        for n, v in (findings.plan.get("variants") or {}).items()
        if not v.get("extends") and not v.get("removed")
    ]
    return whole[0] if whole and whole[0] != name else None


def _is_parent(findings: Findings, name: str) -> bool:
    return any(v.get("extends") == name for v in (findings.plan.get("variants") or {}).values())


def _titled(findings: Findings, name: str, words: Words) -> Md:
    label = variant_label(findings, name, words)
    return (
        label
        if label == markdown.code(name)
        else markdown.joined([label, markdown.code(name)], " ")
    )


def _changes(variant: Mapping[str, Any], parent: Mapping[str, Any], words: Words) -> list[Md]:
    """Flags and variables that are gone, off, or new, each kind in one clause."""
    own, base = variant.get("flags") or {}, parent.get("flags") or {}
    env, inherited = variant.get("env") or {}, parent.get("env") or {}
    differing = [flag for flag in own if flag not in base or base[flag] != own[flag]]
    clauses = {
        "removes": [
            markdown.code(name)
            for name in (*base, *inherited)
            if name not in own and name not in env
        ],
        "turns_off": [markdown.code(flag) for flag in differing if own[flag] is False],
        "sets": [_flag(flag, own[flag], words) for flag in differing if own[flag] is not False],
    }
    changes = [
        words.say(f"environment.{key}", flags=_listed(flags, words))
        for key, flags in clauses.items()
        if flags
    ]
    added = {name: value for name, value in env.items() if inherited.get(name) != value}
    return changes + _environment(added, words)


def _listed(parts: Iterable[Md], words: Words) -> Md:
    return markdown.joined(parts, words.say("sentence.comma"))


def _flag(flag: str, value: object, words: Words) -> Md:
    if value is True:
        return markdown.code(flag)
    if value is False:
        return words.say("environment.switched_off", flag=flag)
    shown = HIDDEN if flags.SECRET.search(flag) else _text(value)
    return markdown.code(f"{flag} {shown}")


def _text(value: object) -> str:
    return " ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def _environment(env: Mapping[str, Any], words: Words) -> list[Md]:
    shown = [
        markdown.code(f"{name}={HIDDEN if flags.SECRET.search(name) else value}")
        for name, value in env.items()
    ]
    return [words.say("environment.env", env=_listed(shown, words))] if shown else []


def _grid(findings: Findings, grid: str, words: Words) -> Md:
    cells = [v for v in (findings.plan.get("variants") or {}).values() if v.get("grid") == grid]
    candidates: dict[str, dict[str, None]] = {}
    for variant in cells:
        for flag, value in (variant.get("cell") or {}).items():
            candidates.setdefault(flag, {})[setting(value)] = None
    parts = [
        words.say(
            "environment.candidates", parameter=parameter_name(flag), values=", ".join(settings)
        )
        for flag, settings in candidates.items()
    ]
    return words.say(
        "environment.grid",
        grid=grid,
        parent=markdown.code(cells[0].get("extends") or grid),
        parameters=_listed(parts, words),
        n=str(len(cells)),
    )


def seen(findings: Findings, words: Words) -> list[Bullet]:
    """What the starts showed; variants that showed the same share a line."""
    lines: dict[Md, list[str]] = {}
    for variant in dict.fromkeys(row["variant"] for row in findings.starts):
        rows = [row for row in findings.starts if row["variant"] == variant]
        parts = [words.say("environment.version", version=v) for v in _distinct(rows, "version")]
        parts += [words.say("environment.backend", backend=v) for v in _distinct(rows, "backend")]
        parts += [words.say("environment.setup", setup=v) for v in _distinct(rows, "setup")]
        if parts:
            lines.setdefault(markdown.joined(parts, words.say("sentence.semicolon")), []).append(
                variant
            )
    labels = {
        what: _few([markdown.code(name) for name in owners], words)
        for what, owners in lines.items()
    }
    return [
        Bullet(words.say("environment.seen", variants=label, what=what))
        for what, label in labels.items()
    ]


def _few(items: list[Md], words: Words, limit: int = 6) -> Md:
    text = _listed(items[:limit], words)
    return Md(f"{text} {numbers.ELLIPSIS} (+{len(items) - limit})") if len(items) > limit else text


def _distinct(rows: list[dict[str, Any]], column: str) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values(rows, column)))
