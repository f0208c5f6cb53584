"""Sample an SMI tool at a fixed interval and keep its raw text, stamped before and after each call.

In:  python smi_sampler.py --out capture.jsonl --interval 1 --source measured --tool auto
     [--choice FILE] [--duration S] [--call-timeout S] [-- COMMAND...]
Out: capture.jsonl ("decodelab.capture/1"): a header line with the call as `smi_choice` chose it, then
     one line a call {"m0", "m1" (CLOCK_MONOTONIC before/after), "w0", "w1" (wall), "rc", "out",
     "err"}, and "trouble" where it had to be ended. FILE keeps the choice for the next run.
Calls start on absolute ticks and never overlap: a call that outlasts its tick skips the ticks it
missed. TERM ends it after the call that runs and a last one, so that a run has a sample on its far
side. A tool that is missing or hangs for ever ends the sampling with a record that says so, and so
does a capture that grows too large: telemetry that is absent does not fail a run. Exit code 74: a
line could not be written; what is there is no whole capture.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cargo import printable, smi_call, smi_loop, whole
from cargo.smi_call import Call
from cargo.smi_choice import CALL_S, Choice, Chooser, Stopped

SCHEMA = "decodelab.capture/1"
NOT_WRITTEN = 74
CAPTURE_BYTES = 512 << 20  # an hour of the longest output, each second


class Sampler:
    def __init__(self, fd: int, call_timeout_s: float, max_bytes: int) -> None:
        self.fd, self.call_timeout_s, self.left = fd, call_timeout_s, max_bytes
        self.stop = False
        self.dead_end = False  # calling the tool again makes no sense
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def asked_to_stop(self, *_: Any) -> None:
        self.stop = True

    def write(self, line: Dict[str, Any]) -> None:
        data = printable.dumps(line) + b"\n"
        self.left -= len(data)
        if os.write(self.fd, data) < len(data):
            raise OSError("half a line only")

    def header(self, source: str, choice: Choice) -> None:
        head = {"schema": SCHEMA, "source": source, "provenance": None}
        clock = {"monotonic_s": time.monotonic(), "wall": time.time()}
        self.write({**head, **choice._asdict(), "clock": clock})

    def run(self, choice: Choice, duration_s: Optional[float]) -> None:
        if not choice.argv:
            return self.absent(choice)
        self.argv, self.env = choice.argv, choice.env(dict(os.environ))
        begin = time.monotonic()
        end = math.inf if duration_s is None else begin + duration_s
        tick = 0
        while not self.stop and not self.dead_end:
            if choice.loop:
                self.one_loop(choice, end)
            else:
                self.one_call()
            now = time.monotonic()
            tick = max(tick + 1, math.ceil((now - begin) / choice.interval_s))
            due = begin + tick * choice.interval_s
            if due > end:
                return
            if due > now and not self.stop:
                select.select([self.wake], [], [], due - now)
        if not self.dead_end:
            self.one_call()

    def absent(self, choice: Choice) -> None:
        if choice.tool != "none":
            now, wall = time.monotonic(), time.time()
            words = "; ".join(choice.tried)
            self.write(Call(now, wall, now, wall, None, b"", b"", words).record())

    def one_loop(self, choice: Choice, end: float) -> None:
        """The tool's own loop until it ends; the caller starts it again at its next tick."""

        def over() -> bool:
            return self.stop or self.dead_end or time.monotonic() > end

        for done in smi_loop.ticks(choice.loop, self.env, choice.interval_s, over):
            self.keep(done)

    def one_call(self) -> None:
        self.keep(smi_call.call(self.argv, self.env, self.call_timeout_s))

    def keep(self, done: Call) -> None:
        record = done.record()
        self.dead_end = done.stuck or (self.stop and done.trouble != "")
        if self.left < len(done.out) + len(done.err):
            self.dead_end = True
            record.update(out="", err="", trouble="the capture is full: nothing more is kept")
        self.write(record)


def choose(args: argparse.Namespace, sampler: Sampler) -> Choice:
    """As at the last run beside this start, else anew."""
    kept = whole.read_json(args.choice) if args.choice else None
    if kept is not None:
        return Choice(**kept)
    asked = (args.tool, args.command, dict(os.environ), args.interval, args.call_timeout)
    chooser = Chooser(*asked, stopped=lambda: sampler.stop)
    try:
        made = chooser.choose()
    except Stopped:
        return chooser.unfinished()
    if args.choice:
        whole.write_json(args.choice, made._asdict(), durable=False, exact=True)
    return made


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="sample an SMI tool, raw text with stamps")
    parser.add_argument("--out", required=True, help="capture file (.jsonl) to write")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between calls")
    parser.add_argument("--source", default="measured", choices=("measured", "simulated"))
    parser.add_argument("--tool", default="auto", help="name of the tool; auto: any that is here")
    parser.add_argument("--choice", help="file that keeps how the tool is called")
    parser.add_argument("--duration", type=float, default=None, help="end after so many seconds")
    parser.add_argument("--call-timeout", type=float, default=CALL_S, help="of a call, seconds")
    parser.add_argument("--max-bytes", type=int, default=CAPTURE_BYTES, help="of the capture")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the tool's call, after --")
    args = parser.parse_args(argv)
    if args.interval <= 0:
        parser.error("--interval must be above 0")
    fd = os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    sampler = Sampler(fd, args.call_timeout, args.max_bytes)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, sampler.asked_to_stop)
    try:
        choice = choose(args, sampler)
        sampler.header(args.source, choice)
        sampler.run(choice, args.duration)
        return 0
    except OSError as error:
        print("%s: %s" % (args.out, error), file=sys.stderr)
        return NOT_WRITTEN
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
