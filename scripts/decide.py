"""Step: what one experiment's own launches say, for those that wait for its verdict. Reads the plan,
its receipts and the raw store; writes the decision, and beside it the runs and tables it was made of.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aggregate

from decodelab import decision_files, decisions, judge, published, tables
from decodelab.receipts import AGAIN
from decodelab.store import StoreError, write_json


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--experiment", required=True)
    args = parser.parse_args(argv)
    plan = json.loads(args.plan.read_text(encoding="utf-8"))
    results = args.plan.parent.parent
    folder = decision_files.Folder(plan, Path.cwd(), results.as_posix(), args.plan.stem)
    choice = folder.choices()[args.experiment]
    if choice.state != decisions.CHOSEN:
        print(
            f"{args.experiment} is {choice.state}: it waits for {choice.when['text']}",
            file=sys.stderr,
        )
        return 1
    receipts = folder.receipts(args.experiment)
    if receipts is None:
        gone = ", ".join(folder.without_receipt(args.experiment))
        print(f"{args.experiment}: no receipt, or a damaged one: {gone}\n{AGAIN}", file=sys.stderr)
        return 1
    try:
        decided = decide(plan, args.experiment, receipts, results / "decisions" / args.experiment)
    except (StoreError, OSError, ValueError) as error:
        print(f"decide: {error}", file=sys.stderr)
        return 1
    folder.write(args.experiment, decided, receipts)
    print(f"{args.experiment}: {decided['verdict']}" + _no_decision(decided))
    return 0


def _no_decision(decided: Mapping[str, Any]) -> str:
    if decided["decision"] is not None or decided["verdict"] is None:
        return ""
    return f"; this decides nothing: invalid: {', '.join(decided['invalid_points'])}"


def decide(
    plan: Mapping[str, Any], experiment: str, receipts: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Publish, aggregate and judge the experiment's own launches, by the code that makes the report.
    Raises StoreError, OSError or ValueError for what cannot be read.
    """
    # Files of profiles are evidence of suspects, not of verdicts; a trace would take long to read.
    own = {**plan, "runs": decisions.own_runs(plan, experiment), "profiles": {}}
    runs, made = folder / "runs", folder / "tables"
    published.publish_runs(own, receipts, Path.cwd(), runs)
    published.publish_captures(own, receipts, Path.cwd(), runs)
    aggregate.make(own, runs, Path.cwd(), made)
    verdicts, summary, decided = judge.alone(experiment, plan, tables.load(made), pending=())
    write_json(folder / "verdicts.json", {"verdicts": verdicts, "summary": summary})
    return decided


if __name__ == "__main__":
    raise SystemExit(main())
