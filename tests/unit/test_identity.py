"""Who answers: what the cargo sees of engine, model and machine, and whether starts agree on it."""

from __future__ import annotations

import http.server
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_study import Study
from test_judge import codes, only, two_arms

from cargo import identity, machine_look, server_http
from decodelab import engine_told, judge, start_identity

SCRIPTS = Path(__file__).parents[2] / "scripts"
SIM_SMI = [sys.executable, str(SCRIPTS / "sim" / "ixsmi.py"), "--query-gpu=index"]
MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 40,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


# ---------------------------------------------------------------------- the model
def test_a_model_folder_by_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    found = machine_look.model_facts(str(tmp_path))
    assert len(found.pop("digest")) == 16
    assert found == {
        "architecture": "Qwen3MoeForCausalLM",
        "layers": 40,
        "experts": 256,
        "experts_per_token": 8,
        "heads": 16,
        "kv_heads": 2,
        "dtype": "bfloat16",
        "quantization": "fp8",
        "weights_bytes": 5,
    }


def test_weights_that_cannot_all_be_seen_have_no_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')
    (tmp_path / "a.safetensors").write_bytes(b"12")
    assert machine_look.model_facts(str(tmp_path))["weights_bytes"] == 2
    (tmp_path / "b.safetensors").symlink_to(tmp_path / "nothing")
    facts = machine_look.machine(None, {}, str(tmp_path))
    assert facts["model"]["layers"] == 2 and "weights_bytes" not in facts["model"]
    assert "container" in facts and "problem" not in facts


def test_a_composed_model_tells_of_its_text_part(tmp_path: Path) -> None:
    config = {"architectures": ["A"], "text_config": {"num_hidden_layers": 3, "num_experts": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = machine_look.model_facts(str(tmp_path))
    assert (found["layers"], found["experts"]) == (3, 4) and "heads" not in found


def test_a_model_that_is_no_folder_is_not_known(tmp_path: Path) -> None:
    assert machine_look.model_facts(None) == {}
    assert machine_look.model_facts("Qwen/Qwen3") == {}
    assert machine_look.model_facts(str(tmp_path)) == {}


@given(st.binary(max_size=200))
def test_any_config(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(data)
        json.dumps(machine_look.model_facts(folder))


# ---------------------------------------------------------------------- the machine
def test_the_real_looks_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    telemetry = {"tool": "ixsmi", "argv": SIM_SMI}
    machine = machine_look.machine(telemetry, dict(os.environ), str(tmp_path))
    assert "problem" not in machine
    assert machine["model"]["layers"] == 40
    assert machine["container"] in ("container", "none")
    facts = start_identity.facts({"identity": {"machine": machine, "hostname": "h"}})
    assert facts["driver"] == "3.2.3" and facts["smi"] == "IX-ML 3.2.3"
    assert facts["devices"] == "4 x Iluvatar BI-V100"
    assert facts["model.experts"] == "256"


@pytest.mark.parametrize(
    "telemetry", [{}, {"tool": "none"}, {"tool": "ixsmi", "argv": ["no-such-tool", "x"]}]
)
def test_without_a_tool_nothing_is_known_of_the_devices(telemetry: dict[str, Any]) -> None:
    assert machine_look.smi(telemetry, dict(os.environ)) is None


def test_a_tool_that_is_another_program_is_not_believed(tmp_path: Path) -> None:
    tool = tmp_path / "ixsmi"
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    assert machine_look.smi({"tool": "ixsmi", "argv": [str(tool), "-x"]}, dict(os.environ)) is None


def test_a_look_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "config.json")  # opening it waits for a writer that never comes
    monkeypatch.setattr(machine_look, "CHILD_S", 0.5)
    machine = machine_look.machine({"tool": "none"}, {}, str(tmp_path))
    assert machine == {"problem": "no answer within 0.5 s", "smi": None}
    assert start_identity.facts({"identity": {"machine": machine}}) == {}


@pytest.mark.parametrize(
    ("files", "environ", "hints"),
    [
        ({}, {}, []),
        ({"proc/1/cgroup": "0::/\n"}, {}, []),
        ({".dockerenv": ""}, {}, ["docker"]),
        ({"proc/1/cgroup": "12:cpu:/kubepods/pod1/x\n"}, {}, ["cgroup kubepods"]),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ["kubernetes environment"]),
        ({"proc/self/mountinfo": "1 2 0:3 / / rw - overlay o rw\n"}, {}, ["overlay root"]),
        ({"proc/self/mountinfo": "1 2 0:3 / /mnt rw - overlay o rw\n"}, {}, []),
    ],
)
def test_container_hints(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], hints: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine_look.container_hints(f"{tmp_path}/", environ) == hints


def test_libraries_of_a_live_process() -> None:
    """numpy's own, in this very process."""
    import numpy

    found = machine_look.loaded([os.getpid(), 2**22 + 1])
    assert found["numpy"] == str(Path(numpy.__file__).resolve().parent)


def test_the_server_s_python_tells_where_imports_come_from(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('imported')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "empty").mkdir()
    found = identity.probe([sys.executable], env, str(tmp_path / "empty"), [], [])["identity"]
    assert found["found"]["vllm"] == str(tmp_path / "vllm") and found["prefix"] == sys.prefix


def test_info_gauges_of_a_real_http_server() -> None:
    """Configuration by label; counters, other families and their HELP lines are not kept."""
    page = (
        "# HELP vllm:cache_config_info x\n"
        'vllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0\n'
        'vllm:num_requests_running{engine="0"} 2.0\npython_info{major="3"} 1.0\n'
    )

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        found = server_http.info_gauges(base, 5.0, lambda: None)
        assert server_http.info_gauges(base + "/no", 5.0, lambda: None) == []
        server.shutdown()
    assert found == ['vllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0']
    assert dict(engine_told.info(found)) == {"block_size": 16, "cache_dtype": "auto"}
    assert server_http.info_gauges(base, 5.0, lambda: None) == []  # it is gone


# ---------------------------------------------------------------------- facts of a start
def test_places_are_told_from_their_environment_on() -> None:
    places = {"vllm": "/venv/lib/vllm", "torch": "/opt/src/torch"}
    told = {"prefix": "/venv", "real_prefix": "/d/v", "found": places, "loaded": {"a": "/d/v/a"}}
    assert start_identity.facts({"identity": told}) == {
        "found.vllm": "{prefix}/lib/vllm",
        "found.torch": "/opt/src/torch",
        "loaded.a": "{prefix}/a",
    }


def test_a_container_s_name_is_no_host() -> None:
    for container, expected in (("none", "n1"), (None, "n1"), ("container", None)):
        machine = {"container": container}
        facts = start_identity.facts({"identity": {"hostname": "n1", "machine": machine}})
        assert facts.get("host") == expected


def test_a_foreign_server_tells_nothing_of_its_machine() -> None:
    told = {"observed": True, "hostname": "mine", "machine": {"container": "none"}}
    assert start_identity.facts({"identity": told}) == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
)
def test_an_old_or_odd_smi_text_gives_no_facts(said: Any) -> None:
    machine = {"smi": {"table": said, "list": said}}
    found = start_identity.facts({"identity": {"machine": machine}})
    assert set(found) <= {"driver", "smi", "devices"}


