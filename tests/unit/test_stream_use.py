"""Usable, not usable, not told: judged by what the streams of an arm and its control show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_study import Study, request

from decodelab import stream_use

PARSERS = {"--reasoning-parser": "qwen3", "--tool-call-parser": "qwen3_coder"}
SEEN = {
    "burst_kind": "at_once",
    "step_tokens_mode": 4,
    "step_tokens_mode_share": 0.95,
    "step_s_p50": 0.4,
    "text_told_n": 3,
    "stop_n": 3,
    "stop_lengths_n": 3,
    "stop_at_step_n": 1,
    "over_max_n": 0,
    "finish_late_tokens": 0,
    "finish_told_n": 3,
    "after_stop_chars": 0,
    "stop_named_n": 3,
    "after_finish_n": 0,
    "think_ended_n": 3,
    "think_tags_n": 0,
    "tool_tags_n": 0,
    "tool_calls_n": 2,
    "tool_calls_broken_n": 0,
    "tags_split_n": 0,
}


def judged(
    folder: Path,
    many: dict[str, Any],
    plain: dict[str, Any] | None = None,
    parsers: dict[str, str] = PARSERS,
    control: dict[str, str] | None = None,
    **row: Any,
) -> dict[str, Any]:
    study = Study()
    for name in ("plain", "many"):
        study.add(name, [request()], variant=name)
    study.plan["variants"] = {
        "plain": {"canonical": parsers if control is None else control},
        "many": {"canonical": {**parsers, "--num-scheduler-steps": "4"}, "extends": "plain"},
    }
    tables = study.tables(folder)
    tables.runs["many"].update({**SEEN, **many}, **row)
    tables.runs["plain"].update({**SEEN, **(plain or {})})
    experiment = {"variants": ["plain", "many"], "runs": ["plain", "many"], "questions": []}
    (entry,) = stream_use.judge(experiment, study.plan, tables)
    assert entry["variant"] == "many" and entry["control"] == "plain"
    return entry


def test_usable_where_each_check_saw_something(tmp_path: Path) -> None:
    entry = judged(tmp_path, {})
    assert entry["usable"] == "usable" and entry["faults"] == entry["not_told"] == []
    assert entry["arrivals"] == {"kind": "at_once", "k": 4, "share": 0.95, "step_s": 0.4}


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("over_max_n", "over_max"),
        ("after_finish_n", "after_finish"),
        ("finish_late_tokens", "late_tokens"),
        ("after_stop_chars", "after_stop"),
        ("think_tags_n", "think_leak"),
        ("tool_tags_n", "tool_leak"),
        ("tool_calls_broken_n", "broken_calls"),
    ],
)
def test_a_fault_that_the_control_has_not(tmp_path: Path, column: str, code: str) -> None:
    entry = judged(tmp_path / "a", {column: 2})
    assert entry["usable"] == "not_usable"
    assert entry["faults"] == [{"code": code, "n": 2, "control": entry["faults"][0]["control"]}]
    shared = judged(tmp_path / "b", {column: 2}, {column: 1})
    assert shared["usable"] == "usable" and shared["also_in_control"][0]["code"] == code


def test_a_fault_that_the_control_tells_nothing_of_is_not_told(tmp_path: Path) -> None:
    leak = {"think_tags_n": 3}
    for name, plain, control in (
        ("design", {"think_tags_n": 5}, {}),  # no parser: the tags stand there by design
        ("silent", {"text_told_n": 0, "think_tags_n": None}, PARSERS),
        ("lost", {"validity": "invalid", "reasons": "stamps_late"}, PARSERS),
    ):
        entry = judged(tmp_path / name, leak, plain, control=control)
        assert entry["usable"] == "not_told" and entry["faults"] == []
        assert entry["control_not_told"] == [{"code": "think_leak", "n": 3, "control": None}]
    calls = judged(tmp_path / "d", {"tool_calls_broken_n": 1}, {"tool_calls_n": 0})
    assert calls["usable"] == "not_told"


def test_shares_of_a_fault_are_compared(tmp_path: Path) -> None:
    all_broken = {"tool_calls_n": 40, "tool_calls_broken_n": 40}
    one = {"tool_calls_n": 40, "tool_calls_broken_n": 1}
    entry = judged(tmp_path / "a", all_broken, one)
    assert entry["usable"] == "not_usable"
    assert entry["faults"] == [{"code": "broken_calls", "n": 40, "control": 1}]
    alike = judged(tmp_path / "b", {"tool_calls_n": 400, "tool_calls_broken_n": 11}, one)
    assert alike["usable"] == "usable", "as often, of more calls"


def test_lengths_at_a_steps_end_only_beyond_chance(tmp_path: Path) -> None:
    few = judged(tmp_path / "a", {"stop_lengths_n": 3, "stop_at_step_n": 3})
    assert few["usable"] == "usable"  # 1 in 16 by chance
    many = judged(tmp_path / "b", {"stop_lengths_n": 5, "stop_at_step_n": 5})
    assert [fault["code"] for fault in many["faults"]] == ["step_ends"]
    mixed = judged(tmp_path / "c", {"stop_lengths_n": 9, "stop_at_step_n": 8})
    assert mixed["usable"] == "usable"


def test_tags_are_no_leak_where_no_parser_takes_them(tmp_path: Path) -> None:
    entry = judged(tmp_path, {"think_tags_n": 3}, parsers={})
    assert entry["faults"] == [] and entry["usable"] == "not_told"
    assert entry["not_told"] == ["no_think_parser", "no_tool_parser"]


def test_what_had_nothing_to_look_at_is_not_told(tmp_path: Path) -> None:
    forced = judged(tmp_path / "a", {"stop_n": 0, "think_ended_n": 0, "tool_calls_n": 0})
    assert forced["not_told"] == ["no_own_end", "no_think_end", "no_tool_call"]
    old = judged(tmp_path / "b", {"text_told_n": 0, "burst_kind": None})
    assert old["not_told"] == ["no_arrivals", "no_text"] and old["usable"] == "not_told"


def test_invalid_runs_tell_nothing_unless_it_is_the_overshoot_itself(tmp_path: Path) -> None:
    bad = judged(tmp_path / "a", {"over_max_n": 1}, validity="invalid", reasons="stamps_late")
    assert bad["not_told"] == ["no_runs"] and bad["arrivals"]["k"] is None
    over = judged(tmp_path / "b", {"over_max_n": 1}, validity="invalid", reasons="usage_impossible")
    assert over["usable"] == "not_usable"


def test_only_experiments_whose_arms_differ_in_it(tmp_path: Path) -> None:
    study = Study()
    study.plan["variants"] = {"a": {"canonical": {}}, "b": {"canonical": {"--max-num-seqs": "4"}}}
    experiment = {"variants": ["a", "b"], "runs": [], "questions": []}
    assert stream_use.judge(experiment, study.plan, study.tables(tmp_path)) == []
