"""What a server's log repeats of its requests: words of a user, and none of the engine's.

In:  a raw line of a log. Out: what the engine says in it, up to where a request's own text begins. vLLM
logs each prompt by default, and answers where it is asked to; a prompt may hold any sentence of any log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cargo.log_lines import Line, logical_lines

_REQUEST = re.compile(
    r"\b(?:Received|Added|Aborted|Finished) request\b|\bRequest \S+ details:|\bGenerated response\b"
    r"|\b(?:prompt|prompt_text|messages|output_text)['\"]?[:=] ?[\[{'\"]"
)


def engine_words(raw: str) -> str:
    found = _REQUEST.search(raw)
    return raw[: found.start()] if found else raw


def telling_lines(raw: str, hints: Iterable[str]) -> list[Line]:
    """The engine's own lines in it, if it holds one of these words (in small letters): a log may hold
    a million requests, and hardly any line tells something.
    """
    low = raw.lower()
    return logical_lines(engine_words(raw)) if any(hint in low for hint in hints) else []
