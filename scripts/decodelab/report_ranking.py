"""The result of a grid in a report: the ranked tables, what each setting does, and what may be said
of the best.

In: `Findings` with the judge's ranking, the catalogue. Out: `Table`s and `Bullet`s of finished text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decodelab import effects, markdown, numbers, report_verdicts
from decodelab.findings import Findings
from decodelab.markdown import Md
from decodelab.report_labels import cell_parameters, metric_label, parameter_name, setting
from decodelab.report_tables import Table
from decodelab.report_verdicts import Bullet
from decodelab.words import Words

Board = Mapping[str, Any]
BESIDE = {"ttft_s_p90": "ttft", "output_tps_total": "rate"}  # shown beside the metric
MEASURED = ("measured", "unlike", "invalid", "pending")


def boards(findings: Findings, experiment: str) -> list[Board]:
    return [b for b in findings.judged.get("ranking") or [] if b["experiment"] == experiment]


def tables(findings: Findings, experiment: str, words: Words) -> list[Table]:
    """A ranked table a board; the first lists every cell, later ones those that were measured there.
    Then what each setting does on the first board.
    """
    mine = boards(findings, experiment)
    made = []
    for board in mine:
        whole = board["grid"] not in {b["grid"] for b in mine[: mine.index(board)]}
        made.append(_ranked(findings, board, words, whole))
        if whole and board["effects"]:
            made.append(_effects(board, words))
    return made


def _ranked(findings: Findings, board: Board, words: Words, whole: bool) -> Table:
    metric = board["metric"]
    shown = [e for e in board["entries"] if whole or e["state"] in MEASURED]
    flags = cell_parameters(findings, [entry["variant"] for entry in board["entries"]])
    told = ("interval", "n", "behind")
    head = [words.say("table.rank"), *(parameter_name(flag) for flag in flags)]
    head += [_with_unit(metric, words), *(words.say(f"ranking.{key}") for key in told)]
    beside = [name for name in BESIDE if name != metric]
    head += [_with_unit(name, words) for name in beside]
    head += [words.say("table.state")]
    rows = [[*_keys(entry, flags), *_figures(entry, metric, beside, words)] for entry in shown]
    align = ["right"] * (len(head) - 1) + ["left"]
    title = words.say(
        "ranking.title",
        grid=board["grid"],
        metric=metric_label(words, metric),
        load=board["workload"],
        concurrency=str(board["concurrency"]),
    )
    return Table(head, align, rows, title=title, notes=_notes(board, words, shown))


def _with_unit(metric: str, words: Words) -> Md:
    label = metric_label(words, metric)
    unit = numbers.unit(metric) if numbers.unit_moves(metric) else ""
    return words.say("table.with_unit", label=label, unit=unit) if unit else label


def _keys(entry: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    rank = numbers.DASH if entry["rank"] is None else str(entry["rank"])
    if not entry["cell"]:
        return [rank, markdown.code(entry["variant"]), *([""] * (len(flags) - 1))]
    return [rank, *(setting(entry["cell"].get(flag)) for flag in flags)]


def _figures(
    entry: Mapping[str, Any], metric: str, beside: Sequence[str], words: Words
) -> list[str]:
    bare = numbers.unit_moves(metric)
    measured = entry["state"] == "measured"
    told = numbers.estimate(metric, entry["value"], entry["interval"], bare=bare)
    behind = numbers.effect(entry["behind"]) if measured and entry["behind"] else ""
    tie = bool(behind and entry["tie"])
    counts = f"{entry['n_requests']} · {entry['n_launches']}" if entry["n_launches"] else ""
    return [
        told.value,
        told.interval,
        counts or numbers.DASH,
        words.say("ranking.tie", value=behind) if tie else behind or numbers.DASH,
        *(numbers.show(n, entry[BESIDE[n]], bare=numbers.unit_moves(n)) for n in beside),
        _state(entry, words),
    ]


def _state(entry: Mapping[str, Any], words: Words) -> Md:
    """How far the figures may be trusted, or why there are none."""
    parts = []
    if entry["state"] == "measured":
        parts.append(words.say(f"state.{entry['validity'] or 'valid'}"))
    elif entry["state"] != "screened_out":
        parts.append(words.say(f"state.{entry['state']}"))
    if entry["screened"]:
        parts.append(screened(entry["screened"], words))
    if entry["pareto"]:
        parts.append(words.say("ranking.pareto_mark"))
    if entry["known_from"]:
        parts.append(words.say("ranking.beforehand_mark"))
    rate = entry["success_rate"]
    if rate is not None and rate < 1:
        parts.append(words.say("ranking.failures", value=numbers.show("success_rate", rate)))
    return markdown.joined(parts, words.say("sentence.semicolon"))


def screened(told: Mapping[str, Any], words: Words) -> Md:
    """`screened out: 3.1 against 8.7 tok/s`."""
    metric = told["metric"]
    return words.say(
        "ranking.screened_mark",
        value=numbers.show(metric, told["value"], bare=numbers.unit_moves(metric)),
        best=numbers.show(metric, told["best"]),
    )


def _notes(board: Board, words: Words, shown: Sequence[Mapping[str, Any]]) -> list[Md]:
    notes = [words.say("ranking.note", metric=metric_label(words, board["metric"]))]
    best = board["best"] or {}
    if best.get("runner_up"):
        notes.append(_method(best, numbers.size(board["floor"]), words))
    hidden = len(board["entries"]) - len(shown)
    if hidden:
        notes.append(words.say_n("ranking.hidden", hidden))
    about: dict[Md, list[str]] = {}
    for entry in shown:
        for reason in entry["reasons"] if entry["state"] in ("unlike", "invalid") else []:
            why = markdown.escape(words.pick(reason) or reason["code"])
            about.setdefault(why, []).append(entry["variant"])
    for why, variants in about.items():
        named = report_verdicts.names(variants, words)
        notes.append(words.say("sentence.about", names=named, text=why))
    return notes


def _method(best: Mapping[str, Any], floor: str, words: Words) -> Md:
    """What is counted as noise, and that it is widened for the number of comparisons."""
    kind = "counts" if best["runner_up"]["basis"] == "points" else "noise"
    text = words.say(f"ranking.method.{kind}", floor=floor, drift=numbers.size(effects.DRIFT))
    if best["pairs"] < 2:
        return text
    facts = {"n": str(best["among"]), "pairs": str(best["pairs"])}
    return words.say("ranking.method.widened", text=text, **facts)


def _effects(board: Board, words: Words) -> Table:
    """What one setting does where all the others are equal."""
    keys = ("parameter", "change", "pairs", "mean_effect", "range")
    head = [words.say(f"ranking.{key}") for key in keys]
    rows = []
    for item in board["effects"]:
        low, high = item["range"] or (None, None)
        inside = item["effect"] is not None and abs(item["effect"]) <= item["floor"]
        shown = numbers.effect(item["effect"], against=[item["floor"], -item["floor"]])
        rows.append(
            [
                parameter_name(item["key"]),
                f"{setting(item['from'])} → {setting(item['to'])}",
                str(item["pairs"]),
                words.say("ranking.in_floor", value=shown) if inside else shown,
                numbers.interval([low, high]) if item["range"] else numbers.DASH,
            ]
        )
    title = words.say("ranking.effects", metric=metric_label(words, board["metric"]))
    return Table(head, ["left", "left", "right", "right", "right"], rows, title=title)


# ---------------------------------------------------------------------- sentences
def bullets(findings: Findings, experiment: str, words: Words) -> list[Bullet]:
    """One a board that has a best: who it is, by how much, and what trades off; then what was not
    measured, and why.
    """
    mine = boards(findings, experiment)
    said = [_board(board, words) for board in mine if board["best"]]
    return [*said, *(_absent(mine[0], words) if mine else [])]


def _board(board: Board, words: Words) -> Bullet:
    best = board["best"]
    facts = {
        "variant": markdown.code(best["variant"]),
        "value": _best_value(board),
    }
    ahead = best["runner_up"]
    if ahead is None:
        text = words.say("ranking.best.alone", **facts)
    else:
        facts |= {
            "next": markdown.code(ahead["variant"]),
            "margin": _margin(ahead),
            "limit": _limit(best, ahead, words),
            "ties": report_verdicts.names(best["ties"], words),
        }
        clear = ahead["beyond_noise"] and not best["ties"]
        kind = "tie" if not clear else "clear" if ahead["margin"] is not None else "clear_zero"
        text = words.say(f"ranking.best.{kind}", **facts)
    where = words.say(
        "ranking.where", load=board["workload"], concurrency=str(board["concurrency"]), text=text
    )
    return Bullet(where, [*_baseline(best, words), *_caution(best, words), *_front(board, words)])


def _best_value(board: Board) -> str:
    """In the digits of the table's row."""
    best = board["best"]
    mine: Mapping[str, Any] = next(
        (e for e in board["entries"] if e["variant"] == best["variant"]), {}
    )
    return numbers.estimate(board["metric"], best["value"], mine.get("interval")).value


