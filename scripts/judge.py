"""Tables -> verdicts.

In: the plan and results/<study>/tables. Out: verdicts.json.

    python scripts/judge.py --plan PLAN.json --tables results/STUDY/tables --out verdicts.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from decodelab import judge, tables
from decodelab.store import write_json


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        plan = json.loads(args.plan.read_text(encoding="utf-8"))
        verdicts = judge.judge(plan, tables.load(args.tables))
    except (OSError, ValueError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 1
    write_json(args.out, verdicts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
