"""Did the run get what its workload declared: cache state, thinking, prompt length, schedule.

In: the record's `run` and `client` blocks, the counted requests, the server's own counters. Out:
reason codes of `reasons`, each of which makes a run suspect. A record that declares nothing (older
ones do not) breaks nothing.

Under warm a hit of half the prompt is asked for: an engine caches whole blocks only and always
computes the last token anew, so of a short prompt it can never be all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cargo import record

WARM_SHARE = 0.5  # of the prompt's tokens that a warm cache must hold
SIZE_TOLERANCE = 0.02  # of the prompt tokens that were asked for
SCHEDULE_SHARE = 0.10  # of the mean gap between requests: later than this bends the arrivals
SCHEDULE_LATE_S = 0.005  # a timer's own lateness on a busy host; no schedule is finer
THINKING_SWITCHES = ("enable_thinking", "thinking")  # what model families call it
Request = Mapping[str, Any]


def broken(
    run: Mapping[str, Any], client: Mapping[str, Any], requests: Sequence[Request]
) -> list[str]:
    """What the client's side of a run shows to be otherwise than declared."""
    ok = [request for request in requests if request["outcome"] == "ok"]
    codes = []
    if any(_cache_broken(run.get("cache"), request) for request in ok):
        codes.append("cached_tokens_not_as_declared")
    if thinking_is_off(run) and any(_thought(request) for request in requests):
        codes.append("thinking_not_as_declared")
    if _prompt_missized(run.get("prompt_sizing"), ok):
        codes.append("prompt_not_as_sized")
    if _schedule_missed(run.get("rate"), client.get("schedule_late_p99_s")):
        codes.append("schedule_not_kept")
    if any(request.get("completion_tokens") is None for request in ok):
        codes.append("usage_missing")
    asked = run.get("continuous_usage_stats") or run.get("return_token_ids")
    if asked and any(None in counts(request) for request in ok):
        codes.append("token_counts_missing")
    return codes


def counts(request: Request) -> list[int | None]:
    """The token count of each output event, None for one without; [] where no events are on record."""
    events = request.get("events") or {}
    pairs = zip(events.get("kind") or [], events.get("tokens") or [], strict=False)
    return [count for kind, count in pairs if kind in record.OUTPUT_KINDS]


def cache_counted_otherwise(
    cache: str | None, requests: Sequence[Request], hits: float | None
) -> bool:
    """The same for requests whose usage names no cached tokens: the server's counter over the run.
    It holds the warm-up too, so under warm only that it found nothing at all is proof.
    """
    silent = any(r["outcome"] == "ok" and r.get("cached_tokens") is None for r in requests)
    if not silent or hits is None:
        return False
    return (cache == "cold" and hits > 0) or (cache == "warm" and hits == 0)


def _cache_broken(cache: str | None, request: Request) -> bool:
    cached, prompt = request.get("cached_tokens"), request.get("prompt_tokens")
    if cached is None or cache not in ("cold", "warm"):
        return False
    if cache == "cold":
        return bool(cached > 0)
    return bool(cached == 0 or (prompt is not None and cached < WARM_SHARE * prompt))


def thinking_is_off(run: Mapping[str, Any]) -> bool:
    given = run.get("chat_template_kwargs") or {}
    asked = [given[name] for name in THINKING_SWITCHES if name in given]
    return bool(asked) and not any(asked)


def _thought(request: Request) -> bool:
    kinds = (request.get("events") or {}).get("kind") or []
    return "reasoning" in kinds or bool(request.get("reasoning_tokens"))


def _prompt_missized(sizing: Mapping[str, Any] | None, ok: Sequence[Request]) -> bool:
    asked = (sizing or {}).get("asked")
    if not asked:
        return False
    got = [r["prompt_tokens"] for r in ok if r.get("prompt_tokens") is not None]
    return any(abs(tokens - asked) > SIZE_TOLERANCE * asked for tokens in got)


def _schedule_missed(rate: float | None, late_s: float | None) -> bool:
    if not rate or late_s is None:
        return False
    return late_s > SCHEDULE_LATE_S and late_s > SCHEDULE_SHARE / rate