# ---------------------------------------------------------------------- two arms
def test_unknown_is_not_different() -> None:
    assert start_identity.differences([{}], [{"driver": "1"}], set()) == []
    assert start_identity.differences([{}, {"driver": "1"}], [{"driver": "1"}], set()) == []


@pytest.mark.parametrize(
    ("key", "excused_by"),
    [
        ("version", "engine"),
        ("packages.torch", "engine"),
        ("packages.numpy", "installation"),
        ("python", "installation"),
        ("fingerprint", "installation"),
        ("found.vllm", "installation"),
        ("model.experts", "model"),
        ("driver", "host"),
        ("devices", "host"),
        ("host", "host"),
    ],
)
def test_what_was_varied_may_differ(key: str, excused_by: str) -> None:
    a, b = {key: "1"}, {key: "2"}
    assert start_identity.differences([a], [b], set()) == [(key, "1", "2")]
    others = {"engine", "installation", "model", "host"} - {excused_by}
    assert start_identity.differences([a], [b], others) == [(key, "1", "2")]
    assert start_identity.differences([a], [b], {excused_by}) == []
    # but not inside one arm, where nothing was
    assert start_identity.differences([a, b], [b], {excused_by}) == [(key, "1", "2")]


def test_what_two_variants_vary() -> None:
    base = {
        "host": "h", "build": "b", "engine": "vllm-v1", "model": "m",
        "flags": {"-tp": 4}, "env": {"VLLM_X": "1"},
        "argv": ["python", "-m", "vllm", "--model", "m", "--tensor-parallel-size", "4"],
    }  # fmt: skip

    def against(**changes: Any) -> set[str]:
        return start_identity.varied(base, {**base, **changes})

    assert against() == against(env={"VLLM_X": "2"}) == set()
    flags = {"flags": {"-tp": 2}, "argv": [*base["argv"][:-1], "2"]}
    assert against(**flags) == set()
    for name in ("PYTHONUNBUFFERED", "PYTHONHASHSEED", "LD_BIND_NOW"):  # of no import
        assert against(env={name: "1"}) == set()
    assert against(build="c") == against(env={"PYTHONPATH": "/x"}) == {"engine", "installation"}
    assert against(argv=["other", *base["argv"][1:]]) == {"engine", "installation"}
    assert against(env={"LD_PRELOAD": "/x.so"}) == {"installation"}
    assert against(host="g") == {"host", "installation"}  # not another version of the engine
    assert against(model="n", argv=[*base["argv"][:4], "n", *base["argv"][5:]]) == {"model"}


def judged(tmp_path: Path, changes: dict[str, Any], **facts: dict[str, str]) -> dict[str, Any]:
    study: Study = two_arms(10.0, 11.0, flags={"base": {}, "cand": {}})
    study.plan["variants"]["cand"].update(changes)
    tables = study.tables(tmp_path)
    for name in ("base", "cand"):
        ids = {"variant": name, "start_id": tables.runs[f"{name}_1"]["start_id"]}
        tables.starts.append(
            {**ids, "status": "ready", "version": "0.6.3", "identity": json.dumps(facts[name])}
        )
    verdict: dict[str, Any] = judge.judge(study.plan, tables)["verdicts"][0]
    return verdict


def test_a_comparison_of_two_drivers_is_refused_by_key_and_values(tmp_path: Path) -> None:
    drivers = {"base": {"driver": "3.2.3"}, "cand": {"driver": "4.0.0"}}
    refused = judged(tmp_path / "a", {}, **drivers)
    assert refused["verdict"] == "invalid" and "identity_differs" in codes(refused)
    text = next(r for r in refused["reasons"] if r["code"] == "identity_differs")
    assert all(word in text[x] for word in ("driver", "3.2.3", "4.0.0") for x in ("en", "zh"))
    # another host was the question
    assert judged(tmp_path / "b", {"host": "other"}, **drivers)["verdict"] == "supported"
    # an old record that does not know its driver
    old = {**drivers, "base": {}}
    assert judged(tmp_path / "c", {}, **old)["verdict"] == "supported"


def test_records_without_identity_are_compared_as_before(tmp_path: Path) -> None:
    assert only(two_arms(10.0, 11.0), tmp_path)["verdict"] == "supported"
