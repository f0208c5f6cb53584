"""Every figure of the 2026-07-14 report, computed by the product from the raw files.

2026-07-14-figures.yaml is the list; each must come out to its printed digits. The path is the
workflow's own: study -> plan -> import -> tables. The raw files are reconstructed from those very
figures, so the second half of this file proves that the check can fail: each wrong definition of
a metric must miss at least one printed figure.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import aggregate
import pytest
import yaml

from cargo import record
from decodelab import replay, telemetry, telemetry_window
from decodelab.fieldmap import FieldMap
from decodelab.study import open_study

ROOT = Path(__file__).resolve().parents[2]
STUDY = "config/2026-07-14-decode.yaml"
RAW = ROOT / "resources" / "2026-07-14-decode"
CAPTURE = "ixsmi_noparser_short_c2_t128_r4_monitor"
MONITORED = "decode_noparser_short_c2_t128_r4_monitor"

Figure = dict[str, str]
FIGURES: list[Figure] = yaml.safe_load(
    (Path(__file__).parent / "2026-07-14-figures.yaml").read_text(encoding="utf-8")
)["figures"]
MEASURED = [figure for figure in FIGURES if figure["of"] != "study"]


def name_of(figure: Figure) -> str:
    return f"{figure['section']} {figure['of']} {figure['value']} {figure['printed']}"


@dataclass
class Replayed:
    """The study as the workflow sees it, with its published files in `folder`."""

    plan: dict[str, Any]
    folder: Path

    @cached_property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return aggregate.build(self.plan, self.folder, ROOT)

    def row(self, run: str) -> dict[str, Any]:
        (row,) = [row for row in self.tables["runs"] if row["run"] == run]
        return row

    def value(self, figure: Figure) -> Any:
        source, path = figure["of"], figure["value"]
        if source == "study":
            return self._declared(path)
        if source == "start":
            (start,) = self.tables["starts"]
            return start[path]
        if source == CAPTURE:
            return self._sampled(path)
        if path == "model":
            return json.loads((self.folder / f"{source}.json").read_text())["run"]["model"]
        if path.startswith("requests."):
            _, index, column = path.split(".")
            rows = [row for row in self.tables["requests"] if row["run"] == source]
            return rows[int(index)][column]
        return self.row(source)[path]

    def _sampled(self, path: str) -> Any:
        if path not in ("name", "mem_total_gib"):
            return self.row(MONITORED)[path]
        capture = telemetry.read_capture(self.folder / f"{CAPTURE}.json")
        readings = [sample.reading for sample in capture.samples]
        column: dict[str, list[Any]] = {"name": [r.name for r in readings]}
        column["mem_total_gib"] = [(r.values["mem_total_mib"] or math.nan) / 1024 for r in readings]
        (only,) = set(column[path])
        return only

    def _declared(self, path: str) -> Any:
        part, _, key = path.partition(".")
        if part == "targets":
            return "{op} {value:.0f}".format(**self.plan["targets"][key])
        if part == "tools":
            (scenario,) = {
                p["scenario"] for p in self.plan["points"].values() if p["scenario_name"] == key
            }
            return len(self.plan["scenarios"][scenario]["tools"])
        return self.plan["variants"][part]["flags"][key]

    def printed(self, figure: Figure) -> str:
        value = self.value(figure)
        return "unknown" if value is None else figure["format"].format(value)

    def missed(self) -> list[str]:
        return [name_of(f) for f in MEASURED if self.printed(f) != f["printed"]]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    plan = dict(open_study([STUDY], {}, ROOT).plan)
    folder = tmp_path_factory.mktemp("runs")
    index = replay.publish(plan, [RAW], folder, FieldMap.load(), ROOT)
    assert index["missing"] == []
    return Replayed(plan, folder)


@pytest.mark.parametrize("figure", FIGURES, ids=name_of)
def test_figure_is_reproduced_to_its_printed_digits(figure: Figure, replayed: Replayed) -> None:
    assert replayed.printed(figure) == figure["printed"], figure["text"]


def test_the_list_covers_every_section_that_prints_figures() -> None:
    sections = {figure["section"] for figure in FIGURES}
    assert sections == {"一", "二", "三.1", "三.2", "三.3", "三.4", "三.5", "四.1", "四.2", "六"}
    assert len(FIGURES) >= 100
    assert len({(f["section"], f["text"], f["of"], f["value"]) for f in FIGURES}) == len(FIGURES)


def test_no_run_of_the_study_is_suspect(replayed: Replayed) -> None:
    assert {(row["validity"], row["reasons"]) for row in replayed.tables["runs"]} == {("valid", "")}
    assert {row["source"] for row in replayed.tables["runs"]} == {"reconstructed"}


def test_summaries_in_the_files_agree_with_the_recomputed_ones(replayed: Replayed) -> None:
    """What the generator wrote by its own arithmetic is what the product computes."""
    for row in replayed.tables["runs"]:
        summary = json.loads((replayed.folder / f"{row['run']}.json").read_text())["summary"]
        for key, value in summary.items():
            if isinstance(value, dict) and key != "outcomes":
                for q in ("p10", "p50", "p90"):
                    assert row[f"{key}_{q}"] == pytest.approx(value[q], abs=2e-6), (row["run"], key)
            elif key != "outcomes":
                assert row[key] == (None if value is None else pytest.approx(value, abs=2e-6)), key


# ---------------------------------------------------------------- wrong definitions must be noticed

Patch = pytest.MonkeyPatch


def one_token_less(patch: Patch) -> None:
    derive = record.derive

    def wrong(t0: Any, tf: Any, tl: Any, te: Any, prompt: Any, n: Any, nf: Any) -> dict[str, Any]:
        return derive(t0, tf, tl, te, prompt, n - 1, nf)

    patch.setattr(record, "derive", wrong)


def whole_request_for_decode(patch: Patch) -> None:
    derive = record.derive
    patch.setattr(record, "derive", lambda *a: {**derive(*a), "decode_tps": derive(*a)["e2e_tps"]})


def ttft_from_the_zero_of_the_run(patch: Patch) -> None:
    derive = record.derive
    patch.setattr(record, "derive", lambda *a: {**derive(*a), "ttft_s": a[1]})


def nearest_rank(patch: Patch) -> None:
    def wrong(values: Any, q: float) -> Any:
        ordered = sorted(values)
        return ordered[max(0, math.ceil(q / 100 * len(ordered)) - 1)] if ordered else None

    patch.setattr(record, "percentile", wrong)


def exclusive_percentile(patch: Patch) -> None:
    """Type 6: position (n + 1) q."""

    def wrong(values: Any, q: float) -> Any:
        ordered = sorted(values)
        if not ordered:
            return None
        position = min(max((len(ordered) + 1) * q / 100 - 1, 0), len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])

    patch.setattr(record, "percentile", wrong)


def mean_for_median(patch: Patch) -> None:
    percentile = record.percentile

    def wrong(values: Any, q: float) -> Any:
        known = list(values)
        return sum(known) / len(known) if q == 50 and known else percentile(known, q)

    patch.setattr(record, "percentile", wrong)


def wall_as(window: Callable[[list[dict[str, Any]]], float]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(record, "_window", window)


def mean_of_the_window(patch: Patch) -> None:
    figures = telemetry_window.figures

    def wrong(*args: Any, **kwargs: Any) -> telemetry_window.WindowFigures:
        found = figures(*args, **kwargs)
        inside = {
            k.replace("_window", "_all"): v for k, v in found.values.items() if "mean_window" in k
        }
        return telemetry_window.WindowFigures({**found.values, **inside}, found.reasons)

    patch.setattr(telemetry_window, "figures", wrong)


def samples_where(keep: Callable[[telemetry.Sample], bool]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        read = telemetry.read_capture

        def wrong(path: Path) -> telemetry.Capture:
            capture = read(path)
            capture.samples = [sample for sample in capture.samples if keep(sample)]
            return capture

        patch.setattr(telemetry, "read_capture", wrong)

    return apply


# what is wrong: (how, a column that has to be among the misses)
MUTATIONS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "N - 1 for N in Output TPS": (one_token_less, "decode_tps_p10"),
    "whole request for the decode span": (whole_request_for_decode, "decode_tps_p50"),
    "TTFT from the run's zero": (ttft_from_the_zero_of_the_run, "ttft_s_p90"),
    "nearest-rank percentiles": (nearest_rank, "ttft_s_p90"),
    "exclusive percentiles": (exclusive_percentile, "ttft_s_p90"),
    "mean for median": (mean_for_median, "decode_tps_p50"),
    "wall = sum of request times": (
        wall_as(lambda ok: sum(r["e2e_s"] for r in ok)),
        "output_tps_total",
    ),
    "wall from the clock's zero": (
        wall_as(lambda ok: max(r["t_end_s"] for r in ok)),
        "output_tps_total",
    ),
    "wall from the first token": (
        wall_as(lambda ok: max(r["t_end_s"] for r in ok) - min(r["t_first_s"] for r in ok)),
        "output_tps_total",
    ),
    "SMI means inside the run's window": (mean_of_the_window, "util_pct_mean_all"),
    "SMI power inside the run's window": (mean_of_the_window, "power_w_mean_all"),
    "SMI samples in the run alone": (
        samples_where(lambda s: s.record not in (0, 51)),
        "smi_samples",
    ),
    "idle SMI samples left out": (
        samples_where(lambda s: s.reading.values["util_pct"] != 0),
        "util_pct_mean_all",
    ),
    "first card alone": (samples_where(lambda s: s.reading.gpu == 0), "mem_used_mib_mean_all"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_definition_misses_a_printed_figure(
    name: str, replayed: Replayed, monkeypatch: Patch
) -> None:
    assert replayed.missed() == []
    mutate, telling = MUTATIONS[name]
    mutate(monkeypatch)
    found = Replayed(replayed.plan, replayed.folder).missed()
    assert any(f" {telling} " in line for line in found), found


def test_n_minus_one_is_told_apart_by_the_tool_run(replayed: Replayed, monkeypatch: Patch) -> None:
    """The tables of the tool run close only with N in the numerator."""
    one_token_less(monkeypatch)
    found = Replayed(replayed.plan, replayed.folder).missed()
    assert any("decode_full_parser_tool_c1_t128_r3 decode_tps_p10" in line for line in found)


def test_a_first_request_taken_for_a_warm_up_is_noticed(replayed: Replayed, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(replayed.folder, folder)
    for path in folder.glob("decode_*_r?*.json"):
        document = json.loads(path.read_text())
        document["requests"][0]["warmup"] = True
        path.write_text(json.dumps(document))
    changed = Replayed(replayed.plan, folder)
    assert changed.row("decode_full_parser_tool_c1_t128_r3")["n_attempted"] == 2
    figure = next(f for f in MEASURED if f["printed"] == "4.98s")
    assert changed.printed(figure) != "4.98s"
