"""Forest plot of an experiment's comparisons, and the chart of the targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest
from test_figures import load, texts

from decodelab import figure_effects, figure_gates, proportions
from decodelab.findings import Findings


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    yield
    plt.close("all")


def changed(**more: Any) -> Findings:
    """The parser's comparison with other values."""
    known = load()
    verdicts = [{**v, **more} if v["experiment"] == "parser" else v for v in known.verdicts]
    return dataclasses.replace(known, verdicts=verdicts)


def test_a_point_carries_what_the_verdict_says() -> None:
    (point,) = figure_effects.points(load(), "parser")
    assert (point.candidate, point.word) == ("noparser", "refuted")
    assert (point.effect, point.interval) == (-0.047, (-0.087, -0.007))
    assert (point.noise, point.smallest, point.in_points) == (0.04, 0.05, False)
    assert point.label.splitlines()[0] == "noparser vs full_parser"
    assert "concurrency 1" in point.label


def test_the_noise_is_floor_and_drift() -> None:
    (point,) = figure_effects.points(changed(drift_allowance=0.02), "parser")
    assert point.noise == pytest.approx(0.06)


def test_the_figure_shows_interval_limits_and_word() -> None:
    figure = figure_effects.draw(load(), "parser")
    assert figure is not None
    shown = texts(figure)
    assert any("−4.7%, refuted" in text for text in shown)
    assert {"noise floor and drift", "smallest effect of interest", "refuted"} <= set(shown)
    assert "change of decode_rate (%; right of zero: as asked for)" in shown
    low, high = figure.axes[0].get_xlim()
    assert low < -8.7 and high > 5.0
    drawn = [[float(x) for x in line.get_xdata()] for line in figure.axes[0].lines]
    assert any(ends == pytest.approx([-8.7, -0.7]) for ends in drawn if len(ends) == 2)


def test_points_of_a_share_are_no_percent() -> None:
    figure = figure_effects.draw(changed(in_points=True, metric="success_rate"), "parser")
    assert figure is not None
    assert any("points of a share" in text for text in texts(figure))


@pytest.mark.parametrize("bounds", [None, [None, 0.2]])
def test_without_an_interval_there_is_no_figure(bounds: list[float | None] | None) -> None:
    assert figure_effects.draw(changed(interval=bounds), "parser") is None


def test_what_cannot_start_keeps_its_row() -> None:
    points = figure_effects.points(load(), "D")
    assert "not_possible" in {point.word for point in points}
    figure = figure_effects.draw(load(), "D")
    assert figure is not None and any("not possible" in text for text in texts(figure))


def test_a_verdict_that_names_no_run_has_the_banner_of_its_experiment() -> None:
    for experiment in ("parser", "D"):
        figure = figure_effects.draw(changed(runs=[]), experiment)
        assert figure is not None and "SIMULATED" in texts(figure)


def test_many_comparisons_show_those_with_an_interval() -> None:
    known = load()
    mine = known.verdicts_of("D")
    many = [{**mine[0], "id": f"{n}"} for n in range(10)] + [
        {**verdict, "interval": None} for verdict in mine
    ]
    points = figure_effects.points(dataclasses.replace(known, verdicts=many), "D")
    assert len(points) == 10 and all(point.interval for point in points)
    told = figure_effects.texts(dataclasses.replace(known, verdicts=many), "D")
    assert (told["n"], told["all"]) == ("10", str(10 + len(mine)))


def gate(**more: Any) -> dict[str, Any]:
    return {
        "variant": "noparser",
        "metric": "success_rate",
        "op": ">=",
        "target": 0.99,
        "value": 0.75,
        "met": False,
        "margin": -0.24,
        "n": 4,
        "run": "decode_noparser_short_c1_t128_r4",
        "workload": "curve",
        **more,
    }


def with_gates(*gates: dict[str, Any], verdicts: tuple[dict[str, Any], ...] = ()) -> Findings:
    known = load()
    judged = {**known.judged, "gates": list(gates)}
    return dataclasses.replace(known, judged=judged, verdicts=[*known.verdicts, *verdicts])


def test_a_share_has_the_interval_of_its_counts() -> None:
    (panel,) = figure_gates.panels(with_gates(gate()))
    ((dot,),) = panel.rows.values()
    assert dot.interval == proportions.wilson(3, 4)
    figure = figure_gates.draw(with_gates(gate()))
    assert figure is not None
    assert {"success_rate >= 99%", "%", "missed", "−24%", "95 % interval"} <= set(texts(figure))


def test_a_threshold_question_about_the_same_run_gives_its_interval() -> None:
    run, metric = "decode_noparser_short_c1_t128_r4", "e2e_tps_p10"
    asked = {"kind": "threshold", "metric": metric, "value_interval": [7.0, 9.0], "runs": [run]}
    one = gate(metric=metric, target=20.0, value=8.0, margin=-0.6)
    for runs, expected in (([run], (7.0, 9.0)), ([run, "other"], None)):
        found = with_gates(one, verdicts=({**asked, "runs": runs, "experiment": "x"},))
        ((dot,),) = figure_gates.panels(found)[0].rows.values()
        assert dot.interval == expected


def test_rows_are_the_same_in_every_panel_and_the_unknown_is_said() -> None:
    gates = [
        gate(),
        gate(variant="flash", run="x"),
        gate(metric="cache_hit", value=None, met=None, margin=None, target=0.5),
        gate(metric="cache_hit", variant="flash", run="x", value=0.6, met=True, margin=0.2),
    ]
    panels = figure_gates.panels(with_gates(*gates))
    assert [list(panel.rows) for panel in panels] == [["noparser", "flash"]] * 2
    figure = figure_gates.draw(with_gates(*gates))
    assert figure is not None and "not known" in texts(figure)


def test_grid_cells_are_left_out_and_no_value_is_no_figure() -> None:
    cell = next(name for name in load().plan["variants"] if load().is_cell(name))
    assert figure_gates.draw(with_gates(gate(variant=cell))) is None
    assert figure_gates.draw(with_gates(gate(value=None, met=None, margin=None))) is None
    assert figure_gates.draw(with_gates()) is None
