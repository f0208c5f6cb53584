"""What a host is asked about itself, and how its answer becomes a table."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import check_hosts
import pytest

from cargo import mask
from decodelab import aside, hostcheck, hosttable
from decodelab.host import HostError, HostLost, Result
from decodelab.study import Study, open_study

REPO = Path(__file__).resolve().parents[2]
HOSTS = """
hosts:
  bi100:
    {transport: ssh, ssh: bi100, workdir: /root/work, devices: 4, port: 8000, telemetry: ixsmi,
     setup: /root/corex env.sh}
  idle: {transport: local}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(aside.VARIABLE, "")
    (tmp_path / "config").mkdir()
    for name in ("scripts", "resources", "workflow"):
        (tmp_path / name).symlink_to(REPO / name)
    for name in ("config.yaml", "bi100.yaml"):
        (tmp_path / "config" / name).write_bytes((REPO / "config" / name).read_bytes())
    (tmp_path / "config/hosts.local.yaml").write_text(HOSTS)
    return tmp_path


class FakeHost:
    """A host that answers what the test says."""

    name, workdir, python, poll_s, patience_s = "bi100", "/root/work", "python3", 0.0, 0.0

    def __init__(self, answer: bytes | HostError = b"", err: bytes = b"") -> None:
        self.answer, self.err = answer, err
        self.asked: dict[str, Any] = {}
        self.takes_stdin = True
        self.models = b""

    def symbols(self) -> dict[str, str]:
        return {"{python}": self.python}

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 60) -> Result:
        if list(argv) == ["cat"]:
            return Result(0, stdin if self.takes_stdin else b"", b"")
        if argv[-1] == hostcheck.MODELS:
            return Result(0, self.models, b"Traceback:\nURLError: refused")
        if argv[-1].endswith("host_check.py"):
            self.asked = json.loads(stdin)
            if isinstance(self.answer, HostError):
                raise self.answer
            return Result(0, self.answer, self.err)
        return Result(0, b"", b"")

    def ship(self, folder: Path, target: str) -> None:
        return

    def close(self) -> None:
        return


def row(check: str, state: str) -> dict[str, str]:
    return {"check": check, "state": state, "found": "f", "todo": "t"}


def check(
    study: Study, name: str, host: FakeHost, root: Path, monkeypatch: pytest.MonkeyPatch
) -> hostcheck.Checked:
    monkeypatch.setattr(hostcheck, "open_host", lambda *_: host)
    monkeypatch.setattr(hostcheck, "_route", lambda block: ("root@h:22", None))
    return hostcheck.check_host(study, name, root)


def test_a_real_study_asks_for_its_engine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = open_study(["config/bi100.yaml"], {}, root)
    answer = [{**row("setup", "ok"), "set": {"A": "b"}}, row("import vllm", "fail")]
    host = FakeHost(json.dumps(answer).encode())
    out = check(study, "bi100", host, root, monkeypatch)
    assert host.asked["workdir"] == "/root/work" and host.asked["setup"] == "/root/corex env.sh"
    assert host.asked["server"]["argv0"] == "python3"
    assert host.asked["server"]["modules"] == ["vllm", "torch"]
    assert host.asked["telemetry"]["tool"] == "ixsmi"
    assert host.asked["telemetry"]["argv"] == ["ixsmi"]
    assert host.asked["port"] == 8000 and host.asked["lock"] == "/tmp/decodelab.lock"
    assert out.sets == {"A": "b"} and out.failed
    assert [r["check"] for r in out.rows] == ["reachable", "setup", "import vllm"]


def test_the_simulator_needs_nothing_of_vllm(root: Path) -> None:
    study = open_study([], {}, root)
    host = FakeHost()
    asked = hostcheck.question(study, "embedded", host)
    assert asked["server"]["modules"] == [] and asked["lock"] is None


