"""What a server's log repeats of its requests: words of a user, and none of the engine's.

In:  a raw line of a log. Out: the line up to where a request's own text begins. vLLM logs each
prompt by default, and answers where it is asked to; a prompt may hold any sentence of any log.
"""

from __future__ import annotations

import re

_REQUEST = re.compile(
    r"\b(?:Received|Added|Aborted|Finished) request\b|\bRequest \S+ details:|\bGenerated response\b"
    r"|\b(?:prompt|prompt_text|messages|output_text)['\"]?[:=] ?[\[{'\"]"
)


def engine_words(raw: str) -> str:
    found = _REQUEST.search(raw)
    return raw[: found.start()] if found else raw
