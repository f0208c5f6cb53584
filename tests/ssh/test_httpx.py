"""The second opinion over ssh: httpx comes along with the client to a host that has none."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from decodelab.agent_client import AgentClient
from decodelab.host_ssh import SshHost
from tests.e2e.fakes import agent_lab
from tests.e2e.lab import REPO, Count, Lab
from tests.e2e.small import study
from tests.ssh.sshd import Sshd

# The machine's own Python rather than that of the tests, where there is one.
BARE = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
FAKE = REPO / "tests/e2e/fakes/fake_server.py"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab.copy(tmp_path / "checkout")
    yield made
    made.end_all()


def test_a_study_through_httpx_and_one_checked_by_it(
    lab: Lab, make_sshd: Callable[..., Sshd], tmp_path: Path
) -> None:
    bare = subprocess.run([BARE, "-S", "-c", "import httpx"], capture_output=True, text=True)
    assert "No module named 'httpx'" in bare.stderr, "the host must bring none of its own"
    work = tmp_path / "work $(touch pwned) 盤"
    host = {
        "transport": "ssh",
        "ssh": "board",
        "ssh_config": str(make_sshd().ssh_config("board")),
        "workdir": str(work),
        "python": BARE,
        "telemetry": {"tool": "none"},
        "simulated": True,
        "expect": {"start_s": 2, "output_tps": 200},
    }
    config = study() | {"host": "board", "hosts": {"board": host}}
    config["server"] = {"command": [BARE, "-S", str(FAKE)], "engine": "other", "build": "fake"}
    config["variants"] = {"there": {}}
    config["workloads"]["one"] |= {"http": "httpx"}
    config["workloads"]["two"] |= {"cross_check": True}
    question = {"kind": "threshold", "metric": "e2e_tps_p10", "variant": "there", "workload": "one"}
    config["experiments"] = {"x": {"runs": {"there": ["one", "two"]}, "question": question}}
    lab.write_config(config)

    call = lab.run("results/small/runs/decode_runs.json")
    assert call.exit_code == 0, call.text
    assert lab.count() == Count(starts=1, runs=2)
    shipped = [path.name for path in (work / "cargo").glob("client-*/*")]
    assert shipped == ["decode_microbench.pyz"]

    runs = lab.root / "results/small/runs"
    index = json.loads((runs / "decode_runs.json").read_text())["runs"]
    records = {name: json.loads((runs / e["file"]).read_text()) for name, e in index.items()}
    through = {record["run"]["http"]: name for name, record in records.items()}
    assert set(through) == {"epoll", "httpx"}
    assert all(r["summary"]["n_ok"] == 2 for r in records.values())
    assert "cross_check" not in index[through["httpx"]]
    entry = index[through["epoll"]]
    assert entry["cross_check"] == f"{through['epoll']}.cross_check.json"
    second = json.loads((runs / entry["cross_check"]).read_text())
    assert second["run"]["http"] == "httpx" and second["summary"]["n_ok"] == 2
    digests = {r["client"]["digest"] for r in [*records.values(), second]}
    assert len(digests) == 1, "the zipapp is the same client"
    assert not list(tmp_path.rglob("pwned"))


def test_the_zipapp_is_brought_only_where_it_is_wanted_and_once(
    sshd: Sshd, make_host: Callable[..., SshHost], tmp_path: Path
) -> None:
    host = make_host(sshd, block={"python": BARE})
    client, orders = AgentClient(host), agent_lab.Lab(tmp_path / "orders")
    client.ship()
    bad = {"argv": [BARE, "-c", "raise SystemExit(1)"]}  # a server is not what this is about
    brought = Path(host.workdir) / "cargo"

    client.submit("me", [orders.order(1, **bad)], None, 10)
    assert not list(brought.glob("client-*"))
    wanted = orders.order(2, runs=[orders.run(1, client={"http": "httpx"})], **bad)
    client.submit("me", [wanted, orders.order(3, **bad)], None, 10)
    (folder,) = brought.glob("client-*")
    before = (folder / "decode_microbench.pyz").stat().st_ino
    client.submit("me", [wanted, orders.order(3, **bad)], None, 10)
    assert (folder / "decode_microbench.pyz").stat().st_ino == before
    queued = [json.loads(f.read_text()) for f in Path(host.workdir).glob("queue/*.json")]
    files = {o["launch"]: (o.get("client_zipapp") or {}).get("file") for o in queued}
    assert files[agent_lab.digest(2)] == str(folder / "decode_microbench.pyz")
    assert files[agent_lab.digest(3)] is None
    client.stop("me", wait_s=20)
