"""Step: the report from what the raw store holds now. Starts nothing; lists what is pending.

With --experiment it prints that experiment's verdicts as well. Writes results/<study>/partial/
and report/<study>/partial/, so that the full report beside it stays what it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import decide
import import_raw
from reading_chain import Chain, StepFailed

from decodelab import call, decision_words, decisions, published, records
from decodelab.mistakes import ConfigError
from decodelab.receipts import receipt
from decodelab.store import Store, StoreError, write_json
from decodelab.study import HTML_NAME, Study, open_study, report_name, summary_name


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the study's config file")
    parser.add_argument("--experiment", help="print the verdicts of this experiment")
    args = parser.parse_args(argv)
    root = Path.cwd()
    try:
        study = open_study([args.config], call.current().control, root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    results = root / study.results / "partial"
    try:
        verdicts = _read(study, results, root)
    except (StoreError, StepFailed) as error:
        print(error, file=sys.stderr)
        return 1
    pending = [m for m in records.load_index(results / "runs")["missing"] if m["why"] == "pending"]
    _tell(study, verdicts, pending, args.experiment)
    return 0


def _read(study: Study, results: Path, root: Path) -> Path:
    """Publish, aggregate, judge, draw and write; returns the verdicts' file."""
    plan_file, runs = results / "plan.json", results / "runs"
    verdicts, report = results / "verdicts.json", root / study.report / "partial"
    write_json(plan_file, study.plan)
    if study.replay:
        import_raw.main(["--plan", str(plan_file), "--out-dir", str(runs)])
    else:
        made, states = _chosen(study, results / "decisions", root)
        published.publish_runs(study.plan, made, root, runs, states)
        published.publish_captures(study.plan, made, root, runs)
    Chain(plan_file, results, report, study.plan["languages"]).all()
    return verdicts


def _chosen(
    study: Study, folder: Path, root: Path
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The receipts of what the verdicts choose as of now, and the state of every launch."""
    store = Store(root / "results" / "raw")
    made = {digest: receipt(launch, store, root) for digest, launch in study.launches.items()}
    known: dict[str, Any] = {}
    for name in study.deciders:
        own = {digest: made[digest] for digest in study.digests(name)}
        chosen = decisions.choices(study.plan, known)[name].state == decisions.CHOSEN
        if chosen and all(found["status"] != "pending" for found in own.values()):
            known[name] = decide.decide(study.plan, name, own, folder / name)
    states = decisions.launch_states(study.plan, decisions.choices(study.plan, known))
    return {d: r for d, r in made.items() if states[d] == decisions.CHOSEN}, states


def _tell(
    study: Study, verdicts: Path, pending: list[dict[str, str]], experiment: str | None
) -> None:
    made = json.loads(verdicts.read_text(encoding="utf-8"))
    for verdict in made["verdicts"]:
        if experiment in (None, verdict["experiment"]):
            point = verdict.get("point") or {}
            at = "".join(f" {key}={value}" for key, value in point.items())
            print(f"{verdict['id']}{at}: {verdict['verdict']}")
    for name, choice in made["path"].items():
        if experiment in (None, name):
            print(decision_words.line(name, decisions.Choice(**choice)))
    if pending:
        print(f"{len(pending)} runs pending:")
        for run in pending:
            print(f"  {run['name']}")
    pages = [name(lang) for name in (report_name, summary_name) for lang in study.plan["languages"]]
    names = [*pages, HTML_NAME]
    print("report: " + ", ".join(f"{study.report}/partial/{name}" for name in names))


if __name__ == "__main__":
    raise SystemExit(main())
