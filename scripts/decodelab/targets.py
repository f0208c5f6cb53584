"""Small texts of the config that mean numbers: targets (">= 20"), shares ("5%"), conditions.

In: the text, and the unit of the metric that it is about: 50% of a share is 0.5, of a percentage 50.
Out: the value, or ValueError whose message says what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from decodelab.vocabulary import DECIDING, NOT_SUPPORTED, OPERATORS

_TARGET = re.compile(r"^\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)\s*(%?)\s*$")
_SHARE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")
_WHEN = re.compile(r"^\s*(\S+)\s+is\s+(not\s+)?([a-z_]+)\s*$")

TARGET_FORM = "an operator (" + ", ".join(OPERATORS) + ') and a number, like ">= 20" or ">= 50%"'
_TOP = {"share": 1.0, "%": 100.0}  # the most that a metric of this unit can be
SHARE_FORM = "a share between 0 and 1, like 5% or 0.05"
WHEN_FORM = '"<experiment> is <verdict>" or "<experiment> is not supported"'
WHEN_VERDICTS = ", ".join(DECIDING) + " (invalid decides nothing)"


def target(text: str, unit: str | None = None) -> dict[str, Any]:
    """`unit`: of the metric; None where that is not known, so that any number will do."""
    found = _TARGET.match(text)
    if not found:
        raise ValueError(TARGET_FORM)
    operator, number, percent = found.groups()
    if not percent:
        return {"op": operator, "value": limit(float(number), unit, operator)}
    if unit not in (None, "share", "%"):
        raise ValueError(f"a number{' of ' + unit if unit else ''}, without %")
    if unit == "%":
        return {"op": operator, "value": _within(float(number), unit, operator)}
    return {"op": operator, "value": _within(float(number) / 100, unit, operator)}


def limit(value: float, unit: str | None, operator: str = "") -> float:
    """A bare number. One that can only mean the other spelling of a share or percentage is refused."""
    if unit == "%" and 0 < value < 1:
        percent = f"{value * 100:g}"
        raise ValueError(
            f"a percentage from 0 to 100: {_spelled(operator, percent)} for {percent} %"
            + (f", {_spelled(operator, f'{value:g}%')} if so little is meant" if operator else "")
        )
    return _within(value, unit, operator)


def _within(value: float, unit: str | None, operator: str) -> float:
    top = _TOP.get(unit or "")
    if top is None or 0 <= value <= top:
        return value
    if unit == "%":
        raise ValueError(f"a percentage from 0 to 100, like {_spelled(operator, '50')}")
    asked = value if 1 < value <= 100 else 50.0
    hint = _spelled(operator, f"{asked / 100:g}")
    also = f" or {_spelled(operator, f'{asked:g}%')}" if operator else ""
    raise ValueError(f"a share from 0 to 1, like {hint}{also}")


def _spelled(operator: str, number: str) -> str:
    return f'"{operator} {number}"' if operator else number


def share(given: float | int | str) -> float:
    """5% and 0.05 alike; a bare 5 is refused, since it would mean 500 %."""
    if isinstance(given, str):
        found = _SHARE.match(given)
        if not found or float(found.group(1)) > 100:
            raise ValueError(SHARE_FORM)
        return round(float(found.group(1)) / 100, 12)
    if not 0 <= given <= 1:
        raise ValueError(SHARE_FORM)
    return float(given)


def when(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """`A is not supported`, or {experiment, verdict, start_class} -> the experiment, the verdicts that
    let it go on, and the classes of failed starts of which one must have come up (none: any).
    """
    if not isinstance(given, str):
        return _when_parts(given)
    found = _WHEN.match(given)
    if not found:
        raise ValueError(WHEN_FORM)
    experiment, negated, verdict = found.groups()
    if verdict not in DECIDING or (negated and verdict != "supported"):
        raise ValueError(WHEN_FORM + "; verdicts: " + WHEN_VERDICTS)
    return {
        "experiment": experiment,
        "verdicts": list(NOT_SUPPORTED) if negated else [verdict],
        "start_classes": [],
        "text": given,
    }


def _when_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    verdicts, classes = _listed(given.get("verdict")), _listed(given.get("start_class"))
    if not verdicts or any(verdict not in DECIDING for verdict in verdicts):
        raise ValueError("verdicts: " + WHEN_VERDICTS)
    if classes and verdicts != ["not_possible"]:
        raise ValueError(
            "start_class beside verdict not_possible only: nothing else failed to start"
        )
    experiment = str(given.get("experiment"))
    text = f"{experiment} is {' or '.join(verdicts)}"
    return {
        "experiment": experiment,
        "verdicts": verdicts,
        "start_classes": classes,
        "text": text + (f" by {' or '.join(classes)}" if classes else ""),
    }


def _listed(given: Any) -> list[str]:
    return list(given) if isinstance(given, list) else [given] if given else []
