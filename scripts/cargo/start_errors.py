"""Which lines of a server's log are errors, and which of these can have ended the start.

In: logical lines. Out: `Error`s in the order of the file. Never warnings, never the source code that
a traceback echoes, never a wrapper around another error; what the process itself got past, handled,
or only suffered when another one ended is marked. Pure.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from cargo.log_lines import Line
from cargo.start_rules import (
    BENIGN,
    DEGRADED,
    FOLLOWS,
    NO_ERROR,
    OUTAGE,
    TOO_FEW,
    WRAPPERS,
    class_of,
    class_of_cut,
    may_name,
)

_WARNS = re.compile(
    r"\[?[WI]\d{4} \d\d:|\[?[WI] |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |\S*Warning: |\S+: \w*Warning: |WARN|Warning:"
)
_EXCEPTION = re.compile(
    r"\s{0,3}(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|OutOfResources|CompilerFailed|IsEnabled)"
    r"(?:\([\w.]+\))?(?::|\s*$)|\s{0,3}Exception:|\s{0,3}torch\.\w+(?:\.\w+)*\.[A-Z]\w+: "
)
_PYDANTIC = re.compile(r"\s*(?:\S+ValidationError: )?\d+ validation errors? for \w+")
_EMPTY = re.compile(
    r"\s{0,3}[\w.]*(?:Error|Exception):\s*$"
)  # what is wrong stands on the next line
# xformers lists, below this, why each of its kernels cannot be taken.
_NO_OPERATOR = re.compile(r"NotImplementedError: No operator found for `\w+`")
_WHY_NO_OPERATOR = re.compile(r"wasn't build with|bf16 is only supported")
_REASONS = 40  # lines of that list
# What a shell, a loader or a container engine says of a program it could not run.
_LAUNCHER = re.compile(
    r"\S+: error while loading shared libraries|/\S*python\S*: (?:No module|Error while)"
    r"|python\S*: (?:can't open file|No module)|(?:/\S*/)?-?(?:ba|da|z)?sh: |\S+: line \d+: "
    r"|exec:? \S+: |(?:env|nohup|timeout|taskset|numactl|nice): "
    r"|(?:\S*docker: |\S* )?Error response from daemon: |Unable to find image|\S+: OCI runtime"
)
_FATAL = re.compile(  # an error that is no Python exception
    r"\S+(?: \w+)?: error: |\S+: fatal error: |Error: --|ptxas fatal|CUDA error \("
    r"|(?:\S+: line \d+:\s+\d+ )?(?:Killed|Terminated|Segmentation fault|Bus error)\b"
    r"|Fatal Python error|terminate called|OOMKilled|\[Errno \d+\]"
    r"|.*(?i:oom-kill|oom[- ]killer|Out of memory: Killed|status=9/KILL|died, exit code: -9\b|due to memory pressure)"
)
# The server itself speaks: whatever the start script complained about before, it went on.
_SERVER = re.compile(r"usage: |\S+(?: \w+)?: error: |Traceback \(most recent call last\)")
_BANNER = re.compile(r"vLLM API server version")
_PROGRESS = re.compile(r"\d+%(?:\||  ?Completed)")
_ENDS = re.compile(
    r"(?i)\b(?:shut|stop|exit|terminat|kill|clean|destroy|abort|fatal|finish|parent process)|HTTP/1"
)
_HANDLED = re.compile(r"During handling of the above exception, another exception occurred")
_LOOKED_FOR = re.compile(r"\s{0,3}(?:\w+\.)*(?:Key|Attribute|ModuleNotFound|Import)Error\b")
_FLOOD = 1000  # errors
_USAGE_THREAD = re.compile(r"Exception in thread .*\(_report_usage")


class Error(NamedTuple):
    name: Optional[str]  # a class, None for words that no rule knows
    line: Line
    sure: bool = True  # False: cut, so that it may have gone on to say something else
    past: bool = False  # the same process, or the start script, went on working after it
    handled: bool = False  # an except clause looked for something else and failed otherwise
    follows: bool = False  # what a process says when another one has ended

    @property
    def primary(self) -> bool:
        """Whether it can be what ended the start."""
        return not (self.past or self.handled or self.follows)


def found(lines: List[Line]) -> List[Error]:
    """All errors but wrappers."""
    went_on = _went_on(lines)
    served = max((i for i, line in enumerate(lines) if _speaks(line)), default=-1)
    out: List[Error] = []
    for i in _positions(lines):
        line = lines[i]
        said = _announced(lines, i) or line
        name = class_of(said.text)
        sure = not (said.cut and TOO_FEW.search(said.text)) and not OUTAGE.search(said.text)
        survived = i < served and _LAUNCHER.match(line.text) and name not in ("killed", "stopped")
        handled = _LOOKED_FOR.match(line.text) is not None and _is_handled(lines, i)
        out.append(Error(name, said, sure, went_on[i] or bool(survived), handled))
    return _without_echoes(_marked_follows(out))


def _positions(lines: List[Line]) -> List[int]:
    """Where the errors are; of a flood the first and the last."""
    at: List[int] = []
    usage_pid: Optional[str] = None
    for i, line in enumerate(lines):
        if _USAGE_THREAD.match(line.text):
            usage_pid = line.pid
        if not is_error(line) or WRAPPERS.search(line.text):
            continue
        if usage_pid is not None and line.pid == usage_pid and not line.level:
            usage_pid = None  # it only failed to report
            continue
        at.append(i)
    return at if len(at) <= 2 * _FLOOD else at[:_FLOOD] + at[-_FLOOD:]


def is_error(line: Line) -> bool:
    """An exception, or what is as good as one; never a warning."""
    text = line.text
    if line.level in ("DEBUG", "INFO", "WARNING") or _WARNS.match(text) or NO_ERROR.search(text):
        return False
    return bool(
        _EXCEPTION.match(text)
        or _FATAL.match(text)
        or _LAUNCHER.match(text)
        or _PYDANTIC.match(text)
    )


def _speaks(line: Line) -> bool:
    return bool(line.process or line.level) or _SERVER.match(line.text) is not None


def _went_on(lines: List[Line]) -> List[bool]:
    """Of each line: whether its process did some more work within the same attempt.

    After a search that failed (a module, a key) any engine process counts: who searched has gone on
    if its workers load weights.
    """
    out = [False] * len(lines)
    after: Dict[str, bool] = {}  # pid, or "engine"
    for i in range(len(lines) - 1, -1, -1):
        line = lines[i]
        if _BANNER.search(line.text):
            after = {}
        searched = line.process == "engine" and _LOOKED_FOR.match(line.text) is not None
        if (line.pid and line.pid in after) or (searched and "engine" in after):
            out[i] = True
        elif line.process and _works(line):
            after[line.pid or line.process] = after[line.process] = True
    return out


def _works(line: Line) -> bool:
    if line.level not in (None, "INFO"):
        return False
    works = line.level == "INFO" or _PROGRESS.search(line.text) is not None
    return works and _ENDS.search(line.text) is None


def _is_handled(lines: List[Line], position: int) -> bool:
    """The same process goes on to tell of another exception, met while it handled this one."""
    line = lines[position]
    for later in lines[position + 1 : position + 20]:
        if (later.pid, later.process) == (line.pid, line.process):
            return _HANDLED.match(later.text) is not None
    return False


def _marked_follows(errors: List[Error]) -> List[Error]:
    """What follows from another's end: after an error, or beside one that has a name."""
    out: List[Error] = []
    own = [FOLLOWS.search(e.line.text) is None for e in errors]
    named = any(o and e.name is not None and e.primary for o, e in zip(own, errors))
    earlier = False
    for is_own, error in zip(own, errors):
        if not is_own and (earlier or named):
            error = error._replace(follows=error.name != "stopped" or earlier)
        earlier = earlier or (is_own and error.primary)
        out.append(error)
    return out


