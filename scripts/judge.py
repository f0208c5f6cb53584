"""Tables -> verdicts.

In: the plan and results/<study>/tables. Out: verdicts.json.

    python scripts/judge.py --plan PLAN.json --tables results/STUDY/tables --out verdicts.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodelab import judge, published, records, tables
from decodelab.store import write_json


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        plan = json.loads(args.plan.read_text(encoding="utf-8"))
        pending = _pending(plan, args.tables.parent / "runs")
        verdicts = judge.judge(plan, tables.load(args.tables), pending)
    except (OSError, ValueError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 1
    write_json(args.out, verdicts)
    return 0


def _pending(plan: Mapping[str, Any], runs: Path) -> set[str] | None:
    """Runs that are still to be made; None where nobody knows, or nothing more is to come."""
    if plan.get("kind") == "replay" or not (runs / published.RUNS_INDEX).is_file():
        return None
    missing = records.load_index(runs)["missing"]
    return {run["name"] for run in missing if run["why"] == "pending"}


if __name__ == "__main__":
    sys.exit(main())
