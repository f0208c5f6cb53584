"""Mistakes in a config: one clear entry each, all of them at once.

In: where (key path, file and line), what was found, what is allowed, a hint.
Out: the text a user reads, and ConfigError, which carries it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True)
class Mistake:
    path: Path
    found: str
    allowed: str
    hint: str | None = None
    place: str = ""  # file:line

    def text(self) -> str:
        place = f"  ({self.place})" if self.place else ""
        rows = [
            f"{dotted(self.path)}{place}",
            f"  found:   {self.found}",
            f"  allowed: {self.allowed}",
        ]
        return "\n".join(rows + ([f"  hint:    {self.hint}"] if self.hint else []))


class ConfigError(Exception):
    """A config that cannot be used. `str()` is the whole text; `mistakes` holds the entries."""

    def __init__(self, mistakes: Iterable[Mistake | str], name: str = "the config") -> None:
        self.mistakes = list(mistakes)
        count = len(self.mistakes)
        head = f"{count} mistake{'s' if count > 1 else ''} in {name}; nothing was started."
        texts = [m if isinstance(m, str) else m.text() for m in self.mistakes]
        super().__init__("\n\n".join([head, *texts]))


def dotted(path: Path) -> str:
    """variants.grid.vary.--max-num-seqs[1]"""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else str(part))
    return visible(out) or "(top level)"


def shown(value: Any) -> str:
    """A value as a user would write it, cut where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return cut("{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}")
    if isinstance(value, list):
        return cut("[" + ", ".join(map(shown, value)) + "]")
    return cut(f'"{value}"' if isinstance(value, str) else str(value))


def cut(text: str, width: int = 80) -> str:
    text = visible(text)
    return text if len(text) <= width else text[: width - 3] + "..."


def visible(text: str) -> str:
    """Line ends and control characters spelled out, which would break or hide the message."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: _ESCAPES.get(found[0]) or _hex(found[0]), text)


def _hex(character: str) -> str:
    return f"\\x{ord(character):02x}"


def listed(names: Iterable[Any]) -> str:
    """Names in config order; where there are many, the first of them."""
    all_names = [str(n) for n in names]
    more = f", ... ({len(all_names)} in all)" if len(all_names) > 30 else ""
    return ", ".join(all_names[:30]) + more if all_names else "(none is declared)"


def did_you_mean(word: Any, known: Iterable[Any]) -> str | None:
    close = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else None
