"""Why did a server start fail?  In: the text of its log (and exit code).  Out: one dict.

`explain(text, exit_code=None, timed_out=False)` gives {"class", "root_cause", "line", "stage",
"hint": {"en", "zh"}, "side": "config"|"host"|"none", "confidence": "high"|"low"}.

How it works: of the log's logical lines those that *are* an error are picked (never warnings, never
the source code that a traceback echoes), wrappers such as "Engine core initialization failed" are
set aside, and the first error left, engine and worker processes before the API process, is named by
the first of the rules that it matches.  Pure: standard library only, no clock, no files.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cargo import start_stages
from cargo.log_lines import Line, logical_lines
from cargo.mask import url_passwords
from cargo.start_rules import CLASSES, DEGRADED, WRAPPERS, class_of, class_of_cut

__all__ = ["CLASSES", "Line", "explain", "is_ready", "logical_lines", "stage_before"]

_READY = re.compile(r"Application startup complete|Uvicorn running on")
_WARNS = re.compile(
    r"\[?[WI]\d{4} \d\d:|\[?[WI] |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |\S*Warning: |\S+: \w*Warning: |WARN|Warning:"
)
_EXCEPTION = re.compile(
    r"\s{0,3}(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|OutOfResources|CompilerFailed)"
    r"(?:\([\w.]+\))?(?::|\s*$)|\s{0,3}Exception:|\s{0,3}torch\.\w+(?:\.\w+)*\.[A-Z]\w+: "
)
_PYDANTIC = re.compile(r"\s*(?:\S+ValidationError: )?\d+ validation errors? for \w+")
_EMPTY = re.compile(
    r"\s{0,3}[\w.]*(?:Error|Exception):\s*$"
)  # what is wrong stands on the next line
_FATAL = re.compile(  # an error that is no Python exception
    r"\S+(?: \w+)?: error: |\S+: fatal error: |Error: --|ptxas fatal|CUDA error \("
    r"|(?:\S+: line \d+:\s+\d+ )?(?:Killed|Terminated|Segmentation fault|Bus error)\b"
    r"|Fatal Python error|terminate called|OOMKilled|\[Errno \d+\]"
    r"|.*(?i:oom-kill|oom[- ]killer|Out of memory: Killed|status=9/KILL)"
    r"|\S+: error while loading shared libraries|/\S*python\S*: (?:No module|Error while)"
    r"|python\S*: (?:can't open file|No module)|(?:/\S*/)?(?:ba|da|z)?sh: |\S+: line \d+: "
    r"|exec:? \S+: |(?:env|nohup|timeout|taskset|numactl|nice): "
    r"|(?:\S*docker: |\S* )?Error response from daemon: |Unable to find image|\S+: OCI runtime"
)
_STOP_NOTE = re.compile(
    r"(?i)received signal[ =:]*(?:SIGTERM|SIGINT|15|2)\b|received SIG(?:TERM|INT)"
    r"|Shutting down FastAPI|^\s*Shutting down\b|KeyboardInterrupt"
)
# After it was ready: what fails one request is no failed start, these end the server.
_DEADLY = ("port_in_use", "killed", "gpu_oom", "driver_or_device", "collective_failed")

# The function that a traceback stood in names the stage where the log has no line of its own.
_FRAME = re.compile(r'\s*File "[^"]*", line \d+, in (\w+)')
_FRAMES = {
    name: stage
    for stage, names in (
        ("engine_init", "init_device init_distributed_environment init_worker_distributed_environment"),
        ("weights", "load_model load_weights get_model _load_weights safetensors_weights_iterator"),
        ("kv_cache", "determine_available_memory determine_num_available_blocks profile_run initialize_cache"
                     " _initialize_kv_caches get_kv_cache_config initialize_kv_cache"),
        ("graph_capture", "capture_model"),
    )
    for name in names.split()
}  # fmt: skip
# A new attempt begins (a supervisor restarts the server into the same log).
_BANNER = re.compile(r"vLLM API server version")
_MAX_TEXT = 2000  # of the root cause, in characters


class Cause(NamedTuple):
    name: str  # a class
    line: Line
    sure: bool


def is_ready(text: str) -> bool:
    """Whether this log line says that the server serves."""
    return _READY.search(text) is not None


def explain(text: str, exit_code: Optional[int] = None, timed_out: bool = False) -> Dict[str, Any]:
    """The cause of a failed start; class "none" for a log that shows nothing wrong."""
    lines = logical_lines(text)
    ready_at = max((i for i, line in enumerate(lines) if is_ready(line.text)), default=None)
    found = _cause(lines, ready_at)
    if found is not None and found.name != "unknown":
        return _answer(found.name, found.line, lines, "high" if found.sure else "low")
    if timed_out:
        return _answer("timeout", None, lines, "high")
    if found is not None:
        return _answer("unknown", found.line, lines, "low")
    return _without_error(lines, ready_at, exit_code)


def _without_error(
    lines: List[Line], ready_at: Optional[int], exit_code: Optional[int]
) -> Dict[str, Any]:
    """No error in the log: the exit code, a request to stop, or the wrappers decide."""
    if exit_code in (137, -9):
        return _answer("killed", None, lines, "low")
    note = next((line for line in lines if _STOP_NOTE.search(line.text)), None)
    if exit_code in (143, -15, 130, -2):
        return _answer("stopped", note, lines, "high" if note else "low")
    if ready_at is not None and exit_code in (None, 0):
        # it was ready; a stop after that is no failed start
        return _answer("none", None, lines, "high")
    if note is not None and ready_at is None:
        return _answer("stopped", note, lines, "high")
    wrapped = any(
        (_is_error(line) or line.level in ("ERROR", "CRITICAL")) and not DEGRADED.search(line.text)
        for line in lines
    )
    booting = any(line.level in ("INFO", "WARNING") for line in lines)
    if not wrapped and booting and exit_code in (None, 0):
        return _answer("none", None, lines, "low")
    return _answer("unknown", None, lines, "low")


def _cause(lines: List[Line], ready_at: Optional[int]) -> Optional[Cause]:
    """The first cause; engine and worker processes first, wrappers never."""
    first = 0 if ready_at is None else ready_at + 1
    errors = [(class_of(line.text), line) for line in _errors(lines[first:])]
    if ready_at is not None:
        errors = [(c, e) for c, e in errors if c in _DEADLY or (c and e.process == "engine")]
        errors = [(c, e) for c, e in errors if c != "stopped"]
    errors = _without_echoes(errors)
    named = [Cause(name, line, True) for name, line in errors if name is not None]
    if named:
        return _engine_first(named)
    if ready_at is None:
        cut = [(class_of_cut(line.text), line) for _none, line in errors]
        guesses = [Cause(name, line, False) for name, line in cut if name is not None]
        guesses += [*filter(None, map(_loose, lines)), *filter(None, map(_killer, lines))]
        if guesses:
            return guesses[0]
    return _engine_first([Cause("unknown", line, False) for _none, line in errors])


def _without_echoes(
    errors: List[Tuple[Optional[str], Line]],
) -> List[Tuple[Optional[str], Line]]:
    """After the engine's own error, whatever it is, the API process only tells what followed."""
    first = next((line.number for _, line in errors if line.process == "engine"), None)
    if first is None:
        return errors
    return [(c, line) for c, line in errors if line.process != "api" or line.number < first]


