"""Step: bring raw logs that lie on a host home, under checksum, so that a report can be made of runs
done by hand. Nothing on the host is changed, and nothing that is here is overwritten.

In:  a host and one of its folders. Out: results/fetched/<host>/<folder>/ (see fetched.py). Only
regular files directly in the folder are brought; links and folders in it are named.
Exit code 1 if the host cannot be asked or a file did not come whole.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodelab import call
from decodelab.fetched import SUFFIXES, Changed, Fetched, folder_name, is_safe
from decodelab.host import Host, HostError, open_host
from decodelab.mistakes import ConfigError
from decodelab.study import DEFAULT_CONFIG, Study, open_study

OUTBOX = Path(__file__).resolve().parent / "cargo" / "outbox.py"
LIST_S = 600  # every file is read for its checksum
KINDS = {"d": "folder", "l": "link"}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="a study that knows the host")
    parser.add_argument("--host", help="the host, by its name under `hosts`")
    parser.add_argument("--dir", help="the folder there, absolute")
    args = parser.parse_args(argv)
    root = Path.cwd()
    if not args.host or not args.dir:
        print(
            "fetch_raw: say which folder of which host.\nHint: "
            "snakemake --cores 1 fetch_raw --config host=NAME remote_dir=/FOLDER",
            file=sys.stderr,
        )
        return 1
    try:
        study = open_study([args.config], call.current().control, root, args.host)
        return _fetch(study, args.host, args.dir, root)
    except (ConfigError, HostError) as error:
        print(error, file=sys.stderr)
        return 1


def _fetch(study: Study, name: str, remote_dir: str, root: Path) -> int:
    with contextlib.closing(open_host(name, study.described[name], root)) as host:
        files = _listing(host, remote_dir)
        left = _left_there(host, remote_dir, {str(entry["name"]) for entry in files})
        folder = Path("results/fetched") / name / folder_name(remote_dir)
        fetched = Fetched(root / folder)
        failed = [
            f"{e['name']!r}: no name for a file here" for e in files if not is_safe(e["name"])
        ]
        new, known = [], 0
        for entry in (e for e in files if is_safe(e["name"])):
            try:
                here, is_new = _bring(host, remote_dir, entry, fetched)
            except (Changed, HostError) as error:
                failed.append(f"{entry['name']}: {error}")
                continue
            known += not is_new
            if is_new:
                new.append(here)
                print(f"fetched  {here}  {entry['bytes']} bytes", flush=True)
                if here != entry["name"]:
                    print(
                        f"         {entry['name']} is here already with another content, and stays"
                    )
    facts = {"host": name, "folder": remote_dir, "left_there": left, "failed": failed}
    fetched.write_account(facts, _now())
    _tell(folder, new, known, left, failed)
    return 1 if failed else 0


def _listing(host: Host, remote_dir: str) -> list[dict[str, Any]]:
    source = OUTBOX.read_text(encoding="utf-8")
    argv = [host.python, "-S", "-c", source, "list", remote_dir, *SUFFIXES]
    done = host.run(argv, timeout_s=LIST_S)
    try:
        files = json.loads(done.out)["files"]
    except (ValueError, KeyError, TypeError):
        words = (done.err or done.out).decode("utf-8", "replace").strip()
        raise HostError(
            f"host {host.name}: cannot list {remote_dir}: {words[-1000:] or 'no answer'}\n"
            f"Hint: look for the folder with `ls {remote_dir}` on the host."
        ) from None
    return list(files)


def _left_there(host: Host, remote_dir: str, listed: set[str]) -> dict[str, list[str]]:
    """What is not brought: links, folders, and files of other kinds. Best effort: a host without find says nothing."""
    left: dict[str, list[str]] = {}
    for letter, kind in (*KINDS.items(), ("f", "other file")):
        where = ["-mindepth", "1", "-maxdepth", "1", "-type", letter, "-print0"]
        found = host.run(["find", f"{remote_dir.rstrip('/')}/.", *where])
        names = [n.rsplit(b"/", 1)[-1] for n in found.out.split(b"\0") if n]
        told = sorted(n.decode("utf-8", "backslashreplace") for n in names)
        if kept := [n for n in told if n not in listed]:
            left[kind] = kept
    return left


def _bring(
    host: Host, remote_dir: str, entry: Mapping[str, Any], fetched: Fetched
) -> tuple[str, bool]:
    """(its name here, whether it is new). A file that changed while it came is looked at once more."""
    for attempt in (1, 2):
        here = fetched.holds(entry["name"], entry["sha256"])
        is_new = here is None
        try:
            if here is None:
                with host.fetch(remote_dir, [entry["name"]]) as folder:
                    here = fetched.keep(folder / entry["name"], entry)
            fetched.note(here, entry, _now())
            return here, is_new
        except Changed:
            if attempt == 2:
                break
            again = [e for e in _listing(host, remote_dir) if e["name"] == entry["name"]]
            if not again:
                raise HostError("is not there any more") from None
            entry = again[0]
    raise HostError("it is being written to; call again when it is whole")


def _tell(
    folder: Path,
    new: Sequence[str],
    known: int,
    left: Mapping[str, Sequence[str]],
    failed: Sequence[str],
) -> None:
    for kind, names in left.items():
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        print(f"left there, {kind}: {', '.join(names[:8])}{more}")
    for line in failed:
        print(f"not fetched: {line}", file=sys.stderr)
    print(f"{len(new)} files fetched, {known} were here already: {folder}")
    if new or known:
        print(
            "A report of them, by a study with `replay:` whose names they have, for example:\n"
            "  snakemake --cores 1 report --configfile config/2026-07-14-decode.yaml"
            f" --config raw_dir={folder}"
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


if __name__ == "__main__":
    raise SystemExit(main())
