"""SMI readers: exact on a minimal sample of each kind, nothing invented from cut, mixed or broken text."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import telemetry, telemetry_window
from decodelab.telemetry import Reading, Sample

SCRIPT = Path(__file__).parents[2] / "scripts" / "read_smi.py"
RULE = "+-------------------------------+----------------------+----------------------+\n"


def table(*cards: tuple[str, str, str, str, str, str]) -> str:
    """ixsmi's default table; each card: index, bus, clocks, state, memory, util."""
    out = "Timestamp    Sun Jul 12 10:00:49 2026\n" + RULE.replace("+--", "+--", 1)
    out += (
        "|  IX-ML: 3.2.3       Driver Version: 3.2.1       CUDA Version: 10.2          |\n" + RULE
    )
    out += "| GPU  Name                     | Bus-Id               | Clock-SM  Clock-Mem  |\n"
    out += "| Fan  Temp  Perf  Pwr:Usage/Cap|      Memory-Usage    | GPU-Util  Compute M. |\n"
    out += "|===============================+======================+======================|\n"
    for index, bus, clocks, state, memory, util in cards:
        out += f"| {index:<4} Iluvatar BI-V100         | {bus:<20} | {clocks:<20} |\n"
        out += f"| {state:<29} | {memory:<20} | {util:<9} Default    |\n" + RULE
    out += "\n| Processes:                                                       GPU Memory |\n"
    return out + "|    0       4711      python3                                     29000      |\n"


CARD = (
    "0",
    "00000000:4B:00.0",
    "1500MHz   1200MHz",
    "0%   31C   P0    48W / 250W",
    "29697MiB / 32768MiB",
    "37%",
)
BLANK = (
    "1",
    "00000000:4C:00.0",
    "500MHz    1600MHz",
    "N/A  37C   P0    N/A / N/A",
    "68MiB / 32768MiB",
    "0%",
)
DEAD = (
    "5",
    "00000000:21:00.0",
    "25MHz     33MHz",
    "0%   0C    P0    65535W / 250",
    "513MiB / 32768MiB",
    "100%",
)
UUID = "GPU-2288a720-d353-57bb-9737-23898011931b"
LOOP = (
    "timestamp, index, power.draw [W], temperature.gpu, clocks.current.sm [MHz], utilization.gpu [%]\n"
    "2026/09/11 04:19:41.982, 0, 187.80 W, 33, 120 MHz, 0 %\n"
    "2026/09/11 04:19:41.986, 1, [N/A], 39, 120 MHz, 12 %\n"
)
XML = """<?xml version="1.0" ?>
<ixsmi_log>
 <timestamp>Tue Sep  1 19:38:42 2026</timestamp>
 <gpu id="00000000:26:00.0"><product_name>Iluvatar BI-V150S</product_name><serial>24</serial>
  <uuid>GPU-5fe225c8-c806-50f5-9132-90c020e40005</uuid><minor_number>0</minor_number>
  <memory_usage><total>32768 MiB</total><used>68 MiB</used></memory_usage>
  <utilization><gpu_util>7 %</gpu_util></utilization><temperature><gpu_temp>35 C</gpu_temp></temperature>
  <power_readings><gpu_power_draw>13 W</gpu_power_draw><current_gpu_power_limit>205 W</current_gpu_power_limit>
   <board_power_draw>53 W</board_power_draw></power_readings>
  <clocks><sm_clock>500 MHz</sm_clock><mem_clock>1600 MHz</mem_clock></clocks></gpu>
 <gpu id="00000000:29:00.0"><uuid>N/A</uuid><minor_number>1</minor_number>
  <power_readings><gpu_power_draw>N/A</gpu_power_draw><board_power_draw>53 W</board_power_draw></power_readings></gpu>
</ixsmi_log>
"""


def known(reading: Reading) -> dict[str, float]:
    return {name: value for name, value in reading.values.items() if value is not None}


def test_ixsmi_table() -> None:
    first, second = telemetry.read_text(table(CARD, BLANK)).readings
    assert known(first) == {
        "util_pct": 37, "mem_used_mib": 29697, "mem_total_mib": 32768, "power_w": 48, "power_cap_w": 250, "temp_c": 31,
        "sm_mhz": 1500, "mem_mhz": 1200,
    }  # fmt: skip
    assert (first.gpu, first.bus, first.stamp) == (
        0,
        "00000000:4B:00.0",
        "Sun Jul 12 10:00:49 2026",
    )
    assert second.values["power_w"] is None and second.values["power_cap_w"] is None
    assert second.values["util_pct"] == 0


