"""Raw logs brought home: names, whole files, nothing overwritten."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from decodelab import fetched
from decodelab.fetched import Changed, Fetched


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/root/work/logs", "root_work_logs"),
        ("/root/work/logs/", "root_work_logs"),
        ("/root//work/./logs", "root_work_logs"),
        ("/root/work_logs", "root_work%5Flogs"),
        ("/root/a b/日志", "root_a%20b_日志"),
        ("/a\u3000b/\udcff", "a%E3%80%80b_%FF"),
        ("/.hidden", "%2Ehidden"),
        ("/", "_"),
    ],
)
def test_a_folder_has_one_name(folder: str, name: str) -> None:
    assert fetched.folder_name(folder) == name


def test_two_folders_have_two_names() -> None:
    folders = ["/a/b", "/a_b", "/a%5Fb", "/a__b", "/a/_b", "/a_/b", "/A/b"]
    folders += ["/日/志", "/日_志", f"/{'x' * 300}/a", f"/{'x' * 300}/b", "/" + "é" * 101]
    names = {fetched.folder_name(f) for f in folders}
    assert len(names) == len(folders)
    assert max(len(n.encode()) for n in names) <= 200


def test_a_folder_in_chinese_stays_readable() -> None:
    assert fetched.folder_name("/root/" + "测" * 30) == "root_" + "测" * 30


@pytest.mark.parametrize("stem", ["x" * 250, "测" * 83, "a." + "y" * 248])
def test_a_long_name_has_room_for_a_second_content(stem: str, tmp_path: Path) -> None:
    home, name = Fetched(tmp_path / "home"), f"{stem}.json"
    assert bring(home, tmp_path, "one", name) == name
    second = bring(home, tmp_path, "two", name)
    assert second.endswith(".json") and second.startswith(stem[:50])
    assert bring(home, tmp_path, "two", name) == second
    other = fetched.beside(f"{stem[:-1]}z.json", entry("two")["sha256"])
    assert other != second, "another file with the same content"
    assert fetched.beside("short.json", "0123456789") == "short.01234567.json"


@pytest.mark.parametrize(
    "name", ["a\nb.json", "../x.json", "a/b.json", "..", "a\\b", "\udcff.json"]
)
def test_names_that_are_no_files_here(name: str) -> None:
    assert not fetched.is_safe(name)


def test_usual_names_are_well() -> None:
    assert all(fetched.is_safe(n) for n in ("decode_x.json", "日志 1.json", "-x.json", ".x.log"))


def entry(text: str, name: str = "decode_x.json") -> dict[str, Any]:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return {"name": name, "bytes": len(text), "sha256": sha256, "mtime": 1.5}


def bring(home: Fetched, tmp_path: Path, text: str, name: str = "decode_x.json") -> str:
    source = tmp_path / "source"
    source.write_text(text)
    told = entry(text, name)
    here = home.holds(name, told["sha256"]) or home.keep(source, told)
    home.note(here, told, "now")
    return here


def test_what_changed_is_kept_beside(tmp_path: Path) -> None:
    home = Fetched(tmp_path / "home")
    assert bring(home, tmp_path, "one") == "decode_x.json"
    assert bring(home, tmp_path, "one") == "decode_x.json"
    second = bring(home, tmp_path, "two")
    assert second == fetched.beside("decode_x.json", entry("two")["sha256"])
    assert bring(home, tmp_path, "two") == second, "known by its content, not brought again"
    assert (home.folder / "decode_x.json").read_text() == "one"
    assert {p.name for p in home.folder.iterdir()} == {"decode_x.json", second}


def test_what_comes_must_be_what_was_listed(tmp_path: Path) -> None:
    home, source = Fetched(tmp_path / "home"), tmp_path / "source"
    source.write_text("longer meanwhile")
    with pytest.raises(Changed):
        home.keep(source, entry("longer"))
    assert list(home.folder.iterdir()) == []


def test_a_file_named_like_ours_goes_beside(tmp_path: Path) -> None:
    home = Fetched(tmp_path / "home")
    for name, here in fetched.OURS.items():
        for _ in range(2):
            assert bring(home, tmp_path, "theirs", name) == here
    home.write_account({}, "now")
    later = bring(Fetched(home.folder), tmp_path, "theirs, later", fetched.PROVENANCE)
    assert later.startswith("PROVENANCE.host.") and later != "PROVENANCE.host.json"


def test_the_account_can_be_checked_and_changes_only_with_the_files(tmp_path: Path) -> None:
    home = Fetched(tmp_path / "home")
    bring(home, tmp_path, "one")
    bring(home, tmp_path, "zwei", "日志 1.json")
    home.write_account({"host": "h"}, "first")
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", fetched.SUMS], cwd=home.folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    again = Fetched(home.folder)
    bring(again, tmp_path, "one")
    again.write_account({"host": "h"}, "second")
    assert json.loads((home.folder / fetched.PROVENANCE).read_text())["time"] == "first"
    (home.folder / "decode_x.json").unlink()
    again.write_account({"host": "h"}, "third")
    account = json.loads((home.folder / fetched.PROVENANCE).read_text())
    assert account["time"] == "third" and list(account["files"]) == ["日志 1.json"]
