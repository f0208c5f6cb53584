"""What a `when:` chooses, and that nothing else is ever ordered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_study import Study as Sample
from sample_study import compare, request
from small_config import study_with

from decodelab import (
    config,
    damaged,
    decided,
    decision_words,
    decisions,
    judge,
    orders,
    plan,
    targets,
)
from decodelab.call import Call
from decodelab.decisions import CHOSEN, NOT_CHOSEN, UNDECIDED, Choice
from decodelab.receipts import SCHEMA as RECEIPT
from decodelab.store import Store
from decodelab.study import Study
from decodelab.vocabulary import DECIDING

BACKEND = "feature_not_supported_by_backend"
NAMES = "ABCDEF"


def summary(verdict: str | None, *causes: str, **more: Any) -> dict[str, Any]:
    decision = None if verdict == "invalid" else verdict
    return {"verdict": verdict, "decision": decision, "causes": list(causes), **more}


def chosen(when: Any, known: dict[str, Any] | None) -> Choice:
    given = {"A": {"when": None}, "B": {"when": targets.when(when)}}
    return decisions.choices({"experiments": given}, {"A": known} if known else {})["B"]


@pytest.mark.parametrize(
    ("when", "known", "state", "why"),
    [
        ("A is not supported", summary("refuted"), CHOSEN, "met"),
        ("A is not supported", summary("inconclusive"), CHOSEN, "met"),
        ("A is not supported", summary("not_possible"), CHOSEN, "met"),
        ("A is not supported", summary("supported"), NOT_CHOSEN, "not_met"),
        ("A is not supported", summary("invalid"), UNDECIDED, "invalid"),
        ("A is not supported", None, UNDECIDED, "waiting"),
        ("A is supported", summary("invalid", unmeasured=True), UNDECIDED, "waiting"),
        ("A is supported", summary("supported"), CHOSEN, "met"),
        # refuted over all, but a point is invalid: neither supported nor not supported
        (
            "A is refuted",
            {"verdict": "refuted", "decision": None, "causes": []},
            UNDECIDED,
            "invalid",
        ),
        # asks nothing, and its servers started
        ("A is not_possible", summary(None), NOT_CHOSEN, "not_met"),
        (
            {"experiment": "A", "verdict": "not_possible", "start_class": BACKEND},
            summary("not_possible", BACKEND),
            CHOSEN,
            "met",
        ),
        (
            {"experiment": "A", "verdict": "not_possible", "start_class": BACKEND},
            summary("not_possible", "bad_argument"),
            NOT_CHOSEN,
            "other_cause",
        ),
        (
            {"experiment": "A", "verdict": ["refuted", "inconclusive"]},
            summary("inconclusive"),
            CHOSEN,
            "met",
        ),
    ],
)
def test_a_condition_and_what_it_makes_of_a_verdict(
    when: Any, known: dict[str, Any] | None, state: str, why: str
) -> None:
    found = chosen(when, known)
    assert (found.state, found.why) == (state, why)
    line = decision_words.line("B", found)
    assert line.startswith(f"B: {state.replace('_', ' ')}: A ") and found.when["text"] in line


@pytest.mark.parametrize(
    "bad",
    [
        "A is invalid",
        "A is not refuted",
        {"experiment": "A", "verdict": "invalid"},
        {"experiment": "A", "verdict": []},
        {"experiment": "A", "verdict": "refuted", "start_class": BACKEND},
    ],
)
def test_a_condition_that_can_decide_nothing_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="verdict"):
        targets.when(bad)


@pytest.mark.parametrize(
    ("points", "decision"),
    [
        (["refuted", "invalid", "supported"], "supported"),
        (["refuted", "invalid"], None),
        (["refuted", "not_possible", "inconclusive"], "inconclusive"),
        (["refuted", "refuted"], "refuted"),
        (["invalid"], None),
    ],
)
def test_one_supported_point_decides_and_an_invalid_one_does_not(
    points: list[str], decision: str | None
) -> None:
    assert decisions.decision(decisions.overall(points)) == decision


def test_mistakes_in_a_condition_are_named() -> None:
    data = study_with()
    data["experiments"]["B"] = {"runs": {"base": ["short"]}, "when": "A is not supported"}
    data["experiments"]["C"] = {"runs": {"base": ["short"]}, "when": "B is refuted"}
    wrong = {"experiment": "A", "verdict": "not_possible", "start_class": "oom"}
    data["experiments"]["D"] = {"runs": {"base": ["short"]}, "when": wrong}
    found: list[Any] = []
    with pytest.raises(config.ConfigError) as caught:
        config.complete(data, lambda path: "here", Path(), found)
    assert "an experiment that asks something" in str(caught.value)
    assert "unknown start_class" in str(caught.value)


# ------------------------------------------------------------------------------ launches, orders


def branching(whens: dict[str, Any]) -> dict[str, Any]:
    """A to F, each with a variant of its own and one that all share; those of `whens` wait."""
    data = study_with()
    asks = {"kind": "threshold", "metric": "e2e_tps", "workload": "short", "target": ">= 1"}
    data["variants"] |= {f"v{n}": {"flags": {"--max-num-seqs": 10 + ord(n)}} for n in NAMES}
    data["experiments"] = {
        name: {
            "runs": {f"v{name}": ["short"], **({"fast": ["curve"]} if name != "A" else {})},
            "question": {**asks, "variant": f"v{name}"},
            **({"when": whens[name]} if name in whens else {}),
        }
        for name in NAMES
    }
    return plan.expand(config.complete(data, lambda path: "here", Path(), []))


def test_a_run_behind_several_conditions_has_one_launch() -> None:
    made = branching({"B": "A is refuted", "C": "A is supported", "D": "A is supported",
                      "E": "A is supported", "F": "A is supported"})  # fmt: skip
    by_name = {run["name"]: run["launch"] for run in made["runs"]}
    shared = [x for x in made["launches"] if x["variant"] == "fast"]
    assert len(shared) == 1 and [w["text"] for w in shared[0]["when"]] == [
        "A is refuted",
        "A is supported",
    ]
    assert set(by_name.values()) == {x["digest"] for x in made["launches"]}
    assert len({x["digest"] for x in made["launches"]}) == len(made["launches"])


waits = st.sampled_from([None, "supported", "not supported", "refuted", "not_possible"])
words = st.sampled_from([None, *DECIDING, "invalid"])


@given(
    st.lists(st.tuples(waits, st.integers(0, 4)), min_size=5, max_size=5),
    st.lists(words, min_size=6, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_nothing_undecided_or_unchosen_is_ever_ordered(
    tmp_path_factory: pytest.TempPathFactory,
    conditions: list[tuple[str | None, int]],
    verdicts: list[str | None],
) -> None:
    """`verdicts`: of A to F; None where there is no decision yet."""
    whens = {
        name: f"{NAMES[above % n]} is {asked}"
        for n, (name, (asked, above)) in enumerate(zip(NAMES[1:], conditions, strict=True), start=1)
        if asked
    }
    root = tmp_path_factory.mktemp("study")
    study = Study(root, "config.yaml", {}, branching(whens))
    known = dict(zip(NAMES, verdicts, strict=True))
    for file in study.receipts():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(json.dumps({"schema": RECEIPT}), encoding="utf-8")
    folder = study.decision_folder
    for name in study.deciders:
        if known[name]:
            folder.write(name, summary(known[name]), folder.receipts(name) or {})

    def goes_on(name: str) -> bool:
        if name not in whens:
            return True
        above, asked = whens[name].split(" is ")
        fits = {"not supported": ("refuted", "inconclusive", "not_possible")}.get(asked, (asked,))
        return goes_on(above) and known[above] in fits

    allowed = {x["digest"] for x in study.plan["launches"] if any(map(goes_on, x["experiments"]))}
    states = study.launch_states()
    assert {d for d, state in states.items() if state == CHOSEN} == allowed
    store, now = Store(root / "raw"), Call(queue=frozenset(study.digests()))
    for digest in allowed:
        queue = orders.queue_from(study, digest, store, now)
        assert set(queue) <= allowed
        place, of = orders.position(study, digest)
        assert 1 <= place <= of == len(allowed)
    first = next(d for d in study.launches if d in allowed)
    assert orders.queue_from(study, first, store, now) == [
        d for d in study.launches if d in allowed
    ]


def test_a_decision_is_not_read_once_its_receipts_are_others(tmp_path: Path) -> None:
    study = Study(tmp_path, "config.yaml", {}, branching({"B": "A is refuted"}))
    (receipt,) = study.receipts("A")
    file = tmp_path / receipt
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"schema": RECEIPT, "status": "done"}), encoding="utf-8")
    folder = study.decision_folder
    folder.write("A", summary("refuted"), folder.receipts("A") or {})
    assert study.choices()["B"].state == CHOSEN
    file.write_text(json.dumps({"schema": RECEIPT, "more": 1}), encoding="utf-8")
    assert study.choices()["B"] == Choice(UNDECIDED, "waiting", study.choices()["B"].when)
    file.unlink()
    assert study.choices()["B"].state == UNDECIDED


DAMAGE = ['{"broken', "[]", "{}", ""]


def decided_study(root: Path) -> tuple[Study, Path, Path]:
    """A is refuted, B goes on if it is; the study, A's receipt and A's decision."""
    study = Study(root, "config.yaml", {}, branching({"B": "A is refuted"}))
    (receipt,) = study.receipts("A")
    (root / receipt).parent.mkdir(parents=True)
    (root / receipt).write_text(json.dumps({"schema": RECEIPT}), encoding="utf-8")
    folder = study.decision_folder
    folder.write("A", summary("refuted"), folder.receipts("A") or {})
    return study, root / receipt, root / folder.file("A")


@pytest.mark.parametrize("text", DAMAGE)
@pytest.mark.parametrize("which", ["receipt", "decision"])
def test_what_is_damaged_is_named_and_missing_for_snakemake_too(
    tmp_path: Path, text: str, which: str
) -> None:
    study, receipt, decision = decided_study(tmp_path)
    assert damaged.found(study) == {} and study.choices()["B"].state == CHOSEN
    file = receipt if which == "receipt" else decision
    file.write_text(text, encoding="utf-8")
    told: list[str] = []
    dry = damaged.seen_to(study, ["-n", "report"], told.append)
    assert file.is_file() and len(told) == 1 and file.name in told[0]
    if which == "receipt":
        assert not (tmp_path / dry.receipts("A")[0]).is_file()
    assert not (tmp_path / dry.decision_file("A")).is_file() or which == "receipt"
    assert dry.choices()["B"].state == UNDECIDED
    assert damaged.seen_to(study, ["report"], told.append) is study
    assert not file.exists() and file.name in told[1]
    assert damaged.found(study) == {}


def test_a_decision_made_of_other_receipts_is_missing(tmp_path: Path) -> None:
    study, receipt, decision = decided_study(tmp_path)
    receipt.write_text(json.dumps({"schema": RECEIPT, "more": 1}), encoding="utf-8")
    assert damaged.found(study) == {study.decision_folder.file("A"): "made of other receipts"}
    receipt.unlink()
    assert damaged.found(study) == {}, "decided anew with its receipts"
    assert decision.is_file()


def test_what_is_measured_is_to_be_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(tmp_path, "config.yaml", {}, branching({"B": "A is refuted"}))
    assert study.to_be_decided() == [] and "A has no verdict yet" in study.branches_told()[0]
    monkeypatch.setattr("decodelab.study.receipt", lambda *_: {"status": "done"})
    assert study.to_be_decided() == ["A"]
    (line,) = study.branches_told()
    assert "undecided: A is to be decided from what is measured already" in line
    decided, *_ = decided_study(tmp_path / "decided")
    assert decided.to_be_decided() == []


def test_a_target_by_name_wants_what_it_waits_for_too() -> None:
    study = Study(Path(), "c", {}, branching({"C": "A is refuted", "E": "C is supported"}))
    wanted = set(study.wanted(["experiment_E"]))
    assert wanted == {*study.digests("E"), *study.digests("C"), *study.digests("A")}


# ---------------------------------------------------------------------------------------- judging


def judged(folder: Path, base: float, cand: float, **more: Any) -> tuple[Sample, dict[str, Any]]:
    """A compares two variants; C waits for its not being supported and has data of its own."""
    study = Sample(**more)
    for variant, rate in (("base", base), ("cand", cand), ("late", 10.0)):
        requests = [request(i, start=20.0 * i, rate=rate) for i in range(4)]
        name = "C" if variant == "late" else "A"
        study.add(variant, requests, variant=variant, experiments=[name], launch=variant)
    asks = {"kind": "compare_variants", "metric": "decode_rate"}
    study.ask("A", {**asks, "points": [compare(["base"], ["cand"])]})
    study.ask("C", {**asks, "points": [compare(["base"], ["late"])]})
    experiments = study.plan["experiments"]
    experiments["C"]["when"] = targets.when("A is not supported")
    study.plan["launches"] = [
        {"digest": "base", "experiments": ["A"]},
        {"digest": "cand", "experiments": ["A"]},
        {"digest": "late", "experiments": ["C"]},
    ]
    return study, judge.judge(study.plan, study.tables(folder))


def test_what_is_not_chosen_is_not_judged(tmp_path: Path) -> None:
    _, found = judged(tmp_path, 10.0, 12.0)
    assert found["experiments"]["A"]["verdict"] == "supported"
    assert found["experiments"]["C"]["verdict"] is None
    assert {v["experiment"] for v in found["verdicts"]} == {"A"}
    assert found["path"]["C"]["state"] == NOT_CHOSEN


def test_the_decision_is_the_reports_verdict_by_its_own_launches_alone(tmp_path: Path) -> None:
    study, found = judged(tmp_path, 10.0, 8.0)
    assert found["path"]["C"]["state"] == CHOSEN
    assert {v["experiment"] for v in found["verdicts"]} == {"A", "C"}
    tables = study.tables(tmp_path)
    own = tables.only({"base", "cand"}, {"base", "cand"})
    verdicts, _, alone = judge.alone("A", study.plan, own)
    assert alone == found["decisions"]["A"]
    assert alone["decision"] == found["experiments"]["A"]["verdict"] == "refuted"
    assert verdicts == [v for v in found["verdicts"] if v["experiment"] == "A"]
    assert alone["points"][0]["effect"] == pytest.approx(-0.2, abs=1e-6)


def test_a_replay_that_lacks_the_logs_leaves_the_branch_open(tmp_path: Path) -> None:
    study, _ = judged(tmp_path, 10.0, 8.0)
    study.plan["launches"] = []
    for run in study.plan["runs"]:
        run["launch"] = None
    tables = study.tables(tmp_path)
    assert judge.judge(study.plan, tables)["path"]["C"]["state"] == CHOSEN
    without = tables.only({"base", "late"}, set())
    path = judge.judge(study.plan, without)["path"]
    assert (path["C"]["state"], path["C"]["why"]) == (UNDECIDED, "waiting")


def test_what_is_measured_in_part_decides_nothing_yet(tmp_path: Path) -> None:
    study, found = judged(tmp_path, 10.0, 8.0)
    study.plan["experiments"]["A"]["runs"] = ["base", "cand", "cand_2"]
    tables = study.tables(tmp_path)
    path = judge.judge(study.plan, tables, {"cand_2"})["path"]
    assert (path["C"]["state"], path["C"]["why"]) == (UNDECIDED, "waiting")
    assert judge.judge(study.plan, tables, set())["path"] == found["path"]
    # All was made, and one arm left no record: nothing waits, and nothing is decided.
    without = tables.only({"base", "late"}, {"base", "late"})
    path = judge.judge(study.plan, without, set())["path"]
    assert (path["C"]["state"], path["C"]["why"]) == (UNDECIDED, "invalid")


def test_the_cause_is_that_of_the_arms_asked_about(tmp_path: Path) -> None:
    study, _ = judged(tmp_path, 10.0, 8.0)
    tables = study.tables(tmp_path)
    for variant, cause in (("cand", BACKEND), ("late", "bad_argument")):
        tables.starts.append(
            {"variant": variant, "status": "not_possible", "cause_class": cause, "start_id": "x"}
        )
    experiment = study.plan["experiments"]["A"]
    verdicts, found, _ = judge.alone("A", study.plan, tables)
    assert decided.of(experiment, verdicts, found, tables)["causes"] == [BACKEND]


@pytest.mark.parametrize("pending", [None, set()])
@pytest.mark.parametrize(
    ("statuses", "verdict", "state", "why"),
    [
        (["failed"], None, UNDECIDED, "waiting"),  # the host's fault says nothing of the variant
        (["not_possible", "failed"], None, UNDECIDED, "waiting"),
        (["not_possible", "not_possible"], "not_possible", CHOSEN, "met"),
        (["not_possible", "stopped"], None, NOT_CHOSEN, "not_met"),
        (["failed", "stopped"], None, NOT_CHOSEN, "not_met"),
    ],
)
def test_an_experiment_that_only_starts_is_decided_by_starts_that_tell(
    tmp_path: Path,
    pending: set[str] | None,
    statuses: list[str],
    verdict: str | None,
    state: str,
    why: str,
) -> None:
    study = Sample()
    study.plan["launches"] = []
    variants = [f"v{n}" for n in range(len(statuses))]
    for variant, status in zip(variants, statuses, strict=True):
        study.add(f"{variant}_1", None, variant=variant, experiments=["B"])
        study.refuse(variant, status=status)
    study.ask("B", variants=variants, runs=[f"{v}_1" for v in variants])
    study.ask("C")
    study.plan["experiments"]["C"]["when"] = targets.when("B is not_possible")
    found = judge.judge(study.plan, study.tables(tmp_path), pending)
    assert found["experiments"]["B"]["verdict"] == verdict
    assert (found["path"]["C"]["state"], found["path"]["C"]["why"]) == (state, why)
