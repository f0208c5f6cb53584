"""What a step's time goes to, by rule from the tables of its profiles: one profile a launch of the same arm.

In: `step_table.Profile`s of one arm. Out: a `Judgement`: the classes of time that lead, and what of it is not told
apart. Classes are `work` (of the model), `wait` and `transfer` (in collectives; `collective` where nobody split them),
`gaps` (the device idle between kernels), `sync` (the host waits for the device), `host` (scheduler and host work) and
`unattributed`. Times are milliseconds a step, shares are of the step.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from decodelab import step_regions
from decodelab.step_table import Profile, Region, Table

CLASSES = ("work", "wait", "transfer", "collective", "gaps", "sync", "host", "unattributed")
LAUNCH_GAP = "launch_gap"  # region of a trace: the device idles until the next kernel is launched
CLOSURE = 0.03  # of the step: what a valid profile may leave in no region, or count twice
NOTHING_MS = 1e-6  # a nanosecond, which is what rounding leaves
MOST = 0.5  # of the step: more is most of it, less is its largest part


@dataclass(frozen=True)
class Part:
    """A class or a region over the launches."""

    name: str
    ms: float  # mean over launches of the mean over steps
    spread_ms: float
    each_ms: tuple[float, ...]  # one a launch
    share: float


@dataclass(frozen=True)
class Judgement:
    """`state`: clear (one class leads), tie (of several none is known to), order (of regions only: a profile whose
    timers distort the step), unranked (`why`: invalid, no_table, no_times, no_spread, unattributed)."""

    state: str
    why: str | None = None
    step_ms: float | None = None
    leading: tuple[Part, ...] = ()  # classes; more than one where they tie
    regions: tuple[Part, ...] = ()  # of the class that leads; more than one where they tie
    order: tuple[
        tuple[str, ...], ...
    ] = ()  # regions, the most time first; those together are level
    classes: tuple[Part, ...] = ()

    @property
    def most(self) -> bool:
        return bool(self.leading) and self.leading[0].share >= MOST


_Told = dict[str, tuple[float, float]]  # name -> milliseconds a step, spread over steps


def judge(profiles: Sequence[Profile], phase: str = "decode") -> Judgement:
    """Invalid profiles count for nothing. A single profile in mode sync makes all of it an order."""
    usable = [profile for profile in profiles if profile.valid]
    if not usable:
        return Judgement("unranked", "invalid")
    tables = [table for profile in usable if (table := profile.table(phase)) is not None]
    if len(tables) < len(usable):
        return Judgement("unranked", "no_table")
    step_ms = [table.step_ms_mean for table in tables if table.step_ms_mean]
    if len(step_ms) < len(tables) or any(_untimed(table) for table in tables):
        return Judgement("unranked", "no_times")
    if any(_spread(region) is None for table in tables for region in table.regions):
        return Judgement("unranked", "no_spread", statistics.mean(step_ms))
    floor_ms = max(_floor_ms(table) for table in tables)
    regions = _over_launches([_by_region(table) for table in tables], step_ms)
    if not all(profile.states_shares for profile in usable):
        named = [part for part in regions if part.name != step_regions.UNATTRIBUTED]
        return Judgement("order", order=_order(named, floor_ms))
    told = [_by_class(profile, table) for profile, table in zip(usable, tables, strict=True)]
    classes = _over_launches(told, step_ms)
    return _leading(classes, regions, floor_ms, statistics.mean(step_ms))


def _leading(
    classes: Sequence[Part], regions: Sequence[Part], floor_ms: float, step_ms: float
) -> Judgement:
    if not classes:
        return Judgement("unranked", "no_times", step_ms)
    first = _level_with_first(classes, floor_ms)
    if first[0].name == "unattributed":
        return Judgement("unranked", "unattributed", step_ms, classes=tuple(classes))
    state = "clear" if len(first) == 1 else "tie"
    mine = [part for part in regions if _class(part.name) == first[0].name]
    inside = _level_with_first(mine, floor_ms) if state == "clear" and mine else ()
    return Judgement(state, None, step_ms, first, inside, (), tuple(classes))


# the rule -----------------------------------------------------------------------------------------


def apart(one: Part, other: Part, floor_ms: float) -> bool:
    """Whether `one` is known to take more: in every launch, and by more than the spread of either and the floor.

    The spread is the larger of the range over the launches and of P90 - P50 over the steps. A launch has thousands of
    steps, but they share its state, so a standard error over steps would call any difference certain; and a range over
    two launches may be small by luck. The floor is what the profile itself leaves open: time that its regions do not
    close to might belong to any of them.
    """
    lead = min(mine - its for mine, its in zip(one.each_ms, other.each_ms, strict=True))
    return lead > 0 and one.ms - other.ms > max(one.spread_ms, other.spread_ms, floor_ms)


def _level_with_first(parts: Sequence[Part], floor_ms: float) -> tuple[Part, ...]:
    first, *rest = parts
    return (first, *(part for part in rest if not apart(first, part, floor_ms)))


def _order(parts: Sequence[Part], floor_ms: float) -> tuple[tuple[str, ...], ...]:
    """Groups, the most first: a group ends only where all before it are apart from all behind it, so that no two
    regions of which one is told to take more are level."""
    groups: list[list[str]] = []
    for place, part in enumerate(parts):
        ends = all(
            apart(before, behind, floor_ms) for before in parts[:place] for behind in parts[place:]
        )
        if ends:
            groups.append([])
        groups[-1].append(part.name)
    return tuple(tuple(group) for group in groups)


def _floor_ms(table: Table) -> float:
    """What does not close, or was not measured to; of a table whose closure is not known what a valid one may leave."""
    closure = CLOSURE if table.closure is None else abs(table.closure)
    return closure * (table.step_ms_mean or 0.0)


# what is compared ---------------------------------------------------------------------------------


def _untimed(table: Table) -> bool:
    return not table.regions or any(region.ms_mean is None for region in table.regions)


def _spread(region: Region) -> float | None:
    if region.ms_p50 is None or region.ms_p90 is None:
        return None
    return max(0.0, region.ms_p90 - region.ms_p50)


def _by_region(table: Table) -> _Told:
    return {r.region: (r.ms_mean or 0.0, _spread(r) or 0.0) for r in table.regions}


_OWN_CLASS = {step_regions.UNATTRIBUTED: "unattributed", LAUNCH_GAP: "gaps"}


def _class(region: str) -> str:
    return _OWN_CLASS.get(region) or step_regions.kind(region)


def _by_class(profile: Profile, table: Table) -> _Told:
    """Regions of a class vary together at worst, so their spreads are added."""
    told: _Told = {}
    for region in table.regions:
        for name, ms in _split(region).items():
            before = told.get(name, (0.0, 0.0))
            told[name] = (before[0] + ms, before[1] + (_spread(region) or 0.0))
    if profile.gap_ms_per_step is not None and "gaps" not in told:
        left, spread = told.pop("unattributed", (0.0, 0.0))
        # Where the reader knows why the device idles, regions hold it already: nothing is counted twice.
        room = (table.step_ms_mean or 0.0) - sum(ms for ms, _ in told.values())
        gap_ms = min(profile.gap_ms_per_step, room)
        if gap_ms > NOTHING_MS:
            told["gaps"] = (gap_ms, _step_spread(table))
            left -= gap_ms
        if left > NOTHING_MS:
            told["unattributed"] = (left, spread)
    return told


def _split(region: Region) -> Mapping[str, float]:
    name, ms = _class(region.region), region.ms_mean or 0.0
    if name != "collective" or region.wait_ms is None or region.transfer_ms is None:
        return {name: ms}
    return {"wait": region.wait_ms, "transfer": region.transfer_ms}


def _step_spread(table: Table) -> float:
    """A trace tells one mean of its gaps; what the whole step varies by bounds what they do."""
    if table.step_ms_p50 is None or table.step_ms_p90 is None:
        return CLOSURE * (table.step_ms_mean or 0.0)
    return max(0.0, table.step_ms_p90 - table.step_ms_p50)


def _over_launches(told: Sequence[_Told], step_ms: Sequence[float]) -> list[Part]:
    """The most time first; what one launch does not have takes 0 there."""
    names: Iterable[str] = dict.fromkeys(name for launch in told for name in launch)
    parts = []
    for name in names:
        each = [launch.get(name, (0.0, 0.0)) for launch in told]
        ms = [value for value, _ in each]
        spread = max(max(ms) - min(ms), statistics.median(spread for _, spread in each))
        mean = statistics.mean(ms)
        parts.append(Part(name, mean, spread, tuple(ms), mean / statistics.mean(step_ms)))
    return sorted(parts, key=lambda part: (-part.ms, part.name))
