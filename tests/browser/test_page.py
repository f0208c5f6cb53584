"""report.html in a real Chromium: quiet, drawn, switched, narrow, printed, and never fooled."""

from __future__ import annotations

import base64
import csv
import io
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from decodelab import plots
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
# Whether every trace of a variant is as visible as that.
TOGGLED = """
const plot = document.querySelector(arguments[0] + ' .plot');
const mine = plot._fullData.filter((trace) => trace.legendgroup === 'noparser');
return mine.length > 1 && mine.every((trace) => trace.visible === arguments[1]);
"""
LANGUAGE = """
const height = (language) => document.querySelector(`.page[data-language=${language}]`).offsetHeight > 0;
return [document.documentElement.lang, height('zh'), height('en')];
"""
TAB_STOPS = """
const boxes = [...document.querySelectorAll(`.page[data-language=${arguments[0]}] .box`)];
return boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.tabIndex);
"""


def plots_of(browser: Browser, language: str) -> list[str]:
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
    names = plots_of(browser, "zh")
    kinds = {kind for kind in plots.KINDS for name in names if name.startswith(f"{kind}_")}
    assert kinds == set(plots.KINDS)
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


# The hover text of the first mark of each figure, by its file.
HOVERS = """
const told = {};
for (const figure of document.querySelectorAll(arguments[0])) {
    const plot = figure.querySelector('.plot');
    const told_of = (trace) => trace.hovertemplate && !trace.hovertemplate.startsWith('%{meta}: ');
    const curve = plot.data.findIndex(told_of);
    const trace = plot.data[curve];
    const point = trace.type === 'heatmap' ? [0, 0] : 0;
    Plotly.Fx.hover(plot, [{ curveNumber: curve, pointNumber: point }], trace.xaxis + trace.yaxis);
    const texts = [...plot.querySelectorAll('.hovertext')];
    told[figure.dataset.plot] = texts.map((text) => text.textContent).join(' ');
    Plotly.Fx.unhover(plot);
}
return told;
"""


def test_each_kind_of_figure_tells_values_with_units(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.choose("language-en")
    told = browser.run(HOVERS, SHOWN.format("en"))
    wanted = {
        "gates_targets": r"e2e TPS.* tok/s.*target: .*requests \(n\): \d",
        "effects_parser": r"decode_rate: −4\.7%.*95% interval: −8\.7% … −0\.7%.*runs \(n\): \d",
        "itl_concurrency": r"gaps \(n\): 400.*gaps at or below 0\.000 ms: 0%",
        "cached_tools": r"request: \d+.*TTFT: [\d.]+s.*cached tokens: \d+",
        "step_stack_parser": r"region: .* ms.*share of the step: [\d.]+%.*launches \(n\): 1",
        "step_timeline_": r"region: .*rank 0: [\d.]+ ms.*begins at: [\d.]+ ms",
    }
    for name, pattern in wanted.items():
        (text,) = [text for file, text in told.items() if file.startswith(name)][:1]
        assert re.search(pattern, text), (name, text)


def test_the_legend_is_used_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page)
    name = selector("zh", "curve_concurrency.svg")
    entry = browser.driver.find_element(By.CSS_SELECTOR, f"{name} .legendtoggle")
    assert entry.get_attribute("aria-label") == "noparser"
    browser.run("arguments[0].focus()", entry)
    for hidden in (True, False):
        ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
        browser.wait(TOGGLED, name, "legendonly" if hidden else True)
        focused = "return document.activeElement.getAttribute(arguments[0])"
        assert browser.run(focused, "aria-label") == "noparser", "the focus stays where it was"
        assert browser.run(focused, "aria-pressed") == str(not hidden).lower()


def test_every_control_is_a_stop_of_the_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page)
    stops = browser.run(
        """const shown = document.querySelector('.page[data-language=zh]');
        const inner = shown.querySelectorAll('th button, summary, .modebar-btn, .legendtoggle');
        const name = (e) => e.ariaLabel || e.textContent || e.labels[0].textContent;
        const all = [...document.querySelectorAll('.bar input'), ...inner];
        return all.map((e) => [e.outerHTML.slice(0, 80), e.tabIndex, name(e)]);"""
    )
    assert len(stops) > 50
    assert [stop for stop in stops if stop[1] != 0 or not stop[2].strip()] == []


