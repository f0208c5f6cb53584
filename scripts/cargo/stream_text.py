"""What the texts of one streamed reply show, beside when they came.

In:  the chunks of a chat completion stream, in order (`take`), after the run.
Out: `facts`: the field `text` of the request's record: a few counts, never the texts themselves; and `digest`,
by which two replies can be told to be the same.

A parser that looks at one delta at a time may miss a tag that comes in parts or beside other text, as happens
where an engine hands out several tokens at once. So three things are counted: tags that stand in the text as
they are, those that two or more events share, and tool calls whose arguments are no JSON object. And what came
behind the end that the stream itself named.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cargo.record import OUTPUT_KINDS, THINK_TAGS, TOOL_TAGS


class Texts:
    """The texts of a reply, piece by piece as its events brought them."""

    def __init__(self) -> None:
        self._pieces: Dict[str, List[str]] = {"content": [], "reasoning": []}
        self._calls: Dict[Any, Dict[str, List[str]]] = {}  # by index
        self._stop: Optional[str] = None  # the stop string that the server names
        self._finished = False
        self._tokens_at_finish: Optional[int] = None
        self._after_finish = 0  # output-bearing events
        self._seen = False

    def take(self, choice: Dict[str, Any], carries_output: bool, arrived: Optional[int]) -> None:
        """One event's choice; `arrived`: tokens that are known to have come with it and before."""
        self._seen = True
        self._after_finish += self._finished and carries_output
        delta = choice.get("delta")
        if isinstance(delta, dict):
            _add(self._pieces["content"], delta.get("content"))
            # some versions send the same text under both names
            _add(
                self._pieces["reasoning"], delta.get("reasoning") or delta.get("reasoning_content")
            )
            self._take_calls(delta.get("tool_calls"))
        if choice.get("finish_reason") and not self._finished:
            self._finished, self._tokens_at_finish = True, arrived
            named = choice.get("stop_reason")
            self._stop = named if isinstance(named, str) and named else None

    def _take_calls(self, calls: Any) -> None:
        for call in calls if isinstance(calls, list) else []:
            if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
                continue
            index = call.get("index")
            key = index if isinstance(index, (int, str)) else None
            kept = self._calls.setdefault(key, {"name": [], "arguments": []})
            for part, pieces in kept.items():
                _add(pieces, call["function"].get(part))

    def facts(self) -> Optional[Dict[str, Any]]:
        """The field `text` of a request's record; None where no event had a choice."""
        if not self._seen:
            return None
        broken = [call for call in self._calls.values() if not _whole_call(call)]
        return {
            "tags": self._tags(),
            "tool_calls": len(self._calls),
            "tool_calls_broken": len(broken),
            "after_finish": self._after_finish,
            "tokens_at_finish": self._tokens_at_finish,
            "after_stop": self._after_stop(),
        }

    def digest(self) -> Optional[str]:
        """sha256 over answer, reasoning and tool calls, however the events cut them; None where no event had
        a choice."""
        if not self._seen:
            return None
        calls = [
            ["".join(call["name"]), "".join(call["arguments"])]
            for _key, call in sorted(self._calls.items(), key=lambda item: str(item[0]))
        ]
        told = ["".join(self._pieces["content"]), "".join(self._pieces["reasoning"]), calls]
        return hashlib.sha256(json.dumps(told).encode("ascii")).hexdigest()

    def _channels(self) -> Iterator[Tuple[str, List[str]]]:
        yield "content", self._pieces["content"]
        yield "reasoning", self._pieces["reasoning"]
        for call in self._calls.values():
            yield "tool", call["arguments"]

    def _tags(self) -> Dict[str, Dict[str, int]]:
        """Of each tag that occurs: how often in which channel, and how many came in parts."""
        found: Dict[str, Dict[str, int]] = {}
        for channel, pieces in self._channels():
            text, ends = _joined(pieces)
            for tag in THINK_TAGS + TOOL_TAGS:
                at = text.find(tag)
                while at >= 0:
                    counts = found.setdefault(tag, dict.fromkeys((*OUTPUT_KINDS, "split"), 0))
                    counts[channel] += 1
                    # the first end behind the tag's first character: before its last one it cuts
                    cut = ends[bisect.bisect_right(ends, at)]
                    counts["split"] += cut < at + len(tag)
                    at = text.find(tag, at + len(tag))
        return found

    def _after_stop(self) -> Optional[int]:
        """Characters behind the first stop string in the answer, of the one that the server names as
        what ended it; 0 where the server cut it off. None: it names none."""
        if self._stop is None:
            return None
        _before, found, rest = "".join(self._pieces["content"]).partition(self._stop)
        return len(rest) if found else 0


def _add(pieces: List[str], text: Any) -> None:
    if isinstance(text, str) and text:
        pieces.append(text)


def _joined(pieces: List[str]) -> Tuple[str, List[int]]:
    """The whole text, and where in it each piece ends."""
    ends, length = [], 0
    for piece in pieces:
        length += len(piece)
        ends.append(length)
    return "".join(pieces), ends


def _whole_call(call: Dict[str, List[str]]) -> bool:
    """A name, and arguments that are a JSON object, or none at all: a function may have no parameters."""
    text = "".join(call["arguments"]).strip() or "{}"
    try:
        return bool(call["name"]) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
