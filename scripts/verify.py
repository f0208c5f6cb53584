"""Step: recompute every number of a report from its raw files and say which differ. Reads the report
of `report` (those of report_partial are not verified), its evidence.json and the raw files; changes
nothing of them, starts nothing, and asks no host.

Exit code 0: nothing differs. 1: something differs, or could not be recomputed; it is listed. 2: there
is no report to verify.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import import_raw
import publish_runs
import reading_chain
import write_evidence
from reading_chain import Chain, StepFailed

from decodelab import (
    backend_probe,
    call,
    digest,
    published,
    raw_checksums,
    report_evidence,
    verification,
)
from decodelab.mistakes import ConfigError
from decodelab.store import StoreError, write_json
from decodelab.study import EVIDENCE_NAME, Study, open_study
from decodelab.verification import Check, Pair
from decodelab.written_files import Written

SHOWN = 20  # differences of one check
LEGEND = {
    "raw files": "as it is -> as it was recorded",
    "": "as it is written -> as recomputed from the raw files",
}


class NothingToVerify(Exception):
    """There is no whole report; the text is for the user."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="the study's config file")
    parser.add_argument("--all", action="store_true", help="list every difference")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root)
        evidence = _evidence(study, root)
        plan_file = _plan_file(study, evidence, root)
    except (ConfigError, NothingToVerify) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"verifying {study.report} (plan {evidence['plan']['digest']})", flush=True)
    checks = []
    with tempfile.TemporaryDirectory(prefix="decodelab-verify-") as scratch:
        for check in _Verifier(study, evidence, plan_file, root, Path(scratch)).checks():
            checks.append(check)
            _tell(len(checks), check, None if args.all else SHOWN)
    return _conclude(checks, _hints(study, evidence))


def _evidence(study: Study, root: Path) -> dict[str, Any]:
    """What the report recorded of itself."""
    file = root / study.report / EVIDENCE_NAME
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NothingToVerify(_no_report(study, root)) from None
    except (OSError, ValueError) as error:
        text = f"{study.report}/{EVIDENCE_NAME}: cannot be read: {error}"
        raise NothingToVerify(f"{text}\n{_made_by(study)}") from None
    if not isinstance(found, dict) or found.get("schema") != report_evidence.SCHEMA:
        text = f"{study.report}/{EVIDENCE_NAME}: no {report_evidence.SCHEMA}"
        raise NothingToVerify(f"{text}\n{_made_by(study)}")
    return found


def _no_report(study: Study, root: Path) -> str:
    file = f"{study.report}/{EVIDENCE_NAME}"
    lines = [f"There is no whole report to verify: {file} is missing."]
    if (root / study.report / "partial").is_dir():
        partial = f"{study.report}/partial"
        lines.append(f"{partial} is what report_partial wrote; only the whole report is verified.")
    others = sorted(path.parent.name for path in (root / "report").glob(f"*/{EVIDENCE_NAME}"))
    if others:
        lines.append(
            f"There are reports of: {', '.join(others)} (the study's name is {study.name})."
        )
    return "\n".join([*lines, _made_by(study)])


def _made_by(study: Study) -> str:
    return f"Hint: snakemake --cores 1 report --configfile {study.config}   makes it."


def _plan_file(study: Study, evidence: Mapping[str, Any], root: Path) -> Path:
    """The plan that the report was written from, whatever the config says by now."""
    told = evidence["plan"]["file"]
    file = root / told
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        text = f"{told}: the plan that the report was written from cannot be read: {error}"
        raise NothingToVerify(f"{text}\n{_made_by(study)}") from None
    if digest.plan(plan) != evidence["plan"]["digest"]:
        text = f"{told}: it is not the plan that the report was written from (its digest differs)"
        raise NothingToVerify(f"{text}\n{_made_by(study)}")
    return file


