"""A step profile as lines of plain text: regions x (calls, ms P50/P90, share, ceiling), kernels, doubts.

Shares of an invalid profile, or of timers that synchronise, are not shown; without known steps times are totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from decodelab import markdown, step_words, words
from decodelab.step_table import Profile, Table

DASH = "-"
TOP = 10  # kernels shown


def lines(profiles: Mapping[str, Profile]) -> Iterable[str]:
    for run, profile in profiles.items():
        if run:
            yield f"== {run}"
        yield from _profile(profile)


def _profile(profile: Profile) -> Iterable[str]:
    mode = f", mode {profile.mode}" if profile.mode else ""
    ranks = f", {profile.ranks} ranks" if (profile.ranks or 1) > 1 else ""
    yield f"{profile.source}{mode}{ranks}: {'valid' if profile.valid else 'INVALID'}"
    said = words.load("en")
    for kind, sign, told in (
        ("problem", "invalid:", profile.problems),
        ("doubt", "doubt:", profile.doubts),
    ):
        yield from (f"  {sign} {step_words.sentence(kind, one, said)}" for one in told)
    if profile.mode == "sync":
        yield "  timers that synchronise: regions in their order, no shares"
    for table in profile.tables:
        yield ""
        yield from _table(table, profile.states_shares)
    yield from _device(profile)
    if profile.kernels:
        yield ""
        yield from _kernels(profile)


def _table(table: Table, states_shares: bool) -> Iterable[str]:
    rank = "" if table.rank is None else f", rank {table.rank}"
    steps = f": {table.steps} steps" if table.steps else ""
    step = f", step {_ms(table.step_ms_p50)} ms P50, {_ms(table.step_ms_p90)} P90" if steps else ""
    yield f"phase {table.phase}{rank}{steps}{step}"
    head = ["region", "calls/step", "ms P50", "ms P90", "ms mean", "share", "ceiling"]
    total = table.steps is None and any(r.total_ms is not None for r in table.regions)
    waits = any(r.wait_ms is not None for r in table.regions)
    head += ["total ms"] * total + ["wait ms", "transfer ms"] * waits
    rows = []
    for r in table.regions:
        share = (_percent(r.share), _times(r.ceiling)) if states_shares else (DASH, DASH)
        cells = [markdown.one_line(r.region), _number(r.calls_per_step)]
        cells += [_ms(r.ms_p50), _ms(r.ms_p90), _ms(r.ms_mean)]
        cells += [*share, *[_ms(r.total_ms)] * total]
        rows.append(cells + [_ms(r.wait_ms), _ms(r.transfer_ms)] * waits)
    yield from _aligned([head, *rows])
    if table.closure is not None:
        yield f"  regions against the step: {table.closure:+.1%}"


def _device(profile: Profile) -> Iterable[str]:
    if profile.gpu_busy_share is None:
        return
    yield ""
    yield f"GPU busy {_percent(profile.gpu_busy_share)}, idle {_ms(profile.gap_ms_per_step)} ms a step"
    if profile.launches_per_step is not None:
        yield f"kernel launches a step: {_number(profile.launches_per_step)}"


def _kernels(profile: Profile) -> Iterable[str]:
    head = ["kernel", "class", "calls/step", "ms/step", "share of busy", "total ms", "calls"]
    rows = [
        [
            _kernel(markdown.one_line(k.name)),
            k.category,
            _number(k.calls_per_step),
            _ms(k.ms_per_step),
            _percent(k.share) if profile.states_shares else DASH,
            _ms(k.total_ms),
            _number(k.total_calls),
        ]
        for k in profile.kernels[:TOP]
    ]
    yield from _aligned([head, *rows])


def _kernel(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  " + "  ".join(cells).rstrip()


def _ms(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:g}"


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.1%}"


def _times(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}x"
