"""report.html in a real Chromium: quiet, drawn, switched, narrow, printed, and never fooled."""

from __future__ import annotations

import base64
import csv
import io
import re
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import FIXTURE, MARKUP, Browser

SHOWN = ".page[data-language='{0}'] figure[data-plot]"
POINTS = """
const figure = document.querySelector(arguments[0]), plot = figure.querySelector('.plot');
const count = (marks) => figure.querySelectorAll(marks).length;
const known = (trace) => trace.x.filter((value) => value !== null).length;
const wanted = (test) => plot.data.filter(test).reduce((sum, trace) => sum + known(trace), 0);
const has = (mode) => (trace) => (trace.mode || '').includes(mode);
return {
    markers: [count('.scatterlayer .point'), wanted(has('markers'))],
    bars: [count('.barlayer .point'), wanted((trace) => trace.type === 'bar')],
    lines: [count('.scatterlayer .js-line'), plot.data.filter(has('lines')).length],
    maps: [count('.heatmaplayer image'), plot.data.filter((trace) => trace.type === 'heatmap').length],
    mistakes: Plotly.validate(plot.data, plot.layout) || [],
    plate: figure.querySelector('.plate').offsetHeight,
    text: figure.textContent,
};
"""
# Whether every trace of a variant is switched off.
OFF = """
const plot = document.querySelector(arguments[0] + ' .plot');
const mine = plot._fullData.filter((trace) => trace.legendgroup === 'noparser');
return mine.length > 1 && mine.every((trace) => trace.visible === 'legendonly');
"""
LANGUAGE = """
const height = (language) => document.querySelector(`.page[data-language=${language}]`).offsetHeight > 0;
return [document.documentElement.lang, height('zh'), height('en')];
"""
TAB_STOPS = """
const boxes = [...document.querySelectorAll(`.page[data-language=${arguments[0]}] .box`)];
return boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.tabIndex);
"""


def plots(browser: Browser, language: str) -> list[str]:
    names = browser.run(
        f'return [...document.querySelectorAll("{SHOWN.format(language)}")].map(f => f.dataset.plot)'
    )
    return [str(name) for name in names]


def selector(language: str, name: str) -> str:
    return f".page[data-language='{language}'] figure[data-plot='{name}']"


def test_it_is_quiet_and_asks_for_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    for choice in ("language-en", "theme-dark", "language-zh"):
        browser.choose(choice)
    assert browser.requests() == []
    assert [entry["message"] for entry in browser.logged("browser")] == []


def test_the_policy_stops_a_request(browser: Browser, page: Path) -> None:
    """What the test above relies on: a page that asks would be told, and would get nothing."""
    browser.open(page)
    browser.run(
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.head.append(s)"
    )
    browser.wait("return document.images.length > 0")
    messages = " ".join(entry["message"] for entry in browser.logged("browser"))
    assert "Content Security Policy" in messages
    assert browser.run("return window.hacked === undefined")


