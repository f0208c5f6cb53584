"""Telemetry of a run as rows: the window over all requests sent, what the figures in use are worth,
what was rejected, and how it was sampled.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cargo import record
from decodelab import (
    records,
    telemetry,
    telemetry_phases,
    telemetry_rejected,
    telemetry_rows,
    telemetry_sampler,
)
from decodelab.telemetry_gpus import Declared

UUID = "GPU-00000000-0000-0000-0000-00000000000{}"
FIELDS = ["index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw"]
FIELDS += ["power.limit"]
TIMES = tuple(range(-2, 32))
DIE = "| {}    Iluvatar MR-V100 DUO   | 00000000:{}:00.0   | 500MHz   1600MHz |"


def request(
    begin: float | None,
    first: float | None = None,
    last: float | None = None,
    outcome: str = "ok",
    end: float | None = None,
    tokens: int | None = 10,
) -> dict[str, Any]:
    out = record.blank_request(0)
    out.update(outcome=outcome, t_start_s=begin, t_first_s=first, t_last_s=last)
    out.update(t_end_s=last if end is None else end, completion_tokens=tokens)
    return out


def run(requests: list[dict[str, Any]], outs: dict[float, str], **header: Any) -> records.Run:
    head = {"schema": "decodelab.capture/1", "tool": "nvidia-smi", "interval_s": 1.0}
    head |= {"fields": FIELDS, "clock": {"monotonic_s": 0.0}, **header}
    lines = [{"m0": t, "m1": t, "rc": 0, "out": out, "err": ""} for t, out in outs.items()]
    capture = telemetry.capture_of("\n".join(map(json.dumps, [head, *lines])), None)
    return records.Run(
        planned={"name": "r", "variant": "v"}, entry={"start_id": "s"},
        record={"clock": {"t0_monotonic_s": 0.0}, "source": "measured"},
        requests=requests, summary=record.summarise(requests), capture=capture,
    )  # fmt: skip


def card(t: float, power: str = "100", gpu: int = 0) -> str:
    return f"{gpu}, {UUID.format(gpu)}, 50, 10, 100, {power}, 200\n"


def steady(requests: list[dict[str, Any]]) -> records.Run:
    return run(requests, {t: card(t) for t in TIMES})


ONE = Declared(world=1)
FAILED = "telemetry_failed_output:tokens_per_joule;telemetry_failed_output:joules_per_token"


# the window ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "window"),
    [
        ([request(0, 1, 20, "stream_error"), request(20, 21, 25)], (0, 25)),
        ([request(2, 3, 10), request(4, 5, 12, "timeout", end=30)], (2, 12)),  # silent to its end
        ([request(2, 3, 10), request(1, None, None, "timeout", end=30)], (1, 10)),
        ([request(2, 3, 10), request(None, None, None, "connection", end=5)], (2, 10)),
        ([request(2, 3, 10), request(None, None, None, "not_started")], (2, 10)),
        ([request(2, 3, None, end=10), request(4, 5, 8)], (2, 10)),  # an old log has no last delta
        ([request(0, 1, 5, "stream_error")], (0, 5)),
        ([request(0, 1, 5), request(1, 2, None, "truncated", end=4)], (0, 5)),
        ([request(0, 1, 5), request(1, 2, None, "truncated", end=9)], None),
        ([request(0, 1, 5), request(1, 2, None, "truncated")], None),
        ([request(0, 1, 5), request(None, 2, 4, "truncated")], None),
        ([request(0, 1, 5), request(None, 2, 4)], None),
        ([request(0, 1, 5), request(1, 2)], None),
        ([request(0, None, None, "timeout", end=5)], None),  # no output at all
        ([], None),
    ],
)
def test_the_window_is_that_of_all_requests_sent(
    requests: list[dict[str, Any]], window: tuple[float, float] | None
) -> None:
    assert records.window(steady(requests)) == window


def test_what_failed_costs_energy_and_its_tokens_are_missed() -> None:
    lost = request(0, 1, 20, "stream_error", tokens=200)
    made = steady([lost, request(20, 21, 25)])
    row, _ = telemetry_rows.run_figures(made, ONE)
    assert row["energy_j_window"] == pytest.approx(2500.0)
    assert row["tokens_per_joule"] == pytest.approx(10 / 2500)
    assert row["smi_reasons"].split(";")[-2:] == FAILED.split(";")
    assert row["smi_validity"] == "valid" and row["smi_reasons_in_use"] == row["smi_reasons"]
    own, used, both = telemetry_rows.gpu_rows(made, ONE)
    assert "failed" not in str(own["reasons"]) and FAILED in used["reasons"]
    assert both["tokens_per_joule"] == row["tokens_per_joule"]


def test_what_failed_without_output_misses_no_token() -> None:
    row, _ = telemetry_rows.run_figures(
        steady([request(0, 1, 20), request(1, None, None, "http_error", end=2)]), ONE
    )
    assert row["tokens_per_joule"] is not None and "failed" not in str(row["smi_reasons"])


def test_a_request_that_got_no_connection_is_in_no_phase() -> None:
    never = request(None, None, None, "connection", end=3)
    found = telemetry_phases.split([request(0, 1, 5), never], (0.0, 5.0))
    assert found is not None and found.prefill == ((0, 1),)


# the accelerators in use --------------------------------------------------------------------------


def duo() -> records.Run:
    """ixsmi's table of a board with two dies: its draw stands on the second."""
    head = "|  IX-ML: 4.4.0  Driver Version: 4.4.0  CUDA Version: 10.2 |\n+---+---+---+\n"
    mute = "| N/A  37C  P0  N/A / N/A | 68MiB / 32768MiB | 0%  Default |\n+---+---+---+\n"
    dies = DIE.format(0, 35) + "\n" + mute
    dies += DIE.format(1, 38) + "\n" + mute.replace("N/A / N/A", "40W / 350W")
    return run([request(0, 3, 10)], dict.fromkeys(TIMES, head + dies), tool="ixsmi", fields=[])


