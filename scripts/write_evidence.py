"""Step: write evidence.json, which says of every number of a report what it comes from. Reads plan,
tables, verdicts, the published runs, the raw files' checksums and the report itself.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from decodelab import findings, raw_checksums, report_evidence
from decodelab.store import StoreError, write_json
from decodelab.written_files import Written


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument(
        "--results", type=Path, required=True, help="folder of runs, tables and verdicts"
    )
    parser.add_argument("--report", type=Path, required=True, help="folder of the pages")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--root", type=Path, default=Path(), help="what the index's raw paths are relative to"
    )
    args = parser.parse_args(argv)
    try:
        made = document(args.plan, args.results, args.report, args.root)
    except (OSError, ValueError, StoreError) as error:
        print(f"write_evidence: {error}", file=sys.stderr)
        return 1
    write_json(args.out, made)
    print(f"{args.out} ({len(made['entries'])} entries)")
    return 0


def document(plan: Path, results: Path, report: Path, root: Path) -> dict[str, Any]:
    """The content of evidence.json; `results` and `report` may be copies of the study's folders."""
    found = findings.load(plan, results / "tables", results / "verdicts.json", results / "runs")
    study = str(found.plan["study"])
    return report_evidence.document(
        found,
        PurePosixPath("results", study, "plan", plan.name),
        raw_checksums.collect(found.plan, found.published or {}, root, results),
        Written(study, results, report, found.plan["languages"]).sums(),
    )


if __name__ == "__main__":
    sys.exit(main())
