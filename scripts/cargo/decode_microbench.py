"""The load client: sends one scenario N times at concurrency C and writes a run record.

In:  an OpenAI-compatible endpoint, a scenario, and the load (see --help).
Out: one JSON file, format `decodelab.run/1` (record.py), written whole or not at all.

Exit code: 0 when the record was written, whatever the outcomes in it say; 2 for arguments that
cannot be used; 1 when nothing could be written. SIGTERM or SIGINT ends the run: open requests are
recorded as `client` (interrupted), the rest as `not_started`, the record is written, and the exit
code is 0; `client.ended` then says "signal". A second signal ends the process at once.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import resource
import secrets
import signal
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import httpx_client, printable, record, scenario
from cargo.endpoint import Endpoint, UsageError, first_model, request_headers, resolve
from cargo.epoll_client import EpollClient
from cargo.exchange import BROKEN, Exchange, request_record
from cargo.load import Limits, Load, RunState, self_check
from cargo.mask import Mask

VERSION = "1"
SPARE_FILES = 64
FILES = (
    "__init__.py",
    "decode_microbench.py",
    "deltas.py",
    "endpoint.py",
    "epoll_client.py",
    "exchange.py",
    "httpx_client.py",
    "load.py",
    "mask.py",
    "printable.py",
    "record.py",
    "scenario.py",
    "sse.py",
    "stamps.py",
    "wire.py",
)


def own_digest() -> str:
    """Which client this is: 16 hex digits over its own files."""
    folder = os.path.dirname(os.path.abspath(__file__))
    total = hashlib.sha256()
    for name in FILES:
        with open(os.path.join(folder, name), "rb") as handle:
            content = handle.read()
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()[:16]


def _positive(kind: Callable[[str], Any], least: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"at least {least:g} expected, got {text}")
        return value

    read.__name__ = kind.__name__
    return read


def _json_object(text: str) -> Dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("a JSON object expected")
    return found


def parser() -> argparse.ArgumentParser:
    limits = Limits()
    found = argparse.ArgumentParser(
        prog="decode_microbench.py",
        description="Send one scenario N times at concurrency C; write a run record.",
        epilog="Exit code: 0 record written, 2 bad arguments, 1 nothing written.",
    )
    add = found.add_argument
    add(
        "--base-url",
        required=True,
        metavar="URL",
        help="http://127.0.0.1:8000 (with or without /v1)",
    )
    add("--model", required=True, help='model name, or "auto": the first of /v1/models')
    add("--scenario", required=True, help=f"{'|'.join(scenario.shipped())}, or a JSON file")
    add("--concurrency", required=True, type=_positive(int, 1), metavar="C")
    add("--requests", required=True, type=_positive(int, 1), metavar="N", help="in all")
    add("--max-tokens", required=True, type=_positive(int, 1), metavar="T")
    add("--out", required=True, metavar="F.json")
    add("--warmup", type=_positive(int, 0), default=0, metavar="W", help="sent first, not counted")
    add("--seed", help="text the prompt's salt is made of (default: drawn, and recorded)")
    add("--http", choices=("epoll", "httpx"), default="epoll")
    add("--extra-body", type=_json_object, default={}, metavar="JSON")
    add("--temperature", type=_positive(float, 0), default=0.0)
    add("--ignore-eos", dest="ignore_eos", action="store_true", default=True)
    add("--no-ignore-eos", dest="ignore_eos", action="store_false")
    for name in Limits._fields:
        default = getattr(limits, name)
        option = "--timeout-" + name.replace("_", "-")
        help_text = f"seconds (default {default:g})"
        add(option, type=_positive(float, 0.001), default=default, metavar="S", help=help_text)
    add("--label", help="free text, kept in the record")
    add("--source", choices=("measured", "simulated"), default="measured")
    add("--progress", metavar="FILE", help='append {"done": n, "of": N} for each finished request')
    add("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    return found


class ProgressFile:
    """Appends one JSON line for each finished request; a failure to write ends no run."""

    def __init__(self, path: str) -> None:
        self._handle = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def __call__(self, done: int, of: int) -> None:
        try:
            self._handle.write(json.dumps({"done": done, "of": of}) + "\n")
            self._handle.flush()
        except OSError:
            pass

    def close(self) -> None:
        self._handle.close()


def drive(state: RunState, http_choice: str) -> None:
    """Make the run; a first SIGTERM or SIGINT ends it early, a second ends the process."""
    client: Any = HTTP_CLIENTS[http_choice](state)
    before: Dict[int, Any] = {}

    def on_signal(number: int, _frame: Any) -> None:
        for one, handler in before.items():
            signal.signal(one, handler)
        client.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, on_signal)
    try:
        client.run()
    finally:
        state.close()
        for one, handler in before.items():
            signal.signal(one, handler)


HTTP_CLIENTS: Dict[str, Callable[[RunState], Any]] = {
    "epoll": EpollClient,
    "httpx": httpx_client.HttpxClient,
}


def assemble(
    arguments: argparse.Namespace, model: Optional[str], state: RunState
) -> Dict[str, Any]:
    """The run record of a run that has ended."""
    forced = arguments.max_tokens if arguments.ignore_eos else None
    clock = state.clock
    entries = [request_record(one, clock, forced) for one in state.warmups + state.counted]
    client: Dict[str, Any] = {"version": VERSION, "digest": own_digest()}
    client["python"] = platform.python_version()
    client.update(self_check(state))
    client["autogroup"] = _autogroup()
    wall = datetime.datetime.fromtimestamp(state.zero_wall_s, datetime.timezone.utc)
    return {
        "schema": record.SCHEMA,
        "source": arguments.source,
        "provenance": None,
        "run": {
            "scenario": arguments.loaded["name"],
            "model": model,
            "base_url": arguments.base_url,
            "concurrency": arguments.concurrency,
            "requests": arguments.requests,
            "max_tokens": arguments.max_tokens,
            "seed": arguments.seed,
            "warmup": arguments.warmup,
            "http": arguments.http,
            "temperature": arguments.temperature,
            "ignore_eos": arguments.ignore_eos,
            "extra_body": arguments.extra_body,
            "label": arguments.label,
        },
        "client": client,
        "clock": {
            "t0_monotonic_s": state.zero_ns / 1e9,
            "t0_wall": wall.isoformat(timespec="microseconds"),
        },
        "requests": entries,
        "summary": record.summarise(entries),
    }


def _autogroup() -> Optional[str]:
    try:
        with open("/proc/self/autogroup", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return None


def write_whole(path: str, found: Dict[str, Any]) -> None:
    """The file appears with all of its content or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(
        prefix=os.path.basename(path) + ".", suffix=".tmp", dir=folder
    )
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(printable.dumps(found, allow_nan=False, separators=(",", ":")) + b"\n")
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _prepare(arguments: argparse.Namespace) -> Tuple[Endpoint, Dict[str, str]]:
    """Everything that can be wrong with the arguments, before anything is sent."""
    arguments.loaded = scenario.load(arguments.scenario)
    arguments.loaded.setdefault("name", os.path.splitext(os.path.basename(arguments.scenario))[0])
    if arguments.seed is None:
        arguments.seed = secrets.token_hex(8)
    why_not = httpx_client.missing() if arguments.http == "httpx" else None
    if why_not is not None:
        raise UsageError(why_not)
    folder = os.path.dirname(os.path.abspath(arguments.out))
    if not os.path.isdir(folder):
        raise UsageError(f"--out: no folder {folder}")
    _room_for(arguments.concurrency)
    _body(arguments, "model")
    return resolve(arguments.base_url, arguments.http), request_headers(
        arguments.api_key_env, VERSION
    )


