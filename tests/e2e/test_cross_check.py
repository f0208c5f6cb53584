"""A good run made once more through httpx: the real agent, a fake server, and every way it may fail.

Whatever happens to the second run, the first one stands as it was measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decodelab import client_zipapp
from tests.e2e.fakes.agent_lab import Lab, digest


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work dir")
    yield lab
    assert lab.close() == []


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The client that is really brought to a host."""
    made = client_zipapp.made(tmp_path_factory.mktemp("checkout"))
    return {"file": str(made.folder / client_zipapp.ZIPAPP), "python": made.python}


def in_place_of_the_client(tmp_path: Path, code: str) -> dict[str, str]:
    file = tmp_path / "client.py"
    file.write_text(code)
    return {"file": str(file), "python": "3.9"}


def order(lab: Lab, zipapp: dict[str, str], *flags: str, runs: int = 1, **run: Any) -> Any:
    client = {"cross_check": True, "timeout_s": {"connect": 5, "total": 60}}
    made = [lab.run(16 + n, client=client, **run) for n in range(runs)]
    return {**lab.order(1, *flags, runs=made), "client_zipapp": zipapp}


def attempts(lab: Lab) -> list[Path]:
    """The folders of the runs, in the order of the runs."""
    return sorted(lab.folder(1).glob("runs/*/*-1"))


