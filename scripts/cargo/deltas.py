"""What the events of a chat completion stream mean.

In:  whole SSE events, in order.
Out: for each its kind (record.EVENT_KINDS) and, where the stream says so, its token count; and over
     the stream the finish reason, the usage, the first error, whether [DONE] came, and its texts.

Tokens are never guessed from the number of events. An event's own count is known in two cases: the
server sends `token_ids` with it, or a running `usage` with every output-bearing event up to it.

A server may say anything: what is kept of it is finite, not deep, and no number is too large for a
double. JSON that this Python cannot read counts as no JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, NamedTuple, Optional

from cargo.record import OUTPUT_KINDS
from cargo.sse import Event
from cargo.stream_text import Texts

_MESSAGE_LIMIT = 2000
_LARGEST = 1 << 53  # every whole number up to it is a double
_DEEPEST = 20  # levels of a usage that are kept
_FAILURES = ("abort", "error")  # finish reasons
_SEVERAL = 1.5  # tokens an event, on average, above which its number is not taken as one


class StreamError(NamedTuple):
    kind: str
    status: Optional[int]
    message: str


class Meaning:
    """The running sense of one stream: call `take` with each event."""

    def __init__(self) -> None:
        self.finish_reason: Optional[str] = None
        self.usage: Optional[Dict[str, Any]] = None
        self.error: Optional[StreamError] = None
        self.done = False
        self.kinds: List[str] = []
        self.tokens: List[Optional[int]] = []
        self.n_output = 0
        self.texts = Texts()
        self.n_first_delta = 1  # one token, unless the stream says otherwise
        self._first_told = False  # it has said so
        self._arrived = 0  # tokens known to have arrived
        self._usage_each = True  # every output-bearing event so far came with a usage

    def take(self, event: Event) -> str:
        """Note one event; returns its kind."""
        count: Optional[int] = None
        if event.data == b"[DONE]":
            kind = "done"
            self.done = True
        elif not event.data.strip():  # a ping in the shape of an event
            kind = "other"
        else:
            kind, count = self._take_json(event)
        if kind in OUTPUT_KINDS:
            self.n_output += 1
            if self.n_output == 1 and count is not None and self._arrived > 0:
                self.n_first_delta = self._arrived
                self._first_told = True
        self.kinds.append(kind)
        self.tokens.append(count)
        return kind

    def first_delta(self, completion_tokens: Optional[int]) -> Optional[int]:
        """Tokens that had come with the first output; None where that would be a guess."""
        if not self.n_output:
            return None
        if not self._first_told and (completion_tokens or 0) > _SEVERAL * self.n_output:
            return None
        return self.n_first_delta

    def _take_json(self, event: Event) -> Any:
        try:
            # json does not look at line separators; a broken byte must not hide the event
            body = json.loads(event.data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            kind = "error_event" if event.name == "error" else "not_json"
            self._note_error(kind, None, event.data.decode("utf-8", "replace"))
            return "error", None
        error = find_error(body, named_error=event.name == "error")
        if error is not None:
            self._note_error(*error)
            return "error", None
        if not isinstance(body, dict):
            return "other", None
        return self._take_chunk(body)

    def _note_error(self, kind: str, status: Optional[int], message: str) -> None:
        if self.error is None:
            self.error = StreamError(kind, status, message[:_MESSAGE_LIMIT])

    def _take_chunk(self, body: Dict[str, Any]) -> Any:
        usage = body.get("usage")
        if isinstance(usage, dict):
            usage = _kept(usage)
            counted, before = (count_in(one, "completion_tokens") for one in (usage, self.usage))
            if counted is not None or before is None:  # one without counts takes none away
                self.usage = usage
        choices = [choice for choice in body.get("choices") or [] if isinstance(choice, dict)]
        if not choices:
            return ("usage" if isinstance(usage, dict) else "other"), None
        kinds = []
        for choice in choices:
            # some servers send "" with every event; of several choices one failure is enough
            if choice.get("finish_reason") and self.finish_reason not in _FAILURES:
                self.finish_reason = str(choice["finish_reason"])[:_MESSAGE_LIMIT]
            kinds.append(_delta_kind(choice.get("delta")))
        kind = next((k for k in kinds if k in OUTPUT_KINDS), kinds[0])
        count = self._count(choices, usage, kind)
        arrived = self._arrived if count is not None else None
        for choice in choices:
            self.texts.take(choice, kind in OUTPUT_KINDS, arrived)
        return kind, count

    def _count(self, choices: List[Dict[str, Any]], usage: Any, kind: str) -> Optional[int]:
        """Tokens that came with this event, where the stream says so."""
        total = count_in(usage, "completion_tokens")
        ids = [
            choice["token_ids"] for choice in choices if isinstance(choice.get("token_ids"), list)
        ]
        count: Optional[int] = None
        if ids:
            count = sum(len(found) for found in ids)
        elif total is not None and self._usage_each and total >= self._arrived:
            count = total - self._arrived
        if total is None and kind in OUTPUT_KINDS:
            self._usage_each = False
        if count is not None:
            self._arrived += count
        return count


def _kept(value: Any, depth: int = 0) -> Any:
    """A JSON value as strict JSON and every reader's numbers can hold it; the rest of it is None."""
    if isinstance(value, dict):
        keep = depth < _DEEPEST
        return {key: _kept(one, depth + 1) for key, one in value.items()} if keep else None
    if isinstance(value, list):
        return [_kept(one, depth + 1) for one in value] if depth < _DEEPEST else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if not isinstance(value, int) or -_LARGEST <= value <= _LARGEST else None


