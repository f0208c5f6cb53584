"""A server's log as logical lines: colours and prefixes taken off, joined lines parted.

In: the text of a log, whole or cut anywhere. Out: `Line`s in the order of the file. A line keeps
the number that it has in the file, and its text occurs there. Pure.
"""

# ruff: noqa: E501  (one kind of prefix a line)

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Optional

_ANSI = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\[(?<![\w.]\[)(?:0|1|0;0|1;\d\d|\d\d)m"
)
# A new line begins here though no newline stands before it (two processes, one pipe).
_JOINED = re.compile(
    r"(?<=\S)(?=\((?:APIServer|EngineCore\w*|Worker\w*|VllmWorker\w*|RayWorker\w*) pid=\d+\))"
    r"|(?<=.)(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d [\[\w.]+:\d+\])"
)
_JOINS = ("pid=", "DEBUG ", "INFO ", "WARNING ", "ERROR ", "CRITICAL ")  # of each, one above
_PROCESS = re.compile(r"\((?i:(apiserver)|enginecore|worker|vllmworker|rayworker|rayexecutor)")
_PREFIX = re.compile(
    r"[\w.-]+(?:-\d+)?\s+\| ?|\s{0,4}\| (?=\S)"  # docker compose; what is left of it
    r"|[A-Z][a-z]{2} +\d+ +\d\d:\d\d:\d\d[.\d]* \| "  # a hosted service
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+ \[\w+\] (?:\(\w+\) )?"  # a launcher that logs its child
    r"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)? ?(?:std(?:out|err) [FP] )?"  # container runtime
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@-]+\[\d+\]: ?"  # journald
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ - [\w.]+ - (?:DEBUG|INFO|ERROR|CRITICAL|(?P<logging>WARNING)) - "  # the same by Python's logging
    r"|\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?\] ?"
    r"|\([^()]{0,60}\bpid=(?P<pid>\d+)[^()]{0,40}\) ?"  # (EngineCore_DP0 pid=77)
    r"|\[rank\d+\]: ?"
    r"|(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)(?: \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?(?P<file>[\w./<>-]+):\d+\] ?|:\s*)"
)
# Files that only an engine process runs: V0's driver has no pid in front of its lines.
_ENGINE_FILE = re.compile(
    r"(?:\S*/)?(?:engine|llm_engine|core|multiproc_\w+|worker\w*|\w+_worker|\w*model_runner)\.py$"
)
_MAX_LINE = 8000  # characters; the rest of a longer line is a dump, not a message
_MAX_PREFIXES = 8  # docker | time | process | level: a handful at most


class Line(NamedTuple):
    number: int  # 1-based, in the file
    text: str  # without colours and prefixes
    level: Optional[str]
    process: str  # "engine" (engine core and workers), "api" or ""
    pid: str = ""  # where the line names one
    cut: bool = False  # the log ends in it, without the end of a line


def logical_lines(text: str) -> List[Line]:
    """Every line that has something to say."""
    out: List[Line] = []
    for number, raw in enumerate(plain(text).split("\n"), 1):
        for part in raw.split("\r"):
            if any(part.find(word, 1) > 0 for word in _JOINS):
                out.extend(_parted(number, part))
            else:
                line = _line(number, part)
                if line.text.strip():
                    out.append(line)
    if out and text[-1] not in "\r\n":
        out[-1] = out[-1]._replace(cut=True)
    return out


def _parted(number: int, text: str) -> Iterator[Line]:
    """The lines in one line; what is nothing but a prefix belongs to the piece behind it."""
    before = ""
    for piece in _JOINED.split(text):
        line = _line(number, before + piece)
        before = "" if line.text else before + piece
        if line.text.strip():
            yield line


def plain(text: str) -> str:
    """Without terminal colours, also those whose escape byte a copy has lost."""
    return _ANSI.sub("", text)


def _line(number: int, piece: str) -> Line:
    level: Optional[str] = None
    process = pid = ""
    rest = piece[:_MAX_LINE].rstrip()
    for _ in range(_MAX_PREFIXES):
        match = _PREFIX.match(rest)
        if match is None or match.end() == 0:
            break
        level = level or match.group("level") or match.group("logging")
        pid = match.group("pid") or pid
        process = _process(match.group(0)) or process
        if not process and _ENGINE_FILE.match(match.group("file") or ""):
            process = "engine"
        rest = rest[match.end() :]
    return Line(number, rest, level, process, pid)


def _process(prefix: str) -> str:
    """Which process this prefix names; "" if none."""
    who = _PROCESS.match(prefix)
    if who is not None:
        return "api" if who.group(1) else "engine"
    return "engine" if prefix.startswith("[rank") else ""
