"""Text that anybody can print and write: bytes that are no UTF-8 shown as escapes.

In:  text, or a value for JSON, as the host's names and environments have it: a byte that is no UTF-8
stands in it as a lone surrogate, which no later writer takes. Out: text, or JSON in UTF-8, in which
it is spelled out (\\xff; \\ud800 for what never was a byte). For records only: what is still to be
given to a process keeps its bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LONE = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    return _LONE.sub(_spelled, text)


def dumps(value: Any, **options: Any) -> bytes:
    """JSON whose strings are plain; it is never so large that it would be worth a second way."""
    text = json.dumps(value, ensure_ascii=False, **options)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # inside strings only: there a backslash is written as two
        return _LONE.sub(lambda found: "\\" + _spelled(found), text).encode("utf-8")


def _spelled(found: "re.Match[str]") -> str:
    code = ord(found[0])
    return "\\x%02x" % (code - 0xDC00) if 0xDC80 <= code <= 0xDCFF else "\\u%04x" % code
