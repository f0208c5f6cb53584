"""The catalogue of one language: every word of the report that is not data.

In: workflow/report/<language>.yaml (nested keys; a text may hold {named} places). Out: Markdown
with the places filled, each value escaped; `{name:code}` shows the value as a code span.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from decodelab import markdown
from decodelab.markdown import Md

CATALOGUES = Path(__file__).resolve().parents[2] / "workflow" / "report"
LANGUAGES = ("zh", "en")


class MissingWords(KeyError):
    """A key that the catalogue does not have."""


_CJK = re.compile(r"[\u3400-\u9fff]")


class _Filler(string.Formatter):
    """Fills places; a space that a text keeps for Latin words goes where Chinese meets Chinese."""

    def vformat(self, format_string: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        text = ""
        for literal, name, spec, _ in self.parse(format_string):
            text = _seam(text, literal)
            if name is not None:
                text = _seam(text, self.format_field(kwargs[name], spec or ""))
        return text

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "code":
            return markdown.code(str(value))
        if format_spec:
            raise ValueError(f"a place in a text takes no format but 'code', found {format_spec!r}")
        return markdown.inline(value if isinstance(value, str) else str(value))


def _seam(left: str, right: str) -> str:
    if left.endswith(" ") and _CJK.match(left[-2:-1]) and _CJK.match(right):
        return left[:-1] + right
    if right.startswith(" ") and left and _CJK.match(left[-1]) and _CJK.match(right[1:2]):
        return left + right[1:]
    return left + right


class Words:
    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def wants(self, key: str) -> set[str]:
        """The places that a text has."""
        return places(self._texts[key])

    def say(self, key: str, **values: object) -> Md:
        """The text of a key, ready for the report."""
        if key not in self._texts:
            raise MissingWords(f"{self.language}.yaml has no text for {key!r}")
        try:
            text = _Filler().vformat(self._texts[key], (), values)
            opens = self._texts[key].startswith("{") and not key.startswith("heading.")
            return markdown.guarded(text) if opens else Md(text)
        except KeyError as error:
            raise MissingWords(f"{self.language}.yaml: {key!r} needs the value {error}") from error

    def say_n(self, key: str, n: int, **values: object) -> Md:
        """The same of a number of things; one thing has a text of its own."""
        return self.say(f"{key}_one" if n == 1 else key, n=str(n), **values)

    def plain(self, key: str, **values: str) -> str:
        """The same text for places where Markdown is not read (alt texts)."""
        if key not in self._texts:
            raise MissingWords(f"{self.language}.yaml has no text for {key!r}")
        text = ""
        for literal, name, _, _ in string.Formatter().parse(self._texts[key]):
            text = _seam(_seam(text, literal), values[name] if name else "")
        return text

    def pick(self, texts: Mapping[str, str] | str | None) -> str | None:
        """A config's text in this language, or in the other one where it was written once only."""
        if texts is None or isinstance(texts, str):
            return texts or None
        for language in (self.language, *LANGUAGES):
            if texts.get(language):
                return texts[language]
        return None


@functools.cache
def load(language: str, folder: Path = CATALOGUES) -> Words:
    path = folder / f"{language}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise FileNotFoundError(f"no catalogue {path.name} in {folder}; there are: {known}")
    with path.open(encoding="utf-8") as handle:
        return Words(language, dict(_flat(yaml.safe_load(handle))))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        else:
            yield path, str(value)


def places(text: str) -> set[str]:
    """The names that a text wants filled."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}
