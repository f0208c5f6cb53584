"""One config file as the rules see it: the plan, and the names of the files that the rules make.

In:  the config file and the control keys of `--config`. Out: a `Study`. It holds no logic of
measuring or reading; it only turns plan entries into paths, priorities and lists, so that rules
stay one line each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from decodelab import (
    aside,
    beforehand,
    call,
    decision_files,
    decision_words,
    decisions,
    digest,
    races,
    receipts,
)
from decodelab import config as config_file
from decodelab import plan as planning
from decodelab.call import Call
from decodelab.mistakes import ConfigError, Mistake, did_you_mean, listed, shown
from decodelab.receipts import receipt
from decodelab.store import Store, StoreError

Branch = Callable[[Any], list[str]]
DEFAULT_CONFIG = "config/config.yaml"
DEFAULT_TARGET = "report"
HTML_NAME = "report.html"
EVIDENCE_NAME = "evidence.json"
TABLES = ("requests", "runs", "telemetry", "gpus", "starts", "regions", "itl")


@dataclass(frozen=True)
class Study:
    """Paths are relative to the checkout `root`, as Snakemake wants them."""

    root: Path
    config: str
    control: Mapping[str, Any]
    plan: Mapping[str, Any]
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # every host, by name
    asked: str | None = None  # the one host that check_hosts or fetch_raw is asked about
    # Files that a call that may not write takes for missing, since they cannot be used.
    taken_as_missing: Collection[str] = ()

    @property
    def name(self) -> str:
        return str(self.plan["study"])

    @property
    def replay(self) -> bool:
        return bool(self.plan["kind"] == "replay")

    @property
    def results(self) -> str:
        return f"results/{self.name}"

    @property
    def report(self) -> str:
        return f"report/{self.name}"

    @cached_property
    def plan_file(self) -> str:
        """Named by the content of the plan and of all code that reads: another plan, parser or template is a missing
        file, which needs no metadata to be noticed and measures nothing."""
        return f"{self.results}/plan/{digest.plan(dict(self.plan))}-{self._code_digest()}.json"

    @property
    def decision_folder(self) -> decision_files.Folder:
        return decision_files.Folder(self.plan, self.root, self.results, Path(self.plan_file).stem)

    @cached_property
    def deciders(self) -> list[str]:
        """The experiments that others wait for, where there is anything to measure."""
        return [] if self.replay else decisions.deciders(self.plan)

    @property
    def deciders_pattern(self) -> str:
        return "|".join(map(re.escape, self.deciders))

    def decided(self) -> dict[str, Any]:
        """What is decided as of now: none whose launches this call is still to measure (again)."""
        return {
            name: found
            for name in self.deciders
            if all((self.root / file).is_file() for file in self.receipts(name))
            and (found := self.decision_folder.read(name)) is not None
        }

    def choices(self) -> dict[str, decisions.Choice]:
        """Which experiments are to be measured, as of now."""
        return decisions.choices(self.plan, self.decided())

    def branches_told(self) -> list[str]:
        """For people: each experiment behind a `when:`, and how it stands."""
        return (
            []
            if self.replay
            else decision_words.lines(self.plan, self.choices(), self.to_be_decided())
        )

    def to_be_decided(self) -> list[str]:
        """The experiments that are decided as soon as a call may write: all of theirs is measured."""
        decided = self.decided()
        made = decisions.choices(self.plan, decided)
        return [
            name
            for name in self.deciders
            if name not in decided
            and made[name].state == decisions.CHOSEN
            and self._is_measured(name)
        ]

    def _is_measured(self, experiment: str) -> bool:
        retried, store = call.current().retried, Store(self.root / "results" / "raw")
        try:
            return all(
                not self.is_retried(digest, retried)
                and receipt(self.launches[digest], store, self.root)["status"] != "pending"
                for digest in self.digests(experiment)
            )
        except StoreError:
            return False  # the call that reads it says what is wrong with it

    def launch_states(self) -> dict[str, str]:
        """Launch digest -> chosen, not_chosen or undecided, as of now; only a chosen one is ordered."""
        return decisions.launch_states(self.plan, self.choices())

    @cached_property
    def launches(self) -> dict[str, Mapping[str, Any]]:
        """Launch digest to launch, in queue order."""
        made = {}
        for launch in self.plan["launches"]:
            raced = races.with_members(launch, self.plan)
            whole = beforehand.with_ingredients(raced, self.plan, self.root / self.results)
            made[launch["digest"]] = whole
        return made

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(launch["host"] for launch in self.plan["launches"]))

    @property
    def asked_host(self) -> list[str]:
        """The one host that check_hosts or fetch_raw is about, as their option."""
        return [f"--host={self.asked}"] if self.asked is not None else []

    @property
    def asked_folder(self) -> list[str]:
        """The folder that fetch_raw is about, as its option."""
        folder = self.control.get("remote_dir")
        return [f"--dir={folder}"] if folder is not None else []

    def receipt(self, launch: str) -> str:
        """The file that says what is measured. Under `--config retry=NAME` one of this call alone,
        so that it is missing and the launch is tried again. One that screens out what is due by now
        has a successor (receipts.current). launch.py renews the usual one too.
        """
        now = call.current()
        usual = f"{self.results}/launches/{self._receipt_names[launch]}.json"
        if self.is_retried(launch, now.retried) or usual in self.taken_as_missing:
            return f"{self.results}/launches/{launch}.retry-{now.session}.json"
        return usual

    @cached_property
    def _receipt_names(self) -> dict[str, str]:
        """Once for a call: what it measures meanwhile renames nothing that Snakemake waits for."""
        store, folder = Store(self.root / "results/raw"), self.root / self.results / "launches"
        return {
            digest: receipts.current(launch, store, folder)
            for digest, launch in self.launches.items()
        }

    def decision_file(self, experiment: str) -> str:
        """The file that says what an experiment decides, for a rule; a wildcard stands for any."""
        folder = self.decision_folder
        missing = {folder.file(name) for name in self.deciders} & set(self.taken_as_missing)
        again = f".again-{call.current().session}" if missing else ""
        return replace(folder, stem=f"{folder.stem}{again}").file(experiment)

    def receipts(self, experiment: str | None = None) -> list[str]:
        """The receipts of one experiment's launches, or of all."""
        return [self.receipt(digest) for digest in self.digests(experiment)]

    def certain(self, experiment: str | None = None) -> list[str]:
        """The receipts of the launches that wait for no verdict."""
        digests = self.digests(experiment)
        return [self.receipt(d) for d in digests if not self.launches[d]["when"]]

    def digests(self, experiment: str | None = None) -> list[str]:
        """The launches that an experiment (None: any) needs, in queue order."""
        if experiment is None:
            return list(self.launches)
        return decisions.own_launches(self.plan, experiment)

    def branches(self, checkpoints: Any, experiment: str | None = None) -> list[Branch]:
        """For `input:`, one for each experiment behind a `when:` (or for that one, if it is behind
        one): the decisions that it hangs on, and where they choose it, its receipts.
        """
        names = [n for n in self.plan["experiments"] if experiment in (None, n)]
        waiting = [] if self.replay else [n for n in names if decisions.chain(self.plan, n)]
        return [self._branch(name, checkpoints) for name in waiting]

    def before_decision(self, checkpoints: Any) -> Branch:
        """For `input:` of the checkpoint: what the decision on its wildcard `experiment` is made of."""

        def files(wildcards: Any) -> list[str]:
            if decisions.chain(self.plan, wildcards.experiment):
                return self._branch(wildcards.experiment, checkpoints)(wildcards)
            return self.receipts(wildcards.experiment)

        return files

    def _branch(self, name: str, checkpoints: Any) -> Branch:
        def files(_wildcards: Any) -> list[str]:
            asked: list[str] = []
            for decider in decisions.chain(self.plan, name):
                if self.choices()[decider].state != decisions.CHOSEN:
                    return asked
                # Raises what Snakemake takes for "not yet" until the decision is made.
                asked += checkpoints.decide.get(experiment=decider).output
            chosen = self.choices()[name].state == decisions.CHOSEN
            return [*asked, *(self.receipts(name) if chosen else [])]

        return files

    def host_of(self, launch: str) -> str:
        return str(self.launches[launch]["host"])

    def share_of(self, host: str) -> Callable[[Any], int]:
        """For `resources:`: 1 for a launch on that host, else 0."""
        return lambda wildcards: int(self.host_of(wildcards.launch) == host)

    def launch_priority(self, wildcards: Any) -> int:
        """Higher goes first; Snakemake's own order is random, ours is the plan's."""
        return len(self.launches) - list(self.launches).index(wildcards.launch)

    def reports(self) -> list[str]:
        return [f"{self.report}/{report_name(language)}" for language in self.plan["languages"]]

    def summaries(self) -> list[str]:
        """The one-page summaries beside the reports."""
        return [f"{self.report}/{summary_name(language)}" for language in self.plan["languages"]]

    @property
    def html(self) -> str:
        """All languages of the report in one file."""
        return f"{self.report}/{HTML_NAME}"

    @property
    def evidence(self) -> str:
        """What every number of the report comes from."""
        return f"{self.report}/{EVIDENCE_NAME}"

    def pages(self) -> list[str]:
        """The pages that report.html is made of, as options of write_html.py."""
        return html_pages(self.plan["languages"], self.report)

    def language_of_page(self, wildcards: Any) -> str:
        """Of a report or a summary, by its file name without the ending."""
        pages = {
            name(language).removesuffix(".md"): language
            for language in self.plan["languages"]
            for name in (report_name, summary_name)
        }
        return pages[wildcards.page]

    def raw_files(self) -> list[str]:
        """Every file of a replay study's raw folders, so that a changed original makes the report again."""
        replay = self.plan.get("replay") or {}
        folders = [replay.get("folder"), replay.get("raw_dir")]
        files = [
            f for folder in folders if folder for f in (self.root / folder).glob("*") if f.is_file()
        ]
        return sorted(os.path.relpath(f, self.root) for f in files)

    def _code_digest(self) -> str:
        """Of the code as this call of snakemake found it: what is edited meanwhile is for the next."""
        known = call.current().code
        return known or self.code_digest()

    def code_digest(self) -> str:
        scripts, templates = self.root / "scripts", self.root / "workflow" / "report"
        files = [*scripts.rglob("*.py"), *(p for p in templates.rglob("*") if p.is_file())]
        texts = {
            p.relative_to(self.root).as_posix(): p.read_text(encoding="utf-8")
            for p in sorted(files)
        }
        return digest.of("reading code", texts)

    def is_retried(self, launch: str, names: Collection[str]) -> bool:
        """Whether `--config retry=NAME` names this launch: by variant, grid, run or experiment, or `all`."""
        if not names:
            return False
        return "all" in names or any(
            run["launch"] == launch and self._names(run) & set(names) for run in self.plan["runs"]
        )

    def check_retry(self, now: Call) -> None:
        """Raises ConfigError for a retry name that nothing in the plan has."""
        known = set().union({"all"}, *(self._names(run) for run in self.plan["runs"]))
        unknown = sorted(now.retried - known)
        if unknown:
            raise ConfigError([_no_such_name(name, known) for name in unknown])

    def wanted(self, words: Iterable[str]) -> list[str]:
        """The launches that a command line asks for: an experiment's or a receipt's if it names one, none if
        all that it names measures nothing, else all."""
        words = list(words)
        named = [w for w in words if w.startswith("experiment_") or w in self.receipts()]
        experiments = {w.removeprefix("experiment_") for w in named} & set(self.plan["experiments"])
        experiments |= {above for name in experiments for above in decisions.chain(self.plan, name)}
        if not named:
            return (
                [] if aside.TARGETS & set(words) and DEFAULT_TARGET not in words else self.digests()
            )
        digests = self.launches
        return [
            d
            for d in digests
            if self.receipt(d) in named or any(d in self.digests(e) for e in experiments)
        ]

    def _names(self, run: Mapping[str, Any]) -> set[str]:
        grid = self.plan["variants"][run["variant"]]["grid"]
        return {run["variant"], run["name"], *run["experiments"], *([grid] if grid else [])}


