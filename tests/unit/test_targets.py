"""A number of the config means what its metric's unit says, or is refused with the right spelling."""

from __future__ import annotations

import pytest

from decodelab import questions, targets


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        (">= 50%", "%", 50.0),
        (">= 50", "%", 50.0),
        ("< 0.5%", "%", 0.5),
        ("<= 0", "%", 0.0),
        (">= 99%", "share", 0.99),
        (">= 0.99", "share", 0.99),
        (">= 20", "tok/s", 20.0),
        (">= 50%", None, 0.5),
    ],
)
def test_percent_by_unit(text: str, unit: str | None, value: float) -> None:
    assert targets.target(text, unit)["value"] == value


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        (">= 99", "share", '">= 0.99" or ">= 99%"'),
        (">= 120%", "share", "a share from 0 to 1"),
        ("> -0.1", "share", "a share from 0 to 1"),
        (">= 0.5", "%", '">= 50" for 50 %, ">= 0.5%" if so little is meant'),
        ("< 101", "%", "a percentage from 0 to 100"),
        (">= 50%", "tok/s", "a number of tok/s, without %"),
        (">= 50%", "", "a number, without %"),
    ],
)
def test_limits_that_can_only_be_another_unit(text: str, unit: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        targets.target(text, unit)
    assert said in str(caught.value)


def test_a_condition_is_in_its_metrics_unit() -> None:
    of = {"metric": "util_pct_mean_window", "is": "< 50%"}
    assert questions.condition(of) == {**of, "verdict": None, "is": {"op": "<", "limit": 50.0}}
    share = questions.condition({"metric": "coalesced_share", "is": "< 50%"})
    profile = questions.condition({"profile": "p", "op": "*", "is": "< 50%"})
    assert share and share["is"]["limit"] == 0.5
    assert profile and profile["is"]["limit"] == 0.5
