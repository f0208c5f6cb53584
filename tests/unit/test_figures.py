"""Figures: drawn from what is there, the same each time, and nothing stale beside them."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import draw_figures
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from decodelab import (
    figure_curve,
    figure_grid,
    figure_style,
    figure_timeline,
    figures,
    findings,
    request_bars,
    words,
)
from decodelab.findings import Findings

FIXTURE = Path(__file__).resolve().parents[1] / "golden" / "report" / "fixture"
MONITOR = "decode_noparser_short_c2_t128_r4_monitor"
FAILING = "decode_noparser_short_c4_t128_r4"
SVG = "{http://www.w3.org/2000/svg}"

Rows = list[dict[str, str]]


def load(folder: Path = FIXTURE) -> Findings:
    return findings.load(
        folder / "plan.json", folder / "tables", folder / "verdicts.json", folder / "runs"
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "study"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    assert draw_figures.main(arguments(FIXTURE, folder)) == 0
    return folder


@pytest.fixture(autouse=True)
def nothing_left_open() -> object:
    yield
    plt.close("all")


def arguments(study: Path, out: Path) -> list[str]:
    tables = ["--plan", str(study / "plan.json"), "--tables", str(study / "tables")]
    return [*tables, "--verdicts", str(study / "verdicts.json"), "--out", str(out)]


def change_table(path: Path, change: Callable[[Rows], Rows]) -> None:
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        columns, rows = list(reader.fieldnames or []), list(reader)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(change(rows))


def texts(figure: Figure) -> list[str]:
    """Every text that a figure shows."""
    return [item.get_text() for item in figure.findobj(Text) if item.get_text()]


def drawn_values(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_ydata())]


def test_the_list_names_every_file(drawn: Path) -> None:
    entries = figures.read_list(drawn)
    assert [(entry["kind"], entry["experiment"]) for entry in entries] == [
        ("gates", None),
        ("effects", "parser"),
        ("effects", "tools"),
        ("cached", "tools"),
        ("curve", "concurrency"),
        ("timeline", "concurrency"),
        ("timeline", "telemetry"),
        ("telemetry", "telemetry"),
        ("effects", "D"),
        ("grid", "D"),
        ("pareto", "D"),
    ]
    assert {entry["file"] for entry in entries} == {file.name for file in drawn.glob("*.svg")}
    for entry in entries:
        for kind in ("alt", "caption"):
            assert set(entry[kind]) == set(words.LANGUAGES)
            assert all(entry[kind].values())


def test_every_figure_is_valid_and_holds_shapes(drawn: Path) -> None:
    for entry in figures.read_list(drawn):
        root = ElementTree.parse(drawn / entry["file"]).getroot()
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter(f"{SVG}path"))) > 20
        assert not list(root.iter(f"{SVG}text")), "text must be outlines: it needs no font"


def test_figures_are_the_same_each_time(drawn: Path, tmp_path: Path) -> None:
    draw_figures.main(arguments(FIXTURE, tmp_path))
    for file in drawn.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name
    assert "dc:date" not in (tmp_path / "grid_D.svg").read_text(encoding="utf-8")


def keep_experiments(study: Path, *names: str) -> None:
    """Fewer figures: a drawing takes its second."""
    plan = json.loads((study / "plan.json").read_text(encoding="utf-8"))
    plan["experiments"] = {name: plan["experiments"][name] for name in names}
    (study / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def test_nothing_stale_is_left_and_nothing_else_touched(study: Path, tmp_path: Path) -> None:
    keep_experiments(study, "telemetry")
    folder = tmp_path / "out" / "figures"
    draw_figures.main(arguments(study, folder))
    (folder / "curve_of_last_week.svg").write_text("<svg/>")
    (folder / "notes.txt").write_text("mine")
    (folder.parent / "other.svg").write_text("<svg/>")
    change_table(study / "tables" / "telemetry.csv", lambda rows: [])
    draw_figures.main(arguments(study, folder))
    names = {file.name for file in folder.iterdir()}
    assert f"telemetry_{MONITOR}.svg" not in names
    assert "curve_of_last_week.svg" not in names
    assert "notes.txt" in names and (folder.parent / "other.svg").exists()


def test_no_data_no_figure(study: Path, tmp_path: Path) -> None:
    keep_experiments(study, "concurrency", "telemetry", "D")
    for name in ("requests", "telemetry", "runs"):
        change_table(study / "tables" / f"{name}.csv", lambda rows: [])
    judged = json.loads((study / "verdicts.json").read_text(encoding="utf-8"))
    (study / "verdicts.json").write_text(
        json.dumps({**judged, "ranking": [], "gates": [], "verdicts": []}), encoding="utf-8"
    )
    draw_figures.main(arguments(study, tmp_path / "figures"))
    kinds = {entry["kind"] for entry in figures.read_list(tmp_path / "figures")}
    assert kinds == {"grid"}  # the grid's cells are in the plan: pending or refused
    assert json.loads((tmp_path / "figures" / figures.LIST).read_text())["schema"] == figures.SCHEMA


def test_the_curve_shows_target_ideal_and_units() -> None:
    figure = figure_curve.draw(load(), "concurrency")
    assert figure is not None
    shown = texts(figure)
    assert "target >= 20" in shown and "ideal (proportional)" in shown and "noparser" in shown
    assert "SIMULATED" in shown
    right = figure.axes[2]
    assert [axes.get_ylabel() for axes in figure.axes] == ["tok/s"] * 3
    rows = load().runs
    total = [rows[f"decode_noparser_short_c{c}_t128_r4"]["output_tps_total"] for c in (1, 2, 4)]
    assert drawn_values(right.lines[0]) == total
    assert drawn_values(right.lines[1]) == [total[0], 2 * total[0], 4 * total[0]]


def test_a_panel_without_values_is_left_out(study: Path) -> None:
    def unknown(rows: Rows) -> Rows:
        return [{**row, "e2e_tps_p10": ""} for row in rows]

    change_table(study / "tables" / "runs.csv", unknown)
    figure = figure_curve.draw(load(study), "concurrency")
    assert figure is not None and len(figure.axes) == 2
    assert "target >= 20" not in texts(figure)  # the target is one of the official rate


def test_a_curve_joins_the_runs_of_one_workload_and_no_open_loop(study: Path) -> None:
    """The prompt may be the same: a closed loop and the cap of an open one are no curve."""

    def rename(data: Any) -> None:
        for run in data["runs"]:
            if run["name"] == "decode_noparser_short_c4_t128_r4":
                run["workload"] = "other"

    def concurrencies() -> list[list[float]]:
        lines = figure_curve.lines(load(study), "concurrency")
        return [[row["concurrency"] for row in line.rows] for line in lines]

    def open_loop(rows: Rows) -> Rows:
        return [{**row, "rate": "2" if row["concurrency"] == "2" else ""} for row in rows]

    assert concurrencies() == [[1, 2, 4]]
    plan = json.loads((study / "plan.json").read_text(encoding="utf-8"))
    rename(plan)
    (study / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert concurrencies() == [[1, 2]]
    change_table(study / "tables" / "runs.csv", open_loop)
    assert concurrencies() == []


def test_invalid_runs_are_not_drawn(study: Path) -> None:
    def invalid(rows: Rows) -> Rows:
        return [{**row, "validity": "invalid"} for row in rows]

    change_table(study / "tables" / "runs.csv", invalid)
    assert figure_curve.draw(load(study), "concurrency") is None


def test_the_timeline_puts_requests_and_samples_on_one_axis() -> None:
    figure = figure_timeline.draw_requests(load(), MONITOR)
    assert figure is not None
    bars, batch, util, power = figure.axes
    assert batch.get_ylabel() == "requests"
    assert bars.get_shared_x_axes().joined(bars, power)
    assert util.get_ylabel() == "GPU-Util (%)" and power.get_ylabel() == "power (W)"
    assert "cap 250 W" in texts(figure)
    first = load().requests[MONITOR][0]
    waiting, decode = (patch for patch in bars.patches[:2] if isinstance(patch, Rectangle))
    assert waiting.get_width() == pytest.approx(first["ttft_s"])
    assert decode.get_x() == pytest.approx(first["ttft_s"])
    assert decode.get_width() == pytest.approx(first["t_last_s"] - first["t_first_s"])


def test_times_count_from_the_first_request(study: Path) -> None:
    """The run's own zero lies before it: the client needs a moment to start."""

    def later(rows: Rows) -> Rows:
        times = ("t_start_s", "t_first_s", "t_last_s", "t_end_s")
        return [{**row, **{t: str(float(row[t]) + 7.5) for t in times if row[t]}} for row in rows]

    before = request_bars.timed(load(), MONITOR)
    change_table(study / "tables" / "requests.csv", later)
    after = request_bars.timed(load(study), MONITOR)
    assert after[0]["t_start_s"] == 0.0
    assert [row["t_end_s"] for row in after] == pytest.approx([row["t_end_s"] for row in before])