def _no_such_name(name: str, known: Collection[str]) -> Mistake:
    near = did_you_mean(name, sorted(known))
    return Mistake(
        ("control", "retry"),
        shown(name),
        "all, or the name of a variant, grid, run or experiment",
        near,
    )


def _no_such_host(name: str, known: Collection[str]) -> Mistake:
    near = did_you_mean(name, known)
    describe = "describe it in config/hosts.local.yaml, as in config/hosts.local.example.yaml"
    return Mistake(
        ("control", "host"), f'unknown host "{name}"', listed(known), near or describe, "--config"
    )


def report_name(language: str) -> str:
    """The file name of the report in a language; Chinese is the customer's and goes without a suffix."""
    return "report.md" if language == "zh" else f"report.{language}.md"


def summary_name(language: str) -> str:
    """The file name of the one-page summary, after the same rule."""
    return "summary.md" if language == "zh" else f"summary.{language}.md"


def html_pages(languages: Iterable[str], folder: str | Path) -> list[str]:
    """`--page LANGUAGE FILE` of each language, in the study's order."""
    named = [["--page", language, f"{folder}/{report_name(language)}"] for language in languages]
    return [word for page in named for word in page]


def open_study(
    files: Iterable[str | Path],
    control: Mapping[str, Any],
    root: Path,
    asked: str | None = None,
) -> Study:
    """Load, check and expand the study. Raises decodelab.mistakes.ConfigError with every mistake at once."""
    chosen = [str(f) for f in files] or [DEFAULT_CONFIG]
    if len(chosen) > 1:
        raise ConfigError([Mistake(("--configfile",), ", ".join(chosen), "one study at a time")])
    name = _within(root, chosen[0])
    loaded = config_file.load(root / name, dict(control), root)
    hosts = loaded["hosts"]
    if asked is not None and asked not in hosts:
        raise ConfigError([_no_such_host(asked, hosts)])
    plan = planning.expand(loaded, root)
    return Study(root, name, dict(control), plan, {**plan["hosts"], **hosts}, asked)


def _within(root: Path, given: str) -> str:
    """One spelling of one file, relative where it lies in the checkout: it is a parameter of rules."""
    path = (root / given).resolve()
    return (
        path.relative_to(root.resolve()).as_posix()
        if path.is_relative_to(root.resolve())
        else str(path)
    )