def test_a_host_that_the_study_leaves_alone_does_not_fail_for_its_engine(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study([], {}, root)
    rows = [row("import vllm", "fail"), row("workdir", "fail")]
    host = FakeHost(json.dumps(rows).encode())
    out = check(study, "bi100", host, root, monkeypatch)
    assert host.asked["server"]["modules"] == ["vllm", "torch"]
    assert [r["state"] for r in out.rows] == ["ok", "warn", "fail"]


@pytest.mark.parametrize("answer", [b"", b"Traceback: no", b"{}", b"[1]", b'{"error": "x"}'])
def test_an_answer_that_is_none_is_one_failed_row(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    study = open_study([], {}, root)
    out = check(study, "bi100", FakeHost(answer, b"python3: not found"), root, monkeypatch)
    assert [r["state"] for r in out.rows] == ["ok", "fail", "warn"]
    assert "python3: not found" in out.rows[1]["found"] and "Python 3.9" in out.rows[1]["todo"]


def test_a_lost_host_is_not_reachable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = open_study([], {}, root)
    lost = HostLost("host bi100: the connection was lost.\nHint: look at the network.")
    out = check(study, "bi100", FakeHost(lost), root, monkeypatch)
    last = out.rows[0]
    assert last["state"] == "fail" and last["found"] == "the connection was lost."
    assert last["todo"] == "look at the network."


def test_secrets_are_looked_for_and_not_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "config/config.yaml").read_text(encoding="utf-8")
    named = text.replace(
        "  build: simulator\n", "  build: simulator\n  secrets: [LAB_TOKEN]\n  api_key: LAB_KEY\n"
    )
    (root / "config/config.yaml").write_text(named, encoding="utf-8")
    study = open_study([], {}, root)
    monkeypatch.setenv("LAB_TOKEN", "canary-1")
    monkeypatch.delenv("LAB_KEY", raising=False)
    host = FakeHost(b"[]")
    out = check(study, "embedded", host, root, monkeypatch)
    secrets = next(r for r in out.rows if r["check"] == "secrets")
    assert secrets["state"] == "fail" and "LAB_KEY" in secrets["found"]
    assert "LAB_TOKEN" not in secrets["found"]
    monkeypatch.setenv("LAB_KEY", "canary-2")
    out = check(study, "embedded", host, root, monkeypatch)
    shown = json.dumps([out.rows, host.asked])
    assert not out.failed and "canary" not in shown


@pytest.mark.parametrize(
    ("value", "is_key", "words"),
    [
        ("canary-1", True, ""),
        ("  short  ", False, "shorter than 8"),
        ("canary-\udcff", False, "not UTF-8"),
        ("canary-\u00e9", True, "printable ASCII"),
        ("canary\ntwo", True, "printable ASCII"),
        ("canary\ntwo", False, ""),
    ],
)
def test_a_secret_that_the_host_would_refuse(value: str, is_key: bool, words: str) -> None:
    said = hostcheck._refused(value, is_key)
    assert "canary" not in said and (words in said if words else not said)


def test_a_start_up_file_that_reads_stdin_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study([], {}, root)
    host = FakeHost(b"[]")
    host.takes_stdin = False
    out = check(study, "bi100", host, root, monkeypatch)
    assert [(r["check"], r["state"]) for r in out.rows] == [
        ("reachable", "ok"),
        ("stdin", "fail"),
        ("all else", "warn"),
    ]
    assert ".bashrc" in out.rows[1]["todo"] and not host.asked


def test_windows_line_ends_in_a_setup_script(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = open_study([], {}, root)
    told = {**row("setup", "ok"), "set": {"A": "b\r", "C": "d"}}
    out = check(study, "bi100", FakeHost(json.dumps([told]).encode()), root, monkeypatch)
    setup = out.rows[1]
    assert setup["state"] == "warn" and setup["found"].endswith("return: A"), setup


@pytest.mark.parametrize("why", ["nobody listens", "another key"])
def test_a_key_that_was_not_compared_is_not_called_ok(
    root: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    study = open_study([], {}, root)
    known = {"check": "host key", "state": "ok", "found": "known: h ssh-ed25519", "todo": ""}

    def refuse(*_: object) -> FakeHost:
        raise HostError(f"{why}.\nHint: x")

    monkeypatch.setattr(hostcheck, "open_host", refuse)
    monkeypatch.setattr(hostcheck, "_route", lambda block: ("root@h:22", known))
    out = hostcheck.check_host(study, "bi100", root)
    assert [(r["check"], r["state"]) for r in out.rows] == [
        ("reachable", "fail"),
        ("host key", "warn"),
    ]
    assert "not compared" in out.rows[1]["found"]
    unknown = {**known, "state": "fail"}
    monkeypatch.setattr(hostcheck, "_route", lambda block: ("root@h:22", unknown))
    assert len(hostcheck.check_host(study, "bi100", root).rows) == 1


def test_torch_is_not_asked_of_a_simulated_host() -> None:
    server = {"fingerprint": {"modules": []}, "engine": "vllm-v0", "argv": ["python3", "server.py"]}
    assert hostcheck.modules([server]) == ["torch"]
    assert hostcheck.modules([server], simulated=True) == []


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [(b'{"models": ["m"]}', "ok", "models m"), (b"", "fail", "URLError: refused")],
)
def test_an_attached_server_is_asked(answer: bytes, state: str, words: str) -> None:
    host = FakeHost()
    host.models = answer
    told = hostcheck._attached(host, "http://127.0.0.1:1", "")
    assert told["state"] == state and words in told["found"], told


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        (
            "index, utilization.gpu [%], power.draw [W]\\n0, 7 %, 60.00 W\\n",
            "ok",
            "1 accelerators with",
        ),
        ("no driver here", "fail", ""),
        ("", "fail", "the text is empty"),
        ("hello\\n", "fail", "looked for"),
        (
            "index, utilization.gpu [%], gpu.power [W]\\n0, 7 %, 60.00 W\\n",
            "warn",
            "of ixsmi, not of",
        ),
    ],
)
def test_what_the_smi_tool_prints_is_read(said: str, state: str, words: str) -> None:
    told = {"check": "telemetry", "state": "ok", "found": "found", "todo": ""}
    out = hostcheck.Checked("h", [told], smi=said.replace("\\n", "\n"))
    check_hosts.read_samples(out, "nvidia-smi")
    assert told["state"] == state and words in told["found"], told


def test_a_table_in_a_log_has_one_width_and_no_markup() -> None:
    out = io.StringIO()
    rows = [
        ["a", "check", "ok", "[bold]plain[/bold] " + "word " * 60, ""],
        ["b", "c", "fail", "\x1b[31mred\x9b\u202e", ""],
    ]
    hosttable.show("hosts", ("host", "check", "state", "found", "what to do"), rows, out)
    text = out.getvalue()
    assert "[bold]plain[/bold]" in text and "\x1b" not in text
    assert {len(line) for line in text.splitlines()[1:]} == {hosttable.LOG_WIDTH}
    assert text.isascii()


def test_a_short_secret_is_short_for_the_host_too() -> None:
    assert hostcheck.SECRET_CHARS == mask.MIN_LENGTH
