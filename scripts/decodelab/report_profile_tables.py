"""The tables of a step profile: region by region, one range a cell where several launches were profiled.

In: the valid profiles of one arm (`step_table`) and the catalogue. Out: `Table`s of finished text. A profile whose
timers distort the step gets its order and no figure that a share could be made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodelab import markdown, numbers, step_judgement, step_regions
from decodelab.markdown import Md
from decodelab.report_tables import Table as Shown
from decodelab.step_table import Kernel, Profile, Region, Table
from decodelab.words import Words

MAX_KERNELS = 10
_OTHERS = ("prefill", "mixed")
_REST = step_regions.UNATTRIBUTED
_Cell = Callable[[Sequence[float | None]], str]
_Column = tuple[str, Callable[[Region], float | None], _Cell]


def region_label(region: str, words: Words) -> Md:
    """A region of ours in words beside its name; the user's own by its name alone."""
    key = f"profile.region.{region}"
    return words.say(key, name=markdown.code(region)) if key in words else markdown.code(region)


def shares(profiles: Sequence[Profile], words: Words) -> Shown:
    """Region by calls and milliseconds a decode step, share, and what the step would gain were it free."""
    tables = _of_phase(profiles, "decode")
    spread = any(r.ms_p50 is not None for table in tables for r in table.regions)
    columns: list[_Column] = [
        ("calls", lambda r: r.calls_per_step, _calls),
        *([("p50", lambda r: r.ms_p50, _ms), ("p90", lambda r: r.ms_p90, _ms)] if spread else []),
        *([] if spread else [("mean", lambda r: r.ms_mean, _ms)]),
        ("share", lambda r: r.share, _share),
        ("ceiling", lambda r: None if r.region == _REST else r.ceiling, _ceiling),
    ]
    head = [words.say("profile.column.region")]
    head += [words.say(f"profile.column.{name}") for name, _, _ in columns]
    rows: list[list[str]] = []
    for name in _names(tables):
        mine = [_region(table, name) for table in tables]
        told = [show([of(r) if r else None for r in mine]) for _, of, show in columns]
        rows.append([region_label(name, words), *told])
    rows.append(_whole_step(tables, spread, words))
    notes = [words.say("profile.note.exclusive")]
    if len(tables) > 1:
        notes.append(words.say("profile.note.range", n=str(len(tables))))
    return Shown(head, ["left"] + ["right"] * len(columns), rows, notes=notes)


def _whole_step(tables: Sequence[Table], spread: bool, words: Words) -> list[str]:
    """A table of means alone has no spread over steps."""
    names = ("step_ms_p50", "step_ms_p90") if spread else ("step_ms_mean",)
    times = [_ms([getattr(table, name) for table in tables]) for name in names]
    return [words.say("profile.whole_step"), numbers.DASH, *times, numbers.DASH, numbers.DASH]


def other_phases(profiles: Sequence[Profile], words: Words) -> Shown | None:
    """Prefill and mixed steps, short: they are another load and stand for themselves."""
    phases = {phase: _of_phase(profiles, phase, exact=True) for phase in _OTHERS}
    phases = {phase: tables for phase, tables in phases.items() if tables}
    if not phases:
        return None
    head = [words.say("profile.column.region")]
    for phase in phases:
        label = words.say(f"profile.phase.{phase}")
        head += [
            words.say(f"profile.column.phase_{what}", phase=label) for what in ("p50", "share")
        ]
    rows: list[list[str]] = []
    for name in _names([table for tables in phases.values() for table in tables]):
        row: list[str] = [region_label(name, words)]
        for tables in phases.values():
            mine = [_region(table, name) for table in tables]
            row += [_ms([r.ms_p50 if r else None for r in mine])]
            row += [_share([r.share if r else None for r in mine])]
        rows.append(row)
    step: list[str] = [words.say("profile.whole_step")]
    counts: list[str] = [words.say("profile.steps")]
    for tables in phases.values():
        step += [_ms([table.step_ms_p50 for table in tables]), numbers.DASH]
        counts += [_counts([table.steps for table in tables]), numbers.DASH]
    return Shown(
        head,
        ["left"] + ["right"] * (len(head) - 1),
        [*rows, step, counts],
        title=words.say("profile.other_phases"),
    )


def order(profiles: Sequence[Profile], words: Words) -> Shown | None:
    """Of a profile in mode sync: which region takes more than which, and its calls; level ones share a place."""
    groups = step_judgement.judge(profiles).order
    tables = _of_phase(profiles, "decode")
    head = [words.say(f"profile.column.{name}") for name in ("order", "region", "calls")]
    rows: list[list[str]] = []
    for group in groups:
        place = str(len(rows) + 1)
        for name in group:
            mine = [_region(table, name) for table in tables]
            calls = _calls([r.calls_per_step if r else None for r in mine])
            rows.append([place, region_label(name, words), calls])
    notes = [words.say("profile.note.level")]
    return Shown(head, ["right", "left", "right"], rows, notes=notes) if rows else None


def kernels(name: str, profile: Profile, words: Words) -> Shown | None:
    """The kernels that took most of the device's time in a trace."""
    top = sorted(profile.kernels, key=lambda kernel: -(kernel.ms_per_step or 0.0))
    if not top:
        return None
    columns = ("kernel", "category", "kernel_calls", "kernel_ms", "busy_share")
    rows = [_kernel(kernel, words) for kernel in top[:MAX_KERNELS]]
    left = len(top) - len(rows)
    return Shown(
        [words.say(f"profile.column.{column}") for column in columns],
        ["left"] * 2 + ["right"] * 3,
        rows,
        title=words.say("profile.kernels", run=name),
        notes=[words.say_n("profile.more_kernels", left)] if left else [],
    )


def _kernel(kernel: Kernel, words: Words) -> list[str]:
    key = f"profile.category.{kernel.category}"
    return [
        markdown.code(kernel.name),
        words.say(key) if key in words else markdown.code(kernel.category),
        _calls([kernel.calls_per_step]),
        _ms([kernel.ms_per_step]),
        _share([kernel.share]),
    ]


# cells --------------------------------------------------------------------------------------------


def _of_phase(profiles: Sequence[Profile], phase: str, exact: bool = False) -> list[Table]:
    """Those that have steps of the phase; `exact` leaves out tables that do not tell phases apart."""
    tables = [profile.table(phase) for profile in profiles]
    return [table for table in tables if table and (not exact or table.phase == phase)]


def _names(tables: Sequence[Table]) -> list[str]:
    return sorted({r.region for table in tables for r in table.regions}, key=step_regions.order)


def _region(table: Table, name: str) -> Region | None:
    return next((region for region in table.regions if region.region == name), None)


def _ms(values: Sequence[float | None]) -> str:
    return numbers.show_range("region_ms", values, bare=True)


def _share(values: Sequence[float | None]) -> str:
    return numbers.show_range("region_share", values)


def _calls(values: Sequence[float | None]) -> str:
    return _distinct([numbers.per_step(value) for value in values])


def _counts(values: Sequence[float | None]) -> str:
    return numbers.show_range("n_steps", values)


def _ceiling(values: Sequence[float | None]) -> str:
    return _distinct([numbers.times(value) for value in values])


def _distinct(texts: Sequence[str]) -> str:
    """The least and the most of what is known, as each reads."""
    known = [text for text in texts if text != numbers.DASH]
    ends = list(dict.fromkeys((min(known, key=_size), max(known, key=_size)))) if known else []
    return "-".join(ends) or numbers.DASH


def _size(text: str) -> float:
    return float(text.rstrip("×"))
