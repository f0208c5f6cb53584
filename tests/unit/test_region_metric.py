"""A region as the metric of a question, a study's own profiles as evidence, and profiled arms beside others."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import aggregate
import pytest

from decodelab import evidence, judge, profiled_runs, region_metric, tables
from tests.unit import step_files as made
from tests.unit.sample_study import Study, compare, request, run_record

VARIANTS = {
    "base": {"server": "s0"},
    "fast": {"server": "s2"},
    "base_profiled": {"server": "s1", "profile": {"mode": "event"}, "twin": "base"},
    "fast_profiled": {"server": "s3", "profile": {"mode": "event"}, "twin": "fast"},
}
WORK = {"base_profiled": made.WORK, "fast_profiled": {**made.WORK, "moe": (2, 0.7)}}


def study(folder: Path, slow: float = 1.0, digest: str = "a", mode: str = "event") -> tables.Tables:
    """Two profiled variants with their twins, two starts each, written and read as files."""
    found = Study(variants=VARIANTS)
    for variant in VARIANTS:
        for start in (1, 2):
            name = f"{variant}_{start}"
            profiled = variant in WORK
            rate = slow if profiled else 1.0
            asked = [request(i, rate=10.0 * (1 + 0.01 * start) / rate) for i in range(3)]
            for one in asked:
                one["output_sha256"] = digest if profiled else "a"
            data = run_record(asked)
            data["run"] |= {"temperature": 0, "seed": f"start{start}", "prompt_sha256": "p"}
            found.add(name, None, data=data, variant=variant, start=start)
            raw = folder / "raw" / name
            raw.mkdir(parents=True)
            found.index["runs"][name]["raw"] = f"raw/{name}"
            if profiled:
                told = made.one_process(workers=made.worker_steps(work=WORK[variant]))
                (raw / "profile-7.jsonl").write_text("\n".join(told) + "\n", encoding="utf-8")
                word = {"schema": "decodelab.profile_run/1", "mode": mode, "complete": True}
                (raw / "profile.json").write_text(json.dumps(word), encoding="utf-8")
    sides = [[f"{name}_{n}" for n in (1, 2)] for name in WORK]
    asked_ms = {"kind": "compare_variants", "metric": "region_ms", "direction": "lower"}
    found.ask("c", {**asked_ms, "region": "moe", "points": [compare(*sides, *WORK)]})
    asked_share = {"kind": "threshold", "metric": "region_share", "region": "moe"}
    aim = {"target": {"op": ">=", "value": 0.2}}
    point = {"variant": "base_profiled", "runs": {"1": sides[0]}}
    found.ask("t", {**asked_share, **aim, "points": [point]})
    out = folder / "tables"
    aggregate.make(found.plan, found.write(folder / "runs"), folder, out)
    (folder / "plan.json").write_text(json.dumps(found.plan), encoding="utf-8")
    return tables.load(out)


def answers(folder: Path, read: tables.Tables) -> dict[str, Any]:
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    return {v["question"]: v for v in judge.judge(plan, read)["verdicts"]}


def test_regions_are_written_and_asked_for(tmp_path: Path) -> None:
    read = study(tmp_path)
    assert all(profile.valid for profile in read.profiles.values()), read.profiles
    with (tmp_path / "tables/regions.csv").open(encoding="utf-8") as handle:
        rows = [
            r
            for r in csv.DictReader(handle)
            if (r["run"], r["region"]) == ("base_profiled_1", "moe")
        ]
    (row,) = rows
    assert (row["phase"], row["rank"], row["valid"], row["wait_ms"]) == ("decode", "0", "1", "")
    assert float(row["share"]) == pytest.approx(1.4 / 4.9)
    verdicts = answers(tmp_path, read)
    assert verdicts["c_1"]["verdict"] == "supported"
    assert verdicts["c_1"]["effect"] == pytest.approx(0.5)
    assert verdicts["t_1"]["verdict"] == "supported"
    assert verdicts["t_1"]["value"] == pytest.approx(1.4 / 4.9)
    assert verdicts["t_1"]["region"] == "moe"


@pytest.mark.parametrize(
    ("given", "code", "word"),
    [
        ({"slow": 1.2}, "profile_invalid", "+20.0%"),
        ({"digest": "b"}, "profile_invalid", "0 of 3"),
        ({"mode": "sync"}, "profile_sync", "sync"),
    ],
)
def test_an_invalid_profile_answers_nothing(
    tmp_path: Path, given: dict[str, Any], code: str, word: str
) -> None:
    for verdict in answers(tmp_path, study(tmp_path, **given)).values():
        assert verdict["verdict"] == "invalid"
        assert verdict["reasons"][0]["code"] == code
        assert word in verdict["reasons"][0]["en"]


def test_own_profiles_are_evidence_only_where_they_are_valid(tmp_path: Path) -> None:
    read = study(tmp_path / "good")
    entry = {"variant": "base_profiled", "workload": "short", "phase": "decode"}
    plan = {"profiles": {"decode": {**entry, "runs": ["base_profiled_1", "base_profiled_2"]}}}
    condition = {"profile": "decode", "op": "moe*", "is": {"op": ">=", "limit": 0.28}}
    known = evidence.Known([], {}, [], [], profiles=region_metric.declared_profiles(plan, read))
    assert evidence.look(condition, known).holds is True
    bad = region_metric.declared_profiles(plan, study(tmp_path / "bad", slow=1.2))
    outcome = evidence.look(condition, evidence.Known([], {}, [], [], profiles=bad))
    assert (outcome.holds, outcome.why) == (None, "profile_invalid")


def test_a_profiled_arm_is_not_compared_without_a_word(tmp_path: Path) -> None:
    read = study(tmp_path, slow=1.1)
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))

    def ask(base: str, cand: str) -> dict[str, Any]:
        runs = [[f"{name}_{n}" for n in (1, 2)] for name in (base, cand)]
        question = {
            **plan["experiments"]["c"]["questions"][0],
            "metric": "decode_rate",
            "direction": "higher",
        }
        question["points"] = [compare(runs[0], runs[1], base, cand)]
        return judge.answer("c", question, plan, read)[0]

    unlike = ask("fast", "base_profiled")
    assert unlike["verdict"] == "invalid" and unlike["reasons"][0]["code"] == "profiling_differs"
    cost = ask("base", "base_profiled")
    assert cost["verdict"] == "refuted"
    assert "profiling_compared" in [why["code"] for why in cost["reasons"]]
    both = ask("base_profiled", "fast_profiled")
    assert "profiled" in [why["code"] for why in both["reasons"]]
    assert both["verdict"] != "invalid"


def test_a_study_without_profiles_has_an_empty_table(tmp_path: Path) -> None:
    found = Study(variants={"base": {"server": "s0"}})
    found.add("r", [request(0)])
    aggregate.make(found.plan, found.write(tmp_path / "runs"), tmp_path, tmp_path / "tables")
    lines = (tmp_path / "tables/regions.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 and profiled_runs.load(tmp_path / "tables/profiles.json") == ({}, {})
    (tmp_path / "tables/profiles.json").unlink()  # of an older version
    assert tables.load(tmp_path / "tables").profiles == {}
