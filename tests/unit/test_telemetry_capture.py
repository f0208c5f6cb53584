"""What only all records of a capture tell together: who is who, which field is read, whose draw it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from decodelab import telemetry, telemetry_gpus, telemetry_window
from decodelab.telemetry import Capture
from decodelab.telemetry_gpus import Declared
from decodelab.telemetry_window import WindowFigures

GOLDEN = Path(__file__).parents[1] / "golden" / "smi"
LOG = (GOLDEN / "ixsmi/log_two_dies.xml").read_text()
U0 = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
U1 = "GPU-bbbbbbbb-1111-1111-1111-111111111111"
FIELDS = [
    "index",
    "uuid",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "power.limit",
]
TICKS = range(12)


def capture(text: Callable[[int], str], fields: Sequence[str] = FIELDS, **head: Any) -> Capture:
    """Twelve calls from 0 s to 11 s, whose text is a function of the second."""
    header = {"schema": "decodelab.capture/1", "tool": "nvidia-smi", "fields": fields}
    clock = {"monotonic_s": 0.0, "wall": 0.0}
    calls = [{"m0": t, "m1": t, "rc": 0, "out": text(t), "err": ""} for t in TICKS]
    document = {**header, "interval_s": 1.0, "clock": clock, "records": calls, **head}
    found = telemetry.capture_of(json.dumps(document), None)
    assert found is not None
    return found


def figures(found: Capture) -> WindowFigures:
    return telemetry_window.figures(found.samples, len(found.records), (0.5, 10.5), 1.0)


def energy(found: Capture) -> Any:
    return figures(found).values["energy_j_window"]


def keys(found: Capture) -> list[str]:
    return list(dict.fromkeys(sample.reading.key for sample in found.samples))


def doubts(found: Capture) -> set[str]:
    return {doubt.code for doubt in figures(found).doubts}


def watts(found: Capture, key: str) -> list[float | None]:
    return [s.reading.values["power_w"] for s in found.samples if s.reading.key == key]


def row(index: int, uuid: str, power: float | str = 100) -> str:
    return f"{index}, {uuid}, 50, 10, 100, {power}, 200\n"


# who is who ---------------------------------------------------------------------------------------


def test_rows_without_any_identity_are_told_by_their_place() -> None:
    text = "50, 100, 400\n60, 150, 400\n70, 200, 400\n80, 250, 400\n"
    found = capture(lambda t: text, ["utilization.gpu", "power.draw", "power.limit"])
    assert keys(found) == ["row 0", "row 1", "row 2", "row 3"]
    assert energy(found) == pytest.approx(7000.0) and "telemetry_unsure_card" not in doubts(found)


def test_a_row_that_is_not_known_keeps_its_place() -> None:
    def text(t: int) -> str:
        first = "[Unknown Error], [Unknown Error]\n" if t == 5 else "50, 100\n"
        return first + "60, 200\n"

    found = capture(text, ["utilization.gpu", "power.draw"])
    assert watts(found, "row 0") == [100] * 11 and watts(found, "row 1") == [200] * 12


def test_a_uuid_of_any_form_is_one() -> None:
    found = capture(lambda t: "GPU-abc, 100, 400\nGPU-def, 200, 400\n", ["uuid", *FIELDS[5:]])
    assert keys(found) == ["GPU-abc", "GPU-def"] and energy(found) == pytest.approx(3000.0)


def test_a_uuid_that_two_cards_of_one_call_have_tells_neither() -> None:
    found = capture(lambda t: row(0, "xxxx", 100) + row(1, "xxxx", 200))
    assert keys(found) == ["0", "1"] and energy(found) == pytest.approx(3000.0)


def test_the_case_of_a_uuid_makes_no_other_card() -> None:
    found = capture(lambda t: row(0, U0 if t < 6 else U0.upper()))
    assert keys(found) == [U0] and energy(found) == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("lost", "samples"),
    [
        ("0, [Unknown Error], 50, 10, 100, 100, 200\n", 12),
        ("0, " + ", ".join(["[GPU is lost]"] * 6) + "\n", 11),  # an index alone is a message
    ],
)
def test_an_index_stands_for_the_uuid_it_has_in_the_other_calls(lost: str, samples: int) -> None:
    found = capture(lambda t: (lost if t == 5 else row(0, U0)) + row(1, U1))
    assert keys(found) == [U0, U1] and len(watts(found, U0)) == samples
    assert energy(found) == pytest.approx(2000.0) and "telemetry_unsure_card" not in doubts(found)
    assert telemetry_gpus.too_few(
        telemetry_window.by_accelerator(found.samples), Declared(expected=3)
    )


def test_an_index_that_was_of_two_cards_stands_for_neither() -> None:
    """Card 0 is lost, so that card 1 has its index; then nobody knows whose a bare 0 is."""

    def text(t: int) -> str:
        if t < 4:
            return row(0, U0) + row(1, U1)
        return row(0, "[N/A]" if t == 8 else U1)

    found = capture(text)
    assert keys(found) == [U0, U1, "?"] and watts(found, "?") == [100]
    assert "telemetry_unsure_card" in doubts(found) and figures(found).values["gpus"] == 2


@pytest.mark.parametrize("printed", [True, False])
def test_where_cards_are_only_counted_a_lost_one_ends_all_curves(printed: bool) -> None:
    def text(t: int) -> str:
        cards = [100, 200, 300] if t < 6 else [200, 300]
        return "".join(f"{i}, 50, {w}\n" if printed else f"50, {w}\n" for i, w in enumerate(cards))

    fields = ["index", "utilization.gpu", "power.draw"]
    found = capture(text, fields if printed else fields[1:])
    first = "0" if printed else "row 0"
    assert watts(found, first) == [100] * 6 and watts(found, "?") == [200, 300] * 6
    assert energy(found) is None and "telemetry_unsure_card" in doubts(found)
    gap = capture(lambda t: "0, 50, 100\n" + ("" if t == 5 else "1, 50, 200\n"), fields)
    assert watts(gap, "?") == [100] and watts(gap, "1") == [200] * 11
    shown = capture(lambda t: ("" if t == 5 else "0, 50, 100\n") + "1, 50, 200\n", fields)
    assert keys(shown) == ["0", "1"]  # the gap in the indices shows who it is


def test_two_ticks_in_one_call_are_of_the_same_cards() -> None:
    found = capture(lambda t: "0, 50\n1, 60\n" * (1 + (t == 5)), ["index", "power.draw"])
    assert keys(found) == ["0", "1"] and len(watts(found, "1")) == 13


def test_a_monitor_s_lines_are_counted_too() -> None:
    def text(t: int) -> str:
        cards = [50, 100, 200] if t < 6 else [100, 200]
        lines = "".join(f"26C {w}W 513MiB 32768MiB 0%\n" for w in cards)
        return f"2023-03-24-10:13:{t:02}\n" + lines

    found = capture(text, [], tool="ixsmi")
    assert watts(found, "0") == [50] * 6 and energy(found) is None


def log(*cards: tuple[str, int]) -> str:
    """nvidia-smi's XML with UUID and minor number of each card."""
    element = '<gpu id="0000000{}:01:00.0"><uuid>{}</uuid><minor_number>{}</minor_number></gpu>\n'
    body = "".join(element.format(at, *card) for at, card in enumerate(cards))
    return f"<nvidia_smi_log>\n{body}</nvidia_smi_log>\n"


