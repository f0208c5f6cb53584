"""What a call asks of one host does not move the study to that host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decodelab import aside
from decodelab.mistakes import ConfigError
from decodelab.study import Study, open_study

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the default study and a host over ssh, which cannot run {simulator}."""
    monkeypatch.setenv(aside.VARIABLE, "")
    (tmp_path / "config").mkdir()
    for name in ("scripts", "resources", "workflow"):
        (tmp_path / name).symlink_to(REPO / name)
    for name in ("config.yaml", "2026-07-14-decode.yaml"):
        (tmp_path / "config" / name).write_bytes((REPO / "config" / name).read_bytes())
    hosts = "hosts: {bi100: {transport: ssh, ssh: bi100, workdir: /root/work}}\n"
    (tmp_path / "config/hosts.local.yaml").write_text(hosts)
    return tmp_path


def call(root: Path, words: list[str], **control: Any) -> Study:
    left = aside.begin(control, words)
    return open_study([], left, root, aside.host())


@pytest.mark.parametrize("words", [["check_hosts"], ["fetch_raw"], ["--cores", "1", "check_hosts"]])
def test_the_host_is_kept_aside(root: Path, words: list[str]) -> None:
    study = call(root, words, host="bi100")
    assert study.asked == "bi100" and study.hosts == ["embedded"]
    assert study.asked_host == ["--host=bi100"] and study.asked_folder == []


def test_a_remote_folder_says_the_same(root: Path) -> None:
    study = call(root, [], host="bi100", remote_dir="/root/work/logs")
    assert study.asked == "bi100" and study.hosts == ["embedded"]
    assert study.asked_folder == ["--dir=/root/work/logs"]


def test_else_the_study_moves(root: Path) -> None:
    with pytest.raises(ConfigError, match="bi100 is reached over ssh"):
        call(root, ["report"], host="bi100")
    assert call(root, ["check_hosts"]).asked is None


def test_an_unknown_host_is_told(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean \"bi100\""):
        call(root, ["check_hosts"], host="bi10")


def test_the_studys_own_hosts_come_first(root: Path) -> None:
    assert list(call(root, ["check_hosts"]).described) == ["embedded", "bi100"]
    replay = open_study(["config/2026-07-14-decode.yaml"], {}, root)
    assert list(replay.described) == ["bi100"]


@pytest.mark.parametrize("target", sorted(aside.TARGETS))
def test_targets_that_measure_nothing_queue_nothing(root: Path, target: str) -> None:
    study = call(root, [])
    assert study.wanted(["--cores", "1", target]) == []
    assert study.wanted([target, "report"]) == study.digests()
    assert study.wanted([target, "experiment_A"]) == study.digests("A")
    assert study.wanted([]) == study.digests()