def test_the_legend_hides_a_variant(browser: Browser, page: Path) -> None:
    browser.open(page)
    name = selector("zh", "curve_concurrency.svg")
    entry = browser.driver.find_element(By.CSS_SELECTOR, f"{name} .legendtoggle")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", entry)
    ActionChains(browser.driver).move_to_element(entry).click().perform()
    browser.wait(TOGGLED, name, "legendonly")
    browser.choose("theme-dark")
    assert browser.run(TOGGLED, name, "legendonly"), "the other theme keeps what was toggled"


def test_the_language_is_switched_by_keyboard_and_remembered(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("return [document.documentElement.lang, document.title]")[0] == "zh"
    browser.driver.find_element(By.ID, "language-zh").send_keys(Keys.ARROW_RIGHT)
    browser.wait("return report.ready.figures === 'en'")
    assert browser.run(LANGUAGE) == ["en", False, True]
    assert len(plots_of(browser, "en")) == len(plots_of(browser, "zh"))
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


@pytest.fixture
def scriptless(browser: Browser) -> Iterator[Browser]:
    switch = "Emulation.setScriptExecutionDisabled"
    browser.driver.execute_cdp_cmd(switch, {"value": True})
    yield browser
    browser.driver.execute_cdp_cmd(switch, {"value": False})


SHOWN_WITHOUT_SCRIPTS = """
const shown = document.querySelector(`.page[data-language=${arguments[0]}]`);
const low = (e) => e.getBoundingClientRect().height < 10 || e.getBoundingClientRect().width < 10;
const all = (marks) => [...shown.querySelectorAll(marks)];
const drawn = (e) => !low(e) && e.querySelector('use').getBBox().width > 100;
const texts = all('h1, h2, h3, p, li, td, figcaption').filter((e) => e.textContent.trim());
return {
    scripts: document.querySelectorAll('script').length, ran: typeof report,
    display: getComputedStyle(shown).display, words: shown.innerText.length, tables: all('table').length,
    figures: all('figure').length, plots: all('.plot').filter((e) => !low(e)).length,
    drawn: all('figure .plate svg').filter(drawn).length,
    unseen: texts.filter((e) => e.getBoundingClientRect().height < 5).length,
};
"""


def test_the_page_is_whole_without_scripts(scriptless: Browser, page: Path) -> None:
    scriptless.driver.get(page.as_uri())
    for language, other in (("zh", "en"), ("en", "zh")):
        scriptless.driver.find_element(By.CSS_SELECTOR, f"label[for=language-{language}]").click()
        told = scriptless.run(SHOWN_WITHOUT_SCRIPTS, language)
        assert told["scripts"] > 0 and told["ran"] == "undefined", "the scripts must not have run"
        assert told["display"] == "grid" and told["words"] > 5000 and told["tables"] > 10
        assert told["figures"] > 10 and told["drawn"] == told["figures"] and told["plots"] == 0
        assert told["unseen"] == 0
        assert scriptless.run(SHOWN_WITHOUT_SCRIPTS, other)["display"] == "none"
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = scriptless.run(paper)
    scriptless.driver.find_element(By.CSS_SELECTOR, "label[for=theme-dark]").click()
    assert scriptless.run(paper) != light


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


def test_markup_in_names_stays_text_in_every_figure(browser: Browser, hostile_names: Path) -> None:
    browser.open(hostile_names)
    browser.choose("language-en")
    told = browser.run(HOVERS, SHOWN.format("en"))
    assert len(told) > 10
    named = {file.split("_")[0] for file, text in told.items() if "<script>" in text}
    assert named >= {"curve", "effects", "itl"}, "names stand in hover texts as text"
    labels = browser.run(
        "return [...document.querySelectorAll('#start-en .legendtext')].map(e => e.textContent)"
    )
    assert MARKUP in labels
    assert browser.run("return window.hacked === undefined")
    assert (
        browser.run("return document.querySelectorAll('article img, article script').length") == 0
    )
    assert MARKUP in browser.run(
        "return document.querySelector('.page[data-language=en]').textContent"
    )
    assert [entry["message"] for entry in browser.logged("browser")] == []
