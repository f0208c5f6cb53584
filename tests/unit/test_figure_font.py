"""Names that the fonts of the figures cannot write: no boxes, and the caption says what stands for what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from decodelab import figure_font, figure_style


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    yield
    plt.close("all")


def drawn(label: str) -> Figure:
    with figure_style.style():
        figure, axes = plt.subplots()
        axes.plot([1, 2], [1, 2], label=label)
        axes.legend()
        axes.set_yticks([1, 2], ["变体一", "plain"])
        axes.set_title(f"Curve: {label}")
    return figure


def shown(figure: Figure) -> list[str]:
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    figure.canvas.draw()
    ticks = [label.get_text() for label in axes.get_yticklabels()]
    return [*ticks, legend.get_texts()[0].get_text(), axes.get_title()]


def test_without_the_font_names_have_stand_ins(no_chinese_font: None) -> None:
    figure = drawn("关闭解析器 v2")
    stands = figure_font.stand_in(figure)
    assert set(stands) == {"关闭解析器", "变体一"}
    one, label = stands["变体一"], stands["关闭解析器"]
    assert shown(figure) == [one, "plain", f"{label} v2", f"Curve: {label} v2"]
    assert figure_font.said(stands).count("*") == 2


def test_what_can_be_written_stays(no_chinese_font: None) -> None:
    figure = drawn("x")
    figure.axes[0].set_yticks([1, 2], ["µs ≥ 5", "plain"])
    assert figure_font.stand_in(figure) == {}
    assert shown(figure) == ["µs ≥ 5", "plain", "x", "Curve: x"]


def test_a_character_of_neither_font_has_a_stand_in() -> None:
    assert figure_font.stand_ins(["\U0001f680", "plain"]) == {"\U0001f680": "name 1*"}


@pytest.mark.skipif(not figure_font.has_chinese(), reason="fonts-droid-fallback is not installed")
def test_with_the_font_chinese_is_written() -> None:
    figure = drawn("关闭解析器")
    assert figure_font.stand_in(figure) == {}
    assert shown(figure)[0] == "变体一"


def test_another_file_under_that_name_is_not_used(
    no_chinese_font: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure that depends on which font a machine happens to have is not the same everywhere."""
    other = figure_font._LATIN_FILES[400]
    monkeypatch.setattr(figure_font, "CHINESE_FILE", other)
    assert not figure_font.has_chinese() and figure_font.families() == (figure_font.LATIN,)


def test_the_latin_font_is_the_one_that_matplotlib_brings() -> None:
    figure_font.families()
    for weight in (400, 700):
        wanted = font_manager.FontProperties(family=figure_font.LATIN, weight=weight)
        found = Path(font_manager.findfont(wanted))
        assert found.samefile(figure_font._LATIN_FILES[weight])


def test_a_chinese_character_is_two_wide() -> None:
    assert figure_font.width("解析ab") == 6