def queued(limit: int | None) -> Findings:
    """Four requests of a second each, sent at once, on a server that runs `limit` of them; indexes are not the order of
    arrival.
    """
    known = load()
    rows: list[findings.Row] = [
        {
            "run": FAILING,
            "index": float(index),
            "outcome": "ok",
            "t_start_s": 5.0 + index / 1000,
            "t_first_s": begin + 0.25,
            "t_last_s": begin + 0.99,
            "t_end_s": begin + 1.0,
            "ttft_s": begin + 0.25 - 5.0 - index / 1000,
        }
        for index, begin in enumerate((5.01, 6.01, 5.01, 6.01))
    ]
    flags = {} if limit is None else {"--max-num-seqs": limit}
    plan = {**known.plan, "variants": {"noparser": {"canonical": flags}}}
    starts = [{**start, "effective": None} for start in known.starts]
    return dataclasses.replace(
        known, plan=plan, starts=starts, requests={FAILING: rows}, telemetry={}
    )


def test_the_timeline_splits_the_wait_where_the_limit_is_known() -> None:
    found = queued(2)
    waits = [bar.queue for bar in request_bars.bars(found, FAILING)]
    assert waits == pytest.approx([0.0, 1.009, 0.0, 1.007], abs=0.01)
    figure = figure_timeline.draw_requests(found, FAILING)
    assert figure is not None
    assert {"queue (estimated)", "prefill", "decode", "max-num-seqs 2"} <= set(texts(figure))