def test_every_figure_is_drawn_with_all_its_marks(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = plots(browser, "zh")
    assert {name.split("_")[0] for name in names} == {
        "curve",
        "timeline",
        "telemetry",
        "grid",
        "pareto",
    }
    for name in names:
        found: dict[str, Any] = browser.run(POINTS, selector("zh", name))
        for kind in ("markers", "bars", "lines", "maps"):
            assert found[kind][0] == found[kind][1], (name, kind, found)
        wrong = [m for m in found["mistakes"] if m["code"] not in ("unused", "invisible")]
        assert wrong == [], name
        assert found["plate"] == 0, "the drawn figure is for print and for pages without scripts"
        assert "SIMULATED" in found["text"], name


def test_the_curve_shows_the_runs_of_the_table(browser: Browser, page: Path) -> None:
    with (FIXTURE / "tables" / "runs.csv").open(encoding="utf-8", newline="") as handle:
        rows = {row["run"]: row for row in csv.DictReader(handle)}
    totals = [
        float(rows[f"decode_noparser_short_c{c}_t128_r4"]["output_tps_total"]) for c in (1, 2, 4)
    ]
    browser.open(page)
    shown = browser.run(
        "return document.querySelector(arguments[0] + ' .plot').data.filter(t => t.xaxis === 'x3').map(t => t.y)",
        selector("zh", "curve_concurrency.svg"),
    )
    assert totals in shown


def test_hovering_tells_the_value_with_its_unit(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.choose("language-en")
    name = selector("en", "curve_concurrency.svg")
    point = browser.driver.find_element(By.CSS_SELECTOR, f"{name} .scatterlayer .point")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(browser.driver).move_to_element(point).perform()
    told = browser.wait("return document.querySelector('.hoverlayer .hovertext')?.textContent")
    assert re.search(r"Output TPS P[15]0: \d+\.\d\d tok/s", told)
    assert "variant: noparser" in told


def test_the_legend_hides_a_variant(browser: Browser, page: Path) -> None:
    browser.open(page)
    name = selector("zh", "curve_concurrency.svg")
    entry = browser.driver.find_element(By.CSS_SELECTOR, f"{name} .legendtoggle")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", entry)
    ActionChains(browser.driver).move_to_element(entry).click().perform()
    browser.wait(OFF, name)
    browser.choose("theme-dark")
    assert browser.run(OFF, name), "the other theme keeps what was toggled"


def test_the_language_is_switched_by_keyboard_and_remembered(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("return [document.documentElement.lang, document.title]")[0] == "zh"
    browser.driver.find_element(By.ID, "language-zh").send_keys(Keys.ARROW_RIGHT)
    browser.wait("return report.ready.figures === 'en'")
    assert browser.run(LANGUAGE) == ["en", False, True]
    assert len(plots(browser, "en")) == len(plots(browser, "zh"))
    browser.driver.refresh()
    browser.wait("return report.ready.figures === 'en'")
    assert browser.run(LANGUAGE) == ["en", False, True]


def test_a_link_into_the_other_language_shows_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("location.hash = document.querySelector('.page[data-language=en] h2').id")
    browser.wait("return document.documentElement.lang === 'en' && report.ready.figures === 'en'")


def test_the_theme_is_switched_and_remembered(browser: Browser, page: Path) -> None:
    browser.open(page)
    paper = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.querySelector('figure.drawn .plot').layout.font.color"
    light = browser.run(paper), browser.run(ink)
    browser.choose("theme-dark")
    dark = browser.run(paper), browser.run(ink)
    assert light[0] != dark[0] and light[1] != dark[1]
    browser.driver.refresh()
    browser.wait("return report.ready.figures")
    assert (browser.run(paper), browser.run(ink)) == dark


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_phone_scrolls_in_one_direction_only(browser: Browser, page: Path, language: str) -> None:
    browser.screen(360, 740, phone=True)
    browser.open(page)
    browser.choose(f"language-{language}")
    browser.run("document.querySelectorAll('.contents details').forEach(d => { d.open = true })")
    assert browser.run("return [document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    wide = browser.run(TAB_STOPS, language)
    assert wide and set(wide) == {0}, "a wide table scrolls in its box, by keyboard too"


def squeezed(text: str) -> str:
    """Without spaces, and ligatures as their letters: a PDF has its own."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


def has_chinese_font() -> bool:
    listed = subprocess.run(["fc-list", ":lang=zh", "family"], capture_output=True, text=True)
    return bool(listed.stdout.strip())


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_print_is_whole(browser: Browser, page: Path, language: str, theme: str) -> None:
    if language == "zh" and not has_chinese_font():
        pytest.skip("needs a Chinese font: fonts-wqy-microhei of Debian")
    browser.open(page)
    browser.choose(f"language-{language}")
    browser.choose(f"theme-{theme}")
    settings = {"preferCSSPageSize": True, "printBackground": False}
    data = browser.driver.execute_cdp_cmd("Page.printToPDF", settings)["data"]
    text = squeezed(
        "".join(p.extract_text() for p in PdfReader(io.BytesIO(base64.b64decode(data))).pages)
    )
    expected = browser.run(
        """const shown = document.querySelector(`.page[data-language=${arguments[0]}]`);
        const headings = [...shown.querySelectorAll('h1, h2, h3')];
        const cells = [...shown.querySelectorAll('table')].flatMap(t => [...t.rows[t.rows.length - 1].cells]);
        return [...headings, ...cells].map(e => e.textContent);""",
        language,
    )
    assert len(expected) > 50
    assert [said for said in expected if squeezed(said) not in text] == []
    other = browser.run(
        "return document.querySelector(`.page:not([data-language=${arguments[0]}]) h1`).textContent",
        language,
    )
    assert squeezed(other) not in text or squeezed(other) in squeezed("".join(expected))


def test_markup_in_a_config_stays_text(browser: Browser, hostile: Path) -> None:
    browser.open(hostile)
    assert browser.run("return window.hacked === undefined")
    assert (
        browser.run(
            "return document.querySelectorAll('article img, article script, figure img').length"
        )
        == 0
    )
    assert browser.run("return document.querySelector('h1').textContent") == MARKUP
    assert MARKUP in browser.run("return document.querySelector('article').textContent")
    assert [entry["message"] for entry in browser.logged("browser")] == []
