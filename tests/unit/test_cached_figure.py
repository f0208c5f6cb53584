"""TTFT against cached tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest
from test_figures import load, texts

from decodelab import figure_cached
from decodelab.findings import Findings

RUN = "decode_noparser_short_c2_t128_r4"


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    yield
    plt.close("all")


def with_requests(
    *given: tuple[float | None, float | None, str], prompt: float = 2000.0
) -> Findings:
    """Requests of RUN: cached tokens, TTFT in s, outcome."""
    known = load()
    rows: list[dict[str, Any]] = [
        {
            "run": RUN,
            "index": float(place),
            "outcome": outcome,
            "cached_tokens": cached,
            "prompt_tokens": prompt + place,
            "ttft_s": ttft,
        }
        for place, (cached, ttft, outcome) in enumerate(given)
    ]
    return dataclasses.replace(known, requests={RUN: rows})


def test_a_point_is_a_success_whose_cached_tokens_are_known() -> None:
    found = with_requests(
        (0.0, 2.0, "ok"), (1900.0, 0.4, "ok"), (None, 0.3, "ok"), (0.0, 9.0, "timeout")
    )
    (panel,) = figure_cached.panels(found, "concurrency")
    assert [(p.cached_tokens, p.ttft_s, p.warm) for p in panel.points] == [
        (0.0, 2.0, False),
        (1900.0, 0.4, True),
    ]
    assert panel.name == "curve, concurrency 2"


def test_requests_that_do_not_differ_have_no_figure() -> None:
    assert (
        figure_cached.draw(with_requests((0.0, 1.0, "ok"), (0.0, 2.0, "ok")), "concurrency") is None
    )
    assert figure_cached.draw(with_requests((9.0, 1.0, "ok")), "concurrency") is None


def test_the_figure_tells_cold_and_warm_and_the_length_of_prompts() -> None:
    figure = figure_cached.draw(with_requests((0.0, 2.0, "ok"), (9.0, 0.4, "ok")), "concurrency")
    assert figure is not None
    shown = set(texts(figure))
    assert {"cached prompt tokens", "TTFT (s)", "cold: nothing cached", "warm"} <= shown
    assert {"2000 prompt tokens", "2001 prompt tokens", "SIMULATED"} <= shown
    cold, warm = figure.axes[0].lines
    assert cold.get_markerfacecolor() == "none" and warm.get_markerfacecolor() == warm.get_color()
    assert cold.get_markersize() < warm.get_markersize()


def test_short_times_are_told_in_ms() -> None:
    figure = figure_cached.draw(with_requests((0.0, 0.2, "ok"), (9.0, 0.04, "ok")), "concurrency")
    assert figure is not None and "TTFT (ms)" in texts(figure)
    assert [float(line.get_ydata()[0]) for line in figure.axes[0].lines] == [200.0, 40.0]


def test_the_declared_state_of_the_cache_is_named() -> None:
    found = with_requests((0.0, 0.2, "ok"), (9.0, 0.04, "ok"))
    runs = {**found.runs, RUN: {**found.runs[RUN], "cache": "warm"}}
    (panel,) = figure_cached.panels(dataclasses.replace(found, runs=runs), "concurrency")
    assert panel.name == "curve, concurrency 2 (declared warm)"
