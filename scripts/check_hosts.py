"""Step: say of every host that is described whether it can be measured on, and what to do if not.

In:  a study's config and config/hosts.local.yaml (--host NAME: that host alone). Out: one table, and
what each setup script sets. Nothing is started; the agent's files are brought to the host.
Exit code 1 if any check failed.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from decodelab import call, hosttable, telemetry
from decodelab.hostcheck import Checked, check_host
from decodelab.mistakes import ConfigError, cut
from decodelab.study import DEFAULT_CONFIG, open_study

AT_ONCE = 8
HEADINGS = ("host", "check", "state", "found", "what to do")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="the study's config file")
    parser.add_argument("--host", help="check this host only")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root, args.host)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    names = [args.host] if args.host else list(study.described)
    if not names:
        print(
            "No host is described.\nHint: copy config/hosts.local.example.yaml to "
            "config/hosts.local.yaml and describe yours."
        )
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        checked = list(pool.map(lambda name: check_host(study, name, root), names))
    for one in checked:
        read_samples(one, study.described[one.host]["telemetry"]["tool"])
    show(checked)
    return 1 if any(one.failed for one in checked) else 0


def read_samples(one: Checked, tool: str) -> None:
    """Whether the reports' own reader finds something in what the SMI tool printed, and what."""
    row = next((row for row in one.rows if row["check"] == "telemetry"), None)
    if row is None or row["state"] == "fail" or one.smi is None:
        return
    shown = telemetry.detect(one.smi) or one.smi_tool or tool
    try:
        readings = telemetry.read_text(one.smi, shown, fields=one.smi_fields).readings
    except telemetry.UnreadableSmi as error:
        row.update(
            state="fail", found=f"{row['found']}; {error}", todo="see hosts.<name>.telemetry"
        )
        return
    if tool not in (shown, "auto"):
        row.update(
            state="warn",
            found=f"{row['found']}; this is the output of {shown}, not of {tool}",
            todo=f"set hosts.<name>.telemetry.tool to {shown}: as {tool}'s it is not read",
        )
    known = [m for m in telemetry.METRICS if any(r.values[m] is not None for r in readings)]
    row["found"] += f"; {len(readings)} accelerators with {', '.join(known) or 'no figure'}"
    if not known:
        row.update(state="fail", todo="see hosts.<name>.telemetry: nothing in it can be read")


def show(checked: list[Checked]) -> None:
    rows = [
        [one.host, row["check"], row["state"], row["found"], row["todo"]]
        for one in checked
        for row in one.rows
    ]
    hosttable.show("hosts", HEADINGS, rows, sys.stdout)
    for one in checked:
        if one.sets:
            print(f"{one.host}: its setup script sets")
            for name, value in sorted(one.sets.items()):
                print(f"  {hosttable.plain(f'{name}={cut(value, 400)}')}")
    failed = sum(row[2] == "fail" for row in rows)
    warned = sum(row[2] == "warn" for row in rows)
    print(f"{len(rows)} checks on {len(checked)} hosts: {failed} failed, {warned} to look at")


if __name__ == "__main__":
    raise SystemExit(main())
