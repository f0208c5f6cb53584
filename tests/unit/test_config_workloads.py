"""Workloads that say nothing: a choice of no tools, two names of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_config import SMALL

from decodelab import config
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without anybody's hosts.local.yaml."""
    (tmp_path / "scripts").symlink_to(REPO / "scripts")
    return tmp_path


def mistaken(data: dict[str, Any], root: Path) -> list[Any]:
    """Where the mistakes are."""
    try:
        config.complete(data, lambda path: "here", root, [])
    except ConfigError as error:
        return [m.path for m in error.mistakes if not isinstance(m, str)]
    return []


# tools


@pytest.mark.parametrize(
    ("keys", "told", "at"),
    [
        ({"tool_choice": "auto"}, {}, "tool_choice"),
        ({"tool_choice": "auto", "tools": 1}, {}, None),
        ({"tool_choice": "auto"}, {"tools": [{"type": "function"}]}, None),
        ({"tool_choice": "auto"}, {"tools": []}, "tool_choice"),
        ({}, {"tool_choice": "auto"}, "prompt"),
        ({"tools": 1}, {"tool_choice": "auto"}, None),
        ({}, {"tool_choice": "auto", "tools": [{"type": "function"}]}, None),
    ],
)
def test_a_choice_of_tools_needs_tools(
    root: Path, keys: dict[str, Any], told: dict[str, Any], at: str | None
) -> None:
    asked = {"messages": [{"role": "user", "content": "x"}], **told}
    (root / "one.json").write_text(json.dumps(asked))
    data = yaml.safe_load(SMALL)
    data["workloads"]["short"] |= {"prompt": "one.json", **keys}
    assert mistaken(data, root) == ([] if at is None else [("workloads", "short", at)])


# two workloads that are one run


@pytest.mark.parametrize(
    ("again", "concurrency", "well"),
    [
        ({}, None, False),
        ({"scenario": "other", "timeout_s": {"total": 9}}, None, False),
        ({"seed": 1}, None, True),
        ({"telemetry": False}, None, True),
        ({"max_tokens": 65}, None, True),
        ({"concurrency": [1, 2]}, None, False),
        ({"concurrency": [1, 2]}, 1, False),
        ({"concurrency": 2}, None, True),
    ],
)
def test_workloads_that_are_one_run_cannot_be_compared(
    root: Path, again: dict[str, Any], concurrency: int | None, well: bool
) -> None:
    data = yaml.safe_load(SMALL)
    data["workloads"]["again"] = {**data["workloads"]["short"], "suffix": "again", **again}
    question = {"kind": "compare_workloads", "metric": "e2e_tps", "variant": "base"}
    question |= {"baseline": "short", "candidate": "again", "smallest_effect": "5%"}
    question |= {} if concurrency is None else {"concurrency": concurrency}
    data["experiments"]["A"] = {"runs": {"base": ["short", "again"]}, "question": question}
    at = ("experiments", "A", "question", "candidate")
    assert mistaken(data, root) == ([] if well else [at])


def test_in_a_replay_each_name_is_a_file(root: Path) -> None:
    data = yaml.safe_load(SMALL) | {"replay": "scripts"}
    data["workloads"]["again"] = {**data["workloads"]["short"], "suffix": "again"}
    question = {"kind": "compare_workloads", "metric": "e2e_tps", "variant": "base"}
    question |= {"baseline": "short", "candidate": "again", "smallest_effect": "5%"}
    data["experiments"]["A"] = {"runs": {"base": ["short", "again"]}, "question": question}
    assert mistaken(data, root) == []