def test_sentinels_are_rejected_counted_and_named() -> None:
    parsed = telemetry.read_text(table(DEAD))
    values = parsed.readings[0].values
    assert values["power_w"] is None and values["temp_c"] is None and values["util_pct"] is None
    assert {item["metric"] for item in parsed.rejected} == {"power_w", "temp_c", "util_pct"}
    assert values["power_cap_w"] is None  # its unit is cut off, so its digits may be too


@pytest.mark.parametrize(
    ("values", "rejected"),
    [
        ({"power_w": 376.0, "power_cap_w": 250.0}, {"power_w"}),
        ({"power_w": 374.0, "power_cap_w": 250.0}, set()),
        ({"mem_used_mib": 40000.0, "mem_total_mib": 32768.0}, {"mem_used_mib"}),
        ({"util_pct": 101.0}, {"util_pct"}),
        ({"temp_c": 0.0, "util_pct": 3.0}, set()),
        ({"power_w": 65535.0}, {"power_w"}),
    ],
)
def test_each_rule_of_rejection(values: dict[str, float], rejected: set[str]) -> None:
    reading = Reading()
    reading.values.update(values)
    assert {item["metric"] for item in telemetry.reject(reading)} == rejected
    assert all(reading.values[name] is None for name in rejected)


def test_csv_with_header_units_and_loop() -> None:
    parsed = telemetry.read_text(LOOP + LOOP, tool="nvidia-smi")  # the header comes again
    assert len(parsed.readings) == 4
    assert known(parsed.readings[0]) == {
        "power_w": 187.8,
        "temp_c": 33,
        "sm_mhz": 120,
        "util_pct": 0,
    }
    assert parsed.readings[1].values["power_w"] is None
    assert parsed.readings[1].stamp == "2026/09/11 04:19:41.986"


def test_csv_without_header_needs_the_field_names() -> None:
    text = f"{UUID}, Iluvatar MR-V100, 32768, 17586, 57, 0, 41\n"
    with pytest.raises(telemetry.UnreadableSmi, match="field names"):
        telemetry.read_text(text)
    argv = [
        "ixsmi",
        "--query-gpu=uuid,name,memory.total,memory.used,temperature.gpu,utilization.gpu,gpu.power.draw",
    ]
    parsed = telemetry.read_text(text, argv=[*argv, "--format=csv,noheader,nounits"])
    assert parsed.tool == "ixsmi" and parsed.readings[0].uuid == UUID
    assert known(parsed.readings[0]) == {
        "mem_total_mib": 32768, "mem_used_mib": 17586, "temp_c": 57, "util_pct": 0, "power_w": 41,
    }  # fmt: skip


@pytest.mark.parametrize(
    "token",
    [
        "[N/A]",
        "N/A",
        "[Unknown Error]",
        "[GPU is lost]",
        "[Insufficient Permissions]",
        "ERR!",
        "NA",
        "-",
        "",
        "[Unkn",
    ],
)
def test_every_word_for_unknown_is_null(token: str) -> None:
    text = f"index, utilization.gpu [%], power.draw [W]\n0, {token}, 5.0 W\n"
    assert known(telemetry.read_text(text).readings[0]) == {"power_w": 5.0}


def test_lost_card_message_and_row_without_identity_are_no_samples() -> None:
    text = LOOP + "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n"
    text += "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n"
    parsed = telemetry.read_text(text)
    assert len(parsed.readings) == 2 and len(parsed.messages) == 2


def test_unit_of_another_thing_is_null() -> None:
    assert (
        telemetry.read_text("index, power.draw [W]\n0, 5 MiB\n").readings[0].values["power_w"]
        is None
    )
    assert (
        telemetry.read_text("index, memory.used\n0, 2 GiB\n").readings[0].values["mem_used_mib"]
        == 2048
    )


def test_xml_takes_the_dies_own_power_never_the_boards() -> None:
    parsed = telemetry.read_text(XML)
    assert parsed.tool == "ixsmi" and len(parsed.readings) == 2
    assert (
        parsed.readings[0].values["power_w"] == 13
        and parsed.readings[0].values["power_cap_w"] == 205
    )
    assert parsed.readings[1].values["power_w"] is None and parsed.readings[1].uuid is None
    assert parsed.readings[1].key == "00000000:29:00.0"


