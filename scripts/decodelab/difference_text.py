"""Two versions of one page of the report, number by number.

In: the page as it is written, the page recomputed. Out: a `Difference` for each token that differs,
with its line in the written page and the heading that it stands under.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from decodelab.difference import ABSENT, Difference, shown

# A checksum; a number with its sign, digits, exponent; a word; a single sign. White space parts tokens.
TOKEN = re.compile(r"\b[0-9a-f]{12,}\b|[-+−]?\d[\d.,]*(?:[eE][-+]?\d+(?!\w))?|[^\W\d_]+|\S")
NUMBER = re.compile(r"\d")
_BEFORE = 24  # characters of the line that are shown in front of a token
_HEADING = re.compile(r"^#{1,6}\s+(.*)$")


def numbers_in(text: str) -> int:
    """How many numbers a page holds."""
    return sum(bool(NUMBER.search(token)) for token in TOKEN.findall(text))


def compare(old: str, new: str, file: str) -> list[Difference]:
    before, after = old.splitlines(), new.splitlines()
    found: list[Difference] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal":
            found += _block(before, first, last, after[start:end], file)
    if not found and old != new:
        found.append(Difference(file, "ends of lines", "otherwise", "as they are made"))
    return found


def _block(
    lines: Sequence[str], first: int, last: int, fresh: Sequence[str], file: str
) -> Iterator[Difference]:
    """Lines that were changed side by side; those that only one side has as they are."""
    gone = lines[first:last]
    paired = min(len(gone), len(fresh))
    for number in range(paired):
        place = f"line {first + number + 1}{_under(lines, first + number)}"
        yield from _tokens(gone[number], fresh[number], file, place)
    for number in range(paired, len(gone)):
        place = f"line {first + number + 1}{_under(lines, first + number)}"
        if gone[number].strip():
            yield Difference(file, place, shown(gone[number]), ABSENT)
    for line in fresh[paired:]:
        if line.strip():
            place = f"after line {last}{_under(lines, last - 1)}"
            yield Difference(file, place, ABSENT, shown(line))


def _under(lines: Sequence[str], at: int) -> str:
    """The heading above a line, for people."""
    for line in reversed(lines[: at + 1]):
        heading = _HEADING.match(line)
        if heading:
            return f" (under “{heading.group(1)}”)"
    return ""


def _tokens(old: str, new: str, file: str, place: str) -> Iterator[Difference]:
    spans = list(TOKEN.finditer(old))
    before, after = [found.group() for found in spans], TOKEN.findall(new)
    if before == after:
        yield Difference(file, place, f"[{shown(old)}]", f"[{shown(new)}]")  # white space alone
        return
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            continue
        if last - first == end - start:
            for number, (one, other) in enumerate(
                zip(before[first:last], after[start:end], strict=True), start=first
            ):
                yield Difference(file, _beside(place, old, spans[number].start()), one, other)
        else:
            at = spans[first].start() if first < len(spans) else len(old)
            sides = (" ".join(before[first:last]), " ".join(after[start:end]))
            told = (shown(side) if side else ABSENT for side in sides)
            yield Difference(file, _beside(place, old, at), *told)


def _beside(place: str, line: str, at: int) -> str:
    """The place with what stands in front of the token, so that one of many numbers is found."""
    text = line[:at].strip()
    return f"{place}, after “{text[-_BEFORE:].strip()}”" if text else place