def _margin(lead: Mapping[str, Any]) -> str:
    """How far ahead; never printed as beyond the noise if it is not."""
    needed = lead.get("needed")
    return numbers.effect(lead["margin"], against=[needed, -needed] if needed else [])


def _limit(best: Mapping[str, Any], lead: Mapping[str, Any], words: Words) -> Md:
    """What a lead must exceed on this board, and for how many comparisons at once."""
    if lead["basis"] != "noise":
        text = words.say("ranking.limit.counts")
    else:
        text = words.say("ranking.limit.noise", needed=numbers.size(lead["needed"]))
    if best["pairs"] < 2:
        return text
    return words.say("ranking.limit.widened", text=text, pairs=str(best["pairs"]))


def _baseline(best: Mapping[str, Any], words: Words) -> list[Md]:
    base = best["baseline"]
    if base is None:
        return []
    name = markdown.code(base["variant"])
    if base["variant"] == best["variant"]:
        return [words.say("ranking.baseline.itself", name=name)]
    kind = "beyond" if base["beyond_noise"] else "within"
    if base["beyond_noise"] and base["margin"] is None:
        kind = "beyond_zero"
    margin = _margin(base)
    limit = _limit(best, base, words)
    return [words.say(f"ranking.baseline.{kind}", name=name, margin=margin, limit=limit)]


