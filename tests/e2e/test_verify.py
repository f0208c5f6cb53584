"""`snakemake verify` on a study that was measured: what it finds, and that it measures and changes nothing."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lab import Lab
from tests.e2e.small import study


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab.copy(tmp_path_factory.mktemp("verify") / "check out")
    made.write_config(study())
    done = made.run("report")
    assert done.exit_code == 0, done.text
    yield made
    made.end_all()


def sums(lab: Lab) -> dict[str, str]:
    """Of everything that lies in results/ and report/ but Snakemake's and the workflow's own logs."""
    files = [p for room in ("results", "report") for p in (lab.root / room).rglob("*")]
    return {
        str(p.relative_to(lab.root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in files
        if p.is_file()
    }


def verified(lab: Lab) -> tuple[int, str]:
    """Verify, and that it left everything as it was and measured nothing."""
    before, count = sums(lab), lab.count()
    done = lab.run("verify")
    assert sums(lab) == before
    assert lab.count() == count
    return done.exit_code, done.text


def test_what_was_measured_is_verified_and_what_is_spoilt_is_named(lab: Lab) -> None:
    code, told = verified(lab)
    assert code == 0 and "nothing differs" in told, told
    (record, *_) = sorted((lab.root / "results/raw").glob("*/start*/*/*/run.json"))
    kept = record.read_text(encoding="utf-8")
    assert '"completion_tokens": 16' in kept or '"completion_tokens":16' in kept
    spoilt = kept.replace('"completion_tokens": 16', '"completion_tokens": 15', 1)
    spoilt = spoilt.replace('"completion_tokens":16', '"completion_tokens":15', 1)
    record.write_text(spoilt, encoding="utf-8")
    code, told = verified(lab)
    assert code != 0 and f"{record.relative_to(lab.root)}: changed" in told, told
    record.write_text(kept, encoding="utf-8")
    assert verified(lab)[0] == 0


def test_a_lost_raw_folder_is_named(lab: Lab, tmp_path: Path) -> None:
    (record, *_) = sorted((lab.root / "results/raw").glob("*/start*/*/*/run.json"))
    shutil.move(record.parent, tmp_path / "away")
    code, told = verified(lab)
    assert code != 0 and f"{record.parent.relative_to(lab.root)}" in told, told
    shutil.move(tmp_path / "away", record.parent)
    assert verified(lab)[0] == 0


def test_an_edited_summary_and_a_renamed_study_are_told(lab: Lab) -> None:
    page = lab.root / "report/small/summary.en.md"
    kept = page.read_text(encoding="utf-8")
    page.write_text(kept.replace("tok/s", "kB/s", 1), encoding="utf-8")
    code, told = verified(lab)
    assert code != 0 and "summary.en.md" in told, told
    page.write_text(kept, encoding="utf-8")
    lab.write_config({**study(), "study": "another"})
    code, told = verified(lab)
    assert code != 0 and "snakemake --cores 1 report" in told, told
    lab.write_config(study())
    assert verified(lab)[0] == 0
