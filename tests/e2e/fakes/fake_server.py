"""A tiny OpenAI-like server with every bad habit that the host agent must survive (see --help).

In: flags. Out: HTTP on --host:--port. Not a model of anything: it exists to be started and stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--tag", default="", help="put into the children's argv, for the test to see"
    )
    parser.add_argument("--start-s", type=float, default=0.0, help="time to load")
    parser.add_argument("--token-s", type=float, default=0.005, help="time per token")
    parser.add_argument("--die-at-start", help="text to print, then exit")
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--say", action="append", default=[], help="a line of the log, first")
    parser.add_argument("--hang", action="store_true", help="never listen, say nothing more")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--children", type=int, default=0, help="in own sessions, unmarked, deaf")
    parser.add_argument("--dead-engine", action="store_true", help="/health 200, tokens never")
    parser.add_argument(
        "--die-at-request", type=int, default=0, help="exit 1 inside request number N"
    )
    parser.add_argument("--print-env", action="store_true", help="all of it, in several spellings")
    parser.add_argument("--key-env", help="variable with the key that /v1 wants to see")
    parser.add_argument("--no-streams", action="store_true", help="401 with the key in its words")
    parser.add_argument("--deaths", help="file that counts deaths; with --max-deaths")
    parser.add_argument("--max-deaths", type=int, default=99)
    parser.add_argument("--profiler", choices=["answers", "deaf"], help="see fake_profiler.py")
    parser.add_argument("--profiler-says", default="", help="variable whose value it tells")
    return parser.parse_args()


def deaf_child(tag: str) -> None:
    """As bad as it gets: own session, no environment, no output, TERM ignored, re-parented."""
    if os.fork():
        return
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)  # the next one is an orphan
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    code = "import signal,time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"
    os.execve(sys.executable, [sys.executable, "-S", "-c", code, tag], {})


class State:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.requests = 0  # the probe is not counted
        self.lock = threading.Lock()

    def must_die(self) -> bool:
        with self.lock:
            self.requests += 1
            if self.requests != self.args.die_at_request:
                return False
        if self.args.deaths:
            with open(self.args.deaths, "a+", encoding="ascii") as f:
                f.seek(0)
                if len(f.read()) >= self.args.max_deaths:
                    return False
                f.write("x")
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refused(self) -> bool:
        """As vLLM does it: everything under /v1 wants the key."""
        name = self.state.args.key_env
        sent = self.headers.get("Authorization")
        if name is None or not self.path.startswith("/v1"):
            return False
        if sent == "Bearer " + os.environ[name]:
            return False
        print(f"refused with {sent!r}", flush=True)
        self.answer(401, json.dumps({"error": {"message": f"bad key: {sent}"}}).encode())
        return True

    def do_GET(self) -> None:
        if self.refused():
            return
        if self.path == "/health":
            self.answer(200, b"")
        elif self.path == "/v1/models":
            self.answer(200, json.dumps({"object": "list", "data": [{"id": "tiny"}]}).encode())
        elif self.path == "/version":
            self.answer(200, b'{"version": "0.0.1"}')
        elif self.path == "/metrics":
            self.answer(200, b"vllm:num_requests_running 0.0\n", "text/plain")
        else:
            self.answer(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        if self.state.args.no_streams and body.get("stream"):
            sent = self.headers.get("Authorization")
            self.answer(401, json.dumps({"error": {"message": f"expired: {sent}"}}).encode())
            return
        if self.state.args.dead_engine:
            time.sleep(600)
        if not body.get("stream"):
            choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "length"}
            self.answer(200, json.dumps({"choices": [choice]}).encode())
            return
        self.stream(body, self.state.must_die())

    def stream(self, body: dict[str, Any], dies: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = body["max_tokens"]
        for i in range(count):
            time.sleep(self.state.args.token_s)
            if dies and i == count // 2:
                print("RuntimeError: the engine fell over", flush=True)
                os._exit(1)
            last = i == count - 1
            self.event(
                [
                    {
                        "index": 0,
                        "delta": {"content": "a"},
                        "finish_reason": "length" if last else None,
                    }
                ]
            )
        usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": count + 5}
        self.event([], usage)
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, choices: list[Any], usage: Any = None) -> None:
        self.chunk(b"data: " + json.dumps({"choices": choices, "usage": usage}).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def main() -> int:
    args = options()
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("INFO 11-29 16:44:19 api_server.py:100] vLLM API server version 0.0.1", flush=True)
    for name, value in os.environ.items() if args.print_env else []:
        print(f"{name}={value}", repr(value), json.dumps(value), flush=True)
    for line in args.say:
        print(line, flush=True)
    if args.profiler:
        import fake_profiler  # of this folder, which is the first on the path of a script

        fake_profiler.start(args.profiler, os.environ.get(args.profiler_says, ""))
    for _ in range(args.children):
        deaf_child(args.tag)
    time.sleep(args.start_s)
    if args.die_at_start:
        print(args.die_at_start, flush=True)
        return args.exit_code
    while args.hang:
        time.sleep(1)
    Handler.state = State(args)
    server = ThreadingHTTPServer((args.host, args.port), Handler)
    server.daemon_threads = True
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
