"""Which accelerators a run used, and the table of each: from plan and capture to row and report."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aggregate
import pytest
from sample_study import Study, request, run_record

from decodelab import flags, telemetry_gpus
from decodelab.telemetry import Reading, Sample
from decodelab.telemetry_gpus import Declared, InUse

ROOT = Path(__file__).resolve().parents[2]
HEAD = "index, uuid, name, utilization.gpu, memory.used, memory.total, power.draw, power.limit"
SHORT = "telemetry_phase_not_resolved:prefill"  # half a second, and one sample a second
TOLD = ("gpus_in_use", "smi_validity_in_use", "smi_reasons_in_use")
CARDS = {f"GPU-{n}{n}-a": n for n in range(4)}


def seen(
    used_mib: tuple[float, ...] = (30000, 30000, 30000, 30000),
    processes: tuple[int | None, ...] = (None,) * 4,
) -> dict[str, list[Sample]]:
    out = {}
    for uuid, n in list(CARDS.items())[: len(used_mib)]:
        reading = Reading(gpu=n, uuid=uuid, bus=f"00000000:{n}0:00.0", processes=processes[n])
        reading.values.update(mem_used_mib=used_mib[n], mem_total_mib=32768.0)
        out[uuid] = [Sample(0, 0.0, reading)]
    return out


def keys(*places: int) -> tuple[str, ...]:
    return tuple(list(CARDS)[n] for n in places)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Declared(world=4), InUse(keys(0, 1, 2, 3), "all")),
        (Declared(world=8), InUse(keys(0, 1, 2, 3), "all")),
        (Declared(world=2, visible=("2", "3")), InUse(keys(2, 3), "env")),
        (Declared(world=1, visible=("3", "1")), InUse(keys(3), "env")),
        (Declared(world=2, visible=("GPU-11", "gpu-33-A")), InUse(keys(1, 3), "env")),
        (Declared(world=1, visible=("00000000:20",)), InUse(keys(2), "env")),
        (Declared(world=2, devices=(0, 2)), InUse(keys(0, 2), "devices")),
        (Declared(world=1, visible=("1",), devices=(0, 2)), InUse(keys(1), "env")),
        (Declared(world=1, visible=("7",)), None),  # not seen: nothing else can be right
        (Declared(world=1, visible=("GPU-",)), None),  # names four
        (Declared(world=2), None),  # four hold memory, the engine needs two
        (Declared(), None),
    ],
)
def test_the_accelerators_in_use(wanted: Declared, found: InUse | None) -> None:
    assert telemetry_gpus.in_use(seen(), wanted) == found


def test_memory_and_processes_tell_where_they_agree_with_the_world_size() -> None:
    held = seen((257, 30000, 513, 30000))
    assert telemetry_gpus.in_use(held, Declared(world=2)) == InUse(keys(1, 3), "memory")
    assert telemetry_gpus.in_use(held, Declared(world=3)) is None
    listed = seen((30000,) * 4, processes=(1, 0, 2, 0))
    assert telemetry_gpus.in_use(listed, Declared(world=2)) == InUse(keys(0, 2), "processes")
    container = seen((257, 30000, 513, 30000), processes=(0, 0, 0, 0))
    assert telemetry_gpus.in_use(container, Declared(world=2)) == InUse(keys(1, 3), "memory")


def calls(*shown: tuple[int, ...]) -> dict[str, list[Sample]]:
    """Calls that show these cards each; the tool counts those that it sees."""
    out: dict[str, list[Sample]] = {}
    for record, cards in enumerate(shown):
        for place, card in enumerate(cards):
            uuid = keys(card)[0]
            sample = Sample(record, float(record), Reading(gpu=place, uuid=uuid))
            out.setdefault(uuid, []).append(sample)
    return out


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    "shown",
    [
        (ALL, *[(0, 2, 3)] * 9),  # one is lost: the tool counts anew
        ((1, 2, 3), *[ALL] * 9),  # the first call does not show it yet
        ((1, 2, 3), ALL, (0, 1, 3)),
    ],
)
def test_an_index_is_that_of_the_calls_that_show_every_card(
    shown: tuple[tuple[int, ...], ...],
) -> None:
    for place in ALL:
        found = telemetry_gpus.in_use(calls(*shown), Declared(world=1, visible=(str(place),)))
        assert found == InUse(keys(place), "env")
    assert telemetry_gpus.indices(calls(*shown)) == {keys(n)[0]: n for n in ALL}


@pytest.mark.parametrize("shown", [(ALL, (1, 0, 2, 3)), ((0, 1, 2), (1, 2, 3))])
def test_an_index_that_changed_names_no_card(shown: tuple[tuple[int, ...], ...]) -> None:
    assert telemetry_gpus.in_use(calls(*shown), Declared(world=1, visible=("1",))) is None
    assert telemetry_gpus.indices(calls(*shown))[keys(1)[0]] is None


def test_fewer_than_declared() -> None:
    assert telemetry_gpus.too_few(seen((1, 1, 1)), Declared(expected=4))
    assert not telemetry_gpus.too_few(seen(), Declared(expected=4))
    assert not telemetry_gpus.too_few(seen(), Declared())
    assert not telemetry_gpus.too_few({}, Declared(expected=4))  # telemetry_missing says it


def plan(given: dict[str, Any], engine: str = "vllm-v0", **more: Any) -> dict[str, Any]:
    host = {"devices": more.pop("devices", None), "env": more.pop("host_env", {})}
    canonical = flags.canonical(given, engine) if engine != "other" else given
    variant = {"engine": engine, "canonical": canonical, "host": "here", **more}
    return {"variants": {"v": variant}, "hosts": {"here": host}}


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (plan({}), Declared(world=1, expected=1)),
        (plan({"-tp": 4}), Declared(world=4, expected=4)),
        (plan({"-tp": 2, "-pp": 2}, devices=8), Declared(world=4, expected=8)),
        (plan({"-tp": 2, "-dp": 2}, engine="vllm-v1"), Declared(world=4, expected=4)),
        (plan({"-tp": 4}, devices=2), Declared(world=4, expected=4)),
        (plan({"-tp": 2}, devices=[1, 3]), Declared(2, (), (1, 3), 2)),
        (
            plan({"-tp": 2}, env={"CUDA_VISIBLE_DEVICES": "2, 3"}),
            Declared(2, ("2", "3"), (), 2),
        ),
        (
            plan({}, env={"CUDA_VISIBLE_DEVICES": "1"}, host_env={"CUDA_VISIBLE_DEVICES": "0"}),
            Declared(1, ("1",), (), 1),
        ),
        (
            plan({}, env={"CUDA_VISIBLE_DEVICES": "0", "ILUVATAR_COREX_VISIBLE_DEVICES": "2"}),
            Declared(1, (), (), 1),
        ),
        (plan({"-tp": 4}, engine="other", devices=4), Declared(None, (), (), 4)),
        (plan({"-tp": 4}, attach="http://x"), Declared()),
        ({}, Declared()),
    ],
)
def test_what_the_plan_declares(told: dict[str, Any], wanted: Declared) -> None:
    assert telemetry_gpus.declared(told, {"variant": "v"}) == wanted


def test_the_devices_that_the_check_chose_are_those_in_use() -> None:
    start = {"device_check": {"env": {"CUDA_VISIBLE_DEVICES": "1,3"}}}
    told = plan({"-tp": 2}, devices="any")
    assert telemetry_gpus.declared(told, {"variant": "v"}, start).visible == ("1", "3")
    assert telemetry_gpus.declared(told, {"variant": "v"}, {"device_check": None}).visible == ()


# rows ---------------------------------------------------------------------------------------------


def capture(watts: list[float], util: list[int], seconds: int = 14) -> dict[str, Any]:
    """One call a second from 998.5 s on; each card with a steady draw and utilisation."""
    rows = [
        f"{n}, GPU-0000000{n}-0000-0000-0000-000000000000, Iluvatar BI-V100, {u} %, 30000 MiB, "
        f"32768 MiB, {w} W, 250 W"
        for n, (w, u) in enumerate(zip(watts, util, strict=True))
    ]
    text = "\n".join([HEAD, *rows]) + "\n"
    calls = [
        {"m0": 998.4 + t, "m1": 998.6 + t, "w0": 0.0, "rc": 0, "out": text, "err": ""}
        for t in range(seconds)
    ]
    clock = {"monotonic_s": 998.0, "wall": 0.0}
    return {
        "schema": "decodelab.capture/1", "source": "measured", "tool": "ixsmi", "argv": ["ixsmi"],
        "interval_s": 1.0, "clock": clock, "records": calls,
    }  # fmt: skip


def study(told: dict[str, Any], watts: list[float], util: list[int], **more: Any) -> Study:
    """One request of 101 tokens: t0 at 1000 s, first token at 1000.5 s, last at 1010.5 s."""
    made = Study(variants={"base": told["variants"]["v"]}, hosts=told["hosts"])
    made.add("r", None, data=run_record([request()]), capture="cap", telemetry=True)
    made.files["ixsmi_r.json"] = capture(watts, util, **more)
    made.index["captures"]["cap"] = {"file": "ixsmi_r.json"}
    return made


def rows(made: Study, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = aggregate.build(made.plan, made.write(folder), folder)
    return found["runs"][0], found["gpus"]


def test_figures_of_those_in_use_stand_beside_those_of_all(tmp_path: Path) -> None:
    told = plan({"-tp": 2}, env={"CUDA_VISIBLE_DEVICES": "1,2"}, devices=4)
    run, gpus = rows(study(told, [50, 100, 110, 50], [0, 80, 90, 0]), tmp_path)
    # window 10.5 s: 310 W of all, 210 W of the two; 101 tokens
    assert run["energy_j_window"] == pytest.approx(10.5 * 310)
    assert run["energy_j_window_in_use"] == pytest.approx(10.5 * 210)
    assert run["joules_per_token"] == pytest.approx(10.5 * 310 / 101)
    assert run["tokens_per_joule"] == pytest.approx(101 / (10.5 * 310))
    assert run["joules_per_token_in_use"] == pytest.approx(10.5 * 210 / 101)
    assert run["util_pct_mean_window"] == pytest.approx(42.5)
    assert run["util_pct_mean_window_in_use"] == pytest.approx(85.0)
    assert run["cap_share_window_in_use"] == pytest.approx(210 / 500)
    assert (run["gpus"], run["gpus_in_use"], run["gpus_in_use_by"]) == (4, 2, "env")
    assert (run["smi_validity"], run["validity"]) == ("valid", "valid")
    assert [(g["scope"], g["gpu"], g["in_use"]) for g in gpus if g["scope"] == "gpu"] == [
        ("gpu", 0, "no"), ("gpu", 1, "yes"), ("gpu", 2, "yes"), ("gpu", 3, "no"),
    ]  # fmt: skip
    assert [g["energy_j_window"] for g in gpus] == pytest.approx(
        [10.5 * w for w in (50, 100, 110, 50, 210, 310)]
    )
    assert [g["scope"] for g in gpus[4:]] == ["in_use", "all"]
    assert {g["tokens_per_joule"] for g in gpus[:4]} == {None}
    assert gpus[5]["tokens_per_joule"] == run["tokens_per_joule"]
    assert gpus[1]["uuid"].startswith("GPU-00000001") and gpus[1]["name"] == "Iluvatar BI-V100"


def test_a_phase_too_short_for_the_samples_is_told_and_the_run_stays_valid(tmp_path: Path) -> None:
    made = study(plan({"-tp": 1}), [50], [80])
    made.files["r.json"] = run_record([request(ttft=0.4)])  # no sample from 1000 to 1000.4 s
    run, _ = rows(made, tmp_path)
    assert run["time_share_prefill"] == pytest.approx(0.4 / 10.4)
    assert run["util_pct_mean_prefill"] is None and run["energy_j_prefill"] is None
    assert run["smi_reasons"] == "telemetry_phase_not_resolved:prefill"
    assert run["util_pct_mean_decode"] == pytest.approx(80.0)
    assert run["energy_j_decode"] == pytest.approx(500.0)
    assert (run["smi_validity"], run["validity"]) == ("valid", "valid")


def test_fewer_accelerators_than_declared_make_the_run_suspect(tmp_path: Path) -> None:
    run, gpus = rows(study(plan({"-tp": 4}), [50, 50, 50], [80, 80, 80]), tmp_path)
    assert (run["validity"], run["reasons"]) == ("suspect", "telemetry_fewer_gpus")
    assert (
        run["smi_validity"] == "suspect" and run["smi_reasons"] == f"{SHORT};telemetry_fewer_gpus"
    )
    assert [g["validity"] for g in gpus] == ["valid"] * 3 + ["suspect"] * 2


def test_what_cannot_be_told_stays_empty(tmp_path: Path) -> None:
    run, gpus = rows(study(plan({}, engine="other"), [50, 50], [80, 80]), tmp_path)
    assert run.get("gpus_in_use") is None and run.get("energy_j_window_in_use") is None
    assert run["smi_reasons"] == f"{SHORT};telemetry_gpus_in_use_unknown"
    assert run["smi_validity"] == "valid" and [g["scope"] for g in gpus] == ["gpu", "gpu", "all"]
    assert {g["in_use"] for g in gpus} == {None}


def test_samples_that_end_early_leave_no_window_figure_and_say_why(tmp_path: Path) -> None:
    run, gpus = rows(study(plan({"-tp": 1}), [50], [80], seconds=6), tmp_path)
    assert run["util_pct_mean_all"] == 80.0 and run["util_pct_mean_window"] is None
    assert run["joules_per_token"] is None and run["smi_validity"] == "invalid"
    assert "telemetry_does_not_cover:power_w" in run["smi_reasons"].split(";")
    assert gpus[0]["validity"] == "invalid" and run["validity"] == "suspect"


def test_a_wedged_card_does_not_pass_for_load(tmp_path: Path) -> None:
    made = study(plan({"-tp": 1}, env={"CUDA_VISIBLE_DEVICES": "0"}), [50, 50], [40, 100])
    for call in made.files["ixsmi_r.json"]["records"]:
        head, first, second = call["out"].splitlines()
        call["out"] = "\n".join([head, first, second.replace("30000 MiB", "257 MiB")]) + "\n"
    run, gpus = rows(made, tmp_path)
    assert "telemetry_wedged" in run["reasons"] and run["smi_validity"] == "suspect"
    assert [g["validity"] for g in gpus] == ["valid", "suspect", "valid", "suspect"]
    assert run["util_pct_mean_window_in_use"] == pytest.approx(40.0)


def test_a_reconstructed_capture_has_no_window(tmp_path: Path) -> None:
    made = study(plan({"-tp": 1}), [50], [80])
    made.files["ixsmi_r.json"]["source"] = "reconstructed"
    run, gpus = rows(made, tmp_path)
    assert run["util_pct_mean_all"] == 80.0 and run["mem_headroom_mib_all"] == 2768.0
    for name, value in {**run, **gpus[0]}.items():
        if name.endswith(("_window", "_prefill", "_decode", "_in_use")):
            assert name in TOLD or value is None, name
    assert run["smi_reasons"] == "telemetry_reconstructed" and run["smi_validity"] == "invalid"


def test_the_table_is_written_beside_the_others(tmp_path: Path) -> None:
    made = study(plan({"-tp": 1}), [50], [80])
    (tmp_path / "plan.json").write_text(json.dumps(made.plan))
    made.write(tmp_path / "runs")
    command = [sys.executable, ROOT / "scripts/aggregate.py", "--plan", tmp_path / "plan.json"]
    command += ["--runs", tmp_path / "runs", "--out", tmp_path / "tables"]
    subprocess.run(command, check=True, timeout=60, cwd=tmp_path)
    with (tmp_path / "tables" / "gpus.csv").open(newline="") as handle:
        written = list(csv.DictReader(handle))
    assert [row["scope"] for row in written] == ["gpu", "in_use", "all"]
    assert written[0]["util_pct_mean_window"] == "80.0" and written[0]["temp_c_mean_all"] == ""
