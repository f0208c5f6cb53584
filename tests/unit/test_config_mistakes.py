"""Every mistake in a config gets its exact text; UPDATE_GOLDEN=1 writes the texts anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from decodelab import config
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]
CASES = sorted((REPO / "tests/golden/config_mistakes").glob("*.yaml"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without anybody's hosts.local.yaml."""
    (tmp_path / "config").mkdir()
    (tmp_path / "scripts").symlink_to(REPO / "scripts")
    return tmp_path


def overrides(text: str) -> dict[str, object]:
    """The first line of a case may say what --config gives."""
    found = re.match(r"# --config (.*)\n", text)
    pairs = (word.partition("=") for word in found.group(1).split()) if found else ()
    return {key: yaml.safe_load(value) for key, _, value in pairs}


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_exact_text(case: Path, root: Path) -> None:
    text = case.read_text(encoding="utf-8")
    path = root / "config" / case.name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        config.load(path, overrides(text), root)
    golden = case.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(f"{error.value}\n", encoding="utf-8")
    assert f"{error.value}\n" == golden.read_text(encoding="utf-8")


def test_there_are_enough_cases_and_no_golden_without_one() -> None:
    assert len(CASES) >= 30
    goldens = {p.stem for p in CASES[0].parent.glob("*.txt")}
    assert goldens == {p.stem for p in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_every_mistake_says_where_what_and_what_is_allowed(case: Path) -> None:
    blocks = case.with_suffix(".txt").read_text(encoding="utf-8").strip().split("\n\n")
    assert re.match(r"\d+ mistakes? in config/", blocks[0])
    assert len(blocks) - 1 == int(blocks[0].split()[0])
    for block in blocks[1:]:
        assert re.search(r"\((config/[^)]*|--config)\)", block), block
        assert "\n  found:   " in block and "\n  allowed: " in block, block
