"""Boards with two dies: whose draw is the board's, so that no board is summed twice.

In: the samples of each accelerator. Out: the silent dies, each with the die that carries its draw.

ixsmi lists the two dies of an MR-V100 DUO or a BI-V150 as two accelerators. Its table and CSV give
the board's draw and cap on one of them and `N/A / N/A` on the other. (In the XML log each die has a
draw of its own, and the reader takes that one.) Board power printed on both dies alike is no die's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from decodelab.telemetry import Sample

TWO_DIES = re.compile(r"\bDUO\b|\bBI-V150", re.IGNORECASE)


def silent(by_gpu: Mapping[str, Sequence[Sample]]) -> dict[str, str]:
    """Key of each die without draw and cap -> key of the other die of its board. Empty unless all
    accelerators are dies of boards, in pairs, and of each pair exactly one is silent: a die that
    lost its reading must not pass for one that never had it.
    """
    out: dict[str, str] = {}
    for one, other in _boards(by_gpu):
        mute = [_says_nothing(by_gpu[key]) for key in (one, other)]
        if mute[0] == mute[1]:
            return {}
        out.update({one: other} if mute[0] else {other: one})
    return out


def _boards(by_gpu: Mapping[str, Sequence[Sample]]) -> list[tuple[str, str]]:
    """The two dies of each board: of one serial where the tool told it, else neighbours by index of a
    model that is known to have two. Empty unless that holds of all.
    """
    first = {key: samples[0].reading for key, samples in by_gpu.items()}
    order = sorted(by_gpu, key=lambda key: _index(by_gpu[key]))
    pairs = list(zip(order[::2], order[1::2], strict=False))
    serials = [first[key].serial for key in order]
    if all(serials):
        alike = all(first[one].serial == first[other].serial for one, other in pairs)
        told = alike and len(set(serials)) == len(pairs)
    else:
        told = all(TWO_DIES.search(first[key].name or "") for key in order)
    return pairs if told and len(order) == 2 * len(pairs) else []


def _index(samples: Sequence[Sample]) -> tuple[int, str]:
    first = samples[0].reading
    return (-1 if first.gpu is None else first.gpu, first.bus or "")


def _says_nothing(samples: Sequence[Sample]) -> bool:
    return all(
        s.reading.values[metric] is None for s in samples for metric in ("power_w", "power_cap_w")
    )
