"""Receipts and decisions on disk that cannot be used: damaged, or made of other receipts.

In: a Study. Out: their names with the reasons, in plan order; `remove` takes them away, so that
Snakemake, which looks at names alone, sees what is missing and makes it again from the raw store.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import replace

from decodelab import receipts
from decodelab.study import Study

AGAIN = {
    True: "it is made again from the raw store; what lies there is not measured again",
    False: "the next call makes it again from the raw store; what lies there is not measured again",
}
# What a call of snakemake that has any of these does: it shows, or sees to Snakemake's own files.
ONLY_LOOKS = (
    "dryrun",
    "touch",
    "unlock",
    "lint",
    "list_rules",
    "list_target_rules",
    "dag",
    "rulegraph",
    "filegraph",
    "d3dag",
    "summary",
    "detailed_summary",
    "list_changes",
    "list_input_changes",
    "list_params_changes",
    "list_untracked",
    "print_compilation",
    "cleanup_metadata",
    "delete_all_output",
    "delete_temp_output",
    "archive",
    "containerize",
    "report",
)


def found(study: Study) -> dict[str, str]:
    """File (relative to the checkout) -> what is wrong with it."""
    if study.replay:
        return {}
    wrong: dict[str, str] = {}
    for digest in study.launches:
        for name in (study.decision_folder.receipt(digest), study.receipt(digest)):
            if (study.root / name).is_file() and receipts.read(study.root / name) is None:
                wrong[name] = "not a receipt"
    for experiment in study.deciders:
        reason = study.decision_folder.unusable(experiment)
        if reason:
            wrong[study.decision_folder.file(experiment)] = reason
    return wrong


def remove(study: Study, wrong: Mapping[str, str]) -> None:
    for name in wrong:
        (study.root / name).unlink(missing_ok=True)


def lines(wrong: Mapping[str, str], *, removed: bool) -> list[str]:
    """For people, one each."""
    return [f"{name}: {reason}; {AGAIN[removed]}" for name, reason in wrong.items()]


def seen_to(study: Study, words: list[str], say: Callable[[str], None]) -> Study:
    """The study of a call that is about to make its graph: what cannot be used is told of and removed,
    or, if the call may not write, taken for missing. `words`: those of the command line.
    """
    wrong = found(study)
    if not wrong:
        return study
    removed = _may_write(words)
    for line in lines(wrong, removed=removed):
        say(line)
    if not removed:
        return replace(study, taken_as_missing=frozenset(wrong))
    remove(study, wrong)
    return study


def _may_write(words: list[str]) -> bool:
    """Whether the call makes files: by Snakemake's own reading of its command line and profile."""
    from snakemake.cli import parse_args  # the steps, which import this too, need none of it

    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it has said all that once already
            _, told = parse_args(words)
    except SystemExit:
        return False
    return not any(getattr(told, name, None) for name in ONLY_LOOKS)