def test_lists_and_monitor_lines() -> None:
    listed = telemetry.read_text(
        f"GPU 0: Iluvatar MR50 (UUID: {UUID})\nGPU 5: Iluvatar MR50 (UUID: GPU-?????)\n"
    )
    assert [(r.gpu, r.uuid) for r in listed.readings] == [(0, UUID), (5, None)]
    lines = telemetry.read_text("2023-03-24-10:13:48\n26C 50W 513MiB 32768MiB 0%\n", tool="ixsmi")
    assert known(lines.readings[0])["power_w"] == 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ixsmi: command not found\n",
        'Field "x" is not a valid field to query.\n',
        "No devices were found\n",
        "[N/A]\n",
        "a,b\n1,2\n",
        "\x00\x01",
    ],
)
def test_unreadable_text_says_what_was_looked_for(text: str, tmp_path: Path) -> None:
    with pytest.raises(telemetry.UnreadableSmi, match="looked for"):
        telemetry.read_text(text)
    path = tmp_path / "x.txt"
    path.write_text(text)


def test_asking_for_the_other_tool_is_refused() -> None:
    with pytest.raises(telemetry.UnreadableSmi, match="output of ixsmi"):
        telemetry.read_text(table(CARD), tool="nvidia-smi")


def numbers_in(text: str) -> set[float]:
    import re

    return {float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)}


@pytest.mark.parametrize(
    "text", [table(CARD, BLANK), LOOP, XML, table(DEAD)], ids=["table", "csv", "xml", "dead"]
)
def test_truncation_at_every_byte_invents_nothing(text: str) -> None:
    """A prefix may give fewer values, never another one: each reading agrees with the whole text's."""
    whole = {r.key: known(r) for r in telemetry.read_text(text).readings}
    for end in range(len(text)):
        try:
            parsed = telemetry.read_text(
                text[:end], tool="ixsmi" if "IX-ML" in text or "ixsmi" in text else None
            )
        except telemetry.UnreadableSmi:
            continue
        for reading in parsed.readings:
            for name, value in known(reading).items():
                assert whole[reading.key].get(name) == value, (end, name, value)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([table(CARD, BLANK, DEAD), LOOP, XML]), st.data())
def test_dropped_and_interleaved_lines_never_crash(text: str, data: st.DataObject) -> None:
    lines = text.split("\n")
    keep = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    noise = data.draw(st.lists(st.text(max_size=20), max_size=3))
    mixed = [line for line, kept in zip(lines, keep, strict=True) if kept]
    for word in noise:
        mixed.insert(data.draw(st.integers(0, len(mixed))), word)
    broken = "\n".join(mixed)
    try:
        parsed = telemetry.read_text(broken)
    except telemetry.UnreadableSmi:
        return
    for reading in parsed.readings:
        assert set(known(reading).values()) <= numbers_in(broken)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for tool in (None, *telemetry.TOOLS):
        with contextlib.suppress(telemetry.UnreadableSmi):
            telemetry.read_text(text, tool)


HEADER = {
    "schema": "decodelab.capture/1",
    "source": "measured",
    "provenance": None,
    "tool": "ixsmi",
    "argv": ["ixsmi"],
    "interval_s": 1.0,
    "clock": {"monotonic_s": 5.0, "wall": 0},
}


def call(m0: float, text: str) -> dict[str, object]:
    return {"m0": m0, "m1": m0 + 0.2, "w0": 0, "rc": 0, "out": text, "err": ""}


def test_capture_as_sampled_and_as_published_read_alike(tmp_path: Path) -> None:
    calls = [call(10.0, table(CARD)), call(11.0, ""), call(12.0, table(CARD, BLANK))]
    (tmp_path / "capture.jsonl").write_text(
        "\n".join(json.dumps(x) for x in [HEADER, *calls]) + '\n{"m0": 13.'
    )
    (tmp_path / "ixsmi_x.json").write_text(json.dumps({**HEADER, "records": calls}))
    sampled, published = (
        telemetry.read_capture(tmp_path / n) for n in ("capture.jsonl", "ixsmi_x.json")
    )
    assert [s.t for s in sampled.samples] == [s.t for s in published.samples] == [10.1, 12.1, 12.1]
    assert len(sampled.records) == 3 and sampled.monotonic
    assert any("cut" in m for m in sampled.messages) and any(
        "no output" in m for m in sampled.messages
    )


