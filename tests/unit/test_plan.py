"""The plan: digests that hold what they must and nothing else, order, names, merging."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import make_plan
import pytest
import yaml
from small_config import SMALL

from decodelab import config, digest, naming, plan, plantable, targets
from decodelab.mistakes import ConfigError

REPO = Path(__file__).resolve().parents[2]


def expand(data: dict[str, Any]) -> dict[str, Any]:
    return plan.expand(config.fill(data), REPO)


def small() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(SMALL)
    return data


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    return plan.expand(config.load(REPO / "config/config.yaml", {}, REPO), REPO)


def servers(document: dict[str, Any]) -> dict[str, str]:
    return {name: variant["server"] for name, variant in document["variants"].items()}


# what changes a digest


def same(data: dict[str, Any], change: Any) -> bool:
    """Whether a change leaves everything that would be measured as it is."""
    changed = copy.deepcopy(data)
    change(changed)
    return [la["digest"] for la in expand(data)["launches"]] == [
        la["digest"] for la in expand(changed)["launches"]
    ]


def edit(*path: Any, value: Any) -> Any:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data.setdefault(part, {}) if isinstance(data, dict) else data[part]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        edit("study", value="renamed"),
        edit("title", value="Another"),
        edit("targets", value={"e2e_tps_p10": ">= 8"}),
        edit("variants", "fast", "label", value="Fast"),
        edit("limits", value={"start_s": 5}),
        edit("experiments", "A", "title", value="A"),
        edit("experiments", "A", "question", "smallest_effect", value="9%"),
        edit("workloads", "short", "timeout_s", value={"total": 9}),
        edit("workloads", "short", "suffix", value="x"),
        edit("hosts", "here", "workdir", value="elsewhere"),
        edit("hosts", "here", "python", value="python3.12"),
        edit("hosts", "here", "env", value={"A": "b"}),
        edit("hosts", "here", "telemetry", value={"tool": "ixsmi", "interval_s": 0.5}),
        edit(
            "server",
            "flags",
            value={
                "--tool-call-parser": "hermes",
                "--max_num_seqs": 2,
                "--tensor-parallel-size": "4",
            },
        ),
        edit("server", "flags", "--num-scheduler-steps", value=1),
        edit("server", "fingerprint", value={"modules": ["vllm"]}),
        edit("server", "secrets", value=["HF_TOKEN"]),
        edit("server", "api_key", value="VLLM_API_KEY"),
        edit("hosts", "here", "setup", value="/root/env.sh"),
        edit("hosts", "here", "lock", value="/tmp/other.lock"),
    ],
)
def test_what_measures_nothing_again(change: Any) -> None:
    assert same(small(), change)


@pytest.mark.parametrize(
    "change",
    [
        edit("server", "build", value="other"),
        edit("server", "model", value="/models/other"),
        edit("server", "engine", value="vllm-v1"),
        edit("server", "env", value={"A": "b"}),
        edit("server", "command", value=["{python}", "-m", "vllm"]),
        edit("server", "flags", "--max-num-seqs", value=4),
        edit("server", "flags", "--enable-chunked-prefill", value=False),
        edit("hosts", "here", "devices", value=2),
        edit("workloads", "short", "max_tokens", value=65),
        edit("workloads", "short", "requests", value=4),
        edit("workloads", "short", "warmup", value=1),
        edit("workloads", "short", "telemetry", value=False),
        edit("workloads", "short", "http", value="httpx"),
        edit("workloads", "short", "seed", value=1),
        edit("workloads", "short", "tools", value=3),
        edit("workloads", "short", "extra_body", value={"top_p": 1}),
        edit("hosts", "here", "telemetry", value="none"),
    ],
)
def test_what_is_measured_anew(change: Any) -> None:
    assert not same(small(), change)


def test_renaming_a_variant_measures_nothing() -> None:
    renamed = yaml.safe_load(SMALL.replace("fast", "swift"))
    assert [la["digest"] for la in expand(small())["launches"]] == [
        la["digest"] for la in expand(renamed)["launches"]
    ]


def test_order_of_keys_changes_no_digest() -> None:
    data = small()
    for part in (data["server"]["flags"], data["variants"], data["workloads"]):
        items = list(part.items())[::-1]
        part.clear()
        part.update(items)
    assert {la["digest"] for la in expand(data)["launches"]} == {
        la["digest"] for la in expand(small())["launches"]
    }


def test_a_prompt_file_counts_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(REPO / "scripts")
    data = small()
    data["workloads"]["short"]["prompt"] = "one.txt"
    (tmp_path / "one.txt").write_text("Hello")
    one = plan.expand(config.fill(data), tmp_path)
    (tmp_path / "one.txt").write_text("Hello!")
    two = plan.expand(config.fill(data), tmp_path)
    assert one["launches"][0]["digest"] != two["launches"][0]["digest"]
    assert one["runs"][0]["name"] == "decode_base_one_c1_t64_r3"


def test_digests_of_today() -> None:
    """A change here measures everything anew: only with a higher DIGEST_RECIPE."""
    made = expand(small())
    assert [la["server"] for la in made["launches"]] == ["b94c73d2468349bd", "6892240f370891f6"]
    assert made["launches"][0]["runs"] == [
        "933431357efc7962",
        "1049c7573ffe59b0",
        "57ff1a35c119fb19",
    ]
    assert digest.canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


def test_the_plan_is_the_same_in_every_process(tmp_path: Path) -> None:
    texts = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.json"
        command = [
            sys.executable,
            str(REPO / "scripts/make_plan.py"),
            "--config",
            "config/config.yaml",
            "--out",
            str(out),
        ]
        subprocess.run(
            command, cwd=REPO, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, timeout=60
        )
        texts.append(out.read_bytes())
    assert texts[0] == texts[1]


# one server, one launch


def test_cells_of_d_are_the_arms_of_a(default: dict[str, Any]) -> None:
    found = servers(default)
    assert found["unchunked"] == found["grid-mns2-mnbt8192-ecp0-nss1"]
    assert found["multistep"] == found["grid-mns2-mnbt8192-ecp0-nss4"]
    assert found["chunked"] == found["grid-mns2-mnbt8192-ecp1-nss1"]


def test_d_is_24_cells_of_which_six_ask_what_the_backend_refuses(default: dict[str, Any]) -> None:
    cells = [v for v in default["variants"].values() if v["grid"] == "grid"]
    assert len({v["server"] for v in cells}) == 24
    refused = [
        v
        for v in cells
        if v["cell"]["--enable-chunked-prefill"] and v["cell"]["--num-scheduler-steps"] == 4
    ]
    assert len(refused) == 6
    assert all(v["env"]["VLLM_ATTENTION_BACKEND"] == "SIM_ATTN" for v in cells)


def test_one_launch_per_server_and_start_with_the_union_of_runs(default: dict[str, Any]) -> None:
    """What waits for a verdict has launches of its own, so that nothing is measured before it."""
    keys = [
        (la["server"], la["start"], *(when["text"] for when in la["when"] or []))
        for la in default["launches"]
    ]
    assert len(keys) == len(set(keys))
    shared = next(
        la for la in default["launches"] if la["variants"][0] == "unchunked" and la["start"] == 1
    )
    assert shared["experiments"] == ["A", "D"] and len(shared["runs"]) == 4
    backwards = shared["runs"][::-1]
    assert digest.launch(shared["server"], 1, backwards, shared["screens"]) == shared["digest"]
    names = {r["name"]: r for r in default["runs"]}
    for launch in default["launches"]:
        made = {r["run"] for r in names.values() if r["launch"] == launch["digest"]}
        assert made == set(launch["runs"])


def test_the_whole_default_run_is_short(default: dict[str, Any]) -> None:
    assert plantable.seconds(default) < 180  # before races and refusals, which save a quarter
    assert default["source"] == "simulated"
    assert "about" in plantable.table(default)


def test_real_studies_keep_the_same_shape(tmp_path: Path) -> None:
    example = yaml.safe_load((REPO / "config/hosts.local.example.yaml").read_text(encoding="utf-8"))
    data = yaml.safe_load((REPO / "config/bi100.yaml").read_text(encoding="utf-8"))
    made = expand(data | {"hosts": example["hosts"]})
    found = servers(made)
    assert made["source"] == "measured"
    assert found["unchunked"] == found["grid-mns2-mnbt8192-ecp0-nss1"]
    argv = made["variants"]["multistep"]["argv"]
    assert argv[argv.index("--enable-chunked-prefill") + 1] == "False"
    assert sum(1 for v in made["variants"].values() if v["grid"]) == 24


# order


def order(data: dict[str, Any]) -> list[str]:
    return [f"{la['variant']}{la['start']}" for la in expand(data)["launches"]]


def test_arms_are_turned_round_from_start_to_start() -> None:
    data = small()
    data["experiments"]["A"]["repeats"] = 3
    assert order(data) == ["base1", "fast1", "fast2", "base2", "base3", "fast3"]
    assert order(data | {"control": {"quick": True}}) == ["base1", "fast1"]


def test_the_aa_arm_is_spread_over_the_order() -> None:
    """Base twice: its own starts 1-3 and, as a second arm of itself, 4-6."""
    data = small()
    data["experiments"]["A"] |= {"repeats": 3, "aa": "base"}
    wanted = "base1 fast1 base4 base5 fast2 base2 base3 fast3 base6"
    assert order(data) == wanted.split()
    made = expand(data)
    places = {
        v: [n for n, x in enumerate(order(data)) if x.startswith(v)] for v in ("base", "fast")
    }
    means = {name: sum(found) / len(found) for name, found in places.items()}
    assert abs(means["base"] - means["fast"]) <= 0.5
    (question,) = made["experiments"]["A"]["questions"]
    (point,) = question["points"]
    assert [len(point[side]) for side in ("baseline", "candidate")] == [6, 3]
    assert made["experiments"]["A"]["aa"] == "base"


def test_an_aa_arm_leaves_the_other_launches_as_they_are() -> None:
    data = small()
    before = [la["digest"] for la in expand(data)["launches"]]
    data["experiments"]["A"]["aa"] = "base"
    assert [la["digest"] for la in expand(data)["launches"]][:2] == before
    assert order(data | {"control": {"quick": True}}) == ["base1", "fast1"]


def test_guards_are_metrics_with_what_they_may_lose() -> None:
    data = small()
    question = data["experiments"]["A"]["question"]
    question["guard"] = ["ttft_p90_s", "success_rate", {"metric": "ttft_s", "worse_by": "10%"}]
    assert expand(data)["experiments"]["A"]["questions"][0]["guard"] == [
        {"metric": "ttft_s_p90", "worse_by": 0.05},
        {"metric": "success_rate", "worse_by": 0.01},
        {"metric": "ttft_s", "worse_by": 0.1},
    ]


def test_config_order_over_experiments_and_a_start_counts_once() -> None:
    data = small()
    data["experiments"]["B"] = {"runs": {"fast": ["short"], "base": ["short"]}, "repeats": 2}
    assert order(data) == ["base1", "fast1", "base2", "fast2"]


def test_what_waits_for_a_verdict_is_a_launch_of_its_own() -> None:
    data = small()
    data["workloads"]["long"] = {"requests": 1, "max_tokens": 512}
    data["experiments"]["C"] = {"when": "A is not supported", "runs": {"base": ["short", "long"]}}
    made = expand(data)
    waiting = [la for la in made["launches"] if la["when"]]
    assert [len(la["runs"]) for la in waiting] == [1]
    assert waiting[0]["when"][0]["verdicts"] == ["refuted", "inconclusive", "not_possible"]
    free = [la for la in made["launches"] if not la["when"]]
    assert [la["digest"] for la in free] == [la["digest"] for la in expand(small())["launches"]]
    runs = {r["name"]: r["launch"] for r in made["runs"]}
    assert runs["decode_base_short_c1_t512_r1"] == waiting[0]["digest"]


def test_an_empty_list_of_workloads_is_a_start_alone() -> None:
    data = small()
    data["experiments"]["A"]["runs"] = {"fast": []}
    data["experiments"]["A"].pop("question")
    made = expand(data)
    assert [la["runs"] for la in made["launches"]] == [[]]
    assert made["runs"] == [] and made["starts"][0]["log"] == "server_fast.log"


def test_attach() -> None:
    data = small()
    data["server"] = {"attach": "http://127.0.0.1:8000", "model": "tiny"}
    data["variants"] = {"base": {}}
    data["experiments"]["A"] = {"runs": {"base": ["short"]}}
    made = expand(data)
    server = made["servers"][made["launches"][0]["server"]]
    assert server["attach"] == "http://127.0.0.1:8000" and server["argv"] == []


def test_attach_without_a_model_asks_the_server_for_its_own(tmp_path: Path) -> None:
    data = small()
    data["server"] = {"attach": "http://127.0.0.1:8000"}
    data["variants"] = {"base": {}}
    data["experiments"]["A"] = {"runs": {"base": ["short"]}}
    path = tmp_path / "attached.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    made = plan.expand(config.load(path, {}, REPO), REPO)
    server = made["servers"][made["launches"][0]["server"]]
    assert server["model"] is None and server["served_model"] is None
    assert plantable.table(made)


# names and seeds


def test_names(default: dict[str, Any]) -> None:
    names = [run["name"] for run in default["runs"]]
    assert len(names) == len(set(names))
    for wanted in (
        "decode_full_parser_short_c1_t256_r3",
        "decode_full_parser_tool_c1_t128_r3",
        "decode_noparser_short_c2_t128_r6_monitor",
        "decode_multistep_short_c1_t96_r3_start2",
        "decode_grid-mns1-mnbt4096-ecp0-nss4_short_c4_t32_r4",
    ):
        assert wanted in names
    by = {run["name"]: run for run in default["runs"]}
    assert (
        by["decode_noparser_short_c2_t128_r6_monitor"]["capture"]
        == "ixsmi_noparser_short_c2_t128_r6_monitor"
    )
    assert by["decode_noparser_short_c2_t128_r6_quiet"]["capture"] is None
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)
    assert {s["log"] for s in default["starts"]} >= {
        "server_multistep.log",
        "server_multistep_start2.log",
    }


def test_names_of_cells() -> None:
    values = {"--a-b": True, "--c": "x/y z", "VLLM_ATTENTION_BACKEND": "A"}
    assert naming.cell("g", values) == "g-ab1-cx_y_z-VABA"


def test_seeds_pair_the_arms_and_part_the_runs() -> None:
    data = small()
    data["experiments"]["A"]["repeats"] = 2
    runs = expand(data)["runs"]
    by_variant = {
        v: {
            (r["workload"], r["concurrency"], r["start"]): r["seed"]
            for r in runs
            if r["variant"] == v
        }
        for v in ("base", "fast")
    }
    assert by_variant["base"] == by_variant["fast"]
    assert len(set(by_variant["base"].values())) == len(by_variant["base"])


def test_replay_runs_are_the_reports_own_files() -> None:
    made = plan.expand(config.load(REPO / "config/2026-07-14-decode.yaml", {}, REPO), REPO)
    assert made["kind"] == "replay" and made["launches"] == []
    assert {r["name"] for r in made["runs"]} == {
        "decode_full_parser_short_c1_t256_r3",
        "decode_full_parser_tool_c1_t128_r3",
        "decode_noparser_short_c1_t256_r3",
        "decode_noparser_short_c1_t128_r4",
        "decode_noparser_short_c2_t128_r4",
        "decode_noparser_short_c4_t128_r4",
        "decode_noparser_short_c2_t128_r4_monitor",
    }
    assert [r["capture"] for r in made["runs"] if r["capture"]] == [
        "ixsmi_noparser_short_c2_t128_r4_monitor"
    ]
    assert [made["experiments"][e]["section"] for e in made["experiments"]] == [1, 2, 3, 4, 5, None]


# what the plan carries


def test_symbols_stay_symbols_and_no_path_of_this_machine_is_in_it(default: dict[str, Any]) -> None:
    text = json.dumps(default)
    assert str(REPO) not in text and sys.executable not in text
    assert default["variants"]["noparser"]["argv"][:2] == ["{python}", "{simulator}"]


def test_every_run_can_be_ordered_from_the_plan_alone(default: dict[str, Any]) -> None:
    for run in default["runs"]:
        point = default["points"][run["run"]]
        scenario = default["scenarios"][point["scenario"]]
        assert scenario.get("messages") or scenario["prompt_tokens"]
        assert run["server"] in default["servers"] and run["launch"]


def test_awkward_values_reach_argv_through_the_whole_path() -> None:
    data = small()
    text = "-x $(id) 'q' \"d\"\n`w` {python} 中文"
    data["variants"]["fast"] = {
        "flags": {"--chat-template": text, "--names": ["a b", "$HOME"]},
        "env": {"A": text},
    }
    variant = expand(data)["variants"]["fast"]
    assert f"--chat-template={text}" in variant["argv"]
    assert variant["argv"][variant["argv"].index("--names") + 1 :][:2] == ["a b", "$HOME"]
    assert variant["env"]["A"] == text


def test_removed_false_and_absent_are_three(default: dict[str, Any]) -> None:
    assert default["variants"]["noparser"]["removed"] == [
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "--reasoning-parser",
    ]
    data = small()
    data["server"]["flags"]["--enable-chunked-prefill"] = True
    data["variants"] = {
        "on": {},
        "off": {"flags": {"--enable-chunked-prefill": False}},
        "left": {"remove": ["--enable-chunked-prefill"]},
    }
    data["experiments"]["A"] = {"runs": {"on": ["short"], "off": ["short"], "left": ["short"]}}
    assert len(set(servers(expand(data)).values())) == 3


def test_a_child_changes_what_the_base_spells_otherwise() -> None:
    data = small()
    data["variants"]["fast"] = {"flags": {"--tensor_parallel_size": 2}}
    argv = expand(data)["variants"]["fast"]["argv"]
    assert (
        argv.count("--tensor-parallel-size") == 1
        and argv[argv.index("--tensor-parallel-size") + 1] == "2"
    )


def test_points_of_questions(default: dict[str, Any]) -> None:
    asked = {q["id"]: q for e in default["experiments"].values() for q in e["questions"]}
    a = asked["A_1"]["points"]
    assert [p["concurrency"] for p in a] == [1, 2] and len(a[0]["baseline"]) == len(
        a[0]["candidate"]
    ) == 2
    d = asked["D_1"]["points"]
    assert (
        len(d) == 23 and len({p["candidate_variant"] for p in d}) == 23
    )  # all cells but the baseline itself
    assert asked["tools_1"]["points"][0]["baseline_workload"] == "tool_c1_t128"
    assert asked["concurrency_1"]["points"] == [
        {
            "variant": "noparser",
            "runs": {str(c): [f"decode_noparser_short_c{c}_t128_r4"] for c in (1, 2, 4)},
        }
    ]
    assert (
        asked["parser_1"]["smallest_effect"] == 0.05 and asked["parser_1"]["direction"] == "higher"
    )
    assert asked["baseline_1"]["target"] == {"op": ">=", "value": 20.0}


def test_environment_names_may_be_varied() -> None:
    data = small()
    data["variants"]["fast"] = {"vary": {"VLLM_ATTENTION_BACKEND": ["XFORMERS", "FLASH_ATTN"]}}
    data["experiments"]["A"] = {"runs": {"fast": ["short"]}}
    cells = [v for v in expand(data)["variants"].values() if v["grid"]]
    assert [v["env"]["VLLM_ATTENTION_BACKEND"] for v in cells] == ["XFORMERS", "FLASH_ATTN"]


@pytest.mark.parametrize(
    "text, wanted",
    [(">= 20", (">=", 20)), ("<=5", ("<=", 5)), (" > 50 % ", (">", 0.5)), ("< -1.5", ("<", -1.5))],
)
def test_targets(text: str, wanted: tuple[str, float]) -> None:
    assert tuple(targets.target(text).values()) == wanted


@pytest.mark.parametrize("text", ["20", ">= x", "=> 20", ">= 20 tok/s", ""])
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="an operator"):
        targets.target(text)


def test_make_plan_prints_and_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert make_plan.main(["--config", str(REPO / "config/config.yaml"), "--print"]) == 0
    assert "decode_multistep_short_c1_t96_r3_start2" in capsys.readouterr().out
    bad = tmp_path / "bad.yaml"
    bad.write_text(SMALL.replace("host: here", "host: there"))
    assert make_plan.main(["--config", str(bad), "--out", str(tmp_path / "p.json")]) == 2
    assert 'did you mean "here"?' in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


def test_errors_are_config_errors_for_callers() -> None:
    assert "2 mistakes" in str(ConfigError(["one", "two"]))


def test_secrets_are_in_the_plan_by_name() -> None:
    data = small()
    data["server"] |= {"secrets": ["HF_TOKEN"], "api_key": "VLLM_API_KEY"}
    for server in expand(data)["servers"].values():
        assert server["secrets"] == ["HF_TOKEN"] and server["api_key"] == "VLLM_API_KEY"
    for server in expand(small())["servers"].values():
        assert server["secrets"] == [] and server["api_key"] is None
