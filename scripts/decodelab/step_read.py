"""Any profile file as step profiles: ours, a Chrome trace, a plain table, or the JSON of one read before.

In: files or folders of one sort. Out: profiles by name: of a table with several runs by its runs, else one under "".
ValueError says what was found and what may be given.
"""

from __future__ import annotations

import filecmp
import json
import zlib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from decodelab import plain_shares, step_events, step_plain, step_table
from decodelab.step_table import Profile

FORMS = (
    "a run's folder or its profile-*.jsonl or steps-*.jsonl files, Chrome traces of torch.profiler (.json, .json.gz;"
    " one a rank), a table with the columns name,share or with a region or kernel a line,"
    f' or JSON with schema "{plain_shares.SCHEMA}", "{step_table.SCHEMA}" or "decodelab.profiles/1"'
)
MANY = "decodelab.profiles/1"
_BEGIN = 4096  # bytes that tell the sort
_LONGEST = 1 << 20  # bytes of a first line
_EVENTS = ("profile-*.jsonl", "steps-*.jsonl")


def read(files: Sequence[Path]) -> dict[str, Profile]:
    """Raises OSError for what cannot be read."""
    for one, other in combinations(files, 2):
        if _same(one, other):
            raise ValueError(f"{one.name} is given twice, as {other.name}")
    sorts = {path: sort_of(path) for path in files}
    kinds = sorted(set(sorts.values()))
    if len(kinds) != 1:
        told = ", ".join(f"{path.name}: {sort}" for path, sort in sorts.items())
        raise ValueError(f"files of one sort expected ({told or 'none given'})")
    if kinds == ["events"]:
        return {"": _events(files)}
    if kinds == ["trace"]:
        from decodelab import step_trace  # needs numpy, which a call without a trace need not load

        return {"": step_trace.read(files)}
    if len(files) > 1:
        raise ValueError(f"one {kinds[0]} file at a time, {len(files)} given")
    return _single(files[0], kinds[0])


def one(files: Sequence[Path], run: str | None = None) -> Profile:
    """`run`: which one of a file with several."""
    profiles = read(files)
    named = ", ".join(filter(None, profiles)) or "no runs"
    if run is None and len(profiles) > 1:
        raise ValueError(f"several runs in it: {named}; say which with `run`")
    if run is not None and run not in profiles:
        raise ValueError(f"no run {run} in it, but {named}")
    return profiles[run] if run is not None else next(iter(profiles.values()))


def sort_of(path: Path) -> str:
    """events, trace, json (ours) or table, from a file's begin."""
    if path.is_dir() or any(path.match(pattern) for pattern in _EVENTS):
        return "events"
    begin = _begin(path)
    if begin.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return "table"
    ours = any(f'"{s}"' in begin for s in (plain_shares.SCHEMA, step_table.SCHEMA, MANY))
    return "json" if ours or path.suffix == ".jsonl" else "trace"


def _same(one: Path, other: Path) -> bool:
    """A copy would be taken for another rank."""
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def _begin(path: Path) -> str:
    with path.open("rb") as file:
        begin = file.read(_BEGIN)
    if begin.startswith(b"\x1f\x8b"):
        try:
            begin = zlib.decompressobj(wbits=31).decompress(begin, _BEGIN)
        except zlib.error as error:
            raise ValueError(f"damaged gzip: {error}") from error
    return begin.decode("utf-8", "replace")


def _single(path: Path, sort: str) -> dict[str, Profile]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"neither a trace nor text: can't decode byte {error.start} as UTF-8"
        ) from error
    if sort == "table":
        return step_plain.read(text, path.name)
    try:
        return _json(text, path.name)
    except RecursionError as error:
        raise ValueError("a damaged profile: nested too deep") from error


def _json(text: str, name: str) -> dict[str, Profile]:
    if f'"{plain_shares.SCHEMA}"' in text[:_BEGIN]:
        return {"": step_plain.shares_of_json(text, name)}
    told = _writable(json.loads(text))
    try:
        if told["schema"] == MANY:
            found = {run: step_table.of_json(one) for run, one in told["profiles"].items()}
            if not found:
                raise ValueError("no profile in it")
            return found
        return {"": step_table.of_json(told)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged profile: {error}") from error


def _writable(told: Any) -> Any:
    if isinstance(told, str):
        return plain_shares.writable(told)
    if isinstance(told, list):
        return [_writable(one) for one in told]
    if isinstance(told, dict):
        return {plain_shares.writable(name): _writable(one) for name, one in told.items()}
    return told


def files_of(folder: Path) -> list[Path]:
    """What a folder holds of a profile."""
    patterns = (*_EVENTS, step_events.RUN_FILE)
    return sorted(file for pattern in patterns for file in folder.glob(pattern))


def _events(paths: Sequence[Path]) -> Profile:
    folders = [path for path in paths if path.is_dir()]
    if folders and len(paths) > 1:
        raise ValueError("one run's folder at a time")
    if folders:
        profile = step_events.of_folder(folders[0])
        files = sorted(folders[0].glob("steps-*.jsonl"))
        if profile is None and not files:
            raise ValueError(f"no {' or '.join(_EVENTS)} in it")
        return profile or step_events.of_files(files)
    _of_processes(paths)
    return step_events.of_files(paths)


def _of_processes(paths: Sequence[Path]) -> None:
    """Raises ValueError where nothing in them is ours, or a process is given twice: its copy would be another rank."""
    known: dict[str, Path] = {}
    ours = False
    for path in paths:
        with path.open("rb") as file:
            first = file.readline(_LONGEST)
        try:
            told = json.loads(first)
        except (ValueError, RecursionError):
            continue
        if not isinstance(told, dict) or not isinstance(told.get("kind"), str):
            continue
        ours = True
        if told["kind"] != "header":
            continue
        who = f"{told.get('pid')} {told.get('t_ns')}"
        if who in known:
            both = f"{known[who].name} and {path.name}"
            raise ValueError(f"{both} are of one process: give the files of one run, each once")
        known[who] = path
    if not ours:
        raise ValueError("no line of the step profiler at their begin")
