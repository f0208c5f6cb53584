"""docs/reference/commands.md names every target, control key, make target and script, and no other."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from decodelab import shape
from tests.docs import known, pages

PAGE = pages.read("docs/reference/commands.md")
STEPS = (path for path in (pages.REPO / "scripts").glob("*.py") if "__main__" in path.read_text())
SCRIPTS = sorted(path.name for path in STEPS)


def rows(heading: str) -> list[list[str]]:
    """The cells of every table row below a heading, up to the next one; heads are left out."""
    level = heading.split()[0]
    part = PAGE.split(f"\n{heading}\n", 1)[1]
    part = re.split(rf"^#{{1,{len(level)}}} |^### ", part, maxsplit=1, flags=re.MULTILINE)[0]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if line.startswith("| `")
    ]
    assert found, heading
    return found


def named(heading: str) -> list[str]:
    """What the first cells name, each once."""
    names = [name for cells in rows(heading) for name in re.findall(r"`([^`]+)`", cells[0])]
    assert len(names) == len(set(names)), heading
    return names


def test_targets_are_the_workflows() -> None:
    """As Snakemake itself lists them, of a study that measures and of one that replays."""
    listed: set[str] = set()
    for study in ("config/config.yaml", "config/2026-07-14-decode.yaml"):
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "--list-rules", "--configfile", study],
            cwd=pages.REPO,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        listed |= set(re.findall(r"^(\w+)$", done.stdout, re.MULTILINE))
    experiments = {name for name in listed if name.startswith("experiment_")}
    assert experiments, listed
    told = set(named("## snakemake"))
    assert told == (listed - experiments) | {"experiment_NAME"}
    assert listed - experiments == known.rules(), "what the other tests take for the rules"


def test_control_keys_are_the_schemas() -> None:
    keys = shape.resolved(shape.schema()["properties"]["control"])["properties"]
    assert named("### Control keys") == list(keys)


def test_make_targets_are_the_makefiles() -> None:
    assert set(named("## make")) == set(known.make_targets())


def test_every_make_target_says_what_it_is() -> None:
    words = ["make", "--no-print-directory", "help"]  # a make above this one would ask for them
    done = subprocess.run(words, cwd=pages.REPO, capture_output=True, text=True)
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert listed == set(known.make_targets()), done.stdout


def test_scripts_are_those_of_the_folder() -> None:
    assert sorted(named("## Scripts")) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_options_are_those_of_its_help(script: str) -> None:
    (told,) = (cells[1] for cells in rows("## Scripts") if cells[0] == f"`{script}`")
    text = known.help_of(f"scripts/{script}")
    options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text.split("options:")[1]))
    assert set(re.findall(r"--[\w-]+", told)) == options - {"--help"}
