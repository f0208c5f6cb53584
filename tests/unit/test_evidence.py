"""Conditions on figures, profiles and outcomes: they hold, do not, or are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study, request

from decodelab import anomalies, bottleneck, evidence, plain_shares, step_read, step_shares
from decodelab.decisions import overall
from decodelab.evidence import Known


def known(folder: Path, *validity: str, **figures: Any) -> Known:
    """One run an entry, with these figures; the n-th measures twice as much as the first, and so on."""
    study = Study({"base": {}})
    for n, _state in enumerate(validity):
        study.add(f"r{n}", [request()], concurrency=2, start=n + 1)
    tables = study.tables(folder)
    for n, state in enumerate(validity):
        more = {name: value * (n + 1) for name, value in figures.items()}
        tables.runs[f"r{n}"].update(more, validity=state)
    looked = anomalies.looked(study.plan, tables)
    return Known([], {}, [], [], tables.runs, looked, {})


def metric(text: str = "< 50", **more: Any) -> dict[str, Any]:
    op, limit = text.split()
    aim = {"op": op, "limit": float(limit)}
    return {"metric": "util_pct_mean_window", "is": aim, **more}


def test_a_figure_is_the_median_of_the_valid_runs_that_fit(tmp_path: Path) -> None:
    found = evidence.look(metric(), known(tmp_path, *["valid"] * 3, util_pct_mean_window=20.0))
    assert found.holds is True and found.figure is not None
    assert (found.figure["value"], found.figure["n"], found.figure["limit"]) == (40.0, 3, 50.0)
    assert (
        evidence.look(metric("> 50"), known(tmp_path, "valid", util_pct_mean_window=20.0)).holds
        is False
    )


@pytest.mark.parametrize("state", ["invalid", "suspect"])
def test_invalid_and_suspect_runs_carry_no_evidence(tmp_path: Path, state: str) -> None:
    found = evidence.look(metric(), known(tmp_path, state, util_pct_mean_window=20.0))
    assert found.holds is None and found.why == "no_valid_run"
    # ... and leave the valid one alone
    both = evidence.look(metric(), known(tmp_path, "valid", state, util_pct_mean_window=20.0))
    assert both.figure is not None and both.figure["n"] == 1


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    state = known(tmp_path, "valid")
    assert evidence.look(metric(), state).why == "no_value"
    assert evidence.look(metric(variant="other"), state).why == "no_run"
    assert evidence.look(metric(concurrency=4), state).why == "no_run"
    assert evidence.look({"experiment": "A", "verdict": ["refuted"]}, state).why == "no_verdict"
    assert evidence.look({"start_class": "gpu_oom"}, state).why == "no_start"
    assert evidence.look({"anomaly": "gpus_idle"}, state).why == "no_data"
    assert evidence.look(
        {"profile": "p", "op": "*", "is": {"op": ">", "limit": 0.1}}, state
    ).why == ("no_profile")


def test_a_request_figure_is_read_by_its_median(tmp_path: Path) -> None:
    state = known(tmp_path, "valid")
    found = evidence.look({**metric("> 9"), "metric": "decode_rate"}, state)
    assert found.holds is True and found.figure is not None
    assert found.figure["value"] == pytest.approx(10.0)


def test_an_anomaly_is_absent_only_where_it_was_looked_for(tmp_path: Path) -> None:
    figures = {"util_pct_mean_all": 95.0, "smi_samples_gpu": 40}
    state = known(tmp_path, "valid", **figures)
    assert evidence.look({"anomaly": "gpus_idle"}, state).holds is False
    assert evidence.look({"anomaly": "gpus_idle", "variant": "base"}, state).holds is False
    assert evidence.look({"anomaly": "gpus_idle", "variant": "other"}, state).holds is None
    found = {"code": "gpus_idle", "variant": "base", "runs": ["r0"]}
    with_it = Known([], {}, [found], [], state.runs, state.looked)
    assert evidence.look({"anomaly": "gpus_idle", "variant": "base"}, with_it).holds is True
    assert evidence.look({"anomaly": "gpus_idle", "variant": "other"}, with_it).holds is None
    state.runs["r0"]["validity"] = "suspect"
    assert evidence.look({"anomaly": "gpus_idle"}, with_it).why == "suspect_runs"


def test_variant_narrows_verdicts_and_starts() -> None:
    verdicts = [
        {
            "id": "A_1.a",
            "question": "A_1",
            "experiment": "A",
            "candidate": "a",
            "verdict": "refuted",
        },
        {
            "id": "A_1.b",
            "question": "A_1",
            "experiment": "A",
            "candidate": "b",
            "verdict": "supported",
        },
    ]
    starts = [{"variant": "a", "cause_class": "gpu_oom"}, {"variant": "b", "cause_class": None}]
    state = Known(verdicts, {"A": "supported"}, [], starts)
    refuted = {"experiment": "A", "verdict": ["refuted"]}
    assert evidence.look(refuted, state).holds is False
    assert evidence.look({**refuted, "variant": "a"}, state).holds is True
    assert evidence.look({**refuted, "variant": "b"}, state).holds is False
    assert evidence.look({"start_class": "gpu_oom", "variant": "a"}, state).holds is True
    assert evidence.look({"start_class": "gpu_oom", "variant": "b"}, state).holds is False


def test_a_grid_stands_for_its_cells(tmp_path: Path) -> None:
    state = known(tmp_path, "valid", util_pct_mean_window=20.0)
    grids = {"g": {"cells": ["base"]}, "h": {"cells": ["other"]}}
    in_grid = Known([], {}, [], [], state.runs, grids=grids)
    assert evidence.look(metric(variant="g"), in_grid).holds is True
    assert evidence.look(metric(variant="h"), in_grid).why == "no_run"


def test_an_invalid_verdict_decides_nothing() -> None:
    state = Known([], {"A": "invalid", "B": "inconclusive"}, [], [])
    assert evidence.look({"experiment": "A", "verdict": ["refuted"]}, state).holds is None
    assert evidence.look({"experiment": "A", "verdict": ["invalid"]}, state).holds is True
    assert evidence.look({"experiment": "B", "verdict": ["refuted"]}, state).holds is False
    assert evidence.look({"experiment": "A"}, state).holds is None
    assert evidence.look({"experiment": "B"}, state).holds is True


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (["refuted", "refuted"], True),
        (["refuted", "inconclusive"], False),
        (["refuted", "invalid"], None),
        (["refuted", "supported", "invalid"], False),
    ],
)
def test_a_suspect_hears_of_several_points_what_the_experiment_says(
    words: list[str], holds: bool | None
) -> None:
    points = [
        {"id": f"A_1.{n}", "question": "A_1", "experiment": "A", "variant": "a", "verdict": word}
        for n, word in enumerate(words)
    ]
    control = {**points[0], "id": "A_2", "question": "A_2", "verdict": "invalid"}
    state = Known([*points, control], {"A": overall(words)}, [], [], deciding={"A": ["A_1"]})
    for asked in ({"question": "A_1"}, {"experiment": "A"}, {"experiment": "A", "variant": "a"}):
        assert evidence.look({**asked, "verdict": ["refuted"]}, state).holds is holds


def test_a_rule_that_is_not_known_moves_nothing_and_is_listed(tmp_path: Path) -> None:
    rules = [
        {"when": metric(), "effect": "raise", "text": {"zh": "证", "en": "idle"}},
        {"when": metric(variant="other"), "effect": "exclude", "text": {"zh": "证", "en": "other"}},
    ]
    suspect = {"id": "s", "title": {"zh": "s", "en": "s"}, "prior": 1, "evidence": rules}
    (entry,) = bottleneck.rank([suspect], known(tmp_path, "valid", util_pct_mean_window=20.0))
    assert (entry["score"], entry["excluded"], entry["by"]) == (1, False, "evidence")
    assert entry["evidence"][0]["figure"]["value"] == 20.0
    assert [(line["en"], line["why"]) for line in entry["not_known"]] == [("other", "no_run")]
    step = {"id": "C", "title": {"en": "do"}, "when": [metric(variant="other")]}
    assert bottleneck.steps([step], known(tmp_path, "valid")) == []


# profiles -----------------------------------------------------------------------------------------


def share(shares: dict[str, float], op: str, text: str) -> Any:
    sign, limit = text.split()
    condition = {"profile": "p", "op": op, "is": {"op": sign, "limit": float(limit)}}
    return evidence.look(condition, Known([], {}, [], [], profiles={"p": {"shares": shares}}))


def test_shares_are_summed_and_what_is_not_attributed_may_be_anyones() -> None:
    shares = {"fused_moe_kernel": 0.3, "moe_align": 0.1, "paged_attention": 0.4}  # 0.2 is left
    assert share(shares, "*moe*", ">= 0.35").holds is True
    assert share(shares, "*moe*", ">= 0.7").holds is False
    between = share(shares, "*MOE*", ">= 0.5")
    assert between.holds is None and between.why == "not_attributed"
    assert share(shares, "nccl*", "< 0.1").holds is None
    assert share({**shares, "rest": 0.2}, "nccl*", "< 0.1").holds is True


def test_profile_files(tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text('name,share\n"a, b",0.25\nc,37 %\n', encoding="utf-8")
    assert step_shares.of_profile(step_read.one([table])) == {"a, b": 0.25, "c": 0.37}
    other = tmp_path / "p.json"
    other.write_text(json.dumps({"schema": plain_shares.SCHEMA, "shares": {"a": 0.5, "b": "20%"}}))
    assert step_shares.of_profile(step_read.one([other])) == {"a": 0.5, "b": 0.2}
    table.write_text("name,share\nmoe ,0.7\n", encoding="utf-8")
    assert step_shares.share_of(step_shares.of_profile(step_read.one([table])), "moe")[0] == 0.7
    twice = {"schema": plain_shares.SCHEMA, "shares": {"a": 0.2, "b": 0.3}}
    other.write_text(json.dumps(twice).replace('"b"', '"a"'))
    with pytest.raises(ValueError, match="a stands there twice"):
        step_shares.of_profile(step_read.one([other]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "columns None"),
        ("op,share\na,1\n", "wanted name,share"),
        ("name,share\n", "no shares"),
        ("name,share\na\n", "two cells"),
        ("name,share\na,0.1,x\n", "two cells"),
        ("name,share\na,1\na,0\n", "twice"),
        ("name,share\na,0.2\na ,0.1\n", "twice"),
        ("name,share\na,37\n", "write 37 % for 0.37"),
        ("name,share\na,nan\n", "no share"),
        ("name,share\n,0.1\n", "a name"),
        ("name,share\na,0.6\nb,0.6\n", "add up to 1.200"),
    ],
)
def test_what_is_no_profile_says_why(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "p.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        step_shares.of_profile(step_read.one([file]))


@given(st.text(max_size=60), st.sampled_from([".csv", ".json"]))
def test_any_text_is_a_profile_or_a_value_error(
    tmp_path_factory: Any, text: str, kind: str
) -> None:
    file = tmp_path_factory.mktemp("p") / f"p{kind}"
    file.write_text(text, encoding="utf-8")
    try:
        shares = step_shares.of_profile(step_read.one([file]))
    except ValueError:
        return
    assert shares and all(0 <= value <= 1 for value in shares.values())
