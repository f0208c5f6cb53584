"""Step: give measured runs (or captures) the plan's names. Reads receipts and the raw store, writes
results/<study>/runs/.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

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
    chosen = decision_files.Folder(plan, Path.cwd(), results.as_posix(), args.plan.stem).choices()
    states = decisions.launch_states(plan, chosen)
    made = {}
    for launch in (digest for digest, state in states.items() if state == decisions.CHOSEN):
        file = results / "launches" / f"{launch}.json"
        whole = receipts.read(file)
        if whole is None:
            print(f"{file}: not a receipt.\n{receipts.AGAIN}", file=sys.stderr)
            return 1
        made[launch] = whole
    publish = published.publish_runs if args.what == "decode_runs" else published.publish_captures
    try:
        publish(plan, made, Path.cwd(), folder, states)
    except StoreError as error:
        print(f"{error}\n{HINT}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
