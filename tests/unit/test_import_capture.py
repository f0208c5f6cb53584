"""Foreign SMI captures become capture records that the one telemetry reader understands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodelab import telemetry
from decodelab.fieldmap import FieldMap
from decodelab.foreign_capture import align, read_capture_file
from decodelab.importing import RawShapeError

TABLE = """\
+-----------------------------------------------------------------------------+
|  IX-ML: 3.2.1       Driver Version: 3.2.1       CUDA Version: 10.2          |
|===============================+======================+======================|
| 0    Iluvatar BI-V100         | 00000000:0C:00.0     | 1500MHz   1200MHz    |
| 0%   33C   P0    58W / 250W   | 16MiB / 16384MiB     | 7%        Default    |
+-------------------------------+----------------------+----------------------+
"""


def convert(
    folder: Path, data: Any, name: str = "ixsmi_x.json"
) -> tuple[dict[str, Any], Path, Any]:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    capture, account = read_capture_file(path, FieldMap.load())
    out = folder / "out.json"
    out.write_text(json.dumps(capture), encoding="utf-8")
    return capture, out, account


@pytest.mark.parametrize(
    "data",
    [
        {"records": [{"stdout": TABLE, "t": 0.5, "returncode": 0}] * 2},
        {"samples": [{"raw": TABLE, "elapsed_ms": 500, "exit_code": 0}] * 2},
        [{"output": TABLE, "monotonic": 0.5, "rc": 0}] * 2,
    ],
)
def test_text_under_any_name(tmp_path: Path, data: Any) -> None:
    capture, out, _ = convert(tmp_path, data)
    assert (capture["source"], capture["tool"]) == ("imported", "ixsmi")
    assert [(r["m0"], r["m1"], r["rc"]) for r in capture["records"]] == [(0.5, 0.5, 0)] * 2
    samples = telemetry.read_capture(out).samples
    assert [s.reading.values["power_w"] for s in samples] == [58.0, 58.0]


def test_a_list_of_bare_texts(tmp_path: Path) -> None:
    capture, out, _ = convert(tmp_path, [TABLE, TABLE])
    assert [r["m0"] for r in capture["records"]] == [None, None]
    assert len(telemetry.read_capture(out).samples) == 2


def test_wall_times_are_told_from_monotonic_ones(tmp_path: Path) -> None:
    stamps = [1784023200.5, "2026-07-14T10:00:00.500Z", 1784023200500]
    capture, _, _ = convert(
        tmp_path, {"records": [{"text": TABLE, "timestamp": t} for t in stamps]}
    )
    assert [r["w0"] for r in capture["records"]] == pytest.approx([1784023200.5] * 3)
    assert all(r["m0"] is None for r in capture["records"])
    assert capture["clock"] is None


def test_parsed_values_are_written_as_query_text(tmp_path: Path) -> None:
    gpus = [
        {"index": 0, "gpu_util": 30, "memory_used_mib": 100, "power_w": 50.5, "note": "x"},
        {"index": 1, "gpu_util": None, "memory_used_mib": 200, "power_w": 49},
    ]
    _, out, account = convert(tmp_path, {"interval_s": 1, "records": [{"t": 1.0, "gpus": gpus}]})
    samples = telemetry.read_capture(out).samples
    values = [s.reading.values for s in samples]
    assert [v["util_pct"] for v in values] == [30.0, None]
    assert [v["mem_used_mib"] for v in values] == [100.0, 200.0]
    assert [v["power_w"] for v in values] == [50.5, 49.0]
    assert [s.reading.gpu for s in samples] == [0, 1]
    assert any("written again" in note for note in account.notes)


def test_our_own_formats_pass_unchanged(tmp_path: Path) -> None:
    header = {"schema": "decodelab.capture/1", "source": "measured", "tool": "ixsmi", "clock": None}
    record = {"m0": 1.0, "m1": 1.1, "w0": None, "rc": 0, "out": TABLE, "err": ""}
    document = {**header, "records": [record]}
    assert convert(tmp_path, document)[0] == document
    lines = "\n".join(json.dumps(line) for line in (header, record))
    assert convert(tmp_path, lines, "capture.jsonl")[0] == document


@pytest.mark.parametrize(
    ("data", "looked_for", "found"),
    [
        ({"values": [1]}, "SMI records: a list", "values (list of 1)"),
        ({"records": []}, "SMI records: a list", "records (list of 0)"),
        ({"records": [3]}, "an object or a text", "int"),
        ({"records": [{"t": 1.0}]}, "a text under one of [out, stdout", "t (float)"),
        ({"schema": "decodelab.capture/1"}, "a list of records", "schema (str)"),
    ],
)
def test_unknown_shapes(tmp_path: Path, data: Any, looked_for: str, found: str) -> None:
    with pytest.raises(RawShapeError) as caught:
        convert(tmp_path, data)
    assert looked_for in str(caught.value) and found in str(caught.value)
    assert "ixsmi_x.json" in str(caught.value)


def imported_run(clock: dict[str, Any] | None, source: str = "imported") -> dict[str, Any]:
    requests = [{"t_start_s": 0.0, "t_end_s": 10.0}, {"t_start_s": None, "t_end_s": None}]
    return {"source": source, "clock": clock, "requests": requests}


def test_a_capture_with_wall_times_is_put_on_the_zero_of_its_run(tmp_path: Path) -> None:
    rows = [{"text": TABLE, "ts": 1784023199.0 + t} for t in (0, 5, 12)]
    capture, _, _ = convert(tmp_path, rows)
    assert align(
        capture, imported_run({"t0_monotonic_s": None, "t0_wall": "2026-07-14T10:00:00+00:00"})
    )
    assert [r["m0"] for r in capture["records"]] == [-1.0, 4.0, 11.0]


def test_a_capture_on_the_monotonic_clock_of_its_run_is_marked_so(tmp_path: Path) -> None:
    capture, _, _ = convert(tmp_path, [{"text": TABLE, "monotonic": t} for t in (99.0, 104.0)])
    assert align(capture, imported_run({"t0_monotonic_s": 100.0, "t0_wall": None}))
    assert capture["clock"] == {"monotonic_s": 100.0, "wall": None}


@pytest.mark.parametrize(
    "run",
    [
        imported_run(None),
        imported_run({"t0_monotonic_s": 500.0, "t0_wall": None}),
        imported_run({"t0_monotonic_s": 100.0, "t0_wall": None}, source="reconstructed"),
        imported_run({"t0_monotonic_s": None, "t0_wall": "2026-07-14T10:00:00+00:00"}),
    ],
)
def test_clocks_that_nothing_relates_stay_apart(tmp_path: Path, run: dict[str, Any]) -> None:
    capture, _, _ = convert(tmp_path, [{"text": TABLE, "monotonic": t} for t in (99.0, 104.0)])
    assert not align(capture, run)
    assert capture["clock"] is None and capture["records"][0]["m0"] == 99.0
