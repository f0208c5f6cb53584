"""Step: say which attention backends the engine of each host could choose, and why not the others.

In:  a study's config (--host NAME: that host alone). Out: one table for each engine and environment,
the files to read, and results/<study>/backends/, which the report reads. Nothing is started and no
device memory is taken. Exit code 1 if a host gave no answer.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from decodelab import backend_ask, backend_probe, call, hosttable
from decodelab.agent_client import AgentClient
from decodelab.backend_probe import Probe
from decodelab.host import HostError
from decodelab.mistakes import ConfigError
from decodelab.study import DEFAULT_CONFIG, Study, open_study
from decodelab.transports import open_host

HEADINGS = ("backend", "could be chosen", "why not", "version", "file")
MOST_NAMES = 4
STATES = {
    backend_probe.YES: "yes",
    backend_probe.NO: "no",
    backend_probe.NOT_TOLD: "not told",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="the study's config file")
    parser.add_argument("--host", help="ask this host only")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root, args.host)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    servers = {launch["variant"]: None for launch in study.plan["launches"]}
    asked = {
        key: names
        for key, names in backend_ask.groups(study, servers).items()
        if args.host in (None, study.plan["variants"][names[0]]["host"])
    }
    if not asked:
        print(f"study {study.name} starts no server there whose engine could be asked")
        return 0
    # All at once: a host that cannot be reached hides no other.
    return 1 if [key for key, names in asked.items() if not _ask(study, key, names, root)] else 0


def _ask(study: Study, key: str, names: list[str], root: Path) -> bool:
    name = study.plan["variants"][names[0]]["host"]
    try:
        with contextlib.closing(open_host(name, study.plan["hosts"][name], root)) as host:
            client = AgentClient(host)
            client.ship()
            record = backend_ask.ask(study, names, host, client)
    except HostError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    if not backend_ask.keep(study, key, record, root):
        print(f"{name}: {record['problem']}; ask again when it is free", file=sys.stderr)
        return False
    probe = backend_probe.read(key, record)
    show(study, probe)
    return bool(probe.backends)


def show(study: Study, probe: Probe) -> None:
    engine = probe.version or "of unknown version"
    rows = [
        [
            one.name,
            STATES[one.could],
            one.why or "",
            one.version or "not told",
            probe.place(one.file) if one.file else "not told",
        ]
        for one in probe.backends
    ]
    names = ", ".join(probe.variants[:MOST_NAMES]) + ", …" * (len(probe.variants) > MOST_NAMES)
    print(f"{probe.host}: engine {engine}, for {len(probe.variants)} variants ({names})")
    if probe.problem:
        print(f"  {hosttable.plain(probe.problem)}")
    if rows:
        hosttable.show("attention backends", HEADINGS, rows, sys.stdout)
        print(f"  without a choice the engine takes: {probe.default or 'not told'}")
    for line in backend_ask.summary(study, probe):
        print(f"  {hosttable.plain(line)}")
    for words, taken in probe.multi_step.items():
        print(f"  multi-step ({words}) accepts: {', '.join(taken)}")
    if probe.assumed:
        print(f"  assumed, since the model's config.json was not read: {', '.join(probe.assumed)}")
    print(f"  packages: {', '.join(f'{k} {v}' for k, v in probe.packages.items()) or 'not told'}")
    print("  files to read:")
    for file in probe.files:
        print(f"    {hosttable.plain(file)}")
    for file, vendors in probe.vendor.items():
        print(f"    {hosttable.plain(file)} (imports {', '.join(vendors)})")


if __name__ == "__main__":
    raise SystemExit(main())
