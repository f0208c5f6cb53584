"""Small texts of the config that mean numbers: targets (">= 20"), shares ("5%"), conditions.

In: the text. Out: the value, or ValueError whose message says what is allowed.
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
SHARE_FORM = "a share between 0 and 1, like 5% or 0.05"
WHEN_FORM = '"<experiment> is <verdict>" or "<experiment> is not supported"'
WHEN_VERDICTS = ", ".join(DECIDING) + " (invalid decides nothing)"


def target(text: str) -> dict[str, Any]:
    found = _TARGET.match(text)
    if not found:
        raise ValueError(TARGET_FORM)
    operator, number, percent = found.groups()
    return {"op": operator, "value": float(number) / (100 if percent else 1)}


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
