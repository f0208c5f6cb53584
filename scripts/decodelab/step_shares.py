"""A profile as evidence: which share of the time each region, op or kernel takes.

In: a `Profile`. Out: shares by name, of one whole; of a trace `region / kernel` for each top kernel beside the
region's rest. What is not attributed (idle CPU, kernels of no known class) has no name. ValueError where it states
no shares.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from decodelab import step_kernels
from decodelab.plain_shares import ROUNDING
from decodelab.step_regions import UNATTRIBUTED
from decodelab.step_table import Profile

_PART = " / "


def of_profile(profile: Profile, phase: str = "decode") -> dict[str, float]:
    if not profile.states_shares:
        why = "its timers synchronised, which inflates" if profile.valid else "it is invalid"
        raise ValueError(f"a profile that states no shares ({why})")
    if profile.source == "kernels":
        return _told({k.name: k.share for k in profile.kernels})
    table = profile.table(phase)
    regions = {} if table is None else _told({r.region: r.share for r in table.regions})
    if profile.source != "trace":
        return _told(dict(regions))
    return _by_kernel(profile, regions)


def _told(shares: Mapping[str, float | None]) -> dict[str, float]:
    told = {name: share for name, share in shares.items() if share is not None}
    if not told:
        raise ValueError("no shares in it")
    return told


def _by_kernel(profile: Profile, regions: dict[str, float]) -> dict[str, float]:
    """Kernels' shares are of the busy time: of the step they are as much less as the step is idle."""
    on_device = profile.gpu_busy_share is not None
    idle = step_kernels.IDLE if on_device else ("engine", UNATTRIBUTED)
    busy = sum(share for name, share in regions.items() if name not in idle)
    out = dict(regions)
    for kernel in profile.kernels:
        share = (kernel.share or 0) * busy
        if kernel.category in out:
            out[f"{kernel.category}{_PART}{kernel.name}"] = share
            out[kernel.category] = max(0.0, out[kernel.category] - share)
    nobody = (step_kernels.OTHER, *(() if on_device else (UNATTRIBUTED,)))
    return {
        n: s
        for n, s in out.items()
        if n not in nobody and not n.startswith(step_kernels.OTHER + _PART)
    }


def share_of(shares: Mapping[str, float], pattern: str) -> tuple[float, float]:
    """Least and most share of the ops whose name fits the pattern (`*fused_moe*`, in any case): what
    was not attributed may or may not be theirs. A kernel of a trace fits by its region too."""
    fits = [
        share
        for name, share in shares.items()
        if any(
            fnmatch.fnmatchcase(part.lower(), pattern.lower())
            for part in {name, *name.split(_PART)}
        )
    ]
    rest = 1 - sum(shares.values())
    least = sum(fits)
    return least, least + (rest if rest > ROUNDING else 0.0)
