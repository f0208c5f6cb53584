"""Whose memory was it?  A message of a device that is full names its total, its free and our share.

In: the class that a rule gave to a message, and the message. Out: the class that its numbers give.
What is neither free nor ours belongs to somebody else, also where (in a container) nobody can say
to whom. Pure.
"""

from __future__ import annotations

import re
from typing import Optional

_SIZE = r"([\d.]+) ([GM])iB"
_TOTAL = re.compile(r"total capac\w+ of " + _SIZE + "|" + _SIZE + r" total capacity")
_FREE = re.compile(r"of which " + _SIZE + r" is free|; " + _SIZE + r" free")
_OURS = re.compile(r"this process has " + _SIZE)  # all of it
_OF_TORCH = re.compile(_SIZE + r" reserved in total")  # torch < 2.1: without what is not torch's
_OTHERS = re.compile(r"Process \d+ has " + _SIZE)
_AT_START = re.compile(r"Free memory on device[^(]{0,20}\(([\d.]+)/([\d.]+) GiB\)")
# GiB, and share of the total: less of it is what drivers and contexts take, not another's model.
_FOREIGN = (1.0, 0.05)
_FOREIGN_TORCH = (3.0, 0.10)  # where our own share is told without what is not torch's
_CONTEXT_GIB = 0.75  # an empty device is short of this, for our own context


def corrected(name: str, text: str) -> str:
    """`name`, or what the numbers of this message make of it."""
    if name == "gpu_oom" and (_others_hold_more(text) or _is_foreign(text)):
        return "gpu_memory_taken"
    if name == "gpu_memory_taken" and _was_empty(text):
        return "bad_argument"  # more is asked for than an empty device has
    return name


def _gib(pattern: "re.Pattern[str]", text: str) -> Optional[float]:
    found = pattern.search(text)
    if found is None:
        return None
    value, unit = [group for group in found.groups() if group is not None][:2]
    return _size(value, unit)


def _size(value: str, unit: str) -> float:
    return _number(value) * (1.0 if unit == "G" else 1 / 1024)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # 1.2.3
        return 0.0


def _others_hold_more(text: str) -> bool:
    """Other processes are named, by pid, with more than ours has."""
    own = _gib(_OURS, text)
    others = _OTHERS.findall(text)
    if own is None or not others:
        return False
    return sum(_size(value, unit) for value, unit in others) > own


def _is_foreign(text: str) -> bool:
    """Of the total, a good part is neither free nor ours."""
    total, free = _gib(_TOTAL, text), _gib(_FREE, text)
    own, (least_gib, share) = _gib(_OURS, text), _FOREIGN
    if own is None:
        own, (least_gib, share) = _gib(_OF_TORCH, text), _FOREIGN_TORCH
    if total is None or free is None or own is None:
        return False
    return total - free - own > max(least_gib, share * total)


def _was_empty(text: str) -> bool:
    found = _AT_START.search(text)
    if found is None:
        return False
    free, total = _number(found.group(1)), _number(found.group(2))
    return 0 < free <= total and total - free <= _CONTEXT_GIB
