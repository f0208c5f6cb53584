"""Step: write the report of a study in one language. Reads plan, tables, verdicts and figures;
writes Markdown.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from decodelab import figures, findings, report, step_export, words


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the CSV tables")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument(
        "--figures", type=Path, required=True, help="folder of the figures, with figures.json"
    )
    parser.add_argument("--language", choices=words.LANGUAGES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--runs", type=Path, help="folder of the published runs (default: beside the tables)"
    )
    args = parser.parse_args(argv)
    found = findings.load(
        args.plan, args.tables, args.verdicts, args.runs or args.tables.parent / "runs"
    )
    folder = _seen(args.figures, args.out)
    found = replace(found, traces_at=_seen(args.tables.parent / step_export.FOLDER, args.out))
    text = report.write(found, figures.read_list(args.figures), folder, words.load(args.language))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text, encoding="utf-8")
    print(args.out)
    return 0


def _seen(folder: Path, page: Path) -> str:
    """A folder as a link on the page names it."""
    return Path(os.path.relpath(folder, page.parent)).as_posix()


if __name__ == "__main__":
    raise SystemExit(main())