@pytest.mark.parametrize("cards", [((U0, 1), (U1, 0)), ((U0, 3),)])
def test_the_index_in_an_xml_log_is_the_card_s_place(cards: tuple[tuple[str, int], ...]) -> None:
    found = capture(lambda t: log(*cards), [])
    used = telemetry_gpus.in_use(
        telemetry_window.by_accelerator(found.samples), Declared(world=1, visible=("0",))
    )
    assert used is not None and used.keys == (U0,)


def test_a_broken_element_has_its_place_and_a_further_log_counts_anew() -> None:
    broken = log((U0, 0), (U1, 1)).replace(f"<uuid>{U0}</uuid>", "<uuid>")
    parsed = telemetry.read_text(broken + log((U0, 0), (U1, 1)))
    assert [(r.gpu, r.uuid) for r in parsed.readings] == [(1, U1), (0, U0), (1, U1)]


# one field a metric -------------------------------------------------------------------------------


def test_a_draw_is_of_one_field_over_the_whole_capture() -> None:
    def text(t: int) -> str:
        return f"0, {'[N/A]' if t == 5 else 100}, 180\n1, {100 if t == 5 else '[N/A]'}, 180\n"

    found = capture(text, ["index", "power.draw", "power.draw.instant"])
    assert watts(found, "0") == [100] * 5 + [None] + [100] * 6
    assert watts(found, "1") == [180] * 12  # what is told once in twelve calls is no curve


def test_a_call_without_the_die_s_draw_does_not_take_the_board_s() -> None:
    mute = LOG.replace("<gpu_power_draw>13 W", "<gpu_power_draw>N/A")
    mute = mute.replace("<gpu_power_draw>14 W", "<gpu_power_draw>N/A")
    found = capture(lambda t: mute if t == 5 else LOG, [], tool="ixsmi")
    assert {w for key in keys(found) for w in watts(found, key)} == {13, 14, None}
    assert energy(found) == pytest.approx(270.0)


def test_a_die_that_is_mute_in_xml_is_no_silent_die_of_a_board() -> None:
    at = LOG.rindex("<gpu id")
    second = LOG[at:].replace("14 W", "N/A").replace("205 W", "N/A")
    found = capture(lambda t: LOG[:at] + second, [], tool="ixsmi")
    assert energy(found) is None and "telemetry_board_power" not in doubts(found)


