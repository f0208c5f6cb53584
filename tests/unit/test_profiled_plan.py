"""Profiled variants in the plan: their digest, their unprofiled twin, and where it stands in the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_config import SMALL

from decodelab import config, plan

REPO = Path(__file__).resolve().parents[2]
DEFAULTS = {"mode": "event", "regions": {}, "skip": [], "timeline_steps": 8}


def small(**variants: Any) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(SMALL)
    data["variants"] |= variants
    return data


def expand(data: dict[str, Any]) -> dict[str, Any]:
    return plan.expand(config.fill(data), REPO)


def profiled(runs: dict[str, list[str]], repeats: int = 1, **variants: Any) -> dict[str, Any]:
    data = small(**variants)
    data["experiments"] = {"C": {"runs": runs, "repeats": repeats}}
    return data


def queue(document: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(x["variant"], x["start"], len(x["runs"])) for x in document["launches"]]


FAST = {"fast_p": {"extends": "fast", "profile": {}}}


def test_a_digest_without_a_profile_is_what_it_always_was() -> None:
    document = expand(small())
    assert [x["digest"] for x in document["launches"]] == ["7f22d6c1f5ad26f5", "09abf16cc61d1c2a"]
    assert document["variants"]["base"]["server"] == "b94c73d2468349bd"


def test_the_twin_is_the_configs_own_variant_of_that_server() -> None:
    document = expand(profiled({"fast_p": ["curve"]}, **FAST))
    assert document["variants"]["fast_p"]["twin"] == "fast"
    assert document["variants"]["fast_p"]["profile"] == DEFAULTS
    assert document["variants"]["fast"]["profile"] is None is document["variants"]["fast"]["twin"]
    assert queue(document) == [("fast_p", 1, 2), ("fast", 1, 2)]
    profiles = {v["profile"] and v["profile"]["mode"] for v in document["servers"].values()}
    assert profiles == {None, "event"}
    runs = {(r["variant"], r["run"], r["seed"]) for r in document["runs"]}
    assert {(r, s) for v, r, s in runs if v == "fast"} == {
        (r, s) for v, r, s in runs if v == "fast_p"
    }, "the very same requests"


def test_a_twin_is_found_by_what_it_is_not_by_its_name() -> None:
    same = {"called_otherwise": {"flags": {"--num-scheduler-steps": 4}}, "fast": {}}
    document = expand(
        profiled({"p": ["short"]}, **same, p={**FAST["fast_p"], "extends": "called_otherwise"})
    )
    assert document["variants"]["p"]["twin"] == "called_otherwise"


def test_a_made_up_twin_and_two_modes_that_share_it() -> None:
    event = {"flags": {"--max-num-seqs": 8}, "label": "eight", "profile": {"mode": "event"}}
    sync = {"extends": "a", "profile": {"mode": "sync"}}
    document = expand(profiled({"a": ["short"], "b": ["curve"]}, a=event, b=sync))
    assert {document["variants"][n]["twin"] for n in "ab"} == {"a_unprofiled"}
    twin = document["variants"]["a_unprofiled"]
    assert twin["profile"] is None and twin["grid"] is None
    assert twin["label"] == {"zh": "eight（不插桩）", "en": "eight, unprofiled"}
    assert queue(document) == [("a", 1, 1), ("a_unprofiled", 1, 3), ("b", 1, 2)]


def test_the_queue_stays_balanced_over_the_starts() -> None:
    document = expand(profiled({"base": ["short"], "fast_p": ["short"]}, 3, **FAST))
    order = [x["variant"] for x in document["launches"]]
    there = ["base", "fast_p", "fast"]
    assert order == [*there, *there[::-1], *there]


def test_a_twin_that_is_an_arm_keeps_its_place_and_gets_the_missing_runs() -> None:
    document = expand(
        profiled({"fast": ["short"], "base": ["short"], "fast_p": ["curve"]}, 2, **FAST)
    )
    there = [("fast", 3), ("base", 1), ("fast_p", 2)]
    assert [(v, n) for v, _, n in queue(document)] == [*there, *there[::-1]]


def test_starts_of_an_aa_arm_are_made_on_the_twin_too() -> None:
    data = profiled({"base": ["short"], "fast_p": ["short"]}, 2, **FAST)
    data["experiments"]["C"]["aa"] = "fast_p"
    starts = {(v, s) for v, s, _ in queue(expand(data))}
    assert (
        {s for v, s in starts if v == "fast"}
        == {s for v, s in starts if v == "fast_p"}
        == {1, 2, 3, 4}
    )


def test_each_cell_of_a_profiled_grid_has_its_own_twin() -> None:
    grid = {"vary": {"--max-num-seqs": [2, 4]}, "profile": {}}
    document = expand(profiled({"g": ["short"]}, g=grid))
    assert document["variants"]["g-mns2"]["twin"] == "base", "the base has 2 as well"
    assert document["variants"]["g-mns4"]["twin"] == "g-mns4_unprofiled"
    assert document["grids"]["g"]["cells"] == ["g-mns2", "g-mns4"], "a twin is no cell"


def test_a_twin_waits_for_what_its_variant_waits_for() -> None:
    data = small(**FAST)
    data["experiments"]["C"] = {
        "when": "A is not supported",
        "runs": {"fast_p": ["curve", "short"]},
    }
    document = expand(data)
    waiting = [x for x in document["launches"] if x["when"]]
    assert [x["variant"] for x in waiting] == ["fast_p"], "A has measured its twin already"
    data["experiments"]["A"]["runs"]["fast"] = ["short"]
    waiting = [x for x in expand(data)["launches"] if x["when"]]
    assert [(x["variant"], len(x["runs"])) for x in waiting] == [("fast_p", 3), ("fast", 2)]


@pytest.mark.parametrize(
    "profile, mode", [("none", "event"), (None, None), ({"mode": "sync"}, "sync")]
)
def test_inherited_as_a_whole_and_taken_off_by_null(profile: Any, mode: str | None) -> None:
    child: dict[str, Any] = {"extends": "parent", "flags": {"--max-num-seqs": 3}}
    if profile != "none":
        child["profile"] = profile
    parent = {"profile": {"timeline_steps": 3}}
    document = expand(profiled({"child": ["short"]}, parent=parent, child=child))
    told = document["variants"]["child"]["profile"]
    assert (told and told["mode"]) == mode
    assert (told and told["timeline_steps"]) == {"none": 3}.get(str(profile), told and 8)


def test_a_profile_is_part_of_the_digest_in_one_spelling() -> None:
    def server(profile: Any) -> str:
        document = expand(profiled({"p": ["short"]}, p={"profile": profile}))
        return str(document["variants"]["p"]["server"])

    known = server({})
    assert known == server(DEFAULTS) and known != server(None)
    assert known != server({"mode": "sync"}) and known != server({"skip": ["moe"]})
    assert server({"skip": ["moe", "logits"]}) == server({"skip": ["logits", "moe"]})
    assert server(None) == expand(small())["variants"]["base"]["server"]


def test_a_declared_profile_knows_its_runs_and_a_question_its_region() -> None:
    data = profiled({"fast_p": ["curve"]}, 2, **FAST)
    asks = {"kind": "level", "metric": "region_ms", "region": "moe", "expected": [0, 5]}
    data["experiments"]["C"]["question"] = {**asks, "variant": "fast_p", "workload": "curve"}
    data["profiles"] = {"d": {"variant": "fast_p", "workload": "curve", "concurrency": 2}}
    document = expand(data)
    told = document["profiles"]["d"]
    assert told["phase"] == "decode" and told["sha256"] is None and len(told["runs"]) == 2
    assert all("fast_p" in name and "_c2_" in name for name in told["runs"])
    (question,) = document["experiments"]["C"]["questions"]
    assert (question["region"], question["unit"], question["direction"]) == ("moe", "ms", "lower")