def count_in(usage: Any, *path: str) -> Optional[int]:
    """A count of tokens in a usage object; None where there is none."""
    found: Any = usage
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    whole = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    return found if whole else None


def _delta_kind(delta: Any) -> str:
    if not isinstance(delta, dict):
        return "empty"
    if delta.get("content"):
        return "content"
    # some versions send the same reasoning under both names: it is one delta all the same
    if delta.get("reasoning") or delta.get("reasoning_content"):
        return "reasoning"
    calls = list(delta.get("tool_calls") or [])
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    functions.append(delta.get("function_call"))
    for function in functions:
        if isinstance(function, dict) and (function.get("name") or function.get("arguments")):
            return "tool"
    return "role" if delta.get("role") else "empty"


def find_error(body: Any, named_error: bool = False) -> Optional[StreamError]:
    """The error in a JSON body: {"error": ...}, {"object": "error"}, or an `event: error`."""
    if isinstance(body, dict):
        inner = body.get("error")
        if inner:
            return StreamError("error", *_status_and_message(inner))
        if body.get("object") == "error":
            return StreamError("object_error", *_status_and_message(body))
    if named_error:
        return StreamError("error_event", *_status_and_message(body))
    return None


def _status_and_message(inner: Any) -> Any:
    if not isinstance(inner, dict):
        return None, inner if isinstance(inner, str) else _spelled(inner)
    message = inner.get("message", inner.get("detail"))
    if not isinstance(message, str):
        message = _spelled(inner if message is None else message)
    return count_in(_kept({"code": inner.get("code")}), "code"), message


def _spelled(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (
        ValueError,
        RecursionError,
    ):  # nearly too deep to be read, and so too deep to be written
        return f"a {type(value).__name__} that is nested too deeply"


def error_message(body: bytes) -> str:
    """The message in an HTTP error's body: nested, flat, {"detail"}, or the text itself."""
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text[:_MESSAGE_LIMIT]
    if isinstance(found, dict):
        inner = found.get("error") or found
        message = _status_and_message(inner)[1]
        return str(message)[:_MESSAGE_LIMIT]
    return text[:_MESSAGE_LIMIT]
