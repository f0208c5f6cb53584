"""Can a verdict be trusted?  Whole studies whose truth is known, through the judge itself.

    python benchmarks/calibration.py [--quick] [--studies N] [--check] [--write PAGE] [--json FILE]

In:  nothing: the plan is the product's own, of a config of two variants; its requests are simulated
     with the noise of the field (0.3 % inside a start, 2 % between starts, 3 % drift over the order,
     a first request that is an outlier).
Out: Markdown tables: launches an arm x floor x shape of the drift: false verdicts, power, coverage.
     docs/calibration.md says what each column means; --write renews its tables.
Exit code 1 if --check is given and a requirement is missed, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

from fidelity.table import markdown, write_block  # noqa: E402
from verdicts import share_studies, tally  # noqa: E402
from verdicts.requirements import Row, missed  # noqa: E402
from verdicts.simulated import SHAPES, Design, Noise, planned  # noqa: E402

EFFECTS = (0.0, 0.03, 0.05, 0.08, 0.12)
DESIGNS = (
    Design(1),
    Design(1, "own"),
    Design(1, "other"),
    *(Design(starts, aa) for starts in (2, 3, 5) for aa in ("none", "own")),
)
STUDIES, QUICK_STUDIES = 1000, 150
SEED = 20260714
HEAD = (
    "starts an arm",
    "floor",
    "drift",
    "false supported, true 0 %",
    "supported at 3 %",
    "false refuted at 5 %",
    "false refuted at 8 %",
    "supported at 8 %",
    "supported at 12 %",
    "95 % interval holds",
    "its half-width",
    "drift doubted",
)
WELCH_HEAD = (
    "starts an arm",
    "floor",
    "drift",
    "supported at 8 %: pooled",
    "Welch",
    "interval holds: pooled",
    "Welch",
    "half-width: pooled",
    "Welch",
)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parsed(argv)
    studies = arguments.studies or (QUICK_STUDIES if arguments.quick else STUDIES)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for design in DESIGNS for row in rows_of(design, Path(folder), studies)]
    about = f"{studies} studies a cell; ± is one Monte-Carlo standard error."
    blocks = {
        "verdicts": f"{markdown(HEAD, [line(row) for row in rows])}\n\n{about}",
        "welch": markdown(WELCH_HEAD, [welch_line(row) for row in rows if row.welch]),
    }
    shared = share_studies.rows(studies, SEED)
    blocks["shares"] = f"{markdown(share_studies.HEAD, share_studies.lines(shared))}\n\n{about}"
    print("\n\n".join(blocks.values()))
    if arguments.write:
        for name, text in blocks.items():
            write_block(arguments.write, name, text)
    if arguments.json:
        arguments.json.write_text(json.dumps([as_json(row) for row in rows], indent=1))
    wrong = [*missed(rows), *share_studies.missed(shared)]
    for text in wrong:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if wrong and arguments.check else 0


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STUDIES} studies a cell")
    parser.add_argument("--studies", type=int, help=f"studies a cell (default {STUDIES})")
    parser.add_argument("--check", action="store_true", help="exit 1 if a requirement is missed")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="renew the tables of a page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the counts behind the tables")
    return parser.parse_args(argv)


def rows_of(design: Design, folder: Path, studies: int) -> list[Row]:
    """A row for each shape of the drift; the seed is the cell's own, whatever else is run."""
    made = planned(design, folder)
    rows = []
    for shape in SHAPES:
        row = Row(design, shape, {}, {})
        for n, effect in enumerate(EFFECTS):
            noise = Noise(shape=shape)
            seed = SEED + 1000 * DESIGNS.index(design) + 10 * SHAPES.index(shape) + n
            mine, welch = tally.run(made, design, noise, effect, studies, seed)
            row.mine[effect] = mine
            if welch is not None:
                row.welch[effect] = welch
        print(row.name, file=sys.stderr)
        rows.append(row)
    return rows


def line(row: Row) -> list[str]:
    held, studies = row.covered
    none = row.mine[0.0]
    return [
        *first(row),
        shown(none.share("supported"), none.studies),
        *(word(row, "supported", 0.03), word(row, "refuted", 0.05), word(row, "refuted", 0.08)),
        *(word(row, "supported", 0.08), word(row, "supported", 0.12)),
        shown(held, studies),
        f"{none.half / none.studies:.1%}",
        shown(none.drifts / none.studies, none.studies) if none.design != Design(1) else "-",
    ]


def welch_line(row: Row) -> list[str]:
    pairs = [(row.mine[0.08], row.welch[0.08]), (row.mine[0.0], row.welch[0.0])]
    return [
        *first(row),
        *(shown(one.share("supported"), one.studies) for one in pairs[0]),
        *(shown(*covered) for covered in (row.covered, row.welch_covered)),
        *(f"{one.half / one.studies:.1%}" for one in pairs[1]),
    ]


def first(row: Row) -> list[str]:
    return [str(row.design.starts), row.design.name, row.shape]


def word(row: Row, verdict: str, effect: float) -> str:
    found = row.mine[effect]
    return shown(found.share(verdict), found.studies)


def shown(share: float, studies: int) -> str:
    return f"{share:.1%} ± {tally.error(share, studies) * 100:.1f}"


def as_json(row: Row) -> dict[str, Any]:
    return {
        "starts": row.design.starts,
        "aa": row.design.aa,
        "shape": row.shape,
        "effects": {
            f"{effect:g}": {"studies": one.studies, "held": one.held, **one.words}
            for effect, one in row.mine.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
