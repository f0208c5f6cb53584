"""`server: {attach: URL}`: a server that somebody else runs is measured and never stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study


@contextmanager
def foreign_server(lab: Lab, port: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ["scripts/sim/server.py", "--model", "m", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, *words, *flags],
        cwd=lab.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SIM_STATE": str(lab.root / "foreign.state")},
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield server
    finally:
        server.terminate()
        server.wait(10)


def wait_for(url: str) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except OSError:
            assert time.monotonic() < end, url
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_an_attached_server_is_measured_and_left_alone(lab: Lab) -> None:
    port = free_port()
    config = study()
    config["server"] = {"attach": f"http://127.0.0.1:{port}", "engine": "vllm-v0"}
    config["variants"] = {"there": {}}
    question = {"kind": "threshold", "metric": "e2e_tps_p10", "variant": "there", "workload": "one"}
    config["experiments"] = {"x": {"runs": {"there": ["one"]}, "question": question}}
    del config["hosts"]["embedded"]["simulated"]
    lab.write_config(config)
    with foreign_server(lab, port, "--max-num-seqs", "2") as server:
        call = lab.run("report")
        assert call.exit_code == 0, call.text
        report = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
        assert "SIMULATED" in report, "the server says so itself, whatever the config believes"
        assert lab.count() == Count(starts=1, runs=1)
        assert server.poll() is None, "never stopped by us"

    config["experiments"]["x"]["runs"]["there"].append("two")
    lab.write_config(config)
    with foreign_server(lab, port, "--max-num-seqs", "1"):
        call = lab.run("report")
        assert call.exit_code != 0
        assert "another server answers" in call.text and "change server.build" in call.text
        assert lab.count().runs == 1, "another server's figures never join the first one's"