def _room_for(concurrency: int) -> None:
    """Every request has a connection of its own: too few file descriptors are our fault, not the server's."""
    needed = concurrency + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise UsageError(
                f"--concurrency {concurrency}: the host allows this process {hard} open files, "
                f"{needed} are needed (ulimit -Hn)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _body(arguments: argparse.Namespace, model: str) -> bytes:
    return scenario.request_body(
        arguments.loaded,
        model,
        arguments.max_tokens,
        arguments.seed,
        arguments.temperature,
        arguments.ignore_eos,
        arguments.extra_body,
    )


def make_run(arguments: argparse.Namespace) -> Dict[str, Any]:
    """The whole run: returns its record."""
    endpoint, headers = _prepare(arguments)
    model: Optional[str] = arguments.model
    problem = ""
    if model == "auto":
        try:
            model = first_model(endpoint, headers)
        except OSError as found:
            model, problem = None, f"--model auto: {found}"
    limits = Limits(*(getattr(arguments, f"timeout_{name}") for name in Limits._fields))
    body = _body(arguments, model or "")
    counts = (arguments.concurrency, arguments.requests, arguments.warmup)
    progress = ProgressFile(arguments.progress) if arguments.progress else None
    state = RunState(Load(endpoint, headers, lambda _one: body, *counts, limits), progress)
    try:
        if model is None:
            _never_begun(state, problem)
        else:
            drive(state, arguments.http)
    finally:
        if progress is not None:
            progress.close()
    key = headers.get("Authorization", "").partition(" ")[
        2
    ]  # a server may send it back in an error
    made: Dict[str, Any] = Mask([key]).deep(assemble(arguments, model, state))
    return made


def _never_begun(state: RunState, problem: str) -> None:
    """No model could be asked for: the first request carries the reason, the rest never start."""
    first: Exchange = (state.warmups + state.counted)[0]
    first.end(BROKEN, state.zero_ns, "models", problem)
    state.stop("server_gone")
    state.finished(first)
    state.close()


def main(argv: Optional[List[str]] = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        found = make_run(arguments)
    except (UsageError, scenario.ScenarioError) as problem:
        print(f"decode_microbench.py: {problem}", file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"decode_microbench.py: {problem}", file=sys.stderr)
        return 1
    try:
        write_whole(arguments.out, found)
    except (OSError, ValueError) as problem:
        print(f"decode_microbench.py: --out {arguments.out}: {problem}", file=sys.stderr)
        return 1
    print(headline(found))
    return 0


def headline(found: Dict[str, Any]) -> str:
    """One line for the person who ran it by hand."""
    summary = found["summary"]

    def p(name: str, q: str) -> str:
        return "-" if summary[name] is None else f"{summary[name][q]:.4g}"

    total = summary["output_tps_total"]
    return (
        f"{found['run']['scenario']} c{found['run']['concurrency']}: "
        f"{summary['n_ok']} of {summary['n_attempted']} ok, "
        f"{summary['n_not_started']} not started; TTFT P50 {p('ttft_s', 'p50')} s, "
        f"decode rate P50 {p('decode_rate', 'p50')} tok/s, e2e P10 {p('e2e_tps', 'p10')} tok/s, "
        f"total {'-' if total is None else format(total, '.4g')} tok/s"
    )


if __name__ == "__main__":
    sys.exit(main())