@dataclass(frozen=True)
class _Verifier:
    study: Study
    evidence: Mapping[str, Any]
    plan_file: Path
    root: Path
    scratch: Path

    def checks(self) -> Iterator[Check]:
        """One after the other; what rests on a part that could not be made is not made either."""
        raw = Check("raw files", f"{raw_checksums.count(self.evidence['raw']):,} files")
        raw.differences = raw_checksums.check(self.evidence["raw"], self.root)
        yield raw
        steps: list[tuple[str, Callable[[], Check]]] = [
            ("tables", self._tables),
            ("verdicts", self._verdicts),
            ("figures", self._figures),
            ("pages", self._pages),
            ("evidence", self._evidence),
        ]
        for number, (title, step) in enumerate(steps):
            try:
                yield step()
            except (StepFailed, StoreError, OSError, ValueError, KeyError) as error:
                rest = ", ".join(name for name, _ in steps[number:])
                yield Check(title, stopped=f"not recomputed ({rest}): {_said(error)}")
                return

    @cached_property
    def _plan(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.plan_file.read_text(encoding="utf-8"))
        return found

    @cached_property
    def _pair(self) -> Pair:
        name, languages = self.study.name, self._plan["languages"]
        old = Written(
            name, self.root / self.study.results, self.root / self.study.report, languages
        )
        new = Written(
            name, self.scratch / self.study.results, self.scratch / self.study.report, languages
        )
        return Pair(old, new, self.evidence["written"])

    @property
    def _chain(self) -> Chain:
        new = self._pair.new
        return Chain(self.plan_file, new.results, new.report, list(new.languages))

    def _tables(self) -> Check:
        self._publish()
        self._chain.tables()
        return verification.tables(self._pair)

    def _publish(self) -> None:
        """The named runs, from the raw files; what is damaged was told and is read all the same."""
        runs = self._pair.new.results / "runs"
        plan = self._plan
        answers = self.root / self.study.results / backend_probe.FOLDER
        if answers.is_dir():
            shutil.copytree(answers, self._pair.new.results / backend_probe.FOLDER)
        if plan.get("replay"):
            reading_chain.do(import_raw.main, "--plan", self.plan_file, "--out-dir", runs)
            return
        results = Path(self.study.results)
        made, states = publish_runs.chosen(plan, self.plan_file.stem, results, self.root)
        published.publish_runs(plan, made, self.root, runs, states, checked=False)
        published.publish_captures(plan, made, self.root, runs)

    def _verdicts(self) -> Check:
        self._chain.verdicts()
        return verification.verdicts(self._pair)

    def _figures(self) -> Check:
        self._chain.figures()
        return verification.drawings(self._pair)

    def _pages(self) -> Check:
        self._chain.pages()
        self._chain.summaries()
        self._chain.html()
        return verification.pages(self._pair)

    def _evidence(self) -> Check:
        pair = self._pair
        name = pair.new.in_report(EVIDENCE_NAME)
        made = write_evidence.document(self.plan_file, pair.new.results, pair.new.report, self.root)
        write_json(pair.new.path(name), made)
        return verification.evidence(pair, name)


def _said(error: Exception) -> str:
    text = str(error) if not isinstance(error, KeyError) else f"{error} is missing"
    return " ".join(text.split()) or type(error).__name__


def _tell(number: int, check: Check, most: int | None) -> None:
    count = len(check.differences)
    state = "nothing differs" if not count else _counted(count)
    if check.stopped:
        print(f"{number} {check.title}: {check.stopped}", flush=True)
        return
    print(f"{number} {check.title}: {check.counted}: {state}", flush=True)
    if count:
        print(f"    ({LEGEND.get(check.title, LEGEND[''])})")
    file = None
    for one in check.differences[:most]:
        if one.file != file and one.edited is not None:
            how = "changed since it was written" if one.edited else "the very file that was written"
            print(f"  {one.file}: {how}")
        file = one.file
        print(f"  {one.line()}")
    if most is not None and count > most:
        print(f"  … and {count - most:,} more (python scripts/verify.py --config FILE --all)")
    for note in check.notes:
        print(f"  note: {note}")


def _counted(count: int) -> str:
    return "1 difference" if count == 1 else f"{count:,} differences"


def _hints(study: Study, evidence: Mapping[str, Any]) -> list[str]:
    """What has changed beside the files, and may be why."""
    hints = []
    if study.code_digest() != evidence["code"]:
        hints.append(
            f"The code that reads is another than wrote the report (then {evidence['code']}, now"
            f" {study.code_digest()}). It may be why a file differs that nobody has changed."
        )
    if digest.plan(dict(study.plan)) != evidence["plan"]["digest"]:
        hints.append(
            f"{study.config} has changed since; the report was verified by the plan that it was"
            " written from."
        )
    return hints


def _conclude(checks: list[Check], hints: list[str]) -> int:
    for hint in hints:
        print(f"note: {hint}")
    if any(check.differences or check.stopped for check in checks):
        count = sum(len(check.differences) for check in checks)
        stopped = "; not all was recomputed" if any(check.stopped for check in checks) else ""
        print(f"NOT verified: {_counted(count)}{stopped}.")
        return 1
    print("verified: every number was recomputed from the raw files, and nothing differs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