def _engine_first(causes: List[Cause]) -> Optional[Cause]:
    own = [cause for cause in causes if cause.line.process == "engine"]
    return next(iter(own or causes), None)


def _errors(lines: List[Line]) -> List[Line]:
    """Lines that are an error and no wrapper; of one that only announces, the line that says it."""
    out: List[Line] = []
    for position, line in enumerate(lines):
        if not _is_error(line) or WRAPPERS.search(line.text):
            continue
        if _PYDANTIC.match(line.text) or _EMPTY.match(line.text):
            line = _said_below(lines[position + 1 : position + 4]) or line
        out.append(line)
    return out


def _said_below(lines: List[Line]) -> Optional[Line]:
    """The indented line after an announcement (a field's name may stand between them)."""
    for line in lines:
        if line.text.startswith("  File "):
            return None
        if line.text.startswith("  "):
            return line._replace(text=line.text.strip())
    return None


def _is_error(line: Line) -> bool:
    if line.level in ("DEBUG", "INFO", "WARNING") or _WARNS.match(line.text):
        return False
    return bool(
        _EXCEPTION.match(line.text) or _FATAL.match(line.text) or _PYDANTIC.match(line.text)
    )


def _loose(line: Line) -> Optional[Cause]:
    """A known message on a line that does not look like an error (a cut log): worth naming, not
    worth trusting.
    """
    text = line.text
    if line.level in ("DEBUG", "INFO", "WARNING") or _WARNS.match(text):
        return None
    if _is_error(line) or WRAPPERS.search(text) or DEGRADED.search(text):
        return None
    if text.startswith(("    ", "  File ")) or re.match(r"\s*(?:raise|return|File)\b", text):
        # a traceback echoes source code; the words of an error stand there before it happens
        return None
    name = class_of(text)
    return None if name in (None, "bad_argument", "stopped") else Cause(str(name), line, False)


def _killer(line: Line) -> Optional[Cause]:
    """A wrapper is all there is, and it says that somebody killed its child."""
    killed = _is_error(line) and class_of(line.text) == "killed"
    return Cause("killed", line, False) if killed else None


def stage_before(lines: List[Line], cause: Optional[Line] = None) -> Optional[str]:
    """The furthest stage that began before the cause; None where the log shows none."""
    furthest = -1
    for line in lines:
        if cause is not None and line.number >= cause.number:
            break
        if _BANNER.search(line.text):
            furthest = -1
        frame = _FRAME.match(line.text)
        stage = _FRAMES.get(frame.group(1)) if frame else start_stages.stage_of(line.text)
        if stage is not None:
            furthest = max(furthest, start_stages.NAMES.index(stage))
    return start_stages.NAMES[furthest] if furthest >= 0 else None


def _answer(name: str, line: Optional[Line], lines: List[Line], confidence: str) -> Dict[str, Any]:
    known = CLASSES[name]
    return {
        "class": name,
        "root_cause": None if line is None else url_passwords(line.text.strip())[:_MAX_TEXT],
        "line": line.number if line is not None else None,
        "stage": stage_before(lines, line),
        "hint": {"en": known.en, "zh": known.zh},
        "side": known.side,
        "confidence": confidence,
    }
