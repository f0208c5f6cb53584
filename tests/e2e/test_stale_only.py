"""What is measured again after which edit: nothing but what is stale. Printed as a table (edit,
launches, runs measured).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study

Config = dict[str, Any]
NOTHING = Count(0, 0)


def add_variant(config: Config) -> None:
    config["variants"]["one_seq"] = {"flags": {"--max-num-seqs": 1}}
    config["experiments"]["parser"]["runs"]["one_seq"] = ["one"]


def add_run(config: Config) -> None:
    config["experiments"]["parser"]["runs"]["parser"].append("two")


def change_flag(config: Config) -> None:
    config["variants"]["one_seq"]["flags"]["--max-num-batched-tokens"] = 8192


def revert_flag(config: Config) -> None:
    del config["variants"]["one_seq"]["flags"]["--max-num-batched-tokens"]


def spell_a_flag_otherwise(config: Config) -> None:
    flags = config["server"]["flags"]
    flags["--tensor_parallel_size"] = flags.pop("-tp")
    flags["--num-scheduler-steps"] = 1


def edit_threshold(config: Config) -> None:
    config["experiments"]["parser"]["question"]["smallest_effect"] = "8%"


def edit_label(config: Config) -> None:
    config["variants"]["noparser"]["label"] = {"zh": "无 parser", "en": "no parser"}


def reorder_and_comment(config: Config) -> None:
    config["server"]["flags"] = dict(reversed(config["server"]["flags"].items()))


def rename_variant(config: Config) -> None:
    config["variants"]["plain"] = config["variants"].pop("noparser")
    runs = config["experiments"]["parser"]["runs"]
    runs["plain"] = runs.pop("noparser")
    config["experiments"]["parser"]["question"]["candidate"] = "plain"


def rename_study(config: Config) -> None:
    config["study"] = "renamed"


def change_build(config: Config) -> None:
    config["server"]["build"] = "sim-2"


CONFIG_EDITS: list[tuple[Callable[[Config], None], Count]] = [
    (add_variant, Count(1, 1)),
    (add_run, Count(1, 1)),
    (edit_threshold, NOTHING),
    (edit_label, NOTHING),
    (reorder_and_comment, NOTHING),
    (change_flag, Count(1, 1)),
    (revert_flag, NOTHING),
    (spell_a_flag_otherwise, NOTHING),
    (rename_variant, NOTHING),
    (rename_study, NOTHING),
    (change_build, Count(3, 5)),
]


def append_to(*names: str) -> Callable[[Lab], None]:
    def edit(lab: Lab) -> None:
        for name in names:
            for file in sorted(lab.root.glob(name)):
                mark = "\n{# edited #}\n" if file.suffix == ".j2" else "\n# edited\n"
                file.write_text(file.read_text(encoding="utf-8") + mark, encoding="utf-8")

    return edit


def touch_everything(lab: Lab) -> None:
    """Give all files new times, results first and code last, as the worst checkout would."""
    files = [p for p in lab.root.rglob("*") if p.is_file() and ".snakemake" not in p.parts]
    files.sort(key=lambda p: not p.is_relative_to(lab.root / "results"))
    for number, file in enumerate(files):
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def delete_metadata(lab: Lab) -> None:
    shutil.rmtree(lab.root / ".snakemake")


def delete_host_workdir(lab: Lab) -> None:
    shutil.rmtree(lab.root / ".decodelab")


CODE_EDITS: list[tuple[str, Callable[[Lab], None]]] = [
    ("edit a template", append_to("workflow/report/*.j2")),
    ("edit every reading module", append_to("scripts/decodelab/*.py", "scripts/*.py")),
    ("edit every measuring module", append_to("scripts/cargo/*.py")),
    ("all times changed", touch_everything),
    (".snakemake deleted", delete_metadata),
    ("the host's working folder deleted", delete_host_workdir),
]


def report(lab: Lab) -> None:
    call = lab.run("report", "--cores", "2")
    assert call.exit_code == 0, call.text


def test_only_what_is_stale_is_measured(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = study()
    lab.write_config(config)
    rows: list[tuple[str, Count, Count]] = []

    def step(name: str, expected: Count, at: Lab = lab) -> None:
        before = at.count()
        report(at)
        rows.append((name, at.count() - before, expected))

    step("first call", Count(2, 3))
    again = lab.run("report")
    assert again.exit_code == 0 and "Nothing to be done" in again.text, again.text
    step("second call", NOTHING)
    for edit, expected in CONFIG_EDITS:
        edit(config)
        lab.write_config(config)
        step(edit.__name__.replace("_", " "), expected)
    for name, change in CODE_EDITS:
        change(lab)
        step(name, NOTHING)

    kept = {p: p.read_bytes() for p in (lab.root / "results" / "raw").rglob("*") if p.is_file()}
    other = lab.clone(tmp_path / "elsewhere")
    shutil.copytree(lab.root / "results", other.root / "results")
    step("git clone elsewhere, results copied", NOTHING, other)
    assert all(p.read_bytes() == content for p, content in kept.items())

    with capsys.disabled():
        print_table(rows)
    assert [(name, got) for name, got, _ in rows] == [(name, want) for name, _, want in rows]


def print_table(rows: list[tuple[str, Count, Count]]) -> None:
    print(f"\n{'edit':38} {'launches':>8} {'runs measured':>14}")
    for name, got, _ in rows:
        print(f"{name:38} {got.starts:8d} {got.runs:14d}")


def test_changed_engine_under_the_same_build_is_refused(lab: Lab) -> None:
    config = study()
    lab.write_config(config)
    report(lab)
    append_to("scripts/sim/*.py")(lab)
    report(lab)  # nothing is stale, so nothing is started and nothing refused
    add_variant(config)
    lab.write_config(config)
    before = lab.count()
    call = lab.run("report", "--cores", "2")
    assert call.exit_code != 0
    assert "build" in call.text and "Hint" in call.text, call.text
    assert (lab.count() - before).runs == 0
    config["server"]["build"] = "sim-edited"
    lab.write_config(config)
    report(lab)
    assert (lab.count() - before).runs == 4
