"""One row of the table: a script, and what a right client reads in it.

In:  nothing. Out: `Case`, and what several rows share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .scripted_server import Step
from .speech import TOKENS

Request = dict[str, Any]


@dataclass(frozen=True)
class Case:
    name: str
    script: list[Step]
    outcome: str = "ok"
    tokens: int | None = TOKENS
    events: int = TOKENS
    error: tuple[str, str] = ("", "")  # kind, and a part of the message
    status: int | None = None
    expect: dict[str, Any] = field(default_factory=dict)  # further fields of the request
    check: Callable[[Request], bool] | None = None
    options: tuple[str, ...] = ()  # further arguments of the client
    epoll_only: bool = False


def usage_came_late(request: Request) -> bool:
    """The end of the stream is late, the last output is not."""
    return request["t_end_s"] - request["t_last_s"] > 0.14


def gaps_covered(request: Request) -> bool:
    """Every token is accounted for by the events themselves."""
    return sum(count or 0 for count in request["events"]["tokens"]) == TOKENS


def counts_are(*expected: int | None) -> Callable[[Request], bool]:
    """The token counts of the events up to the last output-bearing one, role event first."""
    return lambda request: request["events"]["tokens"][: len(expected)] == list(expected)


def kinds_are(*expected: str) -> Callable[[Request], bool]:
    """The first kinds of the stream."""
    return lambda request: request["events"]["kind"][: len(expected)] == list(expected)


FAST = ("--timeout-first-token", "0.2", "--timeout-between-tokens", "0.2")
# no token counts came, and there are more tokens than events: how many came first is not known
NOT_TOLD = {"n_first_delta": None, "decode_rate": None, "tpot_s": None}
NO_TIME = {"t_first_s": None, "ttft_s": None, "decode_rate": None, "completion_tokens": None}
NONE: dict[str, Any] = {"tokens": None, "events": 0, "expect": NO_TIME}
FOUR: dict[str, Any] = {"tokens": None, "events": 4}  # broken off behind four
