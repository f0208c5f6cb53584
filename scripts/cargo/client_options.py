"""The load client's command line.

In:  argv. Out: checked arguments (`read`); UsageError or argparse's own exit for what cannot be used.
"""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict, List, Optional

from cargo import scenario
from cargo.endpoint import UsageError
from cargo.load import Limits
from cargo.request_body import CACHES, Options
from cargo.schedule import ARRIVALS

_MOST = 10**9
_OF_BODY = {"temperature": (int, float), "ignore_eos": (bool,), "min_tokens": (int,)}


def _number(kind: Callable[[str], Any], least: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"at least {least:g} expected, got {text}")
        if value > _MOST:
            raise argparse.ArgumentTypeError(f"at most {_MOST} expected, got {text}")
        return value

    read.__name__ = kind.__name__
    return read


def _json_object(text: str) -> Dict[str, Any]:
    try:
        found = scenario.strict_json(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("a JSON object expected")
    return found


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="decode_microbench.py",
        description="Send one scenario N times, C at once or R each second; write a run record. "
        "With --calibrate: no server, measure this client itself.",
        epilog="Exit code: 0 record written, 2 bad arguments, 1 nothing written.",
    )
    _add_request(found.add_argument_group("the request"))
    _add_load(found.add_argument_group("the load"))
    _add_limits(found.add_argument_group("time limits of one request"))
    _add_rest(found.add_argument_group("the rest"))
    return found


def _add_request(group: Any) -> None:
    add = group.add_argument
    add("--base-url", metavar="URL", help="http://127.0.0.1:8000 (with or without /v1)")
    add("--model", help='model name, or "auto": the first of /v1/models')
    add("--scenario", help=f"{'|'.join(scenario.SHIPPED)}, or a JSON file")
    add(
        "--prompt-tokens",
        type=_number(int, 1),
        metavar="P",
        help="instead of a scenario: a synthetic prompt of P tokens, sized by the server's /tokenize",
    )
    add("--max-tokens", type=_number(int, 1), metavar="T")
    add("--min-tokens", type=_number(int, 0), metavar="T")
    add("--ignore-eos", dest="ignore_eos", action="store_true", default=True)
    add("--no-ignore-eos", dest="ignore_eos", action="store_false")
    add("--temperature", type=_number(float, 0), default=0.0)
    add(
        "--cache",
        choices=CACHES,
        default="as_is",
        help="cold: a salt of its own for each request; else one for the run",
    )
    add("--continuous-usage-stats", action="store_true", help="ask for a usage with every event")
    add("--return-token-ids", action="store_true", help="ask for the token ids of every event")
    add("--extra-body", type=_json_object, default={}, metavar="JSON")
    add("--seed", help="text that salt and schedule are made of (default: drawn, and recorded)")
    add("--api-key-env", metavar="NAME", help="environment variable that holds the key")


def _add_load(group: Any) -> None:
    add = group.add_argument
    add(
        "--concurrency",
        type=_number(int, 1),
        metavar="C",
        help="closed loop: open at any time; open loop: at most open at once",
    )
    add("--requests", type=_number(int, 1), metavar="N", help="in all")
    add("--warmup", type=_number(int, 0), default=0, metavar="W", help="sent first, not counted")
    add("--rate", type=_number(float, 1e-6), metavar="R", help="open loop: requests a second")
    add(
        "--arrivals-seed", metavar="TEXT", help="text the arrivals are drawn from (default: --seed)"
    )
    add("--arrivals", choices=ARRIVALS, help=f"of the open loop (default {ARRIVALS[0]})")
    add(
        "--processes",
        type=_number(int, 1),
        metavar="P",
        help="share the load (default: one for each 512 requests at once, as cores allow)",
    )


def _add_limits(group: Any) -> None:
    limits = Limits()
    for name in Limits._fields:
        default = getattr(limits, name)
        option = "--timeout-" + name.replace("_", "-")
        help_text = f"seconds (default {default:g})"
        group.add_argument(
            option, type=_number(float, 0.001), default=default, metavar="S", help=help_text
        )


def _add_rest(group: Any) -> None:
    add = group.add_argument
    add("--out", metavar="F.json")
    add("--http", choices=("epoll", "httpx"), default="epoll")
    add("--label", help="free text, kept in the record")
    add("--source", choices=("measured", "simulated"), default="measured")
    add("--progress", metavar="FILE", help='append {"done": n, "of": N} for each finished request')
    add("--calibrate", action="store_true", help="measure the client against its null emitter")


_NEEDED = ("base_url", "model", "concurrency", "requests", "max_tokens", "out")


def read(argv: Optional[List[str]]) -> argparse.Namespace:
    found = parser()
    arguments = found.parse_args(argv)
    if arguments.calibrate:
        return arguments
    missing = [name for name in _NEEDED if getattr(arguments, name) is None]
    if arguments.scenario is None and arguments.prompt_tokens is None:
        missing.append("scenario")
    if missing:
        words = ", ".join("--" + name.replace("_", "-") for name in missing)
        found.error(f"the following arguments are required: {words}")
    try:
        _check(arguments)
    except UsageError as problem:
        found.error(str(problem))
    return arguments


def _check(arguments: argparse.Namespace) -> None:
    for name in ("seed", "arrivals_seed", "model", "label", "base_url"):
        try:
            (getattr(arguments, name) or "").encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"--{name.replace('_', '-')}: text that is no UTF-8") from None
    _take_from_body(arguments)
    if arguments.scenario is not None and arguments.prompt_tokens is not None:
        raise UsageError("--scenario and --prompt-tokens exclude each other")
    if arguments.arrivals is not None and arguments.rate is None:
        raise UsageError("--arrivals needs --rate")
    if arguments.rate is not None and arguments.arrivals is None:
        arguments.arrivals = ARRIVALS[0]
    if arguments.min_tokens is not None and arguments.min_tokens > arguments.max_tokens:
        raise UsageError("--min-tokens is more than --max-tokens")
    if arguments.cache == "warm" and not arguments.warmup:
        raise UsageError("--cache warm needs --warmup 1 or more, to fill the cache")


def _take_from_body(arguments: argparse.Namespace) -> None:
    """What has an option of its own is that option, so that the record says what was sent."""
    for name, kinds in _OF_BODY.items():
        if name in arguments.extra_body:
            value = arguments.extra_body.pop(name)
            if type(value) not in kinds or (name != "ignore_eos" and value < 0):
                raise UsageError(f"--extra-body: {name}: {value!r} cannot be")
            setattr(arguments, name, value)


def limits(arguments: argparse.Namespace) -> Limits:
    return Limits(*(getattr(arguments, f"timeout_{name}") for name in Limits._fields))


def options(arguments: argparse.Namespace) -> Options:
    return Options(**{name: getattr(arguments, name) for name in Options._fields})
