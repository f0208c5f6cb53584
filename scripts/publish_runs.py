"""Step: give measured runs (or captures) the plan's names. Reads receipts and the raw store, writes
results/<study>/runs/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodelab import decision_files, decisions, published, receipts
from decodelab.store import StoreError

HINT = (
    "Hint: the raw store was changed by hand. Restore the folder from a copy, or move it out of\n"
    "results/raw and measure that run again."
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["decode_runs", "ixsmi_capture"])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the index file to write")
    args = parser.parse_args(argv)
    plan = json.loads(args.plan.read_text(encoding="utf-8"))
    folder, results = args.out.parent, args.out.parent.parent
    publish = published.publish_runs if args.what == "decode_runs" else published.publish_captures
    try:
        made, states = chosen(plan, args.plan.stem, results, Path.cwd())
        publish(plan, made, Path.cwd(), folder, states)
    except NotAReceipt as error:
        print(error, file=sys.stderr)
        return 1
    except StoreError as error:
        print(f"{error}\n{HINT}", file=sys.stderr)
        return 1
    return 0


class NotAReceipt(Exception):
    """A receipt that is missing, damaged or something else; the text is for the user."""


def chosen(
    plan: Mapping[str, Any], stem: str, results: Path, root: Path
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The receipts of the launches that the decisions on disk choose, and the state of every launch.
    `stem`: of the plan's file; `results`: the study's folder, relative to `root`. Raises NotAReceipt."""
    folder = decision_files.Folder(plan, root, results.as_posix(), stem)
    states = decisions.launch_states(plan, folder.choices())
    made = {}
    for launch in (digest for digest, state in states.items() if state == decisions.CHOSEN):
        whole = receipts.read(root / folder.receipt(launch))
        if whole is None:
            raise NotAReceipt(f"{folder.receipt(launch)}: not a receipt.\n{receipts.AGAIN}")
        made[launch] = whole
    return made, states


if __name__ == "__main__":
    raise SystemExit(main())
