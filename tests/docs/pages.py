"""What the documents hold that a test can hold them to: fenced blocks, commands, links.

In: Markdown files of the checkout. Out: blocks with the marks of their info string, the command lines
in them, command lines in running text, links and anchors.

Marks are words `name=value` behind the language: ```sh needs=host```. See test_commands.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<ticks>`{3,}) *(?P<info>[^`]*)$")
# Reports are made by the machine; what is written by people and shows commands is the rest.
MADE = ("docs/example-",)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SEPARATORS = ("&&", "||", ";", "|", "&")


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its fence
    language: str
    marks: dict[str, str]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One program with its words, as the shell would start it."""

    place: str
    words: list[str]
    marks: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def tracked(*patterns: str) -> list[str]:
    """Files of the checkout that git knows, or would take in."""
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "-co", "--exclude-standard", "-z", "--", *patterns],
        capture_output=True,
        check=True,
    )
    names = sorted(filter(None, listed.stdout.decode().split("\0")))
    return [name for name in names if (REPO / name).is_file()]


def documents() -> list[str]:
    """Every Markdown page that people write and that is no test's sample."""
    return [n for n in tracked("*.md") if not n.startswith(("tests/", *MADE))]


def all_pages() -> list[str]:
    """The same and the committed example reports, whose links must resolve too."""
    return [n for n in tracked("*.md") if not n.startswith("tests/")]


def read(page: str) -> str:
    return (REPO / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The page's fenced blocks. Raises ValueError for one that does not end."""
    found, lines = [], read(page).splitlines()
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at].strip())
        if not fence:
            at += 1
            continue
        begin, close = at, fence["ticks"]
        at += 1
        while at < len(lines) and lines[at].strip() != close:
            at += 1
        if at == len(lines):
            raise ValueError(f"{page}:{begin + 1}: this block does not end")
        language, *words = fence["info"].split() or [""]
        marks = dict(word.partition("=")[::2] for word in words)
        found.append(
            Block(page, begin + 1, language, marks, "\n".join(lines[begin + 1 : at]) + "\n")
        )
        at += 1
    return found


def prose(page: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced blocks, with their numbers."""
    inside: str | None = None
    for number, line in enumerate(read(page).splitlines(), 1):
        fence = FENCE.match(line.strip())
        if inside is None and fence:
            inside = fence["ticks"]
        elif inside is not None and line.strip() == inside:
            inside = None
        elif inside is None:
            yield number, line


def commands(block: Block) -> list[Command]:
    """The commands of a block in order, without variables set before them and redirections."""
    return [
        Command(f"{block.page}:{block.line + number}", words, block.marks)
        for number, line in logical_lines(block.text)
        for words in split(line)
    ]


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a script with what they continue on: a backslash, or an open quote."""
    begin, held = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        begin = begin if held else number
        held += line if not line.endswith("\\") else line[:-1] + " "
        if line.endswith("\\"):
            continue
        try:
            shlex.split(held, comments=True)
        except ValueError:
            held += "\n"
            continue
        if held.strip():
            yield begin, held
        held = ""
    if held:
        raise ValueError(f"a quote that does not end: {held}")


def split(line: str) -> list[list[str]]:
    """The commands of a logical line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    out: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if skip:
            skip = False
        elif word in SEPARATORS:
            out.append([])
        elif set(word) <= set("<>&"):
            skip = True
        else:
            out[-1].append(word)
    return [bare for words in out if (bare := without_variables(words))]


def without_variables(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and re.match(r"^[A-Za-z_]\w*=", words[at]):
        at += 1
    return words[at:]


def inline_commands(page: str) -> list[Command]:
    """Code in running text that begins as a command of this product does."""
    found = []
    for number, line in prose(page):
        for code in INLINE.findall(line):
            if set(code) & set("<[") or "KEY=VALUE" in code:
                continue  # a form, not a command
            if re.match(
                r"(\.venv/bin/)?(snakemake|python scripts/|python benchmarks/|make [a-z])", code
            ):
                found += [Command(f"{page}:{number}", words) for words in split(code)]
    return found


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them, and its own `<a id>`."""
    seen: dict[str, int] = {}
    out = set()
    for _, line in prose(page):
        out |= set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line))
        heading = re.match(r"^#{1,6} +(.*?) *#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        out.add(f"{name}-{count}" if count else name)
    return out


def links(page: str) -> list[tuple[int, str]]:
    """Targets of links and pictures, without those to other places of the net."""
    found = []
    for number, line in prose(page):
        plain = INLINE.sub("", line)
        for target in re.findall(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)", plain):
            if not re.match(r"[a-z]+:", target):
                found.append((number, target))
    return found