def test_not_a_capture_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(telemetry.UnreadableSmi, match=r"x\.json"):
        telemetry.read_capture(tmp_path / "x.json")


def sample(t: float | None, gpu: int = 0, **values: float) -> Sample:
    reading = Reading(gpu=gpu)
    reading.values.update(values)
    return Sample(0, t, reading)


def test_window_interpolates_its_edges_and_weighs_by_time() -> None:
    ramp = [sample(float(t), power_w=10.0 * t) for t in (0, 1, 4, 5)]
    found = telemetry_window.figures(ramp, 4, (0.5, 4.5), 5.0).values
    assert found["power_w_mean_window"] == pytest.approx(25.0)  # a straight line: its middle
    assert found["energy_j_window"] == pytest.approx(100.0)
    assert found["power_w_max_window"] == 40.0  # of the samples: nothing that no tool printed
    assert found["power_w_mean_all"] == pytest.approx(25.0) and found["power_w_max_all"] == 50.0


def test_energy_is_a_sum_and_utilisation_a_mean_over_accelerators() -> None:
    both = [
        sample(float(t), gpu, power_w=50.0, util_pct=20.0 + 40 * gpu)
        for t in (0, 10)
        for gpu in (0, 1)
    ]
    found = telemetry_window.figures(both, 2, (0.0, 10.0), 10.0).values
    assert found["energy_j_window"] == pytest.approx(1000.0) and found["gpus"] == 2
    assert found["util_pct_mean_window"] == pytest.approx(40.0)


def test_a_window_that_is_not_covered_gives_nothing_and_says_so() -> None:
    few = [sample(1.0, power_w=50.0), sample(2.0, power_w=50.0)]
    found = telemetry_window.figures(few, 2, (0.0, 2.0), 1.0)
    assert found.values["power_w_mean_window"] is None and found.values["energy_j_window"] is None
    assert found.values["power_w_mean_all"] == 50.0
    assert "telemetry_does_not_cover" in found.reasons


def test_no_clock_relation_no_window() -> None:
    found = telemetry_window.figures([sample(1.0, util_pct=5.0)], 1, None, 1.0)
    assert found.values["util_pct_mean_window"] is None and found.values["util_pct_mean_all"] == 5.0
    assert found.reasons == ()


def test_a_hole_is_measured_by_the_interval_that_the_sampler_promised() -> None:
    holed = [sample(float(t), power_w=1.0) for t in (0, 1, 2, 8, 9)]
    assert telemetry_window.figures(holed, 5, (0.5, 8.5), 1.0).reasons == ("telemetry_gap",)
    slow = [sample(float(t), power_w=1.0) for t in range(0, 20, 4)]
    assert telemetry_window.figures(slow, 5, (0.5, 15.5), 4.0).reasons == ()
    assert telemetry_window.figures(slow, 5, (0.5, 15.5), 1.0).reasons == ("telemetry_gap",)
    assert telemetry_window.figures(slow, 5, (0.5, 15.5), None).reasons == ()  # none is told


def test_missing_is_not_zero_in_any_mean() -> None:
    mixed = [sample(0.0, util_pct=50.0), sample(1.0), sample(2.0, util_pct=50.0)]
    found = telemetry_window.figures(mixed, 3, (0.0, 2.0), 1.0).values
    assert found["util_pct_mean_all"] == 50.0 and found["util_pct_mean_window"] == 50.0
    assert found["power_w_mean_all"] is None


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(table(CARD))
    done = subprocess.run(
        [sys.executable, SCRIPT, "--tool", "ixsmi", path],
        capture_output=True,
        text=True,
        timeout=30,
    )
    found = json.loads(done.stdout)
    assert (
        found["tool"] == "ixsmi"
        and found["samples"][0]["util_pct"] == 37
        and found["samples"][0]["gpu"] == 0
    )
    assert found["rejected"] == []
    path.write_text("ixsmi: command not found\n")
    failed = subprocess.run(
        [sys.executable, SCRIPT, path], capture_output=True, text=True, timeout=30
    )
    assert failed.returncode == 1 and "looked for" in failed.stderr
