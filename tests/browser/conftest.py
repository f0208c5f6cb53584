"""A real headless Chromium, and pages made by the steps of the workflow.

Without Chromium every test here is skipped.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import draw_figures
import pytest
import write_html
import write_report
import yaml
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from decodelab import figures, html_page
from decodelab.columns import COLUMNS
from tests.unit import profile_samples
from tests.unit.small_config import SMALL

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "golden" / "report" / "fixture"
DEADLINE_S = 240  # of a page that never becomes what it should be
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MARKUP = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1> {{7*7}} %{x}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not (CHROMIUM and DRIVER):
                item.add_marker(
                    pytest.mark.skip(reason="needs chromium and chromium-driver of Debian")
                )


class Browser:
    """A driver and what every test asks of it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path) -> None:
        """Waits until the figures are drawn; what was logged before is forgotten."""
        self.logged("browser")
        self.logged("performance")
        self.driver.get(page.as_uri())
        self.wait("return report.ready.figures")

    def run(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def wait(self, script: str, *given: object) -> Any:
        return WebDriverWait(self.driver, DEADLINE_S, 0.05).until(
            lambda driver: driver.execute_script(script, *given)
        )

    def choose(self, what: str) -> None:
        """`language-en`, `theme-dark`, ..."""
        self.run("document.getElementById(arguments[0]).click()", what)
        self.wait("return report.ready.figures")

    def logged(self, kind: str) -> list[Any]:
        return list(self.driver.get_log(kind))

    def requests(self) -> list[str]:
        """Every address that the browser asked for, the page's own and those within it left out."""
        events = [json.loads(entry["message"])["message"] for entry in self.logged("performance")]
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        own = self.driver.current_url.partition("#")[0]
        return [url for url in asked if url != own and not url.startswith(("data:", "blob:"))]

    def screen(self, width: int, height: int = 900, phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options, Service(DRIVER))
    made.set_page_load_timeout(DEADLINE_S)
    made.set_script_timeout(DEADLINE_S)
    yield made
    made.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome) -> Iterator[Browser]:
    yield Browser(driver)
    driver.execute_script("localStorage.clear()")  # the next test's reader was never here
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small study that the report's golden texts are of, with gaps and profiles."""
    root = tmp_path_factory.mktemp("report")
    return written(whole_study(root / "study"), root)


@pytest.fixture(scope="session")
def hostile_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with markup for a variant's name, a region's and a line of a server's log."""
    root = tmp_path_factory.mktemp("names")
    study = whole_study(root / "study", region=MARKUP)
    for name in ("plan.json", "verdicts.json"):
        text = (study / name).read_text(encoding="utf-8")
        text = text.replace('"noparser"', json.dumps(MARKUP))
        (study / name).write_text(text, encoding="utf-8")
    for path in (study / "tables").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        for row in rows:
            changed = {
                "variant": row.get("variant") == "noparser",
                "root_cause": row.get("root_cause"),
            }
            row.update({name: MARKUP for name, hit in changed.items() if hit})
        write_table(path, rows)
    return written(study, root)


def whole_study(folder: Path, region: str = "my_norm") -> Path:
    """A copy of the fixture, with what each kind of figure wants."""
    shutil.copytree(FIXTURE, folder)
    regions = {**profile_samples.DECODE, region: (40.0, 3.0, 0.1)}
    profile = profile_samples.event(
        profile_samples.table(regions),
        profile_samples.PREFILL,
        timeline=profile_samples.timeline(),
    )
    profile_samples.write(folder, {"decode_noparser_short_c1_t128_r3": profile})
    gaps = [
        {"run": f"decode_noparser_short_c{c}_t128_r4", "n_gaps": 400, "share": n / 20}
        | {"itl_s": 0.005 * c * n, "several_share": 1.0 if n > 15 else 0.0}
        for c in (1, 2)
        for n in range(21)
    ]
    write_table(folder / "tables" / "itl.csv", gaps)
    return folder


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(COLUMNS[path.stem]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def written(study: Path, folder: Path) -> Path:
    """The report of a study by the three steps."""
    given = ["--plan", str(study / "plan.json"), "--tables", str(study / "tables")]
    given += ["--verdicts", str(study / "verdicts.json")]
    drawn = ["--figures", str(folder / "figures")]
    draw_figures.main([*given, "--out", drawn[1]])
    pages = []
    for language, name in (("zh", "report.md"), ("en", "report.en.md")):
        write_report.main([*given, *drawn, "--language", language, "--out", str(folder / name)])
        pages += ["--page", language, str(folder / name)]
    write_html.main([*pages, *drawn, "--out", str(folder / "report.html")])
    return folder / "report.html"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a config whose texts hold markup: from the config to the page."""
    root = tmp_path_factory.mktemp("hostile")
    data = yaml.safe_load(SMALL)
    data["title"] = MARKUP
    data["variants"]["base"]["label"] = MARKUP
    data["experiments"]["A"]["title"] = MARKUP
    prompts = Path("scripts", "cargo", "scenarios")
    shutil.copytree(ROOT / prompts, root / prompts)
    (root / "config").mkdir()
    (root / "config" / "config.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    step = [sys.executable, str(ROOT / "scripts" / "report_partial.py")]
    done = subprocess.run(
        [*step, "--config", "config/config.yaml"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "report" / "small" / "partial" / "report.html"


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the tables of test_tables.py and no figure."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / figures.LIST).write_text('{"figures": []}', encoding="utf-8")
    text = (Path(__file__).parent / "tables.md").read_text(encoding="utf-8")
    (folder / "report.html").write_text(html_page.write({"en": text}, folder), encoding="utf-8")
    return folder / "report.html"
