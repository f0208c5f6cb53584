"""The load client: sends one scenario N times, C at once or R each second, and writes a run record.

In:  an OpenAI-compatible endpoint, a scenario, and the load (see --help).
Out: one JSON file, format `decodelab.run/1` (record.py), written whole or not at all. With --calibrate:
     what the client itself can do on this machine, format `decodelab.client_floor/1` (calibrate.py).

Exit code: 0 when the record was written, whatever the outcomes in it say; 2 for arguments that
cannot be used; 1 when nothing could be written. SIGTERM or SIGINT ends the run: open requests are
recorded as `client` (interrupted), the rest as `not_started`, the record is written, and the exit
code is 0; `client.ended` then says "signal". A second signal ends the process at once.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pkgutil
import resource
import secrets
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import (
    calibrate,
    client_options,
    httpx_client,
    scenario,
    schedule,
    self_check,
    shards,
    sized_prompt,
)
from cargo.endpoint import Endpoint, UsageError, first_model, request_headers, resolve
from cargo.epoll_client import EpollClient
from cargo.exchange import BROKEN, Exchange, request_record
from cargo.interruption import Interruption, Told
from cargo.load import Load, RunState
from cargo.mask import Mask
from cargo.request_body import Bodies, Options
from cargo.run_record import Made, assemble, check_place, write_whole

VERSION = "2"
SPARE_FILES = 64
FILES = (
    "__init__.py",
    "calibrate.py",
    "client_options.py",
    "decode_microbench.py",
    "deltas.py",
    "endpoint.py",
    "epoll_client.py",
    "exchange.py",
    "httpx_client.py",
    "interruption.py",
    "load.py",
    "mask.py",
    "null_emitter.py",
    "open_stream.py",
    "printable.py",
    "record.py",
    "request_body.py",
    "route.py",
    "run_record.py",
    "scenario.py",
    "schedule.py",
    "self_check.py",
    "server_http.py",
    "shard_memory.py",
    "shards.py",
    "sized_prompt.py",
    "sse.py",
    "stamps.py",
    "stream_text.py",
    "wire.py",
)


def own_digest() -> str:
    """Which client this is: 16 hex digits over its own files, in a folder or in a zip."""
    total = hashlib.sha256()
    for name in FILES:
        content = pkgutil.get_data("cargo", name) or b""
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()[:16]


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
        with contextlib.suppress(OSError):
            self._handle.close()


HTTP_CLIENTS: Dict[str, Callable[[RunState], Any]] = {
    "epoll": EpollClient,
    "httpx": httpx_client.HttpxClient,
}


def drive(state: RunState, arguments: argparse.Namespace, stop: Interruption) -> Made:
    """Make the run, by one process or by several."""
    make_client = HTTP_CLIENTS[arguments.http]
    forced = arguments.max_tokens if arguments.ignore_eos else arguments.min_tokens
    stages = state.stages
    if arguments.processes > 1:
        state.stages = stages[:1]  # the warm-up
    client = make_client(state)
    try:
        with stop.on(client.interrupt):
            client.run()
    finally:
        state.close()
    if arguments.processes == 1 or state.stopping:
        return _made(state, forced, None)
    shared = shards.run(state, arguments.processes, make_client, forced)
    state.close()
    return _made(state, forced, shared)


def _made(state: RunState, forced: Optional[int], shared: Optional[shards.Shared]) -> Made:
    exchanges = state.warmups + state.counted
    entries = [request_record(one, state.clock, forced) for one in exchanges]
    tally = self_check.Tally.of(state, exchanges)
    if shared is not None:
        for entry in entries:
            if not entry["warmup"]:
                entry.update(shared.entry(entry["index"]))
        tally.add(shared.tally)
    return Made(entries, self_check.figures(tally, state.wall_s or 0.0, state.zero_ns))


def _prepare(arguments: argparse.Namespace) -> Tuple[Endpoint, Dict[str, str]]:
    """Everything that can be wrong with the arguments, before anything is sent."""
    arguments.loaded = _asked(arguments)
    arguments.sizing = None
    if arguments.seed is None:
        arguments.seed = secrets.token_hex(8)
    if arguments.processes is None:
        arguments.processes = shards.best_number(arguments.concurrency)
    arguments.processes = min(arguments.processes, arguments.concurrency)
    why_not = httpx_client.missing() if arguments.http == "httpx" else None
    if why_not is not None:
        raise UsageError(why_not)
    check_place(arguments.out)
    _room_for(arguments.concurrency)
    sized = {"messages": [{"role": "user", "content": ""}], **arguments.loaded}
    Bodies(sized, "", arguments.seed, arguments.cache, client_options.options(arguments))
    headers = request_headers(arguments.api_key_env, VERSION)
    try:
        return resolve(arguments.base_url, arguments.http), headers
    except ValueError as problem:  # a name or an address that cannot be one
        if isinstance(problem, UsageError):
            raise
        raise UsageError(f"--base-url {arguments.base_url!r}: {problem}") from None


def _asked(arguments: argparse.Namespace) -> Dict[str, Any]:
    """The scenario, with a name."""
    if arguments.prompt_tokens is not None:
        return {
            "name": f"syn{arguments.prompt_tokens}",
            "prompt_tokens": arguments.prompt_tokens,
        }
    loaded = scenario.load(arguments.scenario)
    loaded.setdefault("name", os.path.splitext(os.path.basename(arguments.scenario))[0])
    return loaded


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


def _size_prompt(
    arguments: argparse.Namespace, endpoint: Endpoint, headers: Dict[str, str], model: str
) -> None:
    """A prompt that is asked for by its size gets its messages, the salt counted in."""
    asked = arguments.loaded
    tokens = asked.get("prompt_tokens")
    if tokens is None:
        return
    counter = sized_prompt.TokenizeCounter(
        endpoint, headers, model, asked.get("tools"), asked.get("chat_template_kwargs")
    )
    line = scenario.salt(arguments.seed)
    messages, arguments.sizing = sized_prompt.sized_messages(
        tokens, arguments.seed, lambda found: counter(scenario.salted(found, line))
    )
    asked["messages"] = messages
    told = [arguments.sizing["problem"], counter.problem]
    arguments.sizing["problem"] = "; ".join(filter(None, told)) or None


def make_run(arguments: argparse.Namespace, stop: Optional[Interruption] = None) -> Dict[str, Any]:
    """The whole run: returns its record. Raises UsageError or ScenarioError before anything is sent."""
    stop = stop or Interruption()
    endpoint, headers = _prepare(arguments)
    model, ended, problem = arguments.model, "", ""
    try:
        with stop.breaking_off():
            if model == "auto":
                model = first_model(endpoint, headers)
            _size_prompt(arguments, endpoint, headers, model)
    except OSError as found:
        model, ended, problem = None, "no_model", f"--model auto: {found}"
    except Told:
        model, ended = None if model == "auto" else model, "signal"
    progress = ProgressFile(arguments.progress) if arguments.progress else None
    state = RunState(_load(arguments, endpoint, headers, model, not ended), progress)
    try:
        made = _never_begun(state, ended, problem) if ended else drive(state, arguments, stop)
    finally:
        if progress is not None:
            progress.close()
    # a server may send the key back in an error
    key = headers.get("Authorization", "").partition(" ")[2]
    version = {"version": VERSION, "digest": own_digest()}
    masked: Dict[str, Any] = Mask([key]).deep(assemble(arguments, model, state, made, version))
    return masked


def _load(
    arguments: argparse.Namespace,
    endpoint: Endpoint,
    headers: Dict[str, str],
    model: Optional[str],
    to_send: bool,
) -> Load:
    options: Options = client_options.options(arguments)
    due_s = None
    if arguments.rate is not None:
        seed = arguments.arrivals_seed or arguments.seed
        due_s = schedule.due_times(arguments.rate, arguments.arrivals, arguments.requests, seed)
    body_of: Callable[[Exchange], bytes] = lambda _one: b""  # noqa: E731
    if to_send:
        body_of = Bodies(arguments.loaded, model or "", arguments.seed, arguments.cache, options)
    counts = (arguments.concurrency, arguments.requests, arguments.warmup)
    return Load(endpoint, headers, body_of, *counts, client_options.limits(arguments), due_s)


def _never_begun(state: RunState, ended: str, problem: str) -> Made:
    """Nothing was sent. Where no model could be asked for, the first request carries the reason."""
    if problem:
        first: Exchange = (state.warmups + state.counted)[0]
        first.end(BROKEN, state.zero_ns, "models", problem)
        state.finished(first)
    state.stop(ended)
    state.close()
    return _made(state, None, None)


def main(argv: Optional[List[str]] = None) -> int:
    arguments = client_options.read(argv)
    if arguments.calibrate:
        return _calibrate(arguments.out)
    with Interruption() as stop:
        try:
            found = make_run(arguments, stop)
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
    _say(headline(found))
    return 0


def _say(text: str) -> None:
    """The record is written: nobody who listens, or a terminal without these letters, is no failure."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  what is left in it must not fail either


def _calibrate(out: Optional[str]) -> int:
    found = calibrate.floor()
    try:
        if out is None:
            print(json.dumps(found, indent=1))
        else:
            write_whole(out, found)
    except OSError as problem:
        print(f"decode_microbench.py: --out {out}: {problem}", file=sys.stderr)
        return 1
    print(calibrate.headline(found), file=sys.stderr)
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