def _without_echoes(errors: List[Error]) -> List[Error]:
    """After the engine's own error, whatever it is, the API process only tells what followed."""
    first = next((e.line.number for e in errors if _ends_engine(e)), None)
    if first is None:
        return errors
    return [e for e in errors if e.line.process != "api" or e.line.number < first]


def _ends_engine(error: Error) -> bool:
    return error.line.process == "engine" and not error.past and not error.follows


def _announced(lines: List[Line], position: int) -> Optional[Line]:
    """Of an error that only announces, the line that says it."""
    line, below = lines[position], lines[position + 1 : position + 1 + _REASONS]
    if _NO_OPERATOR.match(line.text):
        reasons = [b for b in below if _WHY_NO_OPERATOR.search(b.text)]
        reasons.sort(key=lambda b: "build" not in b.text)  # not built at all: the rest follows
        return reasons[0]._replace(text=reasons[0].text.strip()) if reasons else None
    if _PYDANTIC.match(line.text) or _EMPTY.match(line.text):
        return _said_below(below[:3])
    return None


def _said_below(lines: List[Line]) -> Optional[Line]:
    """The indented line after an announcement (a field's name may stand between them)."""
    for line in lines:
        if line.text.startswith("  File "):
            return None
        if line.text.startswith(" "):
            return line._replace(text=line.text.strip())
    return None


def guess(lines: List[Line]) -> Optional[Tuple[str, Line]]:
    """A known message on a line that does not look like an error (a cut log), or a wrapper that says
    that its child was killed: worth naming, not worth trusting.
    """
    for line in lines:
        name = _loose(line) or _killer(line)
        if name is not None:
            return name, line
    return None


def cut_short(errors: List[Error]) -> Optional[Tuple[str, Line]]:
    """An error of which only the beginning of a known message is left."""
    named = ((class_of_cut(e.line.text), e.line) for e in errors if e.name is None and e.primary)
    return next(((name, line) for name, line in named if name is not None), None)


def _loose(line: Line) -> Optional[str]:
    text = line.text
    if line.level in ("DEBUG", "INFO", "WARNING") or not may_name(text) or _WARNS.match(text):
        return None
    if is_error(line) or any(p.search(text) for p in (WRAPPERS, DEGRADED, BENIGN, NO_ERROR)):
        return None
    if text.startswith(("    ", "  File ")) or re.match(r"\s*(?:raise|return|File)\b", text):
        # a traceback echoes source code; the words of an error stand there before it happens
        return None
    name = class_of(text)
    return None if name in ("bad_argument", "stopped") else name


def _killer(line: Line) -> Optional[str]:
    if "illed" not in line.text and "-9" not in line.text and "KILL" not in line.text:
        return None
    wrapped = WRAPPERS.search(line.text) is not None and is_error(line)
    return "killed" if wrapped and class_of(line.text) == "killed" else None
