"""The interactive figures show the numbers of the drawn ones: each is held against what its drawing computes."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib.pyplot as plt
import pytest
from colour_contrast import contrast
from matplotlib.patches import Rectangle
from profile_samples import DECODE, PREFILL, PROBLEMS, event, study, table, timeline
from test_cached_figure import with_requests
from test_effects_figure import changed, gate, with_gates
from test_figures import FAILING, MONITOR, load, queued
from test_gap_figure import with_gaps

from decodelab import (
    figure_cached,
    figure_effects,
    figure_gaps,
    figure_gates,
    figure_step_stack,
    figure_step_style,
    figure_step_timeline,
    figure_style,
    figure_timeline,
    figures,
    plot,
    plots,
    request_bars,
    words,
)
from decodelab.findings import Findings

RUN = "decode_noparser_short_c1_t128_r3"
OTHER = "decode_full_parser_short_c1_t128_r3"
HOSTILE = "<script>hacked()</script> %{x} %{meta} &lt;b>"
Trace = Mapping[str, Any]


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    yield
    plt.close("all")


def made(kind: str, findings: Findings, subject: str, language: str = "en") -> dict[str, Any]:
    found = plots.KINDS[kind](findings, subject, words.load(language))
    assert found is not None
    return found.document()


def profiled() -> Findings:
    runs = {RUN: event(table(DECODE), PREFILL, timeline=timeline()), OTHER: event()}
    return study(runs)


def everything() -> Findings:
    """A study that has every kind of figure."""
    return dataclasses.replace(profiled(), gaps=with_gaps().gaps)


def cached() -> Findings:
    return with_requests((0.0, 0.2, "ok"), (9.0, 0.04, "ok"), (9.0, 0.05, "ok"))


SAMPLES: dict[str, tuple[Any, str]] = {
    "gates": (load, "targets"),
    "effects": (load, "parser"),
    "itl": (with_gaps, "concurrency"),
    "cached": (cached, "concurrency"),
    "step_stack": (profiled, "parser"),
    "step_timeline": (profiled, RUN),
}


def traces(document: Mapping[str, Any], panel: int | None = None, **like: Any) -> list[Trace]:
    return [
        trace
        for trace in document["traces"]
        if panel in (None, trace["panel"]) and all(trace.get(k) == v for k, v in like.items())
    ]


def said(document: Mapping[str, Any], key: str) -> Trace:
    """The trace whose name is a text of the English catalogue."""
    (found,) = traces(document, name=words.load("en").plain(f"plot.{key}"))
    return found


def test_every_kind_that_is_drawn_has_an_interactive_form() -> None:
    assert {entry["kind"] for entry, _, _ in figures.wanted(everything())} == set(plots.KINDS)


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_plot_is_plain_data_with_its_banner(kind: str, language: str) -> None:
    make, subject = SAMPLES[kind]
    document = made(kind, make(), subject, language)
    assert document["banner"] == "SIMULATED"
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert all(trace["panel"] < len(document["panels"]) for trace in document["traces"])


@pytest.mark.parametrize("kind", SAMPLES)
def test_both_languages_show_the_same_numbers(kind: str) -> None:
    make, subject = SAMPLES[kind]
    shown = [
        [
            {key: trace.get(key) for key in ("x", "y", "base", "error_x")}
            for trace in found["traces"]
        ]
        for found in (made(kind, make(), subject, language) for language in words.LANGUAGES)
    ]
    assert shown[0] == shown[1]


# targets ------------------------------------------------------------------------------------------


def test_gates_are_the_dots_of_the_drawn_figure() -> None:
    document = made("gates", load(), "targets")
    for panel, one in enumerate(figure_gates.panels(load())):
        factor = figure_gates.factor_of(one)
        wanted = {
            (factor * dot.value, row)
            for row, dots in enumerate(one.rows.values())
            for dot in dots
            if dot.value is not None
        }
        marks = traces(document, panel, mode="markers")
        assert {pair for t in marks for pair in zip(t["x"], t["y"], strict=True)} == wanted
        assert document["panels"][panel]["uprights"][0]["at"] == one.target * factor
        assert document["panels"][panel]["rows"] == [n.replace("\n", "<br>") for n in one.rows]


def test_a_gate_has_its_interval_and_its_words() -> None:
    found = with_gates(gate())
    ((dot,),) = figure_gates.panels(found)[0].rows.values()
    assert dot.interval is not None and dot.value == 0.75
    document = made("gates", found, "targets")
    mark = said(document, "gates.missed")
    assert 75.0 - mark["error_x"]["arrayminus"][0] == pytest.approx(100 * dot.interval[0])
    assert 75.0 + mark["error_x"]["array"][0] == pytest.approx(100 * dot.interval[1])
    assert mark["marker"]["color"] == plot.MISSED
    for text in ("<b>75%</b>", "&gt;= 99%", "requests (n): <b>4</b>", "−24", "95% interval"):
        assert text in mark["text"][0]
    assert document["panels"][0]["notes"] == [{"row": 0, "text": "−24%", "colour": plot.MISSED}]


# differences --------------------------------------------------------------------------------------


def test_effects_have_the_intervals_of_the_drawn_figure() -> None:
    document = made("effects", load(), "parser")
    (point,) = figure_effects.points(load(), "parser")
    (mark,) = traces(document, name="noparser")
    assert point.effect is not None and point.interval is not None
    assert mark["x"] == [100 * point.effect] and mark["y"] == [0]
    low, high = (100 * bound for bound in point.interval)
    assert mark["x"][0] - mark["error_x"]["arrayminus"][0] == pytest.approx(low)
    assert mark["x"][0] + mark["error_x"]["array"][0] == pytest.approx(high)
    assert mark["marker"]["color"] == figure_style.plan_colours(load().plan)["noparser"][0]
    noise, smallest = said(document, "effects.noise"), said(document, "effects.smallest")
    assert (noise["base"], noise["x"]) == ([-4.0], [8.0]) and smallest["x"] == [5.0]
    assert document["panels"][0]["x"]["range"] == list(figure_effects.reach_of([point]))
    for text in ("<b>−4.7%</b>", "−8.7% … −0.7%", "refuted", "runs (n)"):
        assert text in mark["text"][0]


def test_what_has_no_interval_keeps_its_row_and_has_no_mark() -> None:
    shown = figure_effects.points(load(), "D")
    document = made("effects", load(), "D")
    without = {row for row, one in enumerate(shown) if not one.interval}
    assert without and len(document["panels"][0]["rows"]) == len(shown)
    assert not without & {row for trace in document["traces"] for row in trace["y"]}
    assert {note["row"] for note in document["panels"][0]["notes"]} == set(range(len(shown)))


def test_points_of_a_share_are_no_percent() -> None:
    document = made("effects", changed(in_points=True, metric="success_rate"), "parser")
    assert "percentage points" in document["panels"][0]["x"]["title"]["text"]
    assert "−4.7% points" in document["panels"][0]["notes"][0]["text"]


# gaps and cached tokens ---------------------------------------------------------------------------


def test_gaps_are_the_lines_of_the_drawn_figure() -> None:
    found = with_gaps(several=1.0)
    document = made("itl", found, "concurrency")
    dashes = figure_style.plan_dashes(found.plan)
    for panel, one in enumerate(figure_gaps.panels(found, "concurrency")):
        lines = traces(document, panel, mode="lines")
        assert [(t["x"], t["y"]) for t in lines] == [
            (line.drawn_ms, [100 * share for share in line.shares]) for line in one.lines
        ]
        for trace, line in zip(lines, one.lines, strict=True):
            look = figure_style.plan_colours(found.plan)[line.variant]
            assert trace["line"]["color"] == look[0]
            assert trace["line"]["dash"] == plot.dash(dashes[line.variant])
            assert "median: <b>10.0 ms" in str(document["traces"])
    assert "≤ 0.1" in document["panels"][0]["x"]["ticktext"]
    assert "gaps at or below 0.000 ms: <b>0%" in document["traces"][0]["text"][0]


def test_a_variant_is_once_in_the_legend() -> None:
    document = made("itl", with_gaps(), "concurrency")
    shown = [t["name"] for t in document["traces"] if t.get("showlegend", True)]
    assert shown == ["noparser", "median"]
    assert {t["legendgroup"] for t in document["traces"] if "legendgroup" in t} == {"noparser"}


def test_cached_tokens_are_the_points_of_the_drawn_figure() -> None:
    document = made("cached", cached(), "concurrency")
    (panel,) = figure_cached.panels(cached(), "concurrency")
    (trace,) = traces(document, name="noparser")
    assert list(zip(trace["x"], trace["y"], strict=True)) == [
        (point.cached_tokens, 1000 * point.ttft_s) for point in panel.points
    ]
    assert [name.endswith("-open") for name in trace["marker"]["symbol"]] == [True, False, False]
    assert "TTFT (ms)" in document["panels"][0]["y"]["title"]["text"]
    assert "TTFT: <b>0.20s</b>" in trace["text"][0]


# steps --------------------------------------------------------------------------------------------


def test_a_step_is_the_stack_of_the_drawn_figure() -> None:
    found = profiled()
    document = made("step_stack", found, "parser")
    figure = figure_step_stack.draw(found, "parser")
    assert figure is not None
    for panel, axes in enumerate(figure.axes):
        drawn = sorted(s.get_width() for s in axes.patches if isinstance(s, Rectangle))
        shown = sorted(ms for trace in traces(document, panel) for ms in trace["x"])
        assert shown == pytest.approx(drawn)
    looks = figure_step_style.looks(found)
    assert all(
        t["marker"]["color"] == looks[html.unescape(t["name"])][0] for t in document["traces"]
    )
    (moe,) = traces(document, 0, name="moe")
    for text in ("region: <b>moe", "26.00 ms", "42.7%", "60.90 ms", "launches (n): <b>1"):
        assert text in moe["hovertext"][0]


def test_a_region_is_once_in_the_legend_and_told_apart_by_its_pattern() -> None:
    document = made("step_stack", profiled(), "parser")
    shown = [t["name"] for t in document["traces"] if t["showlegend"]]
    assert len(shown) == len(set(shown))
    fills = [str(t["marker"]) for t in document["traces"] if t["showlegend"]]
    assert len(set(fills)) == len(shown)


def test_what_states_no_shares_says_why() -> None:
    found = study({RUN: event(), OTHER: event(problems=PROBLEMS[:1])})
    document = made("step_stack", found, "parser")
    notes = {note["text"]: note["colour"] for note in document["panels"][0]["notes"]}
    assert notes == {"60.90 ms": plot.INK, "invalid": plot.MISSED}


def test_the_labels_of_regions_can_be_read() -> None:
    """WCAG AA, of every colour that has a figure in it."""
    looks = {**figure_step_style.LOOKS, "own": ("#999933", "")}
    for name, (colour, hatch) in looks.items():
        ink = figure_style.INK if hatch else figure_step_style.ink(colour)
        assert contrast(ink, "#ffffff" if hatch else colour) >= 4.5, name


def test_spans_of_steps_are_those_of_the_drawn_figure() -> None:
    found = profiled()
    document = made("step_timeline", found, RUN)
    tracks = figure_step_timeline.tracks(found.profiles[RUN].timeline)
    wanted = sorted((b, e - b) for track in tracks for _, _, b, e in track.spans)
    shown = sorted(pair for t in document["traces"] for pair in zip(t["base"], t["x"], strict=True))
    assert shown == wanted
    ends = figure_step_timeline.tops(tracks)
    for trace in document["traces"]:
        assert all(0 < y < ends[-1] for y in trace["y"])
    begins = figure_step_timeline.begins(found.profiles[RUN].timeline)
    assert [line["at"] for line in document["panels"][0]["uprights"]] == list(begins.values())


# requests -----------------------------------------------------------------------------------------


def test_the_timeline_tells_queue_prefill_and_decode_apart() -> None:
    found = queued(2)
    document = made("timeline", found, FAILING)
    parts = {"queue": "queue", "wait": "prefill", "decode": "decode"}
    shown = request_bars.bars(found, FAILING)
    for part, name in parts.items():
        wanted = [(b, e - b) for bar in shown for n, b, e in bar.parts if n == part]
        trace = said(document, f"timeline.{name}")
        assert list(zip(trace["base"], trace["x"], strict=True)) == wanted
        assert trace["marker"]["color"] == figure_timeline.COLOURS[part]
    assert said(document, "timeline.queue")["marker"]["pattern"]["shape"] == "/"
    assert "queue (estimated): <b>1.0" in said(document, "timeline.queue")["text"][0]


def test_the_timeline_counts_what_runs() -> None:
    found = queued(2)
    document = made("timeline", found, FAILING)
    counted = request_bars.batch(found, FAILING)
    assert counted is not None and set(counted.lines) == {"in_flight", "running", "in_decode"}
    for name, counts in counted.lines.items():
        trace = said(document, f"timeline.{name}")
        assert (trace["x"], trace["y"]) == (counted.t_s, counts)
    assert document["panels"][1]["levels"][0]["text"] == "max-num-seqs 2"
    unknown = made("timeline", queued(None), FAILING)
    assert not traces(unknown, name=words.load("en").plain("plot.timeline.queue"))
    assert said(unknown, "timeline.wait")["y"] == [0, 1, 2, 3]


def test_a_long_run_says_how_many_requests_it_shows() -> None:
    known = queued(None)
    one = known.requests[FAILING][0]
    rows = [{**one, "index": float(n), "t_start_s": one["t_start_s"] + n / 9} for n in range(80)]
    document = made("timeline", dataclasses.replace(known, requests={FAILING: rows}), FAILING)
    assert document["panels"][0]["y"]["title"]["text"] == "request (first 64 of 80)"
    assert len(document["panels"][0]["y"]["tickvals"]) <= request_bars.TICKS + 1


def test_the_timeline_still_has_its_samples() -> None:
    document = made("timeline", load(), MONITOR)
    titles = [panel["title"] for panel in document["panels"]]
    assert titles == ["", "", "GPU utilisation", "power"]


# safety -------------------------------------------------------------------------------------------


def hostile(findings: Findings, name: str) -> Findings:
    """The same study, its variant named by markup."""
    told = json.dumps([findings.plan, findings.judged, findings.verdicts, findings.planned])
    plan, judged, verdicts, planned = json.loads(
        told.replace(json.dumps(name), json.dumps(HOSTILE)).replace(
            f"{json.dumps(name)}:", f"{json.dumps(HOSTILE)}:"
        )
    )
    runs = {
        run: {**row, "variant": HOSTILE if row["variant"] == name else row["variant"]}
        for run, row in findings.runs.items()
    }
    return dataclasses.replace(
        findings, plan=plan, judged=judged, verdicts=verdicts, planned=planned, runs=runs
    )


@pytest.mark.parametrize("kind", [*SAMPLES, "curve"])
def test_a_name_that_holds_markup_stays_text(kind: str) -> None:
    """Plotly reads tags in any text, and %{...} in templates: a template holds no name at all."""
    make, subject = SAMPLES.get(kind, (load, "concurrency"))
    document = made(kind, hostile(make(), "noparser"), subject)
    texts = list(strings(document))
    assert not [text for text in texts if "<script" in text or "<b>'" in text]
    if kind != "step_timeline":  # which names no variant
        assert any("&lt;script&gt;" in text or "&lt;scri" in text for text in texts)
    for trace in document["traces"]:
        assert "script" not in trace.get("hovertemplate", "")


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from strings(part)
