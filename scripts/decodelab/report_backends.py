"""Which attention backends the engine could choose: the part of an experiment that varies them.

In: `Findings` (with the kept answers of the hosts) and the catalogue. Out: `Table`s, one for each
engine that was asked; none for an experiment whose variants all ask for the same.
"""

from __future__ import annotations

from decodelab import backend_probe, markdown, numbers
from decodelab.backend_probe import Backend, Probe
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_tables import Table
from decodelab.words import Words

MOST_ROWS = 12
MOST_FILES = 8


def tables(findings: Findings, experiment: str, words: Words) -> list[Table]:
    members = backend_probe.varied(findings.plan).get(experiment) or []
    out: list[Table] = []
    seen: set[str] = set()
    for name in members:
        probe = backend_probe.of(findings.probes, findings.variant(name))
        if probe is not None and probe.key not in seen:
            seen.add(probe.key)
            out.append(_table(findings, probe, members, words))
    return out


def _table(findings: Findings, probe: Probe, members: list[str], words: Words) -> Table:
    asked = [backend_probe.asked_of(findings.variant(name)) for name in members]
    wanted = [name for name in dict.fromkeys(asked) if name]
    ordered = sorted(probe.backends, key=lambda one: _rank(one, wanted, probe))
    told, rest = ordered[:MOST_ROWS], ordered[MOST_ROWS:]
    head = [words.say(f"table.{key}") for key in ("backend", "could", "why_not", "version", "file")]
    title = words.say(
        "backends.title",
        host=markdown.code(probe.host),
        version=markdown.code(probe.version) if probe.version else words.say("backends.no_version"),
    )
    rows = [_row(one, probe, words) for one in told]
    return Table(head, ["left"] * len(head), rows, title, _notes(probe, wanted, rest, words))


def _rank(one: Backend, wanted: list[str], probe: Probe) -> int:
    """What is asked for, what could be chosen, what nobody told, the rest."""
    if one.name in wanted:
        return 0
    if one.could == backend_probe.YES or one.name == probe.default:
        return 1
    return 2 if one.could == backend_probe.NOT_TOLD else 3


def _row(one: Backend, probe: Probe, words: Words) -> list[Md | str]:
    return [
        markdown.code(one.name),
        words.say(f"backends.could_{one.could}"),
        markdown.code(one.why) if one.why else numbers.DASH,
        markdown.code(one.version) if one.version else numbers.DASH,
        markdown.code(probe.place(one.file)) if one.file else numbers.DASH,
    ]


def _notes(probe: Probe, wanted: list[str], rest: list[Backend], words: Words) -> list[Md]:
    notes: list[Md] = []
    if probe.problem:
        notes.append(words.say("backends.problem", words=markdown.code(probe.problem)))
    if rest:
        notes.append(words.say("backends.rest", n=str(len(rest)), names=_codes(rest, words)))
    if probe.default:
        notes.append(words.say("backends.default", backend=markdown.code(probe.default)))
    unlisted = [name for name in wanted if probe.backends and probe.backend(name) is None]
    notes += [words.say("backends.unlisted", backend=markdown.code(name)) for name in unlisted]
    if "chunked" in probe.multi_step:
        taken = _joined(probe.multi_step["chunked"], words)
        notes.append(words.say("backends.multi_step", backends=taken))
    if probe.assumed:
        notes.append(words.say("backends.assumed", what=_joined(probe.assumed, words)))
    files = [*probe.vendor, *probe.files]
    if files:
        shown = [probe.place(file) for file in files[:MOST_FILES]]
        notes.append(words.say("backends.files", files=_joined(shown, words)))
    return notes


def _codes(backends: list[Backend], words: Words) -> Md:
    return _joined([one.name for one in backends], words)


def _joined(texts: list[str] | tuple[str, ...], words: Words) -> Md:
    return markdown.joined([markdown.code(text) for text in texts], words.say("sentence.comma"))