@pytest.mark.parametrize(
    ("die", "energy_j", "reason"),
    [
        ("0", None, "telemetry_power_on_other_die:power_w"),
        ("1", 400.0, "telemetry_power_of_whole_board:power_w"),
    ],
)
def test_one_die_of_a_board_in_use_is_suspect(
    die: str, energy_j: float | None, reason: str
) -> None:
    row, _ = telemetry_rows.run_figures(duo(), Declared(world=1, visible=(die,)))
    assert row["energy_j_window_in_use"] == (None if energy_j is None else pytest.approx(energy_j))
    assert row["smi_validity_in_use"] == "suspect" and reason in row["smi_reasons_in_use"].split(
        ";"
    )
    assert row["smi_validity"] == "valid" and row["energy_j_window"] == pytest.approx(400.0)


def test_both_dies_of_a_board_in_use_are_beyond_doubt() -> None:
    row, _ = telemetry_rows.run_figures(duo(), Declared(world=2))
    assert (row["smi_validity"], row["smi_validity_in_use"]) == ("valid", "valid")
    assert row["energy_j_window_in_use"] == pytest.approx(400.0)


# rejections ---------------------------------------------------------------------------------------


def test_what_was_rejected_is_told_card_by_card() -> None:
    outs = {t: card(t, "65535" if t % 2 else "100") + card(t, gpu=1) for t in TIMES}
    made = run([request(0, 3, 20)], outs)
    row, _ = telemetry_rows.run_figures(made, Declared(world=2))
    count = sum(t % 2 for t in TIMES)
    assert row["smi_rejected"] == count and row["smi_rejected_why"] == f"power_w:{count}:sentinel"
    assert row["smi_validity"] == "suspect"
    assert row["smi_reasons"] == "telemetry_rejected:power_w"
    rows = list(telemetry_rows.gpu_rows(made, Declared(world=2)))
    assert [one["smi_rejected"] for one in rows] == [count, 0, count, count]
    assert [one["validity"] for one in rows] == ["suspect", "valid", "suspect", "suspect"]
    assert rows[1]["smi_rejected_why"] is None


def test_a_card_whose_every_value_was_rejected_did_report_it() -> None:
    made = run([request(0, 3, 20)], {t: card(t, "65535") for t in TIMES})
    row, _ = telemetry_rows.run_figures(made, ONE)
    assert row["energy_j_window"] is None and row["smi_validity"] == "suspect"
    assert row["smi_reasons"] == "telemetry_rejected:power_w"


def test_a_rejection_finds_its_card_whatever_names_it_bears() -> None:
    """By bus, by index, by nothing; two chips of one name take one each."""
    made = [telemetry.Reading(bus="a"), telemetry.Reading(gpu=1), telemetry.Reading()]
    made += [telemetry.Reading(bus="b", chip=n) for n in (0, 1)]
    samples = [telemetry.Sample(7, 0.0, reading) for reading in made]
    blank = {"uuid": None, "bus": None, "gpu": None, "metric": "power_w", "why": "x", "record": 7}
    items = [{**blank, "bus": "a"}, {**blank, "gpu": 1}, blank]
    items += [{**blank, "bus": "b"}, {**blank, "bus": "b"}, {**blank, "bus": "z"}]
    found = telemetry_rejected.by_accelerator(samples, items)
    assert {key: sum(counts.values()) for key, counts in found.items()} == {
        reading.key: 1 for reading in made
    }


# how it was sampled -------------------------------------------------------------------------------


def test_how_it_was_sampled_is_told() -> None:
    told = {"form": "csv", "loop": ["x"], "cost_s": [2.1, 2.0], "wanted_interval_s": 0.5}
    row, _ = telemetry_rows.run_figures(run([request(0, 1, 20)], {0: card(0)}, **told), ONE)
    assert {name: row[name] for name in row if name in COLUMNS} == {
        "smi_tool": "nvidia-smi", "smi_form": "csv", "smi_loop": "yes", "smi_interval_s": 1.0,
        "smi_wanted_interval_s": 0.5, "smi_cost_s": 2.0, "smi_problem": None,
    }  # fmt: skip
    old, _ = telemetry_rows.run_figures(run([request(0, 1, 20)], {0: card(0)}), ONE)
    assert {old[name] for name in ("smi_form", "smi_loop", "smi_cost_s", "smi_problem")} == {None}


COLUMNS = telemetry_sampler.columns(telemetry.Capture({}, [], [], [], []))


def test_why_there_is_no_sample_is_told() -> None:
    made = run([request(0, 1, 20)], {}, tool="none", tried=["ixsmi: not found", "x: no driver"])
    row, _ = telemetry_rows.run_figures(made, ONE)
    assert row["smi_problem"] == "ixsmi: not found; x: no driver"
    record_0 = {"m0": 1, "m1": 11, "rc": None, "out": "", "trouble": "no answer within 10 s"}
    head = {"schema": "decodelab.capture/1", "tool": "nvidia-smi"}
    capture = telemetry.capture_of(json.dumps(head) + "\n" + json.dumps(record_0), None)
    assert capture is not None
    assert telemetry_sampler.columns(capture)["smi_problem"] == (
        "record 0: no output (rc None): no answer within 10 s"
    )
