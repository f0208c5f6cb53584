"""The probe of the attention backends, on small engines that lie in folders, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cargo import backend_check, backend_source, procs
from decodelab import backend_probe, constraints
from tests.unit import engine_trees

WORDS = {rule.code: rule.words for rule in constraints.RULES if rule.words}
HANG = "import time\nwhile True: time.sleep(0.05)\n"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder; what the fake engines leave hanging is ended here, by its pid."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    procs.become_subreaper()
    yield tmp_path
    procs.prctl(
        procs.PR_SET_CHILD_SUBREAPER, 0
    )  # the tests after these expect init to take orphans
    for told in backend_check._living(str(tmp_path)):
        os.kill(told["pid"], signal.SIGKILL)
        for _ in range(100):
            try:
                if os.waitpid(told["pid"], os.WNOHANG)[0]:
                    break
            except ChildProcessError:
                break
            time.sleep(0.02)


def ask(bench: Path, tree: Path | None, **asked: Any) -> dict[str, Any]:
    model = bench / "model"
    model.mkdir(exist_ok=True)
    config = {"hidden_size": 256, "num_attention_heads": 4, "torch_dtype": "bfloat16"}
    (model / "config.json").write_text(json.dumps(config))
    return backend_check.check(
        {
            "workdir": str(bench),
            "setup": None,
            "lock": None,
            "argv0": sys.executable,
            "env": {"PYTHONPATH": str(tree or bench / "nothing"), "PYTHONNOUSERSITE": "1"},
            "asked": {
                "simulator": None,
                "model": str(model),
                "dtype": None,
                "kv_cache_dtype": "auto",
                "block_size": None,
                "words": WORDS,
                "import_s": 20.0,
                "deadline_s": 20.0,
                **asked,
            },
        }
    )


def read(answer: dict[str, Any]) -> backend_probe.Probe:
    return backend_probe.read("bi100-x", {"host": "bi100", "variants": ["a"], **answer})


def could(probe: backend_probe.Probe) -> dict[str, str]:
    return {one.name: one.could for one in probe.backends}


def test_v0_on_corex(bench: Path) -> None:
    answer = ask(bench, engine_trees.v0(bench / "engine"))
    probe = read(answer)
    assert answer["state"] == "told" and probe.problem is None
    assert could(probe) == {
        "FLASH_ATTN": "no",
        "XFORMERS": "yes",
        "FLASHINFER": "no",
        "TORCH_SDPA": "not_told",
    }
    told = {one.name: one for one in probe.backends}
    assert told["FLASH_ATTN"].takes == "XFORMERS"
    assert "the vllm_flash_attn package is not found" in str(told["FLASH_ATTN"].why)
    assert "ModuleNotFoundError: No module named 'flashinfer_of_nowhere'" in str(
        told["FLASHINFER"].why
    )
    assert "flashinfer.py:1" in str(told["FLASHINFER"].why), "file and line of the failed import"
    assert "takes no device memory" in str(told["TORCH_SDPA"].why)
    assert (probe.version, probe.default, probe.assumed) == ("0.6.3", "XFORMERS", ())
    assert probe.multi_step["chunked"] == ["FLASH_ATTN"]
    assert probe.refusals == {"budget_below_context", "multi_step_backend"}

    root = str(bench / "engine")
    assert {os.path.relpath(file, root) for file in probe.vendor} == {
        "vllm/attention/backends/xformers.py",
        "xformers/ops/fmha/__init__.py",
    }
    assert os.path.relpath(probe.files[0], root) == "vllm/attention/selector.py"


def test_v1_with_a_registry(bench: Path) -> None:
    probe = read(ask(bench, engine_trees.v1(bench / "engine")))
    assert could(probe) == {
        "FLASH_ATTN": "yes",
        "TRITON_ATTN": "yes",
        "FLASHINFER": "no",
        "TREE_ATTN": "yes",
        "CUSTOM": "no",
    }
    told = {one.name: one for one in probe.backends}
    assert "libcudart.so.12: cannot open shared object" in str(told["FLASHINFER"].why)
    assert told["CUSTOM"].takes == "FLASH_ATTN" and probe.default == "FLASH_ATTN"
    assert str(told["TREE_ATTN"].file).endswith("vllm/v1/attention/backends/tree_attn.py")


def test_no_engine_says_so(bench: Path) -> None:
    probe = read(ask(bench, None))
    assert probe.backends == () and "no package vllm" in str(probe.problem)


def test_a_broken_engine_still_says_what_its_files_say(bench: Path) -> None:
    tree = engine_trees.v0(bench / "engine", **{"torch.py": "import libtorch_that_is_not_there\n"})
    probe = read(ask(bench, tree))
    assert "No module named 'libtorch_that_is_not_there'" in str(probe.problem)
    assert set(could(probe)) == {"FLASH_ATTN", "XFORMERS", "FLASHINFER", "TORCH_SDPA"}
    assert could(probe)["XFORMERS"] == "not_told", "it imports, but nobody chose"
    assert could(probe)["FLASHINFER"] == "no", "it does not even import"
    assert probe.multi_step and probe.version == "0.6.3"


def test_what_hangs_is_told_and_left_and_not_asked_again(bench: Path) -> None:
    place = "vllm/v1/attention/backends/triton_attn.py"
    tree = engine_trees.v1(bench / "engine", **{place: HANG})
    answer = ask(bench, tree, deadline_s=1.0)
    probe = read(answer)
    assert could(probe)["TRITON_ATTN"] == "not_told"
    assert could(probe)["TREE_ATTN"] == "yes", "those after it are asked all the same"
    pid = next(line["pid"] for line in answer["lines"] if line.get("pid"))
    assert procs.read_stat(pid) is not None, "nobody ends it"
    again = ask(bench, tree)
    assert again["state"] == "failed" and f"pid {pid}" in again["problem"]


def test_one_that_dies_costs_only_itself(bench: Path) -> None:
    place = "vllm/v1/attention/backends/triton_attn.py"
    tree = engine_trees.v1(bench / "engine", **{place: "import os\nos.abort()\n"})
    probe = read(ask(bench, tree))
    assert could(probe)["TRITON_ATTN"] == "no" and could(probe)["TREE_ATTN"] == "yes"
    assert "died" in str(probe.backend("TRITON_ATTN").why)  # type: ignore[union-attr]


def test_a_host_in_use_is_left_alone(bench: Path) -> None:
    import fcntl

    lock = bench / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        told = {"workdir": str(bench), "lock": str(lock), "argv0": sys.executable, "asked": {}}
        assert backend_check.check(told)["state"] == "busy"


def test_a_setup_that_fails_is_the_reason(bench: Path) -> None:
    told = {"workdir": str(bench), "setup": str(bench / "none.sh"), "argv0": "python", "asked": {}}
    answer = backend_check.check(told)
    assert answer["state"] == "failed" and "none.sh" in answer["problem"]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_any_source_is_read(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "attention" / "selector.py"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8", errors="replace")
        assert set(backend_source.read(folder)) == {"names", "files", "multi_step", "vendor"}


lines = st.dictionaries(
    st.sampled_from(["stage", "backend", "could", "why", "takes", "place", "file", "problem"]),
    st.text(max_size=8),
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(lines, max_size=6))
def test_any_answer_is_read(told: list[dict[str, str]]) -> None:
    probe = backend_probe.read("k", {"host": "h", "lines": told})
    assert all(one.could in ("yes", "no", "not_told") for one in probe.backends)


# ---------------------------------------------------------------------- what the plan asks for
@pytest.mark.parametrize(
    ("variant", "asked"),
    [
        ({"canonical": {}, "env": {}}, None),
        ({"canonical": {}, "env": {"VLLM_ATTENTION_BACKEND": "XFORMERS"}}, "XFORMERS"),
        ({"canonical": {"--attention-backend": "FLASHINFER"}, "env": {}}, "FLASHINFER"),
        ({"canonical": {"--attention-config.backend": "FLASHINFER"}, "env": {}}, "FLASHINFER"),
        ({"canonical": {"--attention-backend": "auto"}, "env": {}}, None),
    ],
)
def test_asked_of(variant: dict[str, Any], asked: str | None) -> None:
    assert backend_probe.asked_of(variant) == asked


def variant(**more: Any) -> dict[str, Any]:
    base = {
        "name": "a", "host": "bi100", "argv": ["python", "-m", "vllm"], "build": None, "model": "m",
        "env": {}, "flags": {}, "canonical": {}, "engine": "vllm-v0", "attach": None,
    }  # fmt: skip
    return {**base, **more}


def test_variants_that_differ_in_the_backend_alone_share_an_answer() -> None:
    key = backend_probe.key(variant())
    assert key == backend_probe.key(variant(env={"VLLM_ATTENTION_BACKEND": "XFORMERS"}))
    assert key == backend_probe.key(variant(flags={"--max-num-seqs": 4}))
    assert key != backend_probe.key(variant(env={"LD_LIBRARY_PATH": "/opt"}))
    assert key != backend_probe.key(variant(flags={"--dtype": "float16"}))
    assert backend_probe.key(variant(attach="http://x")) is None


def test_facts_for_the_constraint_table() -> None:
    told = [
        {"stage": "files", "version": "0.6.3", "names": ["XFORMERS", "FLASH_ATTN"],
         "vendor": {"f.py": ["ixformer"]}, "refusals": ["multi_step_backend"],
         "multi_step": {"chunked": ["FLASH_ATTN"]}},
        {"stage": "asking", "assumed": []},
        {"backend": "", "could": "yes", "takes": "XFORMERS"},
        {"backend": "FLASH_ATTN", "could": "no", "takes": "XFORMERS"},
    ]  # fmt: skip
    probe = backend_probe.read(str(backend_probe.key(variant())), {"host": "bi100", "lines": told})
    flash = variant(env={"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"})
    for one in (variant(), flash):
        facts = backend_probe.facts([probe], one)
        assert (facts.version, facts.changed, facts.backend) == ("0.6.3", True, "XFORMERS")
        assert facts.multi_step_backends == ("FLASH_ATTN",)
    steps = {"--num-scheduler-steps": "4", "--enable-chunked-prefill": True}
    found = constraints.known_impossible(
        variant(canonical=steps), backend_probe.facts([probe], flash)
    )
    assert found is not None and found.code == "multi_step_backend"
    assert backend_probe.facts([], variant()) == constraints.Facts()
    assumed = [*told[:1], {"stage": "asking", "assumed": ["head size 128"]}, *told[2:]]
    probe = backend_probe.read(probe.key, {"host": "bi100", "lines": assumed})
    assert backend_probe.facts([probe], variant()).backend is None, "not with a guess in it"
