"""scripts/import_raw.py: a replay plan's published folder, and what --explain tells."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import import_raw
import pytest

from decodelab.published import CAPTURES_INDEX, RUNS_INDEX

ROOT = Path(__file__).resolve().parents[2]
REBUILT = ROOT / "resources" / "2026-07-14-decode"
RUN = "decode_noparser_short_c2_t128_r4_monitor"
CAPTURE = "ixsmi_noparser_short_c2_t128_r4_monitor"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def planned_run(name: str, variant: str, capture: str | None) -> dict[str, Any]:
    return {"name": name, "variant": variant, "start": 1, "capture": capture}


def planned_start(variant: str) -> dict[str, Any]:
    return {"variant": variant, "server": "a" * 16, "start": 1, "log": f"server_{variant}.log"}


class Lab:
    """A checkout with a replay folder and, if a test fills it, a folder of originals."""

    def __init__(self, root: Path):
        self.root = root
        self.folder = root / "resources" / "rebuilt"
        shutil.copytree(REBUILT, self.folder)
        self.raw_dir = root / "originals"
        self.out = root / "results" / "s" / "runs"
        self.plan: dict[str, Any] = {
            "kind": "replay",
            "replay": {"folder": "resources/rebuilt", "raw_dir": None},
            "runs": [
                planned_run(RUN, "noparser", CAPTURE),
                planned_run("decode_absent_short_c1_t8_r1", "absent", "ixsmi_absent"),
                planned_run("decode_noparser_multistep_short_c1_t8_r1", "noparser_multistep", None),
            ],
            "starts": [planned_start("noparser"), planned_start("noparser_multistep")],
        }

    def original(self, name: str, data: Any) -> Path:
        self.raw_dir.mkdir(exist_ok=True)
        self.plan["replay"]["raw_dir"] = str(self.raw_dir)
        path = self.raw_dir / name
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return path

    def publish(self) -> tuple[int, dict[str, Any], dict[str, Any]]:
        plan = self.root / "plan.json"
        plan.write_text(json.dumps(self.plan), encoding="utf-8")
        code = import_raw.main(["--plan", str(plan), "--out-dir", str(self.out)])
        indexes = [self.out / RUNS_INDEX, self.out / CAPTURES_INDEX]
        runs, captures = (json.loads(p.read_text()) if p.is_file() else {} for p in indexes)
        return code, runs, captures


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_replay_study_is_published_under_the_plans_names(lab: Lab) -> None:
    code, runs, captures = lab.publish()
    assert code == 0
    entry = runs["runs"][RUN]
    assert entry["file"] == f"{RUN}.json" and entry["source"] == "reconstructed"
    assert entry["raw"] == f"resources/rebuilt/{RUN}.json"
    assert entry["sha256"] == entry["raw_sha256"] == sha256(lab.folder / f"{RUN}.json")
    assert (lab.out / entry["file"]).read_bytes() == (lab.folder / f"{RUN}.json").read_bytes()
    assert (entry["status"], entry["reasons"]) == ("done", [])
    capture = captures["captures"][CAPTURE]
    assert capture["run"] == RUN and capture["sha256"] == sha256(lab.folder / f"{CAPTURE}.json")
    assert list(captures["captures"]) == [CAPTURE]


def test_the_start_that_failed_is_published_with_its_cause(lab: Lab) -> None:
    _, runs, _ = lab.publish()
    (start,) = runs["starts"]
    assert (start["variant"], start["status"], start["source"]) == (
        "noparser_multistep",
        "not_possible",
        "reconstructed",
    )
    assert start["cause"]["class"] == "feature_not_supported_by_backend"
    assert start["cause"]["root_cause"].endswith("attention backend: xformers")
    line = (lab.out / start["file"]).read_text().splitlines()[start["cause"]["line"] - 1]
    assert start["cause"]["root_cause"] in line


def test_planned_runs_without_a_file_are_listed_with_the_reason(lab: Lab) -> None:
    _, runs, _ = lab.publish()
    assert [(m["name"], m["why"]) for m in runs["missing"]] == [
        ("decode_absent_short_c1_t8_r1", "pending"),
        ("decode_noparser_multistep_short_c1_t8_r1", "not_possible"),
    ]


def test_an_original_wins_over_the_reconstruction_of_its_name(lab: Lab) -> None:
    raw = lab.original(
        f"{RUN}.json", {"requests": [{"ttft_s": 0.5, "latency_s": 2.5, "output_tokens": 128}]}
    )
    code, runs, captures = lab.publish()
    assert code == 0
    entry = runs["runs"][RUN]
    assert entry["source"] == "imported" and entry["raw_sha256"] == sha256(raw)
    assert entry["raw"] == f"originals/{RUN}.json" and entry["sha256"] != entry["raw_sha256"]
    record = json.loads((lab.out / entry["file"]).read_text())
    assert record["requests"][0]["decode_tps"] == 64.0
    assert captures["captures"][CAPTURE]["source"] == "reconstructed"  # no original of this name


def test_an_original_log_wins_and_one_that_got_ready_is_no_failure(lab: Lab) -> None:
    lab.original(
        "server_noparser_multistep.log", "INFO: Uvicorn running on http://127.0.0.1:8000\n"
    )
    _, runs, _ = lab.publish()
    (start,) = runs["starts"]
    assert (start["source"], start["status"], start["cause"]) == ("imported", "ready", None)
    assert {m["why"] for m in runs["missing"]} == {"pending"}


def test_an_original_that_cannot_be_read_stops_everything(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = lab.original(f"{RUN}.json", {"odd": 1})
    code, runs, _ = lab.publish()
    assert code == 1 and runs == {}
    message = capsys.readouterr().err
    assert str(raw) in message and "looked for" in message and "odd (int)" in message


def test_publishing_again_gives_the_same_bytes_and_drops_what_left_the_plan(lab: Lab) -> None:
    lab.publish()
    before = {p.name: p.read_bytes() for p in lab.out.iterdir()}
    lab.publish()
    assert {p.name: p.read_bytes() for p in lab.out.iterdir()} == before
    lab.plan["runs"] = lab.plan["runs"][1:]
    lab.plan["starts"] = []
    lab.publish()
    assert sorted(p.name for p in lab.out.iterdir()) == sorted([RUNS_INDEX, CAPTURES_INDEX])


@pytest.mark.parametrize(
    "change", [{"kind": "measure"}, {"replay": {"folder": "nowhere", "raw_dir": None}}]
)
def test_a_plan_that_cannot_be_replayed(
    lab: Lab, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lab.plan.update(change)
    assert lab.publish()[0] == 1
    message = capsys.readouterr().err
    assert "replay" in message or "nowhere" in message


# ---------------------------------------------------------------- explain


def explained(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert import_raw.main(["--explain", str(path)]) == 0
    return capsys.readouterr().out


def test_explain_tells_read_ignored_missing_and_what_cannot_be_computed(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "ok": True,
        "latency_ms": 2500,
        "usage": {"completion_tokens": 8},
        "mood": 3,
        "tps": 9,
        "extra": None,
    }
    text = explained(lab.original("r.json", {"workers": 2, "results": [row]}), capsys)
    for line in (
        "a list of requests under results",
        "requests[].latency_ms -> e2e_s  (x 0.001)",
        "requests[].usage.completion_tokens -> completion_tokens",
        "workers -> run.concurrency",
        "requests[].mood: no field of ours by this name",
        "requests[].tps: at least five definitions",
        "requests[].extra: empty",
        "TTFT: 1 of 1 successes lack a TTFT",
        "Output TPS (decode_tps): 1 of 1 successes lack",
        "total Output TPS: 1 of 1 successes lack",
    ):
        assert line in text, line
    missing = text.partition("missing (null in every success):")[2].splitlines()[1]
    assert "ttft_s" in missing and "e2e_s" not in missing
    assert "official Output TPS" not in text


def test_explain_of_our_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    run = explained(REBUILT / f"{RUN}.json", capsys)
    assert "our own record, decodelab.run/1" in run and "as it is (our own format)" in run
    assert "inter-token latency: 4 of 4 successes lack" in run
    assert "an SMI capture of 52 records, tool ixsmi" in explained(
        REBUILT / f"{CAPTURE}.json", capsys
    )


def test_explain_of_an_unknown_shape_fails_with_the_reason(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_raw.main(["--explain", str(lab.original("x.json", {"a": 1}))]) == 1
    assert "x.json" in capsys.readouterr().err
    assert import_raw.main(["--explain", str(lab.root / "absent.json")]) == 1
    assert "absent.json" in capsys.readouterr().err
