"""Meaning of how requests come and what their answers must hold: rate, cache, thinking, lengths.

In: a Check. Out: mistakes added to it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from decodelab import flags, variants, workloads

if TYPE_CHECKING:
    from decodelab.meaning import Check

Entry = dict[str, Any]


def check(todo: Check) -> None:
    for name, entry in (todo.config.get("workloads") or {}).items():
        _open_loop(todo, name, entry)
        _cache(todo, name, entry)
        _thinking(todo, name, entry)
        _length(todo, name, entry)
        _cross_check(todo, name, entry)


def check_pairs(todo: Check, pairs: list[tuple[variants.Variant, str]]) -> None:
    """What a server cannot give that is asked for it; each once, however many servers."""
    told: set[tuple[str, str]] = set()
    for variant, load in pairs:
        entry = todo.config["workloads"][load]
        if entry["cache"] == "warm" and not has_prefix_cache(variant):
            _once(
                todo,
                told,
                (load, "cache"),
                f'"warm", but "{variant.name}" has no prefix cache',
                "warm where --enable-prefix-caching is on",
                "cache: as_is declares nothing, and the comparison may have one such server",
            )
        if entry["http"] == "epoll" and variant.attach and not on_loopback(variant.attach):
            _once(
                todo,
                told,
                (load, "http"),
                f'"epoll", but server.attach is {variant.attach}',
                "httpx: epoll measures on the server's own machine, over plain HTTP on loopback",
                "write http: httpx",
            )
        if entry["return_token_ids"] and variant.engine == "vllm-v0":
            _once(
                todo,
                told,
                (load, "return_token_ids"),
                f'true, but "{variant.name}" is vllm-v0',
                "true for vLLM from 0.10.2",
                "continuous_usage_stats: true counts the tokens as well, and vllm-v0 has it",
            )


def _once(
    todo: Check,
    told: set[tuple[str, str]],
    at: tuple[str, str],
    found: str,
    allowed: str,
    hint: str,
) -> None:
    if at not in told:
        told.add(at)
        todo.add(("workloads", *at), found, allowed, hint)


def on_loopback(address: str) -> bool:
    """Whether the address is plain HTTP on the machine that asks, as far as its text tells."""
    try:
        parts = urlsplit(address)
    except ValueError:  # a bracket that is not closed
        return False
    try:
        local = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = parts.hostname == "localhost"
    return local and parts.scheme == "http"


def has_prefix_cache(variant: variants.Variant) -> bool:
    """Whether the server keeps prefixes, as far as its flags tell: V0 keeps none of itself, V1
    does.
    """
    if variant.attach or variant.engine == "other":
        return True
    given = flags.named(variant.flags, variant.engine).get("--enable-prefix-caching")
    return given is True if variant.engine == "vllm-v0" else given is not False


def _open_loop(todo: Check, name: str, entry: Entry) -> None:
    path = ("workloads", name)
    if entry.get("rate") is None:
        # A rate of wrong shape has been told, and left out here.
        if entry.get("arrivals") is not None and "rate" not in todo.names(*path):
            todo.add(
                (*path, "arrivals"),
                f'"{entry["arrivals"]}", but no rate',
                "arrivals beside `rate`",
                "write rate: N (requests per second); without it each request waits for one to end",
            )
        return
    cap, requests = entry.get("concurrency"), entry.get("requests")
    allowed = "beside `rate` one number above 1, the most that may be open at once"
    if isinstance(cap, list):
        hint = "a curve over rates is a workload for each rate"
        todo.add((*path, "concurrency"), "a list, but requests come by a rate", allowed, hint)
    elif cap == 1 and (requests or 1) > 1:
        found = "1, with which each request waits for the one before it, whatever the rate"
        hint = f"write concurrency: {requests}, or leave rate out"
        todo.add((*path, "concurrency"), found, allowed, hint)


def _cache(todo: Check, name: str, entry: Entry) -> None:
    if entry.get("cache") == "warm" and entry.get("warmup") == 0:
        todo.add(
            ("workloads", name, "cache"),
            '"warm", but no warm-up request to fill the cache',
            "warm beside `warmup` of 1 or more",
            "write warmup: 1",
        )


def _thinking(todo: Check, name: str, entry: Entry) -> None:
    """Two keys that say the opposite; of a prompt's own file, the workload's keys win."""
    given = entry.get("chat_template_kwargs") or {}
    for key, wanted in workloads.thinking(entry.get("thinking")).items():
        if key in given and given[key] is not wanted:
            todo.add(
                ("workloads", name, "chat_template_kwargs", key),
                f"{key}: {str(given[key]).lower()}, but thinking is {entry['thinking']}",
                f"{key} by one of the two keys",
                f"remove it; thinking sends {' and '.join(workloads.THINKING)} itself",
            )


def _length(todo: Check, name: str, entry: Entry) -> None:
    least, most = entry.get("min_tokens"), entry.get("max_tokens")
    if least is not None and most is not None and least > most:
        todo.add(
            ("workloads", name, "min_tokens"),
            f"{least}, but max_tokens is {most}",
            f"a number up to `max_tokens`, here {most}",
        )


def _cross_check(todo: Check, name: str, entry: Entry) -> None:
    if entry.get("cross_check") and entry.get("http") == "httpx":
        todo.add(
            ("workloads", name, "cross_check"),
            "true, but the run itself goes through httpx",
            "true beside http: epoll",
            "httpx checked by httpx says nothing; leave one of the two keys out",
        )
