"""Compare two run files, or several starts of each side.

In: run records (decodelab.run/1), A the baseline, B the candidate. Out: a table a metric on stdout:
medians, their distribution-free intervals, the difference with its 95 % interval, a verdict.

    python scripts/compare.py A.json B.json [--metric decode_rate]
    python scripts/compare.py A1.json A2.json --with B1.json B2.json

Exit code: 0 compared, whatever the verdict; 1 a file cannot be read as a run record; 2 the runs are
unlike (or the arguments are wrong).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decodelab import comparison, numbers, records, verdict_making
from decodelab.vocabulary import METRIC_ALIASES, METRICS

LOG_WIDTH = 110  # where no terminal says how wide it is
COLOURS = {"supported": "green", "refuted": "red", "invalid": "bold red"}


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    a, b = (args.files, args.others) if args.others else (args.files[:1], args.files[1:])
    if len(a) < 1 or (not args.others and len(b) != 1):
        parser.error("A.json B.json, or several files of A, then --with and several of B")
    try:
        sides = comparison.load(a, b)
    except records.UnreadableRecord as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    metrics = list(dict.fromkeys(args.metric or ["decode_rate"]))
    unlike = list(dict.fromkeys(d for m in metrics for d in comparison.differences(sides, m)))
    if unlike and not args.force:
        lines = "".join(f"\n  {text}" for text in unlike)
        print(f"compare: these runs are unlike:{lines}", file=sys.stderr)
        print("Hint: --force compares them all the same and says so.", file=sys.stderr)
        return 2
    page = Page(sides)
    page.head(unlike)
    for metric in metrics:
        page.metric(comparison.compare(sides, metric, args.smallest_effect))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="A.json B.json, or the files of A")
    add("--with", dest="others", nargs="+", type=Path, metavar="FILE", help="the files of B")
    add("--metric", action="append", type=_metric, help="default decode_rate; may be repeated")
    add(
        "--smallest-effect",
        type=float,
        default=verdict_making.SMALLEST_EFFECT,
        help="share by which B must be better for a yes (default %(default)s)",
    )
    add("--force", action="store_true", help="compare unlike runs, naming what differs on top")
    return parser


def _metric(text: str) -> str:
    name = METRIC_ALIASES.get(text, text)
    if name not in comparison.CHOICES:
        known = ", ".join(comparison.CHOICES)
        raise argparse.ArgumentTypeError(f"{text!r} is none of: {known}")
    return name


class Page:
    """The text of a comparison; no cell or line is ever read as markup."""

    def __init__(self, sides: comparison.Sides) -> None:
        self.sides = sides
        terminal = sys.stdout.isatty()
        self.console = Console(width=None if terminal else LOG_WIDTH, no_color=not terminal)

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def head(self, unlike: Sequence[str]) -> None:
        for text in unlike:
            self.line(f"UNLIKE: {text}", "bold red")
        for letter, files in (("A", self.sides.a), ("B", self.sides.b)):
            for file in files:
                self.line(f"{letter}  {file.path}")
        first = self.sides.a[0].row
        sources = sorted({str(file.row["source"]) for file in self.sides.files})
        self.line(
            f"source: {', '.join(sources)} · scenario {first['scenario']} · "
            f"concurrency {first['concurrency']} · {first['requests']} requests of at most "
            f"{first['max_tokens']} tokens{_load(first)}"
        )
        for text in comparison.warnings(self.sides):
            self.line(f"note: {text}", "yellow")

    def metric(self, found: comparison.Result) -> None:
        better = METRICS[found.metric].direction
        table = Table(box=box.ASCII2, safe_box=True)
        for heading in ("", "starts", "ok / sent", f"n ({found.over})", "median"):
            table.add_column(heading, justify="right")
        table.add_column("95% interval of the median", justify="right")
        table.add_column("value of each start", overflow="fold")
        for letter, figures in (("A", found.a), ("B", found.b)):
            table.add_row(*(Text(cell) for cell in self._row(letter, figures, found.metric)))
        self.line()
        self.line(f"{found.metric} ({METRICS[found.metric].unit}), {better} is better")
        self.console.print(table)
        if found.over == "requests":
            self.line(f"B against A over requests: {_shift(found)}")
        self.line(f"B against A over starts: {_change(found)}")
        for note in _honest(found, min(file.row["n_ok"] for file in self.sides.files)):
            self.line(f"note: {note}")
        why = "; ".join(found.why)
        self.line(f"verdict: {found.verdict} - {why}", COLOURS.get(found.verdict, ""))

    def _row(self, letter: str, figures: comparison.Figures, metric: str) -> list[str]:
        files = self.sides.a if letter == "A" else self.sides.b
        counts = [sum(file.row[name] for file in files) for name in ("n_ok", "n_attempted")]
        interval = f"none from n = {figures.n}"
        if figures.interval is not None:
            low, high = (numbers.show(metric, bound, bare=True) for bound in figures.interval)
            interval = f"{low} {numbers.ELLIPSIS} {high}"
        return [
            letter,
            str(len(figures.starts)),
            f"{counts[0]} / {counts[1]}",
            str(figures.n),
            numbers.show(metric, figures.median, bare=True),
            interval,
            "  ".join(numbers.show(metric, value, bare=True) for value in figures.starts),
        ]


def _load(row: Mapping[str, Any]) -> str:
    """An open loop and a declared cache, where the runs have them."""
    text = f" · open loop {row['rate']:g}/s {row['arrivals']}" if row["rate"] else ""
    return f"{text} · cache {row['cache']}" if row["cache"] else text


def _shift(found: comparison.Result) -> str:
    if found.shift is None:
        return numbers.DASH
    text = numbers.effect(found.shift.change)
    if found.shift.interval is None:
        return (
            f"{text} (no 95% interval from n = {found.a.n} and {found.b.n}: the least is 4 and 4)"
        )
    bounds = numbers.interval(found.shift.interval)
    return f"{text} ({bounds}; Mann-Whitney, n = {found.a.n} and {found.b.n})"


def _change(found: comparison.Result) -> str:
    if found.change is None:
        return numbers.DASH
    method = {
        "floor": f"the estimate ± the restart floor of {numbers.size(found.change.floor)}",
        "own_t": "Student's t of the arm with several starts, at least the restart floor of "
        f"{numbers.size(found.change.floor)}",
        "pooled_t": "Student's t over starts, pooled variance",
        "paired_t": "Student's t over starts, paired",
    }[found.change.method]
    text = numbers.effect(found.change.effect)
    return f"{text} ({numbers.interval(found.change.interval)}; {method})"


def _honest(found: comparison.Result, fewest: int) -> list[str]:
    """What the figures cannot say. `fewest`: successes of the file with fewest."""
    out = []
    which = numbers.split(found.metric)[2]
    if which in ("p10", "p50", "p90") and not numbers.enough_for_percentile(fewest, which):
        out.append(f"a {which.upper()} of {fewest} requests has no distribution-free 95% interval")
    if found.over == "requests":
        out.append("requests of one start are not independent: their interval is of these starts")
    if found.change is not None and found.change.method in ("floor", "own_t"):
        one = " and ".join(s for s, f in (("A", found.a), ("B", found.b)) if len(f.starts) == 1)
        out.append(
            f"one start in {one}: nothing here measures the scatter between restarts, so no "
            f"difference below the restart floor of {numbers.size(found.change.floor)}, a field "
            "value, can be told"
        )
        low, high = found.change.interval
        if found.verdict == "inconclusive" and found.change.drift and not low <= 0 <= high:
            limit = numbers.size(found.change.floor + found.change.drift)
            out.append(
                "two starts are in no balanced order, so a gain has to exceed floor and drift of the"
                f" host together: {limit}"
            )
    return out


if __name__ == "__main__":
    sys.exit(main())
