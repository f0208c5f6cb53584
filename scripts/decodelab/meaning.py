"""The meaning of a config: names that must exist, flags that must be there, numbers in texts.

In: the filled config (parts of wrong shape left out), the config as given, the checkout's root.
Out: every mistake. `meaning_hosts` looks at the machines, `meaning_servers` at what is started on
them, `meaning_workloads` at requests, `meaning_experiments` at what is run and asked; here is what
concerns the study as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from decodelab import (
    meaning_experiments,
    meaning_hosts,
    meaning_profiles,
    meaning_servers,
    meaning_workloads,
    mistakes,
    questions,
    shape,
    targets,
)
from decodelab.mistakes import Mistake
from decodelab.shape import Place
from decodelab.vocabulary import METRIC_ALIASES, METRICS, REGION_METRICS, SCORES


@dataclass
class Check:
    """What all checks share: the config, where its keys stand, the mistakes found so far."""

    config: dict[str, Any]
    given: Mapping[str, Any]
    root: Path
    place: Place
    whole: bool = True  # no part had a wrong shape: what needs all parts together can be checked
    found: list[Mistake] = field(default_factory=list)

    def add(self, path: mistakes.Path, found: str, allowed: str, hint: str | None = None) -> None:
        self.found.append(Mistake(path, found, allowed, hint, self.place(path)))

    def names(self, *path: str) -> list[str]:
        """Names under a key as given, those whose entry has a mistake of its own included."""
        at: Any = self.given
        for part in path:
            at = at.get(part) if isinstance(at, Mapping) else None
        return [str(name) for name in at] if isinstance(at, Mapping) else []

    def known(self, path: mistakes.Path, name: Any, names: list[str], what: str) -> bool:
        """Whether a name exists; if not, a mistake with the names that do."""
        if name in names:
            return True
        self.add(
            path, f'{what} "{name}"', mistakes.listed(names), mistakes.did_you_mean(name, names)
        )
        return False

    def metric(self, path: mistakes.Path, name: str) -> bool:
        return METRIC_ALIASES.get(name, name) in METRICS or self.known(
            path, name, list(METRICS), "unknown metric"
        )

    def text(self, path: mistakes.Path, given: Any, read: Any) -> Any:
        """A text that means a number, read; None and a mistake if it cannot be."""
        try:
            return read(given)
        except ValueError as error:
            self.add(path, mistakes.shown(given), str(error))
            return None


def check(
    config: dict[str, Any], given: Mapping[str, Any], root: Path, place: Place, whole: bool = True
) -> list[Mistake]:
    todo = Check(config, given, root, place, whole)
    _targets(todo)
    _control(todo)
    _replay(todo)
    for path, languages in _texts(given, shape.schema(), ()):
        _languages(todo, path, languages)
    meaning_hosts.check(todo)
    meaning_servers.check(todo)
    meaning_workloads.check(todo)
    meaning_profiles.check(todo)
    meaning_experiments.check(todo)
    return todo.found


def _targets(todo: Check) -> None:
    for name, given in todo.config["targets"].items():
        if name in ("weighted", "score", "weighted_score"):
            hint = "which TPS the contest's 8000 means is not public, so the reading is named"
            todo.add(("targets", name), f'"{name}"', mistakes.listed(SCORES), hint)
        elif name in REGION_METRICS:
            found, hint = (
                f"{name}, which is of one region",
                "write it in a question, with its `region`",
            )
            todo.add(("targets", name), found, "a metric of a whole run", hint)
        elif todo.metric(("targets", name), name):
            unit = questions.unit(name)
            todo.text(("targets", name), given, partial(targets.target, unit=unit))


def _control(todo: Check) -> None:
    retry = todo.config["control"].get("retry")
    names = ["all", *meaning_servers.server_names(todo), *todo.names("experiments")]
    if retry is not None and not retry.startswith(
        "decode_"
    ):  # a run's name is looked up in the plan
        todo.known(("control", "retry"), retry, names, "unknown variant or experiment")


def _replay(todo: Check) -> None:
    config = todo.config
    replay = config.get("replay")
    if not replay:
        if config.get("raw_dir"):
            todo.add(("raw_dir",), mistakes.shown(config["raw_dir"]), "raw_dir beside replay only")
        return
    if config["server"].get("attach"):
        todo.add(
            ("server", "attach"),
            mistakes.shown(config["server"]["attach"]),
            "no attach in a replay",
        )
    for path, folder in (
        (("replay",), replay.get("folder")),
        (("raw_dir",), replay.get("raw_dir")),
    ):
        if folder and not (todo.root / folder).is_dir():
            where = (
                ("control", "raw_dir")
                if path == ("raw_dir",) and config["control"].get("raw_dir")
                else path
            )
            todo.add(
                where, mistakes.shown(folder), "a folder that exists, in the checkout or absolute"
            )


def _texts(
    value: Any, part: Mapping[str, Any], path: mistakes.Path
) -> Iterator[tuple[mistakes.Path, list[str]]]:
    """Every text and list of lines that is given by language, with its languages."""
    if part.get("$ref") in ("#/$defs/text", "#/$defs/lines"):
        if isinstance(value, dict):
            yield path, list(value)
        return
    part = shape.resolved(part)
    if isinstance(value, dict):
        properties, rest = part.get("properties") or {}, part.get("additionalProperties")
        for key, below in value.items():
            schema = properties.get(key, rest)
            if isinstance(schema, dict):
                yield from _texts(below, schema, (*path, key))
    elif isinstance(value, list) and isinstance(part.get("items"), dict):
        for n, item in enumerate(value):
            yield from _texts(item, part["items"], (*path, n))


def _languages(todo: Check, path: mistakes.Path, given: list[str]) -> None:
    missing = [
        language for language in todo.config["languages"] if language and language not in given
    ]
    if missing:
        found = f"a text in {', '.join(given) or 'no language'}"
        wanted = (
            f"every language of the report: {', '.join(filter(None, todo.config['languages']))}"
        )
        todo.add(
            path,
            found,
            wanted,
            f"add {', '.join(missing)}, or leave the language out of `languages`",
        )
