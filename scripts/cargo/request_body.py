"""The JSON body of a run's requests.

In:  a scenario whose messages are known, the model, limits, options, and the cache state that is declared.
Out: `Bodies`: for each exchange the bytes to send. With `cold` each request has a salt of its own in the
     first block of its prompt, so that none finds another's prefix; else all requests of a run are the same.
"""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional

from cargo import scenario
from cargo.exchange import Exchange

CACHES = ("as_is", "cold", "warm")
# Several answers to one request would break every count.
_RESERVED = ("messages", "model", "stream", "max_tokens", "n", "best_of")


class Options(NamedTuple):
    """What a request asks for beside its prompt."""

    max_tokens: int
    min_tokens: Optional[int] = None
    temperature: float = 0.0
    ignore_eos: bool = True
    continuous_usage_stats: bool = False
    return_token_ids: bool = False
    extra_body: Optional[Dict[str, Any]] = None


def request_json(asked: Dict[str, Any], model: str, line: str, options: Options) -> bytes:
    """One request, its prompt opened by the salt's line. Raises ScenarioError for a reserved key."""
    extra = dict(options.extra_body or {})
    for key in _RESERVED:
        if key in extra:
            raise scenario.ScenarioError(f"extra body: {key!r} is set by the client itself")
    stream_options = extra.pop("stream_options", {})
    if not isinstance(stream_options, dict):
        raise scenario.ScenarioError("extra body: stream_options: an object expected")
    body: Dict[str, Any] = {
        "model": model,
        "messages": scenario.salted(asked["messages"], line),
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "stream": True,
        "stream_options": dict(stream_options, include_usage=True),
    }
    if options.continuous_usage_stats:
        body["stream_options"]["continuous_usage_stats"] = True
    if options.return_token_ids:
        body["return_token_ids"] = True
    if options.ignore_eos:
        body["ignore_eos"] = True
    if options.min_tokens is not None:
        body["min_tokens"] = options.min_tokens
    if asked.get("tools"):
        body["tools"] = asked["tools"]
        if asked.get("tool_choice") is not None:
            body["tool_choice"] = asked["tool_choice"]
    if asked.get("chat_template_kwargs"):
        body["chat_template_kwargs"] = asked["chat_template_kwargs"]
    body.update(extra)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class Bodies:
    """The bytes for each exchange of a run."""

    def __init__(
        self, asked: Dict[str, Any], model: str, seed: str, cache: str, options: Options
    ) -> None:
        self._seed = seed
        self._line = scenario.salt(seed)
        self._body = request_json(asked, model, self._line, options)
        self._own_salt = cache == "cold"

    def __call__(self, exchange: Exchange) -> bytes:
        if not self._own_salt:
            return self._body
        # a long prompt is not encoded again for each request: lines are of one length, and the
        # run's own is the first text of the messages
        kind = "warmup" if exchange.warmup else "request"
        own = scenario.salt(f"{self._seed} {kind} {exchange.index}")
        return self._body.replace(self._line.encode(), own.encode(), 1)
