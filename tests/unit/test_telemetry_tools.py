"""Each SMI tool's reader against its samples (tests/golden/smi): every field, and what broken text does to it."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from decodelab import telemetry
from decodelab.telemetry import METRICS, TOOLS, Parsed, Reading, UnreadableSmi

GOLDEN = Path(__file__).parents[1] / "golden" / "smi"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((GOLDEN / "expected.yaml").read_text())
IDENTITY = ("gpu", "chip", "uuid", "bus", "serial", "name", "stamp", "processes")
FOREIGN = sorted((GOLDEN / "foreign").iterdir())
TEXTS = {name: (GOLDEN / name).read_text(encoding="utf-8") for name in EXPECTED}


def read(name: str, text: str, tool: str | None = None) -> Parsed:
    return telemetry.read_text(text, tool, fields=EXPECTED[name].get("fields", ()))


def folder(name: str) -> str:
    return name.split("/")[0]


def shown(reading: Reading) -> dict[str, Any]:
    return {**{f: getattr(reading, f) for f in IDENTITY}, **reading.values}


def right(name: str) -> tuple[int, int]:
    """Fields right, and fields there are: each metric and identity of each reading, null or not."""
    found = [shown(r) for r in read(name, TEXTS[name]).readings]
    wanted = EXPECTED[name]["readings"]
    fields = [*IDENTITY, *METRICS]
    pairs = [
        (got.get(f), want.get(f)) for got, want in zip(found, wanted, strict=False) for f in fields
    ]
    longest = max(len(found), len(wanted)) * len(fields)
    return sum(got == want for got, want in pairs), longest


def test_every_field_of_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {name: right(name) for name in EXPECTED}
    with capsys.disabled():
        print(f"\n{'tool':<12} {'samples':>7} {'fields right':>13}")
        for tool in TOOLS:
            own = [row for name, row in rows.items() if folder(name) == tool]
            print(
                f"{tool:<12} {len(own):>7} {sum(r for r, _ in own):>6} of {sum(n for _, n in own)}"
            )
    assert {name for name, (good, there) in rows.items() if good < there} == set()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_is_told_and_its_oddities_are_named(name: str) -> None:
    expected, parsed = EXPECTED[name], read(name, TEXTS[name])
    assert parsed.tool == expected.get("tool", folder(name))
    rejected = [(r["gpu"], r["metric"], r["value"]) for r in parsed.rejected]
    assert sorted(rejected) == sorted(tuple(r) for r in expected.get("rejected", []))
    for words in expected.get("said", []):
        assert any(words in message for message in parsed.messages), (words, parsed.messages)


def test_all_samples_are_expected_and_each_tool_has_some() -> None:
    there = {str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("*.*") if p.parent.name in TOOLS}
    assert there == set(EXPECTED)
    assert {folder(name) for name in EXPECTED} == set(TOOLS)


@pytest.mark.parametrize("name", EXPECTED)
def test_dos_line_ends_change_nothing(name: str) -> None:
    plain, dos = read(name, TEXTS[name]), read(name, TEXTS[name].replace("\n", "\r\n"))
    assert [shown(r) for r in plain.readings] == [shown(r) for r in dos.readings]


@pytest.mark.parametrize("name", EXPECTED)
def test_another_tools_output_is_refused_by_name(name: str) -> None:
    told = telemetry.detect(TEXTS[name])
    for tool in TOOLS:
        if told not in (None, tool):
            with pytest.raises(
                UnreadableSmi, match=f"looked for the output of {tool}, but .*{told}"
            ):
                read(name, TEXTS[name], tool)


@pytest.mark.parametrize("path", FOREIGN, ids=lambda p: p.name)
@pytest.mark.parametrize("tool", [None, *TOOLS])
def test_a_tool_that_is_not_read_is_refused_by_name(path: Path, tool: str | None) -> None:
    text, vendor = path.read_text(encoding="utf-8"), path.name.split("_")[0].split(".")[0]
    with pytest.raises(UnreadableSmi, match=f"(?i){vendor}.*looked for"):
        telemetry.read_text(text, tool, argv=["mx-smi"])


# Broken text. What a reading says must be a number of the text, in the metric's own place.
SCALES = (1.0, 1.0 / (1 << 20), 1024.0, 1 / 1024, 0.001)


def numbers_in(text: str) -> set[float]:
    return {float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)}


def invented(parsed: Parsed, text: str) -> list[tuple[str, float]]:
    there = {n * scale for n in numbers_in(text) for scale in SCALES}
    said = [(m, v) for r in parsed.readings for m, v in r.values.items() if v is not None]
    said += [(r["metric"], r["value"]) for r in parsed.rejected]
    return [(metric, value) for metric, value in said if value not in there]


def facts(parsed: Parsed) -> Counter[tuple[Any, ...]]:
    """Card, time, metric and value, with what was rejected."""
    kept = [(r.key, r.stamp, m, v) for r in parsed.readings for m, v in r.values.items()]
    kept += [(r.key, r.stamp, "processes", r.processes) for r in parsed.readings]
    return Counter(fact for fact in kept if fact[-1] is not None)


@pytest.mark.parametrize("name", EXPECTED)
def test_truncated_at_every_byte_says_less_and_never_otherwise(name: str) -> None:
    text = TEXTS[name]
    tool = telemetry.detect(text) or folder(name)
    # which value is rejected depends on the others of its card, so compare before rejection
    whole = Counter(facts(raw(name, text, tool)))
    for end in range(len(text)):
        try:
            part = facts(raw(name, text[:end], tool))
        except UnreadableSmi:
            continue
        extra = {fact for fact in part - whole if fact[1] is not None} | {
            fact for fact in part if not any(same(fact, other) for other in whole)
        }
        assert not extra, (end, extra, text[:end][-80:])


def same(fact: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return fact[0] == other[0] and fact[2:] == other[2:]


def raw(name: str, text: str, tool: str) -> Parsed:
    return telemetry.READERS[tool].read(text, EXPECTED[name].get("fields", ()))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(EXPECTED)), st.data())
def test_dropped_lines_invent_nothing(name: str, data: st.DataObject) -> None:
    lines = TEXTS[name].split("\n")
    gone = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=6))
    text = "\n".join(line for at, line in enumerate(lines) if at not in gone)
    with contextlib.suppress(UnreadableSmi):
        assert invented(read(name, text), text) == []


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(EXPECTED)), st.sampled_from(sorted(EXPECTED)), st.data())
def test_interleaved_captures_invent_nothing(name: str, other: str, data: st.DataObject) -> None:
    left, right_ = TEXTS[name].split("\n"), TEXTS[other].split("\n")
    mixed = []
    while left or right_:
        source = left if left and (not right_ or data.draw(st.booleans())) else right_
        mixed.append(source.pop(0))
    text = "\n".join(mixed)
    for tool in (None, *TOOLS):
        with contextlib.suppress(UnreadableSmi):
            assert invented(read(name, text, tool), text) == []


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(EXPECTED)), st.data())
def test_changed_characters_crash_nothing(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :]
    for tool in (None, *TOOLS):
        with contextlib.suppress(UnreadableSmi):
            read(name, text, tool)


@pytest.mark.parametrize(
    "text",
    [
        "index, power.draw [W]\n" + "9" * 5000 + ", " + "9" * 5000 + " W\n",
        "GPU " + "9" * 5000 + ": Iluvatar (UUID: GPU-1)\n",
        "[" * 100_000 + '"gpu"',
        '{"card0": ' * 50_000,
        '[{"gpu": ' + "9" * 5000 + ', "usage": {"gfx_activity": 1e999}}]\n',
        "NpuID(Idx) Temp(C)\n" + "9" * 5000 + " 1\n",
        "timestamp, index\n" + "x" * 200_000 + ", 1\n",
    ],
    ids=["csv", "list", "deep", "deep card", "json", "watch", "long cell"],
)
def test_monstrous_text_is_read_or_refused(text: str) -> None:
    for tool in (None, *TOOLS):
        with contextlib.suppress(UnreadableSmi):
            assert invented(telemetry.read_text(text, tool), text) == []


def test_a_field_that_comes_twice_in_one_card_is_of_two_and_not_known() -> None:
    xml = TEXTS["nvidia-smi/log_v13.xml"].replace(
        "<gpu_util>65 %", "<gpu_util>3 %</gpu_util><gpu_util>65 %"
    )
    assert read("nvidia-smi/log_v13.xml", xml).readings[0].values["util_pct"] is None
    document = '{"card0": {"GPU use (%)": "3", "GPU use (%)": "65", "Voltage (mV)": "662"}}\n'
    assert telemetry.read_text(document).readings[0].values["util_pct"] is None


def test_rows_of_two_cards_in_one_place_give_neither() -> None:
    lines = TEXTS["ixsmi/table_with_processes.txt"].split("\n")
    rows = {number: [at, at + 1] for number in "01" for at in [first_row(lines, number)]}
    order = [rows["0"][0], rows["1"][0], rows["0"][1], rows["1"][1]]
    with pytest.raises(UnreadableSmi, match="two rows of a card"):
        telemetry.read_text("\n".join([lines[2], *(lines[at] for at in order), ""]))


def first_row(lines: list[str], number: str) -> int:
    return next(at for at, line in enumerate(lines) if line.startswith(f"| {number}    Iluvatar"))


def test_chips_whose_lines_ran_together_are_left_out() -> None:
    text = TEXTS["npu-smi/common_two_chips.txt"].replace("45\n\n", "45\n")  # no line between them
    parsed = read("npu-smi/common_two_chips.txt", text)
    assert [r.chip for r in parsed.readings] == [None] and any(
        "two chips" in m for m in parsed.messages
    )


def test_the_board_s_power_is_told_once_and_only_where_no_die_tells_its_own() -> None:
    draws = [r.values["power_w"] for r in read_sample("ixsmi/log_board_power_only.xml").readings]
    assert draws == [53, None, 41]
    own = [r.values["power_w"] for r in read_sample("ixsmi/log_two_dies.xml").readings]
    assert own == [13, 14]


def read_sample(name: str) -> Parsed:
    return read(name, TEXTS[name])


def test_a_card_keeps_its_key_when_another_is_lost_and_the_indices_shift() -> None:
    text = TEXTS["ixsmi/table_with_processes.txt"]
    lines = text.split("\n")
    at = first_row(lines, "0")
    shifted = "\n".join([*lines[:at], *lines[at + 3 :]]).replace("| 1    Iluv", "| 0    Iluv")
    before, after = telemetry.read_text(text).readings[1], telemetry.read_text(shifted).readings[0]
    assert (before.gpu, after.gpu) == (1, 0) and before.key == after.key


def test_chips_that_share_a_bus_id_are_two_accelerators() -> None:
    keys = [r.key for r in read_sample("npu-smi/info_310p_duo.txt").readings]
    assert keys == ["0000:0C:00.0/0", "0000:0C:00.0/1"]


@pytest.mark.parametrize("fields", [("index", "power.draw"), ("uuid", "power.draw")])
def test_a_message_with_as_many_commas_as_a_row_is_a_message(fields: tuple[str, str]) -> None:
    said = "WARNING: infoROM is corrupted, 25"
    text = f"{', '.join(fields)} [W]\n{said}\n"
    assert (parsed := telemetry.read_text(text, "nvidia-smi")).readings == []
    assert parsed.messages == [said]
    bare = telemetry.read_text(
        f"50, 25\n{said}\n", "nvidia-smi", fields=["utilization.gpu", "power.draw"]
    )
    assert len(bare.readings) == 1 and bare.messages == [said]


@pytest.mark.parametrize(("header", "row"), [("DCU", "HCU"), ("HCU", "DCU")])
def test_a_row_of_another_table_is_not_read_by_this_one_s_header(header: str, row: str) -> None:
    tables = {
        "DCU": (
            "DCU Temp AvgPwr Perf PwrCap VRAM% DCU% Mode",
            "0 53.0C 96.0W auto 300.0W 0% 0% Normal",
        ),
        "HCU": (
            "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Dec% Enc% Mode",
            "1 46.0C 51.0W auto 400.0W 0% 0.0% 0.0% 0.0% Normal",
        ),
    }
    own, (_, other) = tables[header], tables[row]
    text = f"===== System Management Interface =====\n{own[0]}\n{own[1]}\n{other}\n"
    parsed = telemetry.read_text(text)
    assert [r.values["power_w"] for r in parsed.readings] == [96.0 if header == "DCU" else 51.0]
    assert other in parsed.messages


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("nvidia-smi/table_mig.txt", "python", "/root/Iluvatar-port/venv/bin/python"),
        (
            "npu-smi/info_310p_duo.txt",
            "No running processes found in NPU 2944 ",
            "| 2944 0 | 1 | NVIDIA-MX-SMI | 5 ",
        ),
        (
            "nvidia-smi/log_v12.xml",
            "<pid>4711</pid>",
            "<pid>4711</pid><process_name>/opt/MX-SMI/Iluvatar/python</process_name>",
        ),
    ],
)
def test_a_vendor_s_name_in_a_process_path_changes_nothing(name: str, old: str, new: str) -> None:
    assert old in TEXTS[name]
    text, tool = TEXTS[name].replace(old, new), folder(name)
    for asked in (None, tool):
        parsed = read(name, text, asked)
        assert parsed.tool == tool
        assert [r.values for r in parsed.readings] == [r.values for r in read_sample(name).readings]


@pytest.mark.parametrize("text", ["0.0 W", "0"])
def test_a_draw_or_cap_of_nothing_is_not_known(text: str) -> None:
    parsed = telemetry.read_text(
        f"index, power.draw, power.limit, utilization.gpu\n0, {text}, {text}, 0\n"
    )
    values = parsed.readings[0].values
    assert (values["power_w"], values["power_cap_w"], values["util_pct"]) == (None, None, 0)


@pytest.mark.parametrize(
    ("values", "rejected"),
    [
        ({"power_w": 54000.0}, ["power_w"]),  # mW without a unit, and no cap to compare
        ({"temp_c": 32768.0}, ["temp_c"]),  # another column's number
        ({"power_w": 2700.0, "temp_c": 105.0, "mem_mhz": 14001.0}, []),
    ],
)
def test_what_no_device_can_have_is_rejected(values: dict[str, float], rejected: list[str]) -> None:
    reading = Reading()
    reading.values.update(values)
    assert [item["metric"] for item in telemetry.reject(reading)] == rejected
