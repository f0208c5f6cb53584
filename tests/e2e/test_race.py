"""A small grid with a race, end to end: who is screened out, who is known to be impossible, what a
second call has to do, and what a wider race makes due.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study


def raced(within: str = "10%") -> dict[str, Any]:
    """Four cells; the two that ask for chunks and several steps are refused by the backend."""
    config = study()
    config["server"]["flags"] |= {
        "--max-num-batched-tokens": 8192,
        "--enable-chunked-prefill": True,
    }
    config["server"]["env"] = {"VLLM_ATTENTION_BACKEND": "SIM_ATTN"}
    config["variants"] = {
        "base": {"flags": {"--max-num-seqs": 4}},
        "flash": {"env": {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}},  # so that the engine is asked
        "grid": {"vary": {"--max-num-seqs": [4, 1], "--num-scheduler-steps": [1, 4]}},
    }
    load = {"prompt": "short", "concurrency": 4, "warmup": 1, "continuous_usage_stats": True}
    config["workloads"] = {
        "cheap": {**load, "requests": 4, "max_tokens": 16},
        "full": {**load, "requests": 4, "max_tokens": 24},
    }
    config["experiments"] = {
        "D": {
            "runs": {"base": ["cheap"], "flash": [], "grid": ["cheap"]},
            "screen": {
                "workload": "cheap",
                "metric": "output_tps_total",
                "within": within,
                "then": ["full"],
            },
            "question": {
                "kind": "compare_variants",
                "metric": "output_tps_total",
                "workload": "full",
                "baseline": "base",
                "candidate": "grid",
                "smallest_effect": "5%",
            },
        }
    }
    return config


def receipts(lab: Lab) -> dict[str, dict[str, Any]]:
    """By the server that they are about; the newest of each."""
    files = sorted(
        (lab.root / "results/small/launches").glob("*.json"), key=lambda f: f.stat().st_mtime_ns
    )
    made = [lab.json(str(file.relative_to(lab.root))) for file in files]
    return {entry["server"]: entry for entry in made}


def test_a_grid_with_a_race(lab: Lab) -> None:
    lab.write_config(raced())
    first = lab.run("--cores", "1", "report")
    assert first.exit_code == 0, first.text
    made = receipts(lab)
    # base and the cell of the same flags are two servers' worth of one; two cells are refused
    beforehand = [r for r in made.values() if r["status"] == "not_possible"]
    assert len(beforehand) == 2
    assert {r["known_from"]["name"] for r in beforehand} == {"multi_step_backend"}
    assert all(r["starts"] == {} and r["cause"]["side"] == "config" for r in beforehand)
    (out,) = [screen for r in made.values() for screen in r.get("screened_out", [])]
    assert out["value"] < out["best"] * 0.9 and len(out["runs"]) == 1
    assert lab.count() == Count(3, 3)  # base, flash, one slow cell; cheap and full, cheap alone
    assert "screened out: output_tps_total" in first.text
    (board, full) = lab.json("results/small/verdicts.json")["ranking"]
    states = [entry["state"] for entry in board["entries"]]
    assert states == ["measured", "measured", "not_possible", "not_possible"]
    assert [e["state"] for e in full["entries"]].count("screened_out") == 1
    report = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    assert "screened out: " in report and "2 of them were known beforehand" in report

    again = lab.run("--cores", "1", "report")
    assert again.exit_code == 0 and "Nothing to be done" in again.text
    assert lab.count() == Count(3, 3)

    lab.write_config(raced(within="99%"))  # nobody is out any more: only the full run is due
    wider = lab.run("--cores", "1", "report")
    assert wider.exit_code == 0, wider.text
    assert lab.count() == Count(4, 4)
    assert not any(r.get("screened_out") for r in receipts(lab).values())

    forced = lab.run("--cores", "1", "report", "--config", "retry=grid-mns4-nss4")
    assert forced.exit_code == 0, forced.text
    assert lab.count() == Count(5, 4)  # a real start, a real refusal
    refused = [r for r in receipts(lab).values() if r["status"] == "not_possible"]
    assert sorted(len(r["starts"]) for r in refused) == [0, 1]


def test_a_race_without_its_best_and_a_full_run_that_is_here(lab: Lab) -> None:
    """What is screened out follows from the members of now; a full run in the store is used."""
    lab.write_config(cut := two_cells())
    assert lab.run("--cores", "1", "report").exit_code == 0
    assert lab.count() == Count(2, 3)

    cut["variants"]["grid"]["vary"] = {"--max-num-seqs": [1]}
    lab.write_config(cut)
    alone = lab.run("--cores", "1", "report")
    assert alone.exit_code == 0, alone.text
    assert lab.count() == Count(3, 4)  # it is the best of those left: its full run, nothing else
    assert states(lab) == ["measured"] * 2
    again = lab.run("--cores", "1", "report")
    assert "Nothing to be done" in again.text and lab.count() == Count(3, 4)

    lab.write_config(two_cells())  # out again, but its full run is in the store
    back = lab.run("--cores", "1", "report")
    assert back.exit_code == 0, back.text
    assert lab.count() == Count(3, 4)
    assert states(lab) == ["measured"] * 4
    again = lab.run("--cores", "1", "report")
    assert "Nothing to be done" in again.text and lab.count() == Count(3, 4)


def two_cells() -> dict[str, Any]:
    config = raced()
    del config["variants"]["base"], config["variants"]["flash"]
    config["variants"]["grid"]["vary"] = {"--max-num-seqs": [4, 1]}
    config["experiments"]["D"]["runs"] = {"grid": ["cheap"]}
    config["experiments"]["D"]["question"] = {
        "kind": "threshold",
        "metric": "output_tps_total",
        "variant": "grid",
        "workload": "full",
        "target": ">= 10",
    }
    return config


def states(lab: Lab) -> list[str]:
    ranking = lab.json("results/small/verdicts.json")["ranking"]
    return [entry["state"] for board in ranking for entry in board["entries"]]


def test_a_call_killed_between_the_cheap_and_the_full_run(lab: Lab) -> None:
    config = raced()
    config["workloads"]["full"]["max_tokens"] = 400
    lab.write_config(config)
    call = lab.start("--cores", "1", "report")
    end = time.monotonic() + 60
    while lab.count().runs < 1 and time.monotonic() < end:
        time.sleep(0.05)
    assert lab.count().runs == 1  # the first cheap run is here, its full run is under way
    os.killpg(call.pid, signal.SIGKILL)
    lab.end_all()
    call.communicate()
    before = lab.count()
    lab.run("--unlock")  # a killed snakemake leaves its lock
    after = lab.run("--cores", "1", "report")
    assert after.exit_code == 0, after.text
    assert (lab.count() - before).runs == 2  # its full run, the slow cell's cheap one
    assert sum(len(r.get("screened_out", [])) for r in receipts(lab).values()) == 1
