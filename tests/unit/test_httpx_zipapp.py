"""The load client as one file: what is in it, and that it runs where nothing is installed."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from cargo import decode_microbench
from decodelab import client_zipapp
from decodelab.host import HostError
from tests.conformance.scripted_server import serving
from tests.conformance.speech import TOKENS, plain_events, steps

CARGO = Path(decode_microbench.__file__).parent
# -S: no site-packages. -E: no PYTHONPATH of whoever runs the tests.
BARE = [sys.executable, "-E", "-S"]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_zipapp.made(tmp_path_factory.mktemp("checkout")).folder / client_zipapp.ZIPAPP


def call(pyz: Path, *words: str, python: list[str] = BARE) -> subprocess.CompletedProcess[str]:
    # in a folder of its own, so that nothing of the checkout is importable
    argv = [*python, str(pyz), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=pyz.parent)


def run(port: int, pyz: Path, out: Path, http: str) -> dict[str, Any]:
    words = [f"--base-url=http://127.0.0.1:{port}", "--model=m", "--scenario=tool", "--seed=1"]
    words += ["--concurrency=2", "--requests=3", f"--max-tokens={TOKENS}", f"--out={out}"]
    done = call(pyz, *words, f"--http={http}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def test_it_is_built_once_and_always_the_same(tmp_path: Path) -> None:
    first, again = client_zipapp.made(tmp_path / "a"), client_zipapp.made(tmp_path / "b")
    files = [made.folder / client_zipapp.ZIPAPP for made in (first, again)]
    assert first.folder.name == again.folder.name
    assert files[0].read_bytes() == files[1].read_bytes()
    before = files[0].stat().st_mtime_ns
    assert client_zipapp.made(tmp_path / "a") == first
    assert files[0].stat().st_mtime_ns == before
    assert [file.name for file in first.folder.iterdir()] == [client_zipapp.ZIPAPP]
    assert [file.name for file in first.folder.parent.iterdir()] == [first.folder.name]


def test_it_holds_the_client_and_pure_python_only(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as zipped:
        names = zipped.namelist()
        for name in decode_microbench.FILES:
            assert zipped.read(f"cargo/{name}") == (CARGO / name).read_bytes()
        # no day and no user of this machine
        assert {entry.date_time for entry in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert names == sorted(names)
    tops = {name.partition("/")[0] for name in names}
    assert {"httpx", "httpcore", "h11", "anyio", "idna", "certifi", "exceptiongroup"} <= tops
    assert "certifi/cacert.pem" in names
    assert not [n for n in names if n.endswith((".so", ".pyc", "RECORD", "INSTALLER"))]
    ours = {n for n in names if n.startswith("cargo/")}
    assert "cargo/agent.py" not in ours and "cargo/scenarios/short.json" in ours


@pytest.mark.parametrize("http", ["httpx", "epoll"])
def test_it_measures_where_nothing_is_installed(pyz: Path, tmp_path: Path, http: str) -> None:
    bare = subprocess.run([*BARE, "-c", "import httpx"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in bare.stderr
    with serving(steps(plain_events(), first_s=0.01, gap_s=0.001)) as server:
        found = run(server.port, pyz, tmp_path / "run.json", http)
    assert [request["outcome"] for request in found["requests"]] == ["ok"] * 3
    assert found["run"]["http"] == http
    assert found["client"]["digest"] == decode_microbench.own_digest()


def test_its_help_names_every_option(pyz: Path) -> None:
    helped = call(pyz, "--help")
    assert helped.returncode == 0 and "--http {epoll,httpx}" in helped.stdout


def test_an_old_python_is_told_which_one_is_needed(pyz: Path) -> None:
    """Its first lines are run by any Python; here by one that is told that it is old."""
    with zipfile.ZipFile(pyz) as zipped:
        main = zipped.read("__main__.py").decode()
    old = f"import sys\nsys.version_info = (3, 9, 18, 'final', 0)\n{main}"
    done = subprocess.run([*BARE, "-c", old], capture_output=True, text=True)
    assert done.returncode == 2
    wanted = "--http httpx needs Python 3.10 or newer on the host; this is 3.9"
    assert done.stderr == f"decode_microbench.py: {wanted}\n"


def test_every_python_of_this_machine_runs_it(pyz: Path) -> None:
    found = [shutil.which(f"python3.{minor}") for minor in range(10, 20)]
    for python in [sys.executable, *filter(None, found)]:
        # a name on the PATH may lead to nothing
        if subprocess.run([python, "-c", "0"], capture_output=True).returncode == 0:
            done = call(pyz, "--help", python=[python, "-E", "-S"])
            assert done.returncode == 0, done.stderr


class Installed:
    """A distribution as importlib.metadata shows it."""

    def __init__(self, name: str, python: str, requires: list[str], files: list[str]) -> None:
        self.metadata = Message()
        self.metadata["Name"], self.metadata["Requires-Python"] = name, python
        self.requires, self._files = requires, files

    @property
    def files(self) -> list[Path]:
        return [Path(name) for name in self._files]

    def locate_file(self, file: Path) -> Path:
        return Path(__file__)


def installed(monkeypatch: pytest.MonkeyPatch, *packages: Installed) -> None:
    known = {package.metadata["Name"]: package for package in packages}

    def distribution(name: str) -> Installed:
        if name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


def test_what_is_needed_follows_from_what_the_packages_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = Installed(
        "httpx",
        ">=3.8",
        [
            "Wire_Core==1.*",
            'back-port; python_version < "3.12"',
            "fancy; extra == 'cli'",
            'other; sys_platform == "win32"',
        ],
        [
            "httpx/__init__.py",
            "httpx/__pycache__/x.pyc",
            "../../bin/httpx",
            "httpx.dist-info/RECORD",
        ],
    )
    core = Installed("wire-core", ">=3.11", [], ["core.py", "core.dist-info/licenses/LICENSE"])
    port = Installed("back-port", ">=3.7", [], ["port.py"])

    installed(monkeypatch, top, core, port)
    assert client_zipapp.made(tmp_path / "a").python == "3.11"
    installed(monkeypatch, top, core)  # without the back port a newer Python is needed
    made = client_zipapp.made(tmp_path / "b")
    assert made.python == "3.12"
    with zipfile.ZipFile(made.folder / client_zipapp.ZIPAPP) as zipped:
        others = {name for name in zipped.namelist() if not name.startswith("cargo/")}
    assert others == {
        "__main__.py",
        "httpx/__init__.py",
        "core.py",
        "core.dist-info/licenses/LICENSE",
    }


def test_what_cannot_travel_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    with pytest.raises(HostError, match=r"not installed beside the workflow(.|\n)*Hint: "):
        client_zipapp.made(tmp_path)
    installed(monkeypatch, Installed("httpx", ">=3.8", [], ["httpx/_fast.cpython-311.so"]))
    with pytest.raises(HostError, match=r"_fast\S+ is compiled for this machine(.|\n)*Hint: "):
        client_zipapp.made(tmp_path)
    assert not list(tmp_path.rglob("*.pyz"))