def read(folder: Path, name: str = "cross_check.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def stands(folder: Path) -> None:
    """The run is whole, good, and has its own counters of the server."""
    done = read(folder, "DONE.json")
    assert (done["status"], done["reasons"]) == ("done", [])
    assert read(folder, "run.json")["summary"]["n_ok"] == 2
    assert {"run.json", "cross_check.json", "metrics_after.txt"} <= set(done["files"])


def test_a_good_run_is_made_once_more(lab: Lab, real: dict[str, str]) -> None:
    lab.submit(order(lab, real))
    lab.until_idle()
    (folder,) = attempts(lab)
    stands(folder)
    first, second = read(folder, "run.json"), read(folder)
    assert second["schema"] == first["schema"]
    assert (first["run"]["http"], second["run"]["http"]) == ("epoll", "httpx")
    assert second["client"]["digest"] == first["client"]["digest"], "one client, two transports"
    assert second["run"]["seed"] == first["run"]["seed"] + "-httpx", "no prefix in common"
    assert [r["outcome"] for r in second["requests"]] == ["ok", "ok"]
    same = ("concurrency", "requests", "max_tokens", "scenario", "warmup", "base_url")
    assert {key: first["run"][key] for key in same} == {key: second["run"][key] for key in same}


def test_a_server_that_dies_meanwhile_is_started_again_for_the_next_run(
    lab: Lab, real: dict[str, str], tmp_path: Path
) -> None:
    deaths = ["--deaths", str(tmp_path / "deaths"), "--max-deaths", "1"]
    lab.submit(order(lab, real, "--die-at-request", "3", *deaths, runs=2))
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "done" and len(outcome["starts"]) == 2
    first, second = attempts(lab)
    stands(first)
    outcomes = [request["outcome"] for request in read(first)["requests"]]
    assert outcomes == ["server_gone", "not_started"]
    stands(second)
    assert [r["outcome"] for r in read(second)["requests"]] == ["ok", "ok"]
    assert "server_died" in lab.names(1)


def test_a_client_that_cannot_run_there_says_why(lab: Lab, tmp_path: Path) -> None:
    words = "decode_microbench.py: --http httpx needs Python 3.10 or newer on the host; this is 3.9"
    lab.submit(order(lab, in_place_of_the_client(tmp_path, f"raise SystemExit({words!r})")))
    lab.until_idle()
    (folder,) = attempts(lab)
    stands(folder)
    assert read(folder) == {"problem": words}


def test_it_has_the_limit_of_the_run(lab: Lab, tmp_path: Path) -> None:
    hangs = in_place_of_the_client(tmp_path, "import time\ntime.sleep(600)")
    lab.submit(order(lab, hangs, limit_s=3.0))
    lab.until_idle()
    (folder,) = attempts(lab)
    stands(folder)
    assert read(folder) == {"problem": "it was not done within 3 s"}
    assert "limit" not in read(folder, "DONE.json")["reasons"]


def test_a_stop_meanwhile_keeps_the_run(lab: Lab, tmp_path: Path) -> None:
    told = tmp_path / "begun"
    code = f"import time\nopen({str(told)!r}, 'w').close()\ntime.sleep(600)"
    lab.submit(order(lab, in_place_of_the_client(tmp_path, code), runs=2))
    lab.until(told.exists)
    began = time.monotonic()
    assert lab.call("stop", "--owner", "me", "--wait", "20")["stopped"]
    assert time.monotonic() - began < 20
    lab.until_idle()
    outcome = lab.outcome(1)
    assert outcome and outcome["status"] == "stopped"
    assert outcome["runs"][digest(16)]["status"] == "done"
    assert outcome["runs"][digest(17)]["status"] == "not_started"
    (folder,) = attempts(lab)
    stands(folder)
    assert read(folder) == {"problem": "the launch was stopped meanwhile"}


def test_a_stop_meanwhile_leaves_no_half_opinion(lab: Lab, tmp_path: Path) -> None:
    """The client writes what it has when it is told to end; that is no second opinion."""
    told = tmp_path / "begun"
    code = (
        "import signal, sys, time\n"
        "out = sys.argv[sys.argv.index('--out') + 1]\n"
        "def end(*_):\n"
        "    open(out, 'w').write('{\"summary\": {\"n_ok\": 0}}')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(told)!r}, 'w').close()\n"
        "time.sleep(600)\n"
    )
    lab.submit(order(lab, in_place_of_the_client(tmp_path, code)))
    lab.until(told.exists)
    assert lab.call("stop", "--owner", "me", "--wait", "20")["stopped"]
    lab.until_idle()
    (folder,) = attempts(lab)
    stands(folder)
    assert read(folder) == {"problem": "the launch was stopped meanwhile"}


def test_an_open_loop_is_asked_in_the_same_moments(lab: Lab, real: dict[str, str]) -> None:
    whole = order(lab, real, requests=5)
    whole["runs"][0]["client"].update(rate=8.0, arrivals="poisson", arrivals_seed="s-start1")
    lab.submit(whole)
    lab.until_idle()
    (folder,) = attempts(lab)
    gaps = []
    for name in ("run.json", "cross_check.json"):
        due = [request["t_due_s"] for request in read(folder, name)["requests"]]
        gaps.append([later - due[0] for later in due[1:]])
    assert len(gaps[0]) == 4
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-6)


def test_a_run_that_is_no_good_is_not_made_again(lab: Lab, real: dict[str, str]) -> None:
    lab.submit(order(lab, real, "--no-streams"))
    lab.until_idle()
    (folder,) = attempts(lab)
    assert read(folder, "DONE.json")["reasons"] == ["no_ok_request"]
    assert not (folder / "cross_check.json").exists()


def test_an_old_python_is_refused_before_anything_starts(lab: Lab, tmp_path: Path) -> None:
    new = {**in_place_of_the_client(tmp_path, ""), "python": "3.99"}
    whole = order(lab, new)
    whole["runs"][0]["client"]["http"] = "httpx"
    said = lab.refused("submit", stdin={"owner": "me", "orders": [whole]})
    assert "--http httpx needs Python 3.99 or newer on the host; this is 3." in said
    assert "Hint: name a newer one as hosts.<name>.python" in said
    for wrong in (
        "client.pyz",
        {"file": "rel.pyz", "python": "3.10"},
        {"file": "/x", "python": "new"},
    ):
        said = lab.refused(
            "submit", stdin={"owner": "me", "orders": [{**whole, "client_zipapp": wrong}]}
        )
        assert "client_zipapp needs an absolute path" in said
    assert not lab.folder(1).exists()