def test_the_batch_never_exceeds_what_the_server_takes() -> None:
    counted = request_bars.batch(queued(2), FAILING)
    assert counted is not None and counted.running is not None
    assert max(counted.in_flight) == 4
    assert max(counted.running) == 2 and max(counted.in_decode) == 2
    assert counted.in_flight[-1] == counted.running[-1] == counted.in_decode[-1] == 0


def test_without_the_limit_nothing_is_split() -> None:
    found = queued(None)
    assert [bar.queue for bar in request_bars.bars(found, FAILING)] == [None] * 4
    counted = request_bars.batch(found, FAILING)
    assert counted is not None and counted.running is None
    figure = figure_timeline.draw_requests(found, FAILING)
    assert figure is not None and "waiting (queue + prefill)" in texts(figure)
    assert "queue (estimated)" not in texts(figure)


def test_a_long_run_says_how_many_requests_it_shows() -> None:
    known = queued(None)
    one = known.requests[FAILING][0]
    rows = [{**one, "index": float(n), "t_start_s": one["t_start_s"] + n / 9} for n in range(80)]
    found = dataclasses.replace(known, requests={FAILING: rows})
    figure = figure_timeline.draw_requests(found, FAILING)
    assert figure is not None and figure.axes[0].get_ylabel() == "request (first 64 of 80)"
    assert len(figure.axes[0].get_yticks()) <= request_bars.TICKS + 1


def test_one_request_has_no_batch() -> None:
    known = queued(None)
    found = dataclasses.replace(known, requests={FAILING: known.requests[FAILING][:1]})
    figure = figure_timeline.draw_requests(found, FAILING)
    assert figure is not None and len(figure.axes) == 1


def test_a_failed_request_looks_failed() -> None:
    figure = figure_timeline.draw_requests(load(), FAILING)
    assert figure is not None
    assert "not ok" in texts(figure)
    assert any("stream_error" in text for text in texts(figure))


def test_a_run_without_times_has_no_timeline(study: Path) -> None:
    def timeless(rows: Rows) -> Rows:
        return [{**row, "t_start_s": ""} for row in rows]

    change_table(study / "tables" / "requests.csv", timeless)
    assert figure_timeline.draw_requests(load(study), MONITOR) is None
    assert figure_timeline.draw_telemetry(load(study), MONITOR) is not None


def test_samples_without_a_common_clock_are_drawn_by_their_number(study: Path) -> None:
    def unrelated(rows: Rows) -> Rows:
        return [{**row, "t_s": ""} for row in rows]

    change_table(study / "tables" / "telemetry.csv", unrelated)
    figure = figure_timeline.draw_telemetry(load(study), MONITOR)
    assert figure is not None
    assert "number of the SMI record" in texts(figure)
    timeline = figure_timeline.draw_requests(load(study), MONITOR)
    assert timeline is not None and len(timeline.axes) == 2  # bars and batch


def test_the_grid_tells_its_cells_apart() -> None:
    figure = figure_grid.draw(load(), "D")
    assert figure is not None
    shown = texts(figure)
    assert "cannot\nstart" in shown and "invalid" in shown and "15.2" in shown
    hatches = [patch.get_hatch() for patch in figure.axes[0].patches]
    assert hatches.count("////") == 1 and hatches.count("xx") == 1


def test_a_variant_keeps_its_colour_through_a_study() -> None:
    colours = figure_style.plan_colours(load().plan)
    assert list(colours) == ["full_parser", "noparser", "flash"]
    assert len(set(colours.values())) == 3
    many = figure_style.colours([f"v{number}" for number in range(40)])
    assert len(set(many.values())) == 40  # colour and marker together
    plan = {"variants": {f"v{number}": {} for number in range(20)}}
    looks, dashes = figure_style.plan_colours(plan), figure_style.plan_dashes(plan)
    assert len({(looks[name][0], str(dashes[name])) for name in looks}) == 20  # lines without marks


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        (["simulated"], ["SIMULATED"]),
        (["reconstructed"], ["RECONSTRUCTED"]),
        (["simulated", "measured"], ["SIMULATED + MEASURED"]),
        (["measured"], []),
        ([], []),
    ],
)
def test_the_banner_names_the_sources(sources: list[str], shown: list[str]) -> None:
    figure = plt.figure()
    figure_style.banner(figure, sources)
    assert texts(figure) == shown
