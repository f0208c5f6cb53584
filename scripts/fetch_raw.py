"""Step: bring raw logs that lie on a host home, under checksum, so that a report can be made of runs
done by hand. Nothing on the host is changed, and nothing that is here is overwritten.

In:  a host and one of its folders. Out: results/fetched/<host>/<folder>/ (see fetched.py). Only
regular files directly in the folder are brought; links and folders in it are named. Whatever ends
it, SHA256SUMS and PROVENANCE.json say what is here.
Exit code 1 if the host cannot be asked or a file did not come whole.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import call
from decodelab.fetched import OURS, SUFFIXES, Changed, Fetched, folder_name, is_safe
from decodelab.host import Host, HostError, HostLost
from decodelab.mistakes import ConfigError
from decodelab.study import DEFAULT_CONFIG, Study, open_study
from decodelab.transports import open_host

OUTBOX = Path(__file__).resolve().parent / "cargo" / "outbox.py"
LIST_S = 600  # every file is read for its checksum
KINDS = {"d": "folder", "l": "link"}


@dataclass
class Outcome:
    """What came of each file that the host listed. `failed`: words; the others: names."""

    new: list[str] = field(default_factory=list)
    known: int = 0
    failed: list[str] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)


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
    except OSError as error:
        print(
            f"fetch_raw: cannot write {error.filename or 'what came'}: {error.strerror or error}.\n"
            "Hint: see to this machine's disk (space, permissions); then call again.",
            file=sys.stderr,
        )
        return 1


def _fetch(study: Study, name: str, remote_dir: str, root: Path) -> int:
    with contextlib.closing(open_host(name, study.described[name], root)) as host:
        files = _listing(host, remote_dir)
        left = _left_there(host, remote_dir, {str(entry["name"]) for entry in files})
        folder = Path("results/fetched") / name / folder_name(remote_dir)
        fetched, outcome = Fetched(root / folder), Outcome()
        try:
            _bring_all(host, remote_dir, files, fetched, outcome)
        finally:  # after Ctrl-C and a full disk as well
            facts = {"host": name, "folder": remote_dir, "left_there": left}
            failed = [*outcome.failed, *(f"{n}: not tried" for n in outcome.not_tried)]
            fetched.write_account({**facts, "failed": failed}, _now())
    _tell(folder, outcome, left)
    return 1 if failed else 0


def _bring_all(
    host: Host,
    remote_dir: str,
    files: Sequence[Mapping[str, Any]],
    fetched: Fetched,
    outcome: Outcome,
) -> None:
    for n, entry in enumerate(files):
        name = str(entry["name"])
        if not is_safe(name):
            outcome.failed.append(f"{_visible(name)}: no name for a file here")
            continue
        try:
            here, is_new = _bring(host, remote_dir, entry, fetched)
        except HostLost as error:  # each of the others would wait as long, for nothing
            outcome.failed.append(f"{name}: {error}")
            outcome.not_tried += [_visible(str(e["name"])) for e in files[n + 1 :]]
            return
        except HostError as error:
            outcome.failed.append(f"{name}: {error}")
            continue
        except OSError as error:
            outcome.failed.append(f"{name}: it cannot be kept here: {error.strerror or error}")
            continue
        if not is_new:
            outcome.known += 1
            continue
        outcome.new.append(here)
        print(f"fetched  {here}  {entry['bytes']} bytes", flush=True)
        if name in OURS:
            print(f"         {name} on the host; here this is the name of our own account")
        elif here != name:
            print(f"         {name} is here already with another content, and stays")


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
            f"Hint: look for the folder with `ls {shlex.quote(remote_dir)}` on the host."
        ) from None
    return list(files)


def _left_there(host: Host, remote_dir: str, listed: set[str]) -> dict[str, list[str]]:
    """What is not brought: links, folders, and files of other kinds. Best effort: a host without find says nothing."""
    left: dict[str, list[str]] = {}
    for letter, kind in (*KINDS.items(), ("f", "other file")):
        where = ["-mindepth", "1", "-maxdepth", "1", "-type", letter, "-print0"]
        found = host.run(["find", f"{remote_dir.rstrip('/')}/.", *where])
        names = [n.rsplit(b"/", 1)[-1] for n in found.out.split(b"\0") if n]
        told = sorted(n.decode("utf-8", "surrogateescape") for n in names)
        if kept := [_visible(n) for n in told if n not in listed]:
            left[kind] = kept
    return left


def _visible(name: str) -> str:
    """Any file name in one line, with \\xff for a byte that is no text."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _bring(
    host: Host, remote_dir: str, entry: Mapping[str, Any], fetched: Fetched
) -> tuple[str, bool]:
    """(its name here, whether it is new). A file that changed while it came is looked at once more."""
    for attempt in (1, 2):
        if "unreadable" in entry:
            raise HostError(f"not readable there: {entry['unreadable']}")
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


def _tell(folder: Path, outcome: Outcome, left: Mapping[str, Sequence[str]]) -> None:
    for kind, names in left.items():
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        print(f"left there, {kind}: {', '.join(names[:8])}{more}")
    for line in outcome.failed:
        print(f"not fetched: {line}", file=sys.stderr)
    if outcome.not_tried:
        print(
            f"not fetched, since the connection was lost: {', '.join(outcome.not_tried)}\n"
            "Hint: call again; what is here is not fetched again.",
            file=sys.stderr,
        )
    print(f"{len(outcome.new)} files fetched, {outcome.known} were here already: {folder}")
    if outcome.new or outcome.known:
        print(
            "A report of them, by a study with `replay:` whose names they have, for example:\n"
            "  snakemake --cores 1 report --configfile config/2026-07-14-decode.yaml"
            f" --config {shlex.quote(f'raw_dir={folder}')}"
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


if __name__ == "__main__":
    raise SystemExit(main())
