"""Whether a command could be given at all: the program, target, script, option and file that it names.

In: the words of a command. Out: what is wrong with it, in words; nothing where it could run. Nothing of
the command itself is run: Snakemake's own parser reads its options, `--help` those of our scripts.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache

import yaml
from snakemake.cli import get_argument_parser

from decodelab import shape
from tests.docs.pages import REPO

# Programs of the reader's own machine that documents may name.
ORDINARY = {
    "apt-get", "cat", "cd", "cp", "cut", "dot", "echo", "git", "grep", "head", "less", "ls", "mkdir", "rsync",
    "sed", "source", "ssh", "tar", "uv", "vllm", "xdg-open",
}  # fmt: skip
PLACEHOLDER = re.compile(r"…|^[A-Z][A-Z0-9_]*$|[A-Z]{3,}|^<.*>$")


def faults(words: list[str], files: Collection[str] = ()) -> list[str]:
    """What is wrong with a command; `files` are those that the page has written before."""
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program == "snakemake":
        return _snakemake(rest, files)
    if program in ("python", "python3"):
        return _python(rest, files)
    if program == "make":
        return _make(rest)
    if program in ORDINARY:
        return []
    if "/" in program:
        return [] if (REPO / program).is_file() or ".venv-vllm/" in program else [f"no {program}"]
    return [f"a program that no document has named so far: {program}"]


# ---------------------------------------------------------------- snakemake


@cache
def rules() -> frozenset[str]:
    """Every rule of the workflow but those that experiments give their names."""
    text = "\n".join(
        file.read_text(encoding="utf-8")
        for file in (REPO / "Snakefile", *sorted((REPO / "workflow/rules").glob("*.smk")))
    )
    return frozenset(re.findall(r"^ *(?:rule|checkpoint) (\w+):", text, re.MULTILINE))


@cache
def control_keys() -> frozenset[str]:
    return frozenset(shape.resolved(shape.schema()["properties"]["control"])["properties"])


@cache
def experiments(config: str) -> frozenset[str]:
    study = yaml.safe_load((REPO / config).read_text(encoding="utf-8"))
    return frozenset(f"experiment_{name}" for name in study.get("experiments") or {})


def _snakemake(words: list[str], files: Collection[str]) -> list[str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            args, unknown = get_argument_parser().parse_known_args(words)
    except SystemExit:
        return [f"snakemake: {said.getvalue().strip().splitlines()[-1]}"]
    configs = [str(f) for f in args.configfile or []] or ["config/config.yaml"]
    found = [f"snakemake: no option {word}" for word in unknown]
    found += [f"no {name}" for name in configs if not _is_there(name, files)]
    for pair in args.config or []:
        key = pair.partition("=")[0]
        if key not in control_keys():
            found.append(f"no control key {key}")
    targets = [str(word) for word in args.targets]
    named = {
        name for config in configs if (REPO / config).is_file() for name in experiments(config)
    }
    found += [
        f"no target {word}"
        for word in targets
        if word not in rules() | named
        and not word.startswith(("results/", "report/"))
        and not (
            word.startswith("experiment_")
            and (set(configs) & set(files) or PLACEHOLDER.search(word))
        )
    ]
    found += [f"no rule {word}" for word in _forced(args) if word not in rules()]
    return found


def _forced(args: object) -> Iterator[str]:
    for name in ("forcerun", "until", "omit_from"):
        for word in getattr(args, name, None) or []:
            if isinstance(word, str):
                yield word


def _is_there(name: str, files: Collection[str]) -> bool:
    return name in files or (REPO / name).exists() or bool(PLACEHOLDER.search(name))


# ---------------------------------------------------------------- python and make


def _python(words: list[str], files: Collection[str]) -> list[str]:
    if words[:1] == ["-m"]:
        return []
    if not words or not words[0].endswith(".py"):
        return ["python without a script"]
    script, *rest = words
    if not (REPO / script).is_file():
        return [f"no {script}"]
    text = help_of(script)
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    found = [
        f"{script}: no option {word}"
        for word in (word.partition("=")[0] for word in rest if word.startswith("-"))
        if word not in known and not re.fullmatch(r"-\d+", word)
    ]
    inputs = [w for w in rest if w.startswith(("config/", "resources/", "tests/", "scripts/"))]
    return found + [f"no {name}" for name in inputs if not _is_there(name, files)]


@cache
def help_of(script: str) -> str:
    done = subprocess.run(
        [sys.executable, script, "--help"], cwd=REPO, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise AssertionError(f"{script} --help: {done.stderr}")
    return done.stdout


@cache
def make_targets() -> frozenset[str]:
    text = (REPO / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.MULTILINE))


def _make(words: list[str]) -> list[str]:
    found = []
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable and not re.search(rf"^{name} \?=", (REPO / "Makefile").read_text(), re.M):
            found.append(f"make: no variable {name}")
        if not is_variable and word not in make_targets() | {".venv/dev.stamp", ".venv/run.stamp"}:
            found.append(f"make: no target {word}")
    return found
