"""Why did a server start fail?  In: the text of its log (and exit code).  Out: one dict.

`explain(text, exit_code=None, timed_out=False)` gives {"class", "root_cause", "line", "stage",
"hint": {"en", "zh"}, "side": "config"|"host"|"none", "confidence": "high"|"low"}.

How it works: of the log's logical lines the errors are taken (see `start_errors`); the first of them
that has a name and can have ended the start is the cause. Without one the time limit and the exit
code decide, then errors without a name, and at last words that only might be a cause. A cause that
is not certain is never laid to the configuration: see `is_final`.
Pure: standard library only, no clock, no files.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from cargo import long_log, start_errors, start_stages
from cargo.log_lines import Line, logical_lines
from cargo.mask import url_passwords
from cargo.start_errors import Error
from cargo.start_rules import CLASSES, DEGRADED, NO_ERROR

__all__ = ["CLASSES", "Line", "explain", "is_final", "is_ready", "logical_lines", "stage_before"]

_READY = re.compile(r"Application startup complete|Uvicorn running on")
_STOP_NOTE = re.compile(
    r"(?i)received signal[ =:]*(?:SIGTERM|SIGINT|15|2)\b|received SIG(?:TERM|INT)"
    r"|Shutting down FastAPI|^\s*Shutting down\b|KeyboardInterrupt"
)
_ASKED_TO_STOP = re.compile(
    r"(?i)received signal[ =:]*(?:SIGTERM|SIGINT|15|2)\b|received SIG(?:TERM|INT)|^KeyboardInterrupt"
)
# After it was ready: what fails one request is no failed start, these end the server.
_DEADLY = ("port_in_use", "killed", "gpu_oom", "driver_or_device", "collective_failed")
_ENGINE_DIED = re.compile(
    r"EngineCore encountered a fatal error|EngineDeadError|Engine loop has died|Background loop has errored"
)
_KILLED, _STOPPED, _TIMED_OUT = (137, -9), (143, -15, 130, -2), (124,)

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
    line: Optional[Line]
    sure: bool


def is_ready(text: str) -> bool:
    """Whether this log line says that the server serves."""
    return _READY.search(text) is not None


def is_final(cause: Mapping[str, Any]) -> bool:
    """Whether this cause (as `explain` gives it) lies in the configuration, and surely so: the same
    would fail again, on any day. A guess never is.
    """
    return cause.get("side") == "config" and cause.get("confidence") == "high"


def explain(text: str, exit_code: Optional[int] = None, timed_out: bool = False) -> Dict[str, Any]:
    """The cause of a failed start; class "none" for a log that shows nothing wrong."""
    lines = logical_lines(long_log.condensed(text))
    ready_at = max((i for i, line in enumerate(lines) if is_ready(line.text)), default=None)
    errors = start_errors.found(lines if ready_at is None else lines[ready_at + 1 :])
    if ready_at is not None:
        errors = _ends_service(errors, lines[ready_at + 1 :])
    cause = (
        _stopped_first(errors, lines, ready_at)
        or _named(errors)
        or _from_outside(errors, lines, exit_code, timed_out)
        or _nameless(errors)
        or (_guess(lines) if ready_at is None else None)
        or _without_error(lines, ready_at, exit_code)
    )
    return _answer(cause, lines)


def _ends_service(errors: List[Error], after: List[Line]) -> List[Error]:
    """Of the errors after it was ready those that end a server, not a request."""
    stop = next((line.number for line in after if _STOP_NOTE.search(line.text)), None)
    died = next((line.number for line in after if _ENGINE_DIED.search(line.text)), None)
    dead = died is not None and (stop is None or died < stop)
    errors = [e for e in errors if e.name != "stopped"]
    return [
        e
        for e in errors
        if e.name in _DEADLY or (e.line.process == "engine" and (dead or e.name is not None))
    ]


def _stopped_first(
    errors: List[Error], lines: List[Line], ready_at: Optional[int]
) -> Optional[Cause]:
    """Somebody asked it to stop before anything failed; what came then is the end of its parts."""
    own = [e.line.number for e in errors if e.primary and e.name != "stopped"]
    if ready_at is not None or not own:
        return None
    for line in lines:
        if line.number >= own[0]:
            return None
        if _ASKED_TO_STOP.search(line.text):
            return Cause("stopped", line, True)
    return None


def _named(errors: List[Error]) -> Optional[Cause]:
    """The first error with a name that can have ended the start."""
    for error in errors:
        if error.name is not None and error.primary:
            return Cause(error.name, error.line, error.sure)
    cut = start_errors.cut_short(errors)
    if cut is not None:
        return Cause(cut[0], cut[1], False)
    for error in errors:  # what it failed to find has a name, what came of it has none
        if error.name is not None and error.handled and not error.past:
            return Cause(error.name, error.line, False)
    return None


def _from_outside(
    errors: List[Error], lines: List[Line], exit_code: Optional[int], timed_out: bool
) -> Optional[Cause]:
    """It was given up, killed or stopped; an engine that had failed by itself outranks a signal."""
    if timed_out:
        return Cause("timeout", None, True)
    if any(e.primary and e.line.process == "engine" for e in errors):
        return None
    if exit_code in _KILLED:
        return Cause("killed", None, False)
    if exit_code in _STOPPED:
        note = _stop_note(lines)
        return Cause("stopped", note, note is not None)
    return Cause("timeout", None, False) if exit_code in _TIMED_OUT else None


def _nameless(errors: List[Error]) -> Optional[Cause]:
    """An error without a name, the engine's before others'; at last what it got past or suffered."""
    primary = [error for error in errors if error.primary]
    own = [error for error in primary if error.line.process == "engine"]
    named = [error for error in errors if error.name is not None]
    error = next(iter(own or primary or named or errors), None)
    return None if error is None else Cause(error.name or "unknown", error.line, False)


def _guess(lines: List[Line]) -> Optional[Cause]:
    found = start_errors.guess(lines)
    return None if found is None else Cause(found[0], found[1], False)


def _stop_note(lines: List[Line]) -> Optional[Line]:
    return next((line for line in lines if _STOP_NOTE.search(line.text)), None)


def _without_error(lines: List[Line], ready_at: Optional[int], exit_code: Optional[int]) -> Cause:
    """No error in the log: readiness, a request to stop, or the wrappers decide."""
    if ready_at is not None and exit_code in (None, 0):
        # it was ready; a stop after that is no failed start
        died = any(_ENGINE_DIED.search(line.text) for line in lines[ready_at + 1 :])
        return Cause("unknown", None, False) if died else Cause("none", None, True)
    note = _stop_note(lines)
    if note is not None and ready_at is None:
        return Cause("stopped", note, True)
    wrapped = any(
        (start_errors.is_error(line) or line.level in ("ERROR", "CRITICAL"))
        and not (DEGRADED.search(line.text) or NO_ERROR.search(line.text))
        for line in lines
    )
    booting = any(line.level in ("INFO", "WARNING") for line in lines)
    if not wrapped and booting and exit_code in (None, 0):
        return Cause("none", None, False)
    return Cause("unknown", None, False)


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


def _answer(cause: Cause, lines: List[Line]) -> Dict[str, Any]:
    known, line = CLASSES[cause.name], cause.line
    return {
        "class": cause.name,
        "root_cause": None if line is None else url_passwords(line.text.strip())[:_MAX_TEXT],
        "line": line.number if line is not None else None,
        "stage": stage_before(lines, line),
        "hint": {"en": known.en, "zh": known.zh},
        "side": known.side,
        "confidence": "high" if cause.sure else "low",
    }
