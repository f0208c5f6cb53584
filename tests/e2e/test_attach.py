"""`server: {attach: URL}`: a server that somebody else runs is measured and never stopped; also one
that is reached over TLS by a proxy.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.fakes.agent_lab import Lab as AgentLab
from tests.e2e.lab import Count, Lab
from tests.e2e.small import study
from tests.e2e.tls import NAME, Authority, TlsFront, WebProxy, opened


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


def study_of(address: str) -> dict[str, Any]:
    config = study()
    config["server"] = {"attach": address, "engine": "vllm-v0"}
    config["variants"] = {"there": {}}
    question = {"kind": "threshold", "metric": "e2e_tps_p10", "variant": "there", "workload": "one"}
    config["experiments"] = {"x": {"runs": {"there": ["one"]}, "question": question}}
    del config["hosts"]["embedded"]["simulated"]
    return config


def test_an_attached_server_is_measured_and_left_alone(lab: Lab) -> None:
    port = free_port()
    config = study_of(f"http://127.0.0.1:{port}")
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


def test_a_server_behind_tls_and_a_proxy(lab: Lab, tmp_path: Path) -> None:
    port, authority = free_port(), Authority(tmp_path / "authority")
    config = study_of(f"https://{NAME}:8443/v1")
    for load in config["workloads"].values():
        load["http"] = "httpx"
    lab.write_config(config)
    with (
        foreign_server(lab, port, "--max-num-seqs", "2") as server,
        opened(lambda: TlsFront(port, authority)) as front,
        opened(lambda: WebProxy(front.port)) as proxy,
    ):
        env = {
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
            "NO_PROXY": "",
            "no_proxy": "",
            "SSL_CERT_FILE": str(authority.file),
        }
        call = lab.run("results/small/runs/decode_runs.json", env=env)
        assert call.exit_code == 0, call.text
        assert server.poll() is None
    assert lab.count().runs == 1
    assert set(proxy.lines) >= {f"CONNECT {NAME}:8443 HTTP/1.1"}, "nobody found another way"
    (run,) = lab.json("results/small/runs/decode_runs.json")["runs"].values()
    record = lab.json(f"results/small/runs/{run['file']}")
    assert record["summary"]["n_ok"] == 2 and record["run"]["http"] == "httpx"
    (start,) = lab.root.glob("results/raw/*/start1/start-*/start.json")
    facts = lab.json(str(start.relative_to(lab.root)))
    assert facts["pid"] is None, "whoever listens on that port here is somebody else"


def test_a_certificate_that_nobody_vouches_for_is_named(tmp_path: Path) -> None:
    lab = AgentLab(tmp_path / "work dir")
    _server, port = lab.start_foreign()
    with opened(lambda: TlsFront(port, Authority(tmp_path / "authority"))) as front:
        address = f"https://localhost:{front.port}"
        lab.submit(lab.order(1, attach=address, argv=[]))
        lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and (outcome["status"], outcome["reason"]) == ("invalid", "not_reachable")
    said = outcome["cause"]["root_cause"]
    assert said.startswith(f"{address} does not answer: ") and "certificate verify failed" in said
    assert lab.close() == []
