"""Tables are sorted as a reader expects: ranges, units, signs, dashes, and by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser

ORDER = "return [...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => r.cells[0].textContent).join('')"


@pytest.mark.parametrize(
    ("column", "up", "down"),
    [
        (0, "abcde", "edcba"),
        (1, "daecb", "ceadb"),  # the dash stays last
        (2, "bdaec", "eadbc"),  # ms, s and min are one unit
        (3, "cadbe", "bdace"),  # a minus sign is a sign
        (4, "dbace", "acebd"),  # words; equal ones keep the report's order
    ],
)
def test_a_column_goes_up_down_and_back(
    browser: Browser, tables: Path, column: int, up: str, down: str
) -> None:
    browser.open(tables)
    button = browser.run(
        "return document.querySelectorAll('table')[0].tHead.rows[0].cells[arguments[0]].firstChild",
        column,
    )
    for expected, state in ((up, "ascending"), (down, "descending"), ("abcde", None)):
        button.send_keys(Keys.ENTER)
        assert browser.run(ORDER) == expected
        head = browser.run("return arguments[0].parentElement.getAttribute('aria-sort')", button)
        assert head == state


def test_one_column_is_the_sorted_one(browser: Browser, tables: Path) -> None:
    browser.open(tables)
    for place in (1, 2):
        browser.run("document.querySelectorAll('th button')[arguments[0]].click()", place)
    assert browser.run("return document.querySelectorAll('[aria-sort]').length") == 1


def test_a_table_of_several_units_is_not_sorted(browser: Browser, tables: Path) -> None:
    browser.open(tables)
    assert (
        browser.run(
            "return document.querySelectorAll('table')[1].querySelectorAll('button').length"
        )
        == 0
    )
