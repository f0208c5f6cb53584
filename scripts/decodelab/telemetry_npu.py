"""npu-smi of Huawei Ascend: `info` (310, 310P, 910), `info -t usages|common|power|board`, `info watch`.

In: text. Out: readings, one per chip; `gpu` is the chip's device number where it is printed, else the
card's NPU id. Cards come in any order and chips of one card may share its bus id. Memory is the last
pair of the row: HBM where there is one. Memory in use is None where only a share of it is printed. A
power that is the card's (its MCU's) is told once, at the first chip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from decodelab.telemetry_csv import BUS
from decodelab.telemetry_reading import (
    Parsed,
    Reader,
    Reading,
    UnreadableSmi,
    first_words,
    index,
    not_known,
    quantity,
)

TOOL = "npu-smi"
_CARD = re.compile(r"([0-9]+)\s+(\S+)")  # NPU id, name
_CHIP = re.compile(r"([0-9]+)(?:\s+([0-9]+))?")  # chip id, device number
_CARD_STATE = re.compile(r"(?P<power>\S+)\s+(?P<temp>\S+)\s+\S+\s*/\s*\S+")  # last: hugepages
_CHIP_STATE = re.compile(r"(?P<util>\S+)(?:\s+\S+\s*/\s*\S+)*\s+(?P<used>\S+)\s*/\s*(?P<total>\S+)")
_PAIR = re.compile(r"\s*(\S.*?)\s*: ?\s*(.*?)\s*")
_WATCHED = re.compile(r"(\S[^()]*)\(([^()]*)\)")
# key of `info -t` -> metric; the rated frequency ("Aicore Freq") is no reading
KEYS = {
    "Aicore Usage Rate(%)": "util_pct",
    "Temperature(C)": "temp_c",
    "Aicore curFreq(MHZ)": "sm_mhz",
    "DDR Capacity(MB)": "mem_total_mib",
    "HBM Capacity(MB)": "mem_total_mib",  # where a chip has both, the later one holds
}
POWER_KEYS = ("NPU Real-time Power(W)", "Power Dissipation(W)")
WATCH = {"Pwr": "power_w", "Temp": "temp_c", "AI Core": "util_pct"}


def read(text: str, fields: Sequence[str]) -> Parsed:
    """Whatever npu-smi wrote, told apart by its look; `fields` is not used: it has no CSV."""
    whole, _, rest = text.rpartition("\n")
    parsed = Parsed(TOOL, messages=[f"no line end, left out: {rest[:120]}"] if rest.strip() else [])
    lines = [line.rstrip() for line in whole.split("\n")]
    if any(line.startswith("|") for line in lines):
        _table(parsed, lines)
    elif any(line.lstrip().startswith("NpuID(Idx)") for line in lines):
        _watch(parsed, lines)
    else:
        for card in _cards(parsed, lines):
            _card(parsed, card)
    if not parsed.readings:
        raise UnreadableSmi(
            "looked for a card's two rows in npu-smi's table, `key : value` lines under an NPU ID, or "
            f"the rows of `info watch`; found none whole; {first_words(text)}"
        )
    return parsed


# the table of `npu-smi info`
def _table(parsed: Parsed, lines: list[str]) -> None:
    half: Reading | None = None
    mixed = False  # rows of two cards in one place: none of them is taken
    for line in lines:
        cells = [cell.strip() for cell in line[1:-1].split("|")] if _is_row(line) else []
        if len(cells) == 3 and _CARD.fullmatch(cells[0]) and not BUS.fullmatch(cells[1]):
            mixed, half = mixed or half is not None, _first_row(cells)
        elif len(cells) == 3 and _CHIP.fullmatch(cells[0]) and BUS.fullmatch(cells[1]):
            if half is None or mixed:
                parsed.messages.append(f"half a row: {line[:120]}")
            else:
                parsed.readings.append(_second_row(half, cells))
            half = None
        elif line.startswith("+"):
            if half is not None:
                parsed.messages.append(f"half a card: NPU {half.gpu}")
            half, mixed = None, False
        elif line and not line.startswith("|"):
            parsed.messages.append(line[:200])


def _is_row(line: str) -> bool:
    return len(line) > 1 and line.startswith("|") and line.endswith("|")


def _first_row(cells: list[str]) -> Reading:
    named, state = _CARD.fullmatch(cells[0]), _CARD_STATE.fullmatch(cells[2])
    reading = Reading()
    if named:
        reading = Reading(gpu=index(named[1]), name=named[2], board=_board(index(named[1])))
    if state:
        reading.values["power_w"] = quantity("power_w", state["power"])
        reading.values["temp_c"] = quantity("temp_c", state["temp"])
    return reading


def _board(npu: int | None) -> str:
    """The card, of which the chips of one NPU id are parts."""
    return f"NPU {npu}"


def _second_row(reading: Reading, cells: list[str]) -> Reading:
    chip, state = _CHIP.fullmatch(cells[0]), _CHIP_STATE.fullmatch(cells[2])
    reading.bus = cells[1]
    if chip:
        reading.chip = index(chip[1])
        reading.gpu = index(chip[2]) if chip[2] else reading.gpu
    if state:
        reading.values["util_pct"] = quantity("util_pct", state["util"])
        reading.values["mem_used_mib"] = quantity("mem_used_mib", state["used"])
        reading.values["mem_total_mib"] = quantity("mem_total_mib", state["total"])
    return reading


# `npu-smi info -t ... -i N`
Paragraph = list[tuple[str, str]]


def _cards(parsed: Parsed, lines: list[str]) -> Iterator[list[Paragraph]]:
    """The paragraphs of each card, which begins with its NPU ID."""
    card: list[Paragraph] = []
    new = True
    for line in lines:
        pair = _PAIR.fullmatch(line)
        if pair is None:
            new = True
            if line:
                parsed.messages.append(line[:200])
            continue
        if pair[1] == "NPU ID":
            yield card
            card, new = [], True
        if new:
            card.append([])
        card[-1].append((pair[1], pair[2]))
        new = False
    yield card


def _card(parsed: Parsed, paragraphs: list[Paragraph]) -> None:
    if not paragraphs:
        return
    head = dict(paragraphs[0])
    npu = index(head.get("NPU ID", ""))
    if npu is None:
        parsed.messages.append("a card without its NPU ID is left out")
        return
    board = Reading(
        gpu=npu,
        bus=_known(head, "PCIe Bus Info"),
        serial=_known(head, "Serial Number"),
        board=_board(npu),
    )
    board.name = _known(head, "Product Name")
    several = index(head.get("Chip Count", "")) != 1
    chips: dict[int, Reading] = {}
    for paragraph in paragraphs:
        pairs = dict(paragraph)
        if len(pairs) < len(paragraph):
            parsed.messages.append(f"NPU {npu}: two chips in one place, left out")
        elif any(key in pairs for key in POWER_KEYS):
            board.values["power_w"] = next(
                (quantity("power_w", pairs[key]) for key in POWER_KEYS if key in pairs), None
            )
        elif (chip := index(pairs.get("Chip ID", ""))) is not None:
            if chip in chips:
                parsed.messages.append(f"NPU {npu}: chip {chip} comes twice, the later is left out")
            else:
                chips[chip] = _chip(board, chip, pairs)
        elif any(key in pairs for key in KEYS):
            parsed.messages.append(f"NPU {npu}: readings of no chip, left out")
    parsed.readings.extend(_with_power(parsed, board, chips, several))


def _chip(board: Reading, chip: int, pairs: dict[str, str]) -> Reading:
    reading = Reading(gpu=board.gpu, chip=chip, bus=board.bus, serial=board.serial)
    reading.board = board.board
    reading.name = _known(pairs, "Product Type")
    for key, metric in KEYS.items():
        if (value := quantity(metric, pairs.get(key, ""))) is not None:
            reading.values[metric] = value
    return reading


def _with_power(
    parsed: Parsed, board: Reading, chips: dict[int, Reading], several: bool
) -> list[Reading]:
    """The chips, the first of them with the card's power; the card itself where no chip is told."""
    power = board.values["power_w"]
    if not chips:
        told = power is not None or board.bus or board.serial
        return [board] if told else []
    if power is not None:
        chips[min(chips)].values["power_w"] = power
        if several:
            parsed.messages.append(f"NPU {board.gpu}: power is the card's, told at its first chip")
    return list(chips.values())


def _known(pairs: dict[str, str], key: str) -> str | None:
    cell = pairs.get(key, "")
    return None if not_known(cell) else cell


# `npu-smi info watch`
def _watch(parsed: Parsed, lines: list[str]) -> None:
    columns: list[str] = []
    for line in lines:
        if line.lstrip().startswith("NpuID(Idx)"):
            columns = [found[1].strip() for found in _WATCHED.finditer(line)]
            continue
        cells = line.split()
        if not columns or len(cells) != len(columns) or index(cells[0]) is None:
            if cells:
                parsed.messages.append(line[:200])
            continue
        row = dict(zip(columns, cells, strict=True))
        reading = Reading(gpu=index(row["NpuID"]), chip=index(row.get("ChipId", "")))
        reading.board = _board(reading.gpu)
        for name, metric in WATCH.items():
            reading.values[metric] = quantity(metric, row.get(name, ""))
        parsed.readings.append(reading)


READER = Reader(
    TOOL,
    re.compile(r"npu-smi\s+v?[0-9]|NpuID\(Idx\)|^\s*NPU ID\s+: ", re.MULTILINE),
    re.compile(r"(?!)"),  # its looks are its own
    read,
)
