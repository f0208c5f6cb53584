"""Step: draw the figures of a study. Reads plan, tables and verdicts; writes SVG files and
figures.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from decodelab import figures, findings


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the CSV tables")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    parser.add_argument(
        "--runs", type=Path, help="folder of the published runs (default: beside the tables)"
    )
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    args = parser.parse_args(argv)
    found = findings.load(
        args.plan, args.tables, args.verdicts, args.runs or args.tables.parent / "runs"
    )
    drawn = figures.draw_all(found, args.out, args.format)
    print(f"{len(drawn)} figures in {args.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
