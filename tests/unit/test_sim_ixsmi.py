"""The simulated ixsmi: fields, forms, load from the state file, idle without a live server."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cargo.smi_choice import Chooser
from decodelab import telemetry
from sim import ixsmi


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def call(capsys: pytest.CaptureFixture, *argv: str) -> tuple:
    rc = ixsmi.main(list(argv))
    return rc, capsys.readouterr().out


def values(capsys: pytest.CaptureFixture, state: str, fields: str) -> list:
    rc, out = call(
        capsys, f"--state={state}", f"--query-gpu={fields}", "--format=csv,nounits,noheader"
    )
    assert rc == 0
    return [line.split(", ") for line in out.splitlines()]


def test_idle_without_a_server(capsys, state):
    rows = values(capsys, state, "utilization.gpu,memory.used,power.limit")
    assert rows == [["0", "257", "250"]] * 4


def test_a_live_servers_load_on_the_cards_it_uses(capsys, state):
    ixsmi.write_state(state, 0.29, 30477, 2)
    memory = [int(r[0]) for r in values(capsys, state, "memory.used")]
    assert memory == [30555, 30451, 257, 257]
    for fields in ("memory.used,memory.free,memory.total",):
        for used, free, total in values(capsys, state, fields):
            assert int(used) + int(free) == int(total) == 32768


@pytest.mark.parametrize("what", ["dead pid", "stale", "from the future", "half a line", "empty"])
def test_a_dead_servers_state_is_idle(capsys, state, what):
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    child.wait()
    now = time.monotonic()
    text = {
        "dead pid": f"{child.pid} {now} 0.9 30000 4\n",
        "stale": f"{os.getpid()} {now - 60} 0.9 30000 4\n",
        "from the future": f"{os.getpid()} {now + 60} 0.9 30000 4\n",
        "half a line": f"{os.getpid()} {now}",
        "empty": "",
    }[what]
    Path(state).write_text(text)
    assert values(capsys, state, "memory.used,utilization.gpu") == [["257", "0"]] * 4


def test_utilization_has_the_given_mean_with_spikes_to_100():
    for share in (0.29, 0.1, 0.95):
        shown = [ixsmi.card(i, (1, share, 30477, 4), t) for i in range(4) for t in range(3000)]
        util = [int(c["utilization.gpu"].split()[0]) for c in shown]
        assert statistics.mean(util) == pytest.approx(100 * share, abs=1.5)
        assert max(util) == 100 and min(util) >= 0
    power = [
        int(ixsmi.card(0, (1, 0.29, 30477, 4), t)["power.draw"].split()[0]) for t in range(3000)
    ]
    assert statistics.mean(power) == pytest.approx(49.67, abs=0.2) and max(power) == 51
    idle = {ixsmi.card(0, (1, 0.0, 30477, 4), t)["utilization.gpu"] for t in range(500)}
    assert idle == {"0 %"}


def test_fields_of_corex_3_only(capsys, state):
    rc, out = call(capsys, "--query-gpu=index,gpu.power.draw", "--format=csv")
    assert (rc, out) == (2, 'Field "gpu.power.draw" is not a valid field to query.\n')
    rc, out = call(
        capsys, f"--state={state}", "--query-gpu=index,power.draw,memory.used", "--format=csv"
    )
    lines = out.splitlines()
    assert rc == 0 and lines[0] == "index, power.draw, memory.used" and len(lines) == 5
    assert lines[1].startswith("0, ") and lines[1].endswith(" W, 257 MiB")
    for argv in (["--format=csv"], ["-lms"], ["--query-gpu=index"], ["-i", "9"]):
        assert call(capsys, *argv)[0] == 2


def test_table_and_list(capsys, state):
    ixsmi.write_state(state, 0.0, 30477, 4)
    _, out = call(capsys, "--state", state)
    lines = out.splitlines()
    assert lines[0].startswith("Timestamp    ")
    assert {len(line) for line in lines[1:] if line} == {79}
    rows = [line for line in lines if "/ 250W" in line]
    assert len(rows) == 4 and "| 30555MiB / 32768MiB  | 0%        Default    |" in rows[0]
    assert sum(str(os.getpid()) in line for line in lines) == 4
    ixsmi.clear_state(state)
    assert "No running processes found" in call(capsys, "--state", state)[1]
    _, out = call(capsys, "-L")
    assert out.splitlines()[3].startswith("GPU 3: Iluvatar BI-V100 (UUID: GPU-")
    assert len(call(capsys, "-i", "2", "-L")[1].splitlines()) == 1


def test_clear_leaves_another_servers_state(state):
    Path(state).write_text("1 0 0 0 0\n")
    ixsmi.clear_state(state)
    assert Path(state).exists()


def test_where_the_state_is(monkeypatch):
    monkeypatch.setitem(os.environ, "SIM_STATE", "/x/y")
    assert ixsmi.state_path("/given") == "/given"
    out = subprocess.run(
        [sys.executable, "-S", "-E", "-c", "from sim import ixsmi; print(ixsmi.state_path())"],
        cwd=Path(ixsmi.__file__).parents[1],
        env={"SIM_STATE": "/x/y"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == "/x/y\n"


def test_the_sampler_reads_it_as_csv_with_power(state):
    """As it would the real tool of CoreX 3.2."""
    command = [sys.executable, "-S", "-E", ixsmi.__file__, f"--state={state}"]
    chooser = Chooser("ixsmi", command, dict(os.environ), 60.0)
    choice = chooser.choose()
    assert (choice.tool, choice.form, len(choice.tried)) == ("ixsmi", "csv", 2), "none in vain"
    assert {"index", "uuid", "utilization.gpu", "memory.used", "power.draw"} <= set(choice.fields)
    readings = telemetry.read_text(chooser.last.text, "ixsmi", fields=choice.fields).readings
    assert [r.gpu for r in readings] == [0, 1, 2, 3] and len({r.uuid for r in readings}) == 4
    for reading in readings:
        assert None not in reading.values.values(), "every metric is there"


def test_it_imports_next_to_nothing():
    code = "import sys; before = set(sys.modules); import ixsmi; print(set(sys.modules) - before)"
    out = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code],
        cwd=Path(ixsmi.__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert eval(out.stdout) <= {"ixsmi", "os", "time", "posix"}