def test_the_board_s_draw_in_xml_is_one_die_s_over_the_whole_capture() -> None:
    text = (GOLDEN / "ixsmi/log_board_power_only.xml").read_text()
    found = capture(lambda t: text, [], tool="ixsmi")
    assert [watts(found, key) for key in keys(found)] == [[53] * 12, [None] * 12, [41] * 12]
    assert energy(found) == pytest.approx(940.0)
    assert sum("dies on board 24A" in message for message in found.messages) == 1


# boards -------------------------------------------------------------------------------------------

DIES = [
    "index",
    "uuid",
    "name",
    "serial",
    "utilization.gpu",
    "gpu.power.draw",
    "gpu.current.power.limit",
]


def test_csv_that_prints_a_board_s_draw_on_both_dies() -> None:
    text = "".join(
        f"{i}, {u}, Iluvatar BI-V150, SER1, 50, 103, 350\n" for i, u in ((0, U0), (1, U1))
    )
    found = capture(lambda t: text, DIES, tool="ixsmi")
    assert energy(found) == pytest.approx(1030.0) and "telemetry_board_power" in doubts(found)


@pytest.mark.parametrize("second", [("N/A (Secondary die)", "0.0"), ("0.0", "0.0")])
def test_the_second_die_of_an_mi250(second: tuple[str, str]) -> None:
    card = '"card{}": {{"Unique ID": "0x{:016x}", "Serial Number": "692242000123", '
    card += '"Average Graphics Package Power (W)": "{}", "Max Graphics Package Power (W)": "{}"}}'
    cards = [card.format(0, 1, "90.0", "560.0"), card.format(1, 2, *second)]
    found = capture(lambda t: "{" + ", ".join(cards) + "}\n", [], tool="rocm-smi")
    assert energy(found) == pytest.approx(900.0)
    assert figures(found).values["cap_share_window"] == pytest.approx(90 / 560)
    assert found.rejected == []


def npu(*draws: str) -> str:
    """npu-smi's table of one card with several chips."""
    chips = [
        f"| 6     Ascend910 | OK | {draw}  40   0    / 0 |\n"
        f"| {n}     {n} | 0000:{0x9D + n:02X}:00.0 | 10  0    / 0   3000 / 65536 |\n+---+\n"
        for n, draw in enumerate(draws)
    ]
    return "| npu-smi 25.5.1    Version: 25.5.1 |\n+===+===+===+\n" + "".join(chips)


def test_the_chips_of_one_npu_id_are_one_board() -> None:
    once = capture(lambda t: npu("180.5", "-"), [], tool="npu-smi")
    assert energy(once) == pytest.approx(1805.0) and "telemetry_board_power" in doubts(once)
    alike = capture(lambda t: npu(*["12.8"] * 4), [], tool="npu-smi")
    assert energy(alike) is None and "telemetry_unsure_board" in doubts(alike)
    own = capture(lambda t: npu("12.8", "13.1"), [], tool="npu-smi")
    assert energy(own) == pytest.approx(259.0) and "telemetry_unsure_board" not in doubts(own)


# files --------------------------------------------------------------------------------------------


def test_a_byte_order_mark_hides_nothing(tmp_path: Path) -> None:
    fields = ["index", "power.draw"]
    found = capture(lambda t: "\ufeff0, 100\n1, 200\n", fields)
    assert keys(found) == ["0", "1"]
    headed = telemetry.read_text("\ufeffindex, power.draw [W]\n0, 5 W\n")
    assert [(r.gpu, r.values["power_w"]) for r in headed.readings] == [(0, 5.0)]
    document = {"schema": "decodelab.capture/1", "tool": "nvidia-smi", "fields": fields}
    lines = [document, {"m0": 1.0, "m1": 1.0, "rc": 0, "out": "0, 5\n", "err": ""}]
    path = tmp_path / "capture.jsonl"
    path.write_text("\ufeff" + "\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    assert len(telemetry.read_capture(path).samples) == len(telemetry.read_file(path)[1]) == 1


@pytest.mark.parametrize("value", [10**400, True, "1", None, float("nan"), float("inf")])
def test_what_is_no_finite_number(value: object) -> None:
    assert telemetry.number(value) is None


@pytest.mark.parametrize(
    ("document", "tool"),
    [
        ({"records": []}, None),
        ({"records": [{"out": row(0, U0)}]}, None),
        ({"schema": "decodelab.capture/1", "records": [{"out": "No devices were found\n"}]}, None),
        ({"schema": "decodelab.capture/1", "records": [{"out": log((U0, 0))}]}, "npu-smi"),
    ],
    ids=["no capture", "no schema", "nothing read", "another tool's"],
)
def test_a_file_of_which_nothing_can_be_read_is_refused(
    document: dict[str, Any], tool: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(telemetry.UnreadableSmi, match="looked for"):
        telemetry.read_file(path, tool)


def test_a_capture_whose_tool_said_nothing_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    record = {"m0": 1.0, "m1": 1.0, "out": "", "err": "", "trouble": "ixsmi: not found"}
    path.write_text(json.dumps({"schema": "decodelab.capture/1", "records": [record]}))
    assert telemetry.read_file(path)[1] == []
