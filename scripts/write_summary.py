"""Step: write the one-page summary of a study in one language. Reads plan, tables and verdicts, as the
report beside it does; writes Markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from decodelab import findings, report_handoff, words


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the CSV tables")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--language", choices=words.LANGUAGES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--runs", type=Path, help="folder of the published runs (default: beside the tables)"
    )
    args = parser.parse_args(argv)
    runs = args.runs or args.tables.parent / "runs"
    found = findings.load(args.plan, args.tables, args.verdicts, runs)
    page = args.out.name.replace("summary", "report")  # it lies beside, under the same ending
    text = report_handoff.write(found, page, words.load(args.language))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text, encoding="utf-8")
    print(args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
