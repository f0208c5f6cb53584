"""Step: bring raw logs that exist already under the names of a replay plan; or explain how one raw
file is read.

python scripts/import_raw.py --plan PLAN.json --out-dir results/<study>/runs python
scripts/import_raw.py --explain FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from decodelab import evaluator_check, records, replay
from decodelab.fieldmap import DEFAULT_MAPPING, FieldMap, MappingError
from decodelab.foreign_capture import SCHEMA as CAPTURE_SCHEMA
from decodelab.foreign_capture import read_capture_file
from decodelab.foreign_request import Account
from decodelab.importing import RawShapeError, load, read_run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", type=Path, help="a plan of kind replay: publish its raw files")
    what.add_argument("--explain", type=Path, metavar="FILE", help="how FILE is read, key by key")
    parser.add_argument("--out-dir", type=Path, help="the published folder to write")
    parser.add_argument("--mapping", type=Path, default=DEFAULT_MAPPING, help="field names")
    args = parser.parse_args(argv)
    try:
        mapping = FieldMap.load(args.mapping)
        if args.explain:
            print("\n".join(explain(args.explain, mapping)))
            return 0
        if args.out_dir is None:
            parser.error("--plan needs --out-dir")
        return publish(args.plan, args.out_dir, mapping)
    except (RawShapeError, MappingError) as error:
        print(error, file=sys.stderr)
        return 1


def publish(plan_file: Path, out: Path, mapping: FieldMap) -> int:
    plan = json.loads(plan_file.read_text(encoding="utf-8"))
    if plan.get("kind") != "replay":
        print(
            f"{plan_file}: a plan of kind replay expected, {plan.get('kind')} found",
            file=sys.stderr,
        )
        return 1
    names = [plan["replay"].get("raw_dir"), plan["replay"].get("folder")]
    folders = [Path(name).expanduser() for name in names if name]
    absent = [str(folder) for folder in folders if not folder.is_dir()]
    if absent:
        print(
            f"no such folder: {', '.join(absent)} (raw_dir, folder in the study's replay section)",
            file=sys.stderr,
        )
        return 1
    index = replay.publish(plan, folders, out, mapping, Path.cwd())
    for kind in ("runs", "captures"):
        for name, entry in index[kind].items():
            print(f"{name}  {entry['source']}  from {entry['raw']}")
    for start in index["starts"]:
        print(f"{start['file']}  {start['status']}  from {start['raw']}")
    for entry in index["missing"]:
        print(f"{entry['name']}  missing: {entry['why']}")
    return 0


# ---------------------------------------------------------------- explain


def explain(path: Path, mapping: FieldMap) -> list[str]:
    if is_capture(path):
        capture, account = read_capture_file(path, mapping)
        head = (
            f"{path}: an SMI capture of {len(capture['records'])} records, tool {capture['tool']}"
        )
        return [head, *explain_account(account)]
    reading = read_run(path, mapping)
    summary = reading.record["summary"]
    lines = [
        f"{path}: {reading.shape}",
        f"  {len(reading.record['requests'])} requests, outcomes {summary.get('outcomes')}",
        *explain_account(reading.account),
        "missing (null in every success):",
        f"  {', '.join(reading.missing) or 'nothing'}",
        "cannot be computed therefore:",
    ]
    for figure, needs, without, successes in reading.not_computable:
        lines.append(f"  {figure}: {without} of {successes} successes lack {needs}")
    if not reading.not_computable:
        lines.append("  nothing: every figure can be computed")
    return lines + (explain_check(reading.record) if "evaluator" in reading.record else [])


def explain_check(record: dict[str, Any]) -> list[str]:
    """The evaluator's own figures, ours from its rows, and how far they are apart."""
    planned = {
        **dict.fromkeys(("name", "variant", "workload", "start", "scenario", "requests"), ""),
        "max_tokens": sys.maxsize,
        "concurrency": 1,
    }
    found = evaluator_check.lines(records.make_run(planned, {}, record))
    lines = ["against the evaluator's own account (theirs, ours, ours - theirs, basis):"]
    for line in found:
        if line["theirs"] is not None or line["ours"] is not None:
            figures = [line[name] for name in ("theirs", "ours", "difference")]
            told = "  ".join("-" if figure is None else f"{figure:.9g}" for figure in figures)
            lines.append(f"  {line['state']:<12}  {line['metric']}  {told}  {line['basis']}")
    return lines if found else [*lines, "  there is none beside the rows"]


def is_capture(path: Path) -> bool:
    data: Any = load(path)
    head = data[0] if isinstance(data, list) and data else data
    if isinstance(head, dict) and head.get("schema") == CAPTURE_SCHEMA:
        return True
    return "smi_" in path.name and not path.name.startswith("decode_")


def explain_account(account: Account) -> list[str]:
    lines = ["read:"]
    for (key, name), remark in account.read.items():
        lines.append(f"  {key} -> {name}" + (f"  ({remark})" if remark else ""))
    if not account.read:
        lines.append("  as it is (our own format)")
    lines.append("ignored:")
    taken = {key for key, _ in account.read}
    ignored = {key: why for key, why in account.ignored.items() if key not in taken}
    lines += [f"  {key}: {why}" for key, why in ignored.items()] or ["  nothing"]
    if account.notes:
        lines.append("notes:")
        lines += [f"  {note}" for note in account.notes]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
