"""The gaps between output deltas: their table, and the figure of their distribution."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import sample_study
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from test_figures import load, texts

from cargo import record
from decodelab import figure_gaps, gap_table, records
from decodelab.findings import Findings

CURVE = ["decode_noparser_short_c1_t128_r4", "decode_noparser_short_c2_t128_r4"]


def run_of(gaps: list[tuple[float, int | None]]) -> records.Run:
    """One success whose output deltas are so far apart and hold so many tokens."""
    times = np.cumsum([1.0, *(gap for gap, _ in gaps)]).tolist()
    request = sample_study.request()
    request["events"] = {
        "t_s": times,
        "kind": ["content"] * len(times),
        "tokens": [1, *(tokens for _, tokens in gaps)],
        "t_user_s": times,
    }
    planned = sample_study.planned_run("one")
    return records.make_run(planned, {}, sample_study.run_record([request]))


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=500))
def test_quantiles_are_those_of_all_gaps(gaps: list[float]) -> None:
    rows = list(gap_table.rows(run_of([(gap, 1) for gap in gaps])))
    assert len(rows) == min(len(gaps), gap_table.POINTS)
    assert all(row["n_gaps"] == len(gaps) for row in rows)
    for place, row in enumerate(rows):
        share = place / (len(rows) - 1) if len(rows) > 1 else 1.0
        expected = record.percentile(gaps, 100 * share)
        assert row["share"] == pytest.approx(share, abs=1e-6)
        assert row["itl_s"] == pytest.approx(expected, abs=1e-8)
    assert rows[-1]["itl_s"] == pytest.approx(max(gaps), abs=1e-9) and rows[-1]["share"] == 1.0


def test_few_gaps_are_all_there() -> None:
    rows = list(gap_table.rows(run_of([(0.03, 1), (0.01, 1), (0.02, 1)])))
    assert [row["itl_s"] for row in rows] == pytest.approx([0.01, 0.02, 0.03])
    assert [row["share"] for row in rows] == [0.0, 0.5, 1.0]


def test_gaps_that_end_in_several_tokens_are_told() -> None:
    """The long gaps bring eight tokens each; of 0.03 s nobody counted."""
    given = [(0.01, 1)] * 3 + [(0.2, 8)] * 3 + [(0.03, None)]
    rows = list(gap_table.rows(run_of(given)))
    told = {round(row["itl_s"], 3): row["several_share"] for row in rows}
    assert told == {0.01: 0.0, 0.03: None, 0.2: 1.0}


def test_a_run_without_events_has_no_rows() -> None:
    run = records.make_run(
        sample_study.planned_run("one"), {}, sample_study.run_record([sample_study.request()])
    )
    assert list(gap_table.rows(run)) == []


def gap_rows(run: str, ms: list[float], several: float = 0.0) -> list[dict[str, Any]]:
    shares = np.linspace(0, 1, len(ms))
    return [
        {"run": run, "n_gaps": 400.0, "share": s, "itl_s": m / 1000, "several_share": several}
        for m, s in zip(ms, shares, strict=True)
    ]


def with_gaps(several: float = 0.0) -> Findings:
    gaps = {name: gap_rows(name, [0.0, 5.0, 10.0, 20.0, 40.0], several) for name in CURVE}
    return dataclasses.replace(load(), gaps=gaps)


def test_each_load_is_a_panel_and_each_start_a_line() -> None:
    panels = figure_gaps.panels(with_gaps(), "concurrency")
    assert [panel.name for panel in panels] == ["curve, concurrency 1", "curve, concurrency 2"]
    (line,) = panels[0].lines
    assert (line.variant, line.n_gaps, line.median_ms) == ("noparser", 400, 10.0)
    assert line.ms == [0.0, 5.0, 10.0, 20.0, 40.0] and not any(line.several)


def test_the_figure_has_units_median_and_banner() -> None:
    figure = figure_gaps.draw(with_gaps(several=1.0), "concurrency")
    assert figure is not None
    shown = texts(figure)
    for text in ("gap between output deltas (ms)", "gaps at or below (%)", "median", "SIMULATED"):
        assert text in shown
    assert "ends in a delta of several tokens" in shown
    assert figure.axes[0].get_xscale() == "log"
    figure = figure_gaps.draw(with_gaps(), "concurrency")
    assert figure is not None and "ends in a delta of several tokens" not in texts(figure)


def test_an_experiment_without_gaps_has_no_figure() -> None:
    assert figure_gaps.draw(load(), "concurrency") is None
    few = {
        name: [{**row, "n_gaps": 3.0} for row in rows] for name, rows in with_gaps().gaps.items()
    }
    assert figure_gaps.draw(dataclasses.replace(load(), gaps=few), "concurrency") is None


def test_a_gap_of_nothing_is_drawn_at_the_end_of_the_axis_and_said() -> None:
    figure = figure_gaps.draw(with_gaps(), "concurrency")
    assert figure is not None
    figure.canvas.draw()
    ticks = [item.get_text() for item in figure.axes[0].get_xticklabels() if isinstance(item, Text)]
    assert "≤ 0.1" in ticks
