"""A wedged card is named; a loaded, an idle and a dead one are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decodelab import telemetry
from decodelab.telemetry import Reading, Sample
from decodelab.telemetry_wedged import wedged

TABLE = (Path(__file__).parents[1] / "golden/smi/ixsmi/table_with_processes.txt").read_text()
HEADER = {"schema": "decodelab.capture/1", "tool": "ixsmi", "argv": ["ixsmi"], "interval_s": 1.0}


def sample(
    util: float | None = 100.0,
    used: float | None = 257.0,
    total: float | None = 32768.0,
    processes: int | None = 0,
    gpu: int = 3,
) -> Sample:
    reading = Reading(gpu=gpu, processes=processes)
    reading.values.update(util_pct=util, mem_used_mib=used, mem_total_mib=total)
    return Sample(0, None, reading)


def test_a_capture_with_a_wedged_card_names_it(tmp_path: Path) -> None:
    calls = [{"m0": float(t), "m1": t + 0.1, "rc": 0, "out": TABLE, "err": ""} for t in range(4)]
    file = tmp_path / "capture.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in (HEADER, *calls)) + "\n")
    (found,) = wedged(telemetry.read_capture(file).samples)
    assert (found.gpu, found.samples, found.processes) == (1, 4, 0)
    assert str(found) == (
        "GPU 1 (00000000:0D:00.0): 100 % in each of 4 samples with 257 of 32768 MiB in use, no process"
    )


@pytest.mark.parametrize(
    ("samples", "named"),
    [
        ([sample()] * 3, True),
        ([sample(processes=None)] * 3, True),  # CSV lists no processes
        ([sample(used=513.0, total=16384.0)] * 3, True),  # of a small card a larger share
        ([sample(), sample(None, None), sample(), sample()], True),
        ([sample(used=601.0, total=16384.0)] * 3, False),
        ([sample()] * 2, False),  # too few
        ([sample(), sample(99.0), sample(), sample()], False),
        ([sample(), sample(used=20000.0), sample(), sample()], False),  # memory in use: a server
        ([sample(), sample(processes=1), sample(), sample()], False),
        ([sample(None)] * 5, False),  # 0 C with 100 % was rejected: dead, and counted there
        ([sample(total=None)] * 5, False),
        ([sample(0.0)] * 5, False),
        ([], False),
    ],
)
def test_what_wedged_means(samples: list[Sample], named: bool) -> None:
    assert bool(wedged(samples)) is named


def test_each_card_is_judged_alone() -> None:
    cards = [sample(gpu=5), sample(40.0, 30000.0, gpu=6)] * 4
    assert [one.gpu for one in wedged(cards)] == [5]
