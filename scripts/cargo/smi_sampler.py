"""Sample an SMI tool at a fixed interval and keep its raw text, stamped before and after each call.

In:  python smi_sampler.py --out capture.jsonl --interval 0.1 --source measured --tool ixsmi
     [--duration S] [--call-timeout S] -- ARGV...
Out: capture.jsonl ("decodelab.capture/1"): a header line, then one line a call
     {"m0", "m1" (CLOCK_MONOTONIC before/after), "w0" (wall), "rc", "out", "err"}.
Calls start on absolute ticks and never overlap: a call that outlasts its tick skips the ticks it
missed. TERM ends it after the call that runs. A tool that is missing or hangs for ever ends the
sampling with a record that says so: telemetry that is absent does not fail a run. Exit code 74: a
line could not be written; what is there is no whole capture.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

SCHEMA = "decodelab.capture/1"
UNKILLABLE_S = 2.0
NOT_WRITTEN = 74


class Sampler:
    def __init__(self, argv: List[str], interval_s: float, call_timeout_s: float, fd: int) -> None:
        self.argv = argv
        self.interval_s = interval_s
        self.call_timeout_s = call_timeout_s
        self.fd = fd
        self.stop = False
        self.dead_end = False  # calling the tool again makes no sense
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def asked_to_stop(self, *_: Any) -> None:
        self.stop = True

    def write(self, line: Dict[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        if os.write(self.fd, data) < len(data):
            raise OSError("half a line only")

    def header(self, source: str, tool: str) -> None:
        self.write(
            {
                "schema": SCHEMA,
                "source": source,
                "provenance": None,
                "tool": tool,
                "argv": [os.fsencode(w).decode("utf-8", "backslashreplace") for w in self.argv],
                "interval_s": self.interval_s,
                "clock": {"monotonic_s": time.monotonic(), "wall": time.time()},
            }
        )

    def run(self, duration_s: Optional[float]) -> None:
        begin = time.monotonic()
        end = math.inf if duration_s is None else begin + duration_s
        tick = 0
        while not self.stop and not self.dead_end:
            self.write(self.one_call())
            now = time.monotonic()
            tick = max(tick + 1, math.ceil((now - begin) / self.interval_s))
            due = begin + tick * self.interval_s
            if due > end:
                return
            if due > now and not self.stop:
                select.select([self.wake], [], [], due - now)

    def one_call(self) -> Dict[str, Any]:
        record: Dict[str, Any] = {"m0": time.monotonic(), "m1": None, "w0": time.time()}
        record.update(rc=None, out="", err="")
        try:
            # close_fds=False and a full path let python use posix_spawn: no copy of page tables
            process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                close_fds=False,
            )
        except (OSError, ValueError) as error:
            self.dead_end = True
            record.update(m1=time.monotonic(), err="%s: %s" % (self.argv[0], error))
            return record
        try:
            out, err = process.communicate(timeout=self.call_timeout_s)
            record.update(m1=time.monotonic(), rc=process.returncode)
            record.update(out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            self._give_up(process)
            words = "no answer within %g s" % self.call_timeout_s
            record.update(
                m1=time.monotonic(), err=words + (", not killable" if self.dead_end else "")
            )
        return record

    def _give_up(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        try:
            process.communicate(timeout=UNKILLABLE_S)
        except subprocess.TimeoutExpired:  # stuck in the driver: another call would hang as well
            self.dead_end = process.poll() is None


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="sample an SMI tool, raw text with stamps")
    parser.add_argument("--out", required=True, help="capture file (.jsonl) to write")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between calls")
    parser.add_argument("--source", default="measured", choices=("measured", "simulated"))
    parser.add_argument("--tool", default="ixsmi", help="name of the tool, kept in the header")
    parser.add_argument("--duration", type=float, default=None, help="end after so many seconds")
    parser.add_argument(
        "--call-timeout", type=float, default=10.0, help="limit of one call, seconds"
    )
    parser.add_argument("command", nargs="+", metavar="ARGV", help="the call to make, after --")
    args = parser.parse_args(argv)
    if args.interval <= 0:
        parser.error("--interval must be above 0")
    command = list(args.command)
    command[0] = shutil.which(command[0]) or command[0]
    fd = os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    sampler = Sampler(command, args.interval, args.call_timeout, fd)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, sampler.asked_to_stop)
    try:
        sampler.header(args.source, args.tool)
        sampler.run(args.duration)
        return 0
    except OSError as error:
        print("%s: %s" % (args.out, error), file=sys.stderr)
        return NOT_WRITTEN
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
