"""Every command that a document shows works: it is run, or it could be run.

A fenced `sh` block is run in a scratch clone, page by page in order; each command must end with 0, or the
block with `exit=N`. A block that cannot run here says why:

    needs=host, needs=vllm, needs=server, needs=network, needs=time   what the reader has and a test has not
    slow=FILE                                        it takes minutes, and FILE (a test, .ci/run) runs it

Of these and of commands in running text it is checked that program, script, target, option, control key and
file exist. A `text of=above` block must be what the commands above it really print, `…` standing for what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import known, pages
from tests.docs.pages import Block, Command
from tests.docs.scratch import Ran, Scratch

LANGUAGES = {"sh", "yaml", "text", "json", "jsonc", "make", "python", "markdown"}
MARKS = {"sh": {"needs", "slow", "exit"}, "yaml": {"file", "into"}, "text": {"of"}}
NEEDS = {"host", "vllm", "server", "network", "time"}
DOCUMENTS = pages.documents()
# Their commands are those of the page that they translate, which is the one that is run.
TRANSLATED = {"README.zh.md": "README.md", "docs/tutorial.zh.md": "docs/tutorial.md"}


def all_blocks() -> Iterator[Block]:
    for page in DOCUMENTS:
        yield from pages.blocks(page)


SHELL = [block for block in all_blocks() if block.language == "sh"]


def is_run(block: Block) -> bool:
    return block.language == "sh" and not {"needs", "slow"} & set(block.marks)


def written(page: str) -> set[str]:
    """Files that the page tells the reader to write."""
    found = {b.marks[m] for b in pages.blocks(page) for m in ("file", "into") if m in b.marks}
    for block in pages.blocks(page):
        if block.language == "sh":
            found |= {c.words[-1] for c in pages.commands(block) if c.words[0] == "cp"}
    return found


RUN = [
    page
    for page in DOCUMENTS
    if page not in TRANSLATED and any(is_run(block) for block in pages.blocks(page))
]


def test_there_is_something_to_run() -> None:
    assert {"README.md", "docs/tutorial.md", "config/README.md"} <= set(DOCUMENTS)
    assert len(RUN) > 10


def test_every_block_says_what_it_is() -> None:
    for block in all_blocks():
        assert block.language in LANGUAGES, f"{block.place}: {block.language!r}"
        unknown = set(block.marks) - MARKS.get(block.language, set())
        assert not unknown, f"{block.place}: {unknown}"


@pytest.mark.parametrize("block", SHELL, ids=lambda b: b.place)
def test_a_reason_not_to_run_is_a_real_one(block: Block) -> None:
    needs, slow = block.marks.get("needs"), block.marks.get("slow")
    assert needs is None or needs in NEEDS, block.place
    if slow is not None:
        covered = pages.REPO / slow
        assert covered.is_file(), f"{block.place}: no {slow}"
        text = covered.read_text(encoding="utf-8")
        for command in pages.commands(block):
            named = [word for word in command.words[1:] if re.match(r"[a-z]", word)][-1:]
            assert named and named[0] in text, f"{command}: {slow} does not run it"


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translation_shows_the_same_commands(page: str) -> None:
    def shown(name: str) -> list[tuple[str, dict[str, str], str]]:
        kept = [b for b in pages.blocks(name) if b.language in ("sh", "text")]
        return [(b.language, b.marks, b.text) for b in kept]

    original = shown(TRANSLATED[page])
    assert shown(page), page
    assert [block for block in shown(page) if block not in original] == []


def every_command() -> list[Command]:
    shown = [command for block in SHELL for command in pages.commands(block)]
    return shown + [command for page in DOCUMENTS for command in pages.inline_commands(page)]


def test_every_command_could_be_given() -> None:
    files = {page: written(page) for page in DOCUMENTS}
    wrong = [
        f"{command}\n    {fault}"
        for command in every_command()
        for fault in known.faults(command.words, files[command.place.rsplit(":", 1)[0]])
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "snakemake --cores 1 raport",
        "snakemake --cores 1 report --configfil config/config.yaml --no-such-option",
        "snakemake --cores 1 report --configfile config/no-such-study.yaml",
        "snakemake --cores 1 report --config retri=A",
        "snakemake --cores 1 report --forcerun write_rapport",
        "snakemake --cores 1 experiment_Z",
        "make raport",
        "make report STUDDY=x",
        "python scripts/make_plans.py --config config/config.yaml",
        "python scripts/make_plan.py --config config/config.yaml --prnt",
        "python scripts/make_plan.py --config config/confg.yaml --print",
        ".venv/bin/snakemake --cores 1 chek_hosts",
        "snakemaek -n report",
    ],
)
def test_a_mistyped_command_is_found(line: str) -> None:
    (words,) = pages.split(line)
    assert known.faults(words)


@pytest.mark.parametrize("page", RUN)
def test_commands_run(page: str, tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    above: Ran | None = None
    try:
        for block in pages.blocks(page):
            scratch.take(block)
            if is_run(block):
                above = scratch.run(block.text)
                wanted = int(block.marks.get("exit", "0"))
                assert above.exit_code == wanted, f"{block.place}:\n{block.text}{above.output}"
            elif block.language == "sh":
                above = None
            if block.marks.get("of") == "above":
                assert above is not None, f"{block.place}: nothing above it was run"
                lost = first_lost(block.text, above.output)
                assert lost is None, f"{block.place}: not printed: {lost!r}\n{above.output}"
    finally:
        scratch.lab.end_all()


def first_lost(shown: str, printed: str) -> str | None:
    """The first piece of what a page shows that its commands do not print, in order."""
    text, at = " ".join(printed.split()), 0
    for line in shown.splitlines():
        for piece in line.split("…"):
            wanted = " ".join(piece.split())
            found = text.find(wanted, at)
            if found < 0:
                return wanted
            at = found + len(wanted)
    return None


def test_what_is_shown_must_be_printed() -> None:
    printed = "Job 1:\n  reason: missing\ntotal   4\n"
    assert first_lost("Job …\n…\ntotal 4\n", printed) is None
    assert first_lost("total 5\n", printed) == "total 5"
    assert first_lost("total 4\nJob 1:\n", printed) == "Job 1:"
