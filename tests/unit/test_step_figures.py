"""Figures of a step: one colour a region, bars that are the table, and none for what may not be shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from profile_samples import DECODE, PREFILL, PROBLEMS, changed, event, study, sync, table, timeline

from decodelab import figure_step_stack, figure_step_style, figure_step_timeline, figures, words
from decodelab.findings import Findings
from decodelab.step_table import Profile

RUN = "decode_noparser_short_c1_t128_r3"
OTHER = "decode_full_parser_short_c1_t128_r3"


@pytest.fixture(autouse=True)
def nothing_left_open() -> object:
    yield
    plt.close("all")


def texts(figure: Figure) -> list[str]:
    return [item.get_text() for item in figure.findobj(Text) if item.get_text()]


def listed(runs: dict[str, Profile], folder: Path) -> list[dict[str, Any]]:
    """What is drawn for the one experiment that has the runs."""
    found = study(runs)
    alone = {"parser": found.plan["experiments"]["parser"]}
    found = dataclasses.replace(found, plan={**found.plan, "experiments": alone})
    return figures.draw_all(found, folder)


def stack(runs: dict[str, Profile]) -> Figure | None:
    return figure_step_stack.draw(study(runs), "parser")


def widths(figure: Figure, panel: int = 0) -> list[float]:
    shapes = figure.axes[panel].patches
    return [shape.get_width() for shape in shapes if isinstance(shape, Rectangle)]


def test_the_bar_is_the_sum_of_the_table() -> None:
    figure = stack({RUN: event(table(DECODE), PREFILL)})
    assert figure is not None
    assert sum(widths(figure)) == pytest.approx(sum(ms for _, ms, _ in DECODE.values()))
    assert sum(widths(figure, 1)) == pytest.approx(212.0)
    assert "prefill step" in texts(figure) and "60.9 ms" in texts(figure)


def test_small_regions_are_put_together_and_lose_no_time() -> None:
    regions = {**DECODE, "tiny_a": (1.0, 0.01, 0.0), "tiny_b": (1.0, 0.02, 0.0)}
    figure = stack({RUN: event(table(regions))})
    assert figure is not None and figure_step_style.OTHERS in " ".join(texts(figure))
    assert "tiny_a" not in texts(figure)
    assert sum(widths(figure)) == pytest.approx(sum(ms for _, ms, _ in regions.values()))


def test_what_states_no_shares_has_no_bar() -> None:
    figure = stack({RUN: event(), OTHER: event(problems=PROBLEMS[:1])})
    assert figure is not None and "invalid" in texts(figure)
    assert sum(widths(figure)) == pytest.approx(60.9)
    figure = stack({RUN: event(), OTHER: sync()})
    assert figure is not None and "order only" in texts(figure)
    assert stack({RUN: sync()}) is None
    assert stack({RUN: event(problems=PROBLEMS[:1])}) is None


def test_a_region_has_one_colour_in_a_study() -> None:
    one = event(table({**DECODE, "my_b": (1.0, 3.0, 0.1)}))
    other = event(table({**DECODE, "my_a": (1.0, 3.0, 0.1)}))
    looks = figure_step_style.looks(study({RUN: one, OTHER: other}))
    assert looks["moe"] == figure_step_style.LOOKS["moe"]
    assert len(set(looks.values())) == len(looks)
    assert figure_step_style.looks(study({RUN: one, OTHER: other})) == looks


def test_all_looks_differ() -> None:
    assert len(set(figure_step_style.LOOKS.values())) == len(figure_step_style.LOOKS)


def test_a_name_that_the_font_lacks_has_a_stand_in(tmp_path: Path, no_chinese_font: None) -> None:
    regions = {**DECODE, "归一化": (40.0, 3.0, 0.1)}
    runs = {RUN: event(table(regions), timeline=_renamed())}
    entries = {entry["kind"]: entry for entry in listed(runs, tmp_path)}
    for kind in ("step_stack", "step_timeline"):
        for language in words.LANGUAGES:
            assert "region 1* = 归一化" in entries[kind]["caption"][language]
    figure = stack(runs)
    assert figure is not None and "region 1*" in texts(figure)


def _renamed() -> tuple[dict[str, Any], ...]:
    told = json.loads(json.dumps(timeline()).replace('"moe"', '"归一化"'))
    return tuple(told)


def test_long_names_are_wrapped_and_whole() -> None:
    name = "a_very_long_variant_name_with_many_words-mns4-mnbt8192_profiled"
    wrapped = figure_step_style.wrapped(name)
    assert max(map(len, wrapped.split("\n"))) <= 26
    assert wrapped.replace("\n", "") == name


def test_the_list_has_both_figures_with_their_words(tmp_path: Path) -> None:
    entries = of_steps(listed({RUN: event(timeline=timeline())}, tmp_path))
    assert [entry["kind"] for entry in entries] == ["step_stack", "step_timeline"]
    assert all(all(entry["alt"].values()) for entry in entries)
    unusable = listed({RUN: event(problems=PROBLEMS[:1], timeline=timeline())}, tmp_path)
    assert of_steps(unusable) == []


def of_steps(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["kind"].startswith("step_")]


# the timeline -------------------------------------------------------------------------------------


def engine(step: int) -> dict[str, Any]:
    spans = [["scheduler", 0, 60.0 * step - 3, 60.0 * step - 1]]
    return {"rank": None, "role": "engine", "step": step, "phase": "decode", "spans": spans}


def drawn(told: tuple[dict[str, Any], ...]) -> Findings:
    return study({RUN: event(timeline=told)})


def test_engine_and_ranks_have_rows_of_their_own() -> None:
    device = {
        "rank": 1,
        "device": True,
        "step": 0,
        "phase": "decode",
        "spans": [["moe", 0, 2.0, 9.0]],
    }
    told = (*timeline(), engine(1), device)
    tracks = figure_step_timeline.tracks(told)
    assert [track.label for track in tracks] == ["engine", "rank 0", "rank 1", "rank 1 device"]
    assert [track.depths for track in tracks] == [1, 3, 3, 1]
    figure = figure_step_timeline.draw(drawn(told), RUN)
    assert figure is not None and "step 2" in texts(figure)


def test_few_steps_and_ranks_are_drawn() -> None:
    told = timeline(range(20), steps=8)
    assert figure_step_timeline.steps(told) == [0, 1, 2]
    assert len(figure_step_timeline.tracks(told)) == figure_step_timeline.MAX_RANKS
    many = timeline(range(8), steps=3, layers=200)
    assert figure_step_timeline.steps(many) == [0]


def test_without_spans_there_is_no_timeline() -> None:
    assert figure_step_timeline.draw(drawn(()), RUN) is None
    assert figure_step_timeline.draw(drawn((engine(0),)), RUN) is None


def test_bars_of_several_launches_are_their_mean() -> None:
    second = "decode_noparser_short_c1_t128_r3_start2"
    found = study({RUN: event(), second: event(table(changed(DECODE, moe=28.0)))})
    (bar,) = figure_step_stack.bars(found, "parser", "decode")
    assert bar.launches == 2 and bar.ms["moe"] == pytest.approx(27.0)
    assert dataclasses.replace(bar, state="") == bar