def _caution(best: Mapping[str, Any], words: Words) -> list[Md]:
    """The highest of many is flattered by its noise."""
    if best["among"] < 3 or best["starts"] > 1:
        return []
    return [words.say("ranking.caution", n=str(best["among"]))]


def _front(board: Board, words: Words) -> list[Md]:
    if not board["pareto"]:
        return []
    names = report_verdicts.names(board["pareto"], words)
    rate, wait = (metric_label(words, name) for name in ("output_tps_total", "ttft_s_p90"))
    return [words.say("ranking.pareto", names=names, rate=rate, wait=wait)]


def _absent(board: Board, words: Words) -> list[Bullet]:
    """Who was screened out, who cannot start, and of whom that was known beforehand."""
    out = [e for e in board["entries"] if e["screened"]]
    refused = [e for e in board["entries"] if e["state"] == "not_possible"]
    said = []
    if out:
        within = numbers.size(out[0]["screened"]["within"])
        said.append(Bullet(words.say_n("ranking.screened", len(out), within=within)))
    known = [e for e in refused if e["known_from"]]
    if refused:
        causes = dict.fromkeys(e["cause"] for e in refused if e["cause"])
        under = [markdown.code(cause) for cause in causes]
        sources: dict[Md, list[str]] = {}
        for entry in known:
            sources.setdefault(_source(entry["known_from"], words), []).append(entry["variant"])
        under += [
            words.say("sentence.about", names=report_verdicts.names(variants, words), text=text)
            for text, variants in sources.items()
        ]
        text = words.say_n("ranking.refused", len(refused), known=str(len(known)))
        said.append(Bullet(text, under))
    return said


def _source(known: Mapping[str, Any], words: Words) -> Md:
    """Where it was known from: a rule of the constraint table, or an earlier start."""
    values = {key: str(known.get(key) or numbers.DASH) for key in ("name", "source", "log", "line")}
    return words.say(f"ranking.known_from.{known['kind']}", **values)
