"""The report: exact text of a small study, and what each part does when the data is otherwise."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aggregate
import import_raw
import judge
import pytest
import write_report
import yaml
from markdown_it import MarkdownIt

from decodelab import figures, findings, numbers, reasons, report, report_verdicts, words
from decodelab.columns import CLIENT, DECLARED, SECOND, SERVER
from decodelab.findings import Findings, UnreadableInput
from decodelab.study import open_study
from decodelab.vocabulary import VERDICTS

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "report"
FIXTURE = GOLDEN / "fixture"
Rows = list[dict[str, str]]

CHINESE = re.compile(r"[\u3400-\u9fff]")
CURVE = {
    "id": "curve_concurrency",
    "kind": "curve",
    "experiment": "concurrency",
    "file": "curve_concurrency.svg",
    "alt": {"zh": "曲线 [方括号]", "en": "a curve [in brackets]"},
    "caption": {"zh": "并发曲线", "en": "the curve"},
}


def load(folder: Path = FIXTURE) -> Findings:
    return findings.load(
        folder / "plan.json", folder / "tables", folder / "verdicts.json", folder / "runs"
    )


def write(found: Findings, language: str = "zh") -> str:
    return report.write(found, [CURVE], "figures", words.load(language))


def section(text: str, heading: str) -> str:
    """From a heading to the next of its level or above."""
    start = text.index(heading)
    level = len(heading) - len(heading.lstrip("#"))
    rest = text[start + len(heading) :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return heading + (rest[: end.start()] if end else rest)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A copy of the fixture that a test may change."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "study"))


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def change_table(path: Path, change: Callable[[Rows], Rows]) -> None:
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        columns, rows = list(reader.fieldnames or []), list(reader)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(change(rows))


# the whole text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "name"), [("zh", "report.md"), ("en", "report.en.md")])
def test_the_report_is_this_text(language: str, name: str, tmp_path: Path) -> None:
    """UPDATE_GOLDEN=1 writes the golden text anew; read the difference before you commit it."""
    drawings = tmp_path / "figures"
    drawings.mkdir()
    (drawings / figures.LIST).write_text(json.dumps({"figures": [CURVE]}), encoding="utf-8")
    given = ["--plan", str(FIXTURE / "plan.json"), "--tables", str(FIXTURE / "tables")]
    given += ["--verdicts", str(FIXTURE / "verdicts.json"), "--figures", str(drawings)]
    assert write_report.main([*given, "--language", language, "--out", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_no_chinese_in_the_english_report() -> None:
    assert [line for line in write(load(), "en").splitlines() if CHINESE.search(line)] == []


def test_both_languages_have_one_structure() -> None:
    """The same headings, tables and lists, in the same order."""
    parser = MarkdownIt("commonmark").enable("table")
    zh, en = (
        [token.type for token in parser.parse(write(load(), language)) if token.type != "inline"]
        for language in words.LANGUAGES
    )
    assert zh == en


def test_log_lines_stay_text() -> None:
    html = MarkdownIt("commonmark").enable("table").render(write(load(), "en"))
    line = "ValueError: `FLASH_ATTN` | &lt;script&gt;alert(1)&lt;/script&gt; is **not** supported"
    assert f"<code>{line}</code>" in html
    assert "<script" not in html


def test_no_secret_is_printed() -> None:
    for language in words.LANGUAGES:
        text = write(load(), language)
        assert "hf_secretsecret" not in text
        assert "HF_TOKEN=***" in text


# sentences follow verdicts ------------------------------------------------------------------------


def arms_in_words(found: Findings, experiment: str, say: words.Words) -> str:
    return report_verdicts.refused(found, found.verdicts_of(experiment)[0], say)


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("experiment", ["parser", "tools", "concurrency", "telemetry"])
def test_every_verdict_changes_the_sentences(
    study: Path, experiment: str, language: str, verdict: str
) -> None:
    def judged(data: Any) -> None:
        data["experiments"][experiment]["verdict"] = verdict
        for item in data["verdicts"]:
            if item["experiment"] == experiment:
                item["verdict"] = verdict

    change_json(study / "verdicts.json", judged)
    change_json(study / "plan.json", lambda data: data["experiments"][experiment]["then"].clear())
    say = words.load(language)
    found = load(study)
    kind = found.verdicts_of(experiment)[0]["kind"]
    text = write(found, language)
    title = found.experiments[experiment]["title"][language]
    own = section(text, f"### {found.experiments[experiment]['section']}. {title}")
    arms = arms_in_words(found, experiment, say)
    assert say.say(f"explain.{kind}.{verdict}", refused=arms) in own
    assert f"**{say.say(f'verdict.{verdict}')}**" in own
    for other in VERDICTS:
        if other != verdict:
            assert say.say(f"explain.{kind}.{other}", refused=arms) not in own
            assert f"**{say.say(f'verdict.{other}')}**" not in own


def test_the_configs_text_for_the_verdict_comes_first(study: Path) -> None:
    assert "parser 不是主因" in section(write(load(study)), "### 1. Parser-off 对照")

    def supported(data: Any) -> None:
        data["experiments"]["parser"]["verdict"] = "supported"

    change_json(study / "verdicts.json", supported)
    own = section(write(load(study)), "### 1. Parser-off 对照")
    assert "parser 是主因。" in own and "parser 不是主因" not in own


def test_an_experiment_without_a_verdict_says_so() -> None:
    text = write(load(), "en")
    assert "Experiments without a verdict yet: `late`" in section(text, "## 1. Summary")
    assert "There are not enough results" in section(text, "### 6. not finished")


@pytest.mark.parametrize(
    ("explains", "needed", "said"),
    [
        (False, 1.3, "cannot explain the gap"),
        (True, 1.3, "large enough to explain the gap"),
        (None, 1.3, "cannot explain the gap"),  # the interval decides
        (True, -0.9, None),  # the target is met: there is no gap
        (None, None, None),
    ],
)
def test_a_comparison_says_whether_it_explains_the_gap(
    study: Path, explains: bool | None, needed: float | None, said: str | None
) -> None:
    def change(data: Any) -> None:
        data["verdicts"][0].update(explains_gap=explains, needed_effect=needed)

    change_json(study / "verdicts.json", change)
    own = section(write(load(study), "en"), "### 1. Parsers off")
    assert ("gap to the target" in own) is (said is not None)
    assert said is None or said in own


def test_the_summary_has_ten_lines_at_most(study: Path) -> None:
    def many(data: Any) -> None:
        data["anomalies"] += [{**data["anomalies"][0], "code": f"sort_{n}"} for n in range(8)]

    change_json(study / "verdicts.json", many)
    lines = section(write(load(study), "en"), "## 1. Summary").strip().splitlines()[2:]
    assert len(lines) == 10
    assert lines[-1] == "- 10 more anomalies in the data are told in [section 3](#3-results)."
    assert not any("first request" in line for line in lines)  # anomalies give way first
    assert any("Parsers off: refuted" in line for line in lines)


def test_many_anomalies_of_one_sort_are_counted(study: Path) -> None:
    def many(data: Any) -> None:
        data["anomalies"] += [data["anomalies"][0]] * 8

    change_json(study / "verdicts.json", many)
    own = section(write(load(study), "en"), "### 2. 29 tools")
    assert own.count("the first request waits 5.97s") == 3
    assert "about 1.00s (6 more of this sort)" in own


def test_the_first_question_speaks_for_an_experiment(study: Path) -> None:
    """Another question of the experiment may have a larger effect: it does not take the floor."""

    def second(data: Any) -> None:
        question = data["experiments"]["telemetry"]["questions"][0]
        data["experiments"]["telemetry"]["questions"].append({**question, "id": "cost"})

    def judged(data: Any) -> None:
        level = next(v for v in data["verdicts"] if v["id"] == "telemetry_1")
        cost = {**data["verdicts"][0], "experiment": "telemetry", "id": "cost", "question": "cost"}
        data["verdicts"].insert(data["verdicts"].index(level), {**cost, "effect": 0.9})

    change_json(study / "plan.json", second)
    change_json(study / "verdicts.json", judged)
    line = "**Hardware utilisation: refuted** — mean GPU-Util is `28.9%`"
    assert line in section(write(load(study), "en"), "## 1. Summary")


def test_bottleneck_says_what_ranks_it(study: Path) -> None:
    own = section(write(load(), "en"), "## 4. Where the bottleneck is")
    assert "1. Decode scheduling" in own and "ranked by: evidence" in own
    assert "2. MoE kernels\n   - ranked by: prior (no measurement supports it)" in own
    assert "- API and parsers — excluded" in own

    def level(data: Any) -> None:
        data["bottleneck"][1]["evidence"] = [{"zh": "甲", "en": "something", "weight": 1}]

    change_json(study / "verdicts.json", level)
    assert "prior (its evidence is level" in write(load(study), "en")


# nothing unknown is a number ----------------------------------------------------------------------


def without(rows: Rows, *columns: str) -> Rows:
    return [{**row, **dict.fromkeys(columns, "")} for row in rows]


@pytest.mark.parametrize("column", ["ttft_s_p90", "decode_tps_p10", "output_tps_total", "n_ok"])
def test_a_missing_value_is_a_dash(study: Path, column: str) -> None:
    change_table(study / "tables" / "runs.csv", lambda rows: without(rows, column))
    own = section(write(load(study), "en"), "### 5. Hardware utilisation")
    row = {
        "ttft_s_p90": r"\| TTFT P90 [^|]*\| — \|",
        "decode_tps_p10": r"\| Output TPS P10 [^|]*\| — \|",
        "output_tps_total": r"\| total Output TPS [^|]*\| — \|",
        "n_ok": r"\| attempted / ok / not started [^|]*\| 4 / — / 0 · 1 \|",
    }[column]
    assert re.search(row, own)


def test_a_dash_has_its_reason(study: Path) -> None:
    assert "`—`: neither server nor client gave it." in write(load(), "en")

    def imported(rows: Rows) -> Rows:
        return [{**row, "source": "reconstructed"} for row in rows]

    change_table(study / "tables" / "runs.csv", imported)
    text = write(load(study), "en")
    assert "`—`: the raw record does not hold it." in text
    assert "`—`: neither server nor client gave it." not in text


def test_a_figure_of_the_whole_study_stands_in_the_annex_of_the_targets() -> None:
    gates = {**CURVE, "id": "gates_targets", "file": "gates_targets.svg", "experiment": None}
    text = report.write(load(), [CURVE, gates], "figures", words.load("en"))
    assert "(figures/gates_targets.svg)" in section(text, "### Annex G")
    assert text.count("gates_targets.svg") == 1


def test_an_invalid_run_shows_no_figures() -> None:
    own = section(write(load(), "en"), "### Experiment D: a small grid")
    row = next(line for line in own.splitlines() if line.startswith("| — | 2 | off"))
    assert row.startswith("| — | 2 | off | — | — | — | — | — | invalid; success rate 0%")


def test_failures_are_counted_beside_the_percentiles(study: Path) -> None:
    def broken(rows: Rows) -> Rows:
        for row in rows:
            if row["run"].endswith("_monitor"):
                row.update(n_ok="3", success_rate="0.75")
                row.update(adj_ttft_s_p90="inf", adj_e2e_tps_p10="0.0", adj_decode_tps_p10="0.0")
        return rows

    change_table(study / "tables" / "runs.csv", broken)
    own = section(write(load(study), "en"), "### 5. Hardware utilisation")
    assert "| success rate | 75% |" in own
    assert "| attempted / ok / not started · starts | 4 / 3 / 0 · 1 |" in own
    assert re.search(r"\| TTFT P90 \(failures counted\) [^|]*\| ∞ \|", own)


def test_a_clock_that_ends_with_the_stream_is_marked(study: Path) -> None:
    note = "The raw record has no time of the last delta"
    assert note not in write(load(), "en")

    def stream_end(rows: Rows) -> Rows:
        return [{**row, "decode_end": "stream_end"} for row in rows]

    change_table(study / "tables" / "requests.csv", stream_end)
    assert note in write(load(study), "en")


def test_mixed_sources_are_labelled(study: Path) -> None:
    def mixed(rows: Rows) -> Rows:
        for row in rows:
            if row["variant"] == "full_parser":
                row["source"] = "measured"
        return rows

    change_table(study / "tables" / "runs.csv", mixed)
    text = write(load(study), "en")
    assert "Every table and figure names its source" in text
    own = section(text, "### 1. Parsers off")
    assert "| metric | full parser · MEASURED | `noparser` · suspect · SIMULATED |" in own
    assert "| metric | `short` | `tool` |" in section(text, "### 2. 29 tools")


def test_a_study_without_any_run_is_a_report_too(study: Path) -> None:
    for name in ("runs", "requests", "telemetry", "starts"):
        change_table(study / "tables" / f"{name}.csv", lambda rows: [])
    shutil.rmtree(study / "runs")
    nothing: dict[str, Any] = {
        "verdicts": [],
        "experiments": {},
        "anomalies": [],
        "gates": [],
        "next": [],
    }
    change_json(study / "verdicts.json", lambda data: data.update(nothing, bottleneck=[]))
    for language in words.LANGUAGES:
        text = write(load(study), language)
        assert words.load(language).say("banner.none") in text
        assert "NaN" not in text and "None" not in text and "nan" not in text


def test_pending_runs_are_listed_with_their_reason() -> None:
    own = section(write(load(), "en"), "### Annex H: runs without a result")
    assert "| `decode_noparser_short_c8_t128_r8` | `noparser` | not run yet |" in own
    assert "| `decode_flash_short_c1_t128_r3` | `flash` | this variant cannot start |" in own


def test_every_run_is_traced_to_its_file() -> None:
    own = section(write(load(), "en"), "### Annex E: where the figures come from")
    index = json.loads((FIXTURE / "runs" / "decode_runs.json").read_text(encoding="utf-8"))
    for name, entry in index["runs"].items():
        assert f"| `{name}.json` | `{entry['sha256'][:16]}` | `{entry['start_id']}` |" in own


def test_a_stranger_among_the_inputs_is_refused(study: Path) -> None:
    change_json(study / "plan.json", lambda data: data.update(schema="something/9"))
    with pytest.raises(UnreadableInput, match=r"plan\.json: schema is 'something/9', wanted"):
        load(study)


# what is said of data that is not there -----------------------------------------------------------


def test_the_arm_that_cannot_start_is_named(study: Path) -> None:
    def baseline(data: Any) -> None:
        for item in data["verdicts"]:
            if item.get("candidate") == "flash":
                item["refused"] = ["noparser"]

    assert "`flash` cannot start in this environment; the log" in write(load(study), "en")
    change_json(study / "verdicts.json", baseline)
    text = write(load(study), "en")
    assert "`noparser` cannot start in this environment; the log" in text
    assert "`flash` against `noparser`: `noparser` cannot start" in section(text, "## 1. Summary")


def test_a_run_that_only_waits_is_not_called_incomparable(study: Path) -> None:
    waiting = "decode_noparser_short_c8_t128_r8"

    def change(data: Any) -> None:
        data["experiments"]["parser"]["verdict"] = "invalid"
        why = {"code": "not_measured", "zh": "尚未测量", "en": "not measured yet", "runs": waiting}
        data["verdicts"][0].update(verdict="invalid", reasons=[why])

    change_json(study / "verdicts.json", change)
    text = write(load(study), "en")
    own, head = section(text, "### 1. Parsers off"), section(text, "## 1. Summary")
    assert "Not measured yet; the question is judged" in own and "cannot be compared" not in own
    assert "Parsers off: invalid (not measured yet)** — " in head
    assert "`full_parser`: not measured yet" in head
    assert "尚未测量" in section(write(load(study)), "## 一、结论摘要")

    def tried(data: Any) -> None:
        data["runs"][waiting] = {"file": None, "status": "invalid", "reasons": ["run_crashed"]}

    change_json(study / "runs" / "decode_runs.json", tried)
    text = write(load(study), "en")
    assert "cannot be compared" in section(text, "## 1. Summary")
    assert re.search(
        rf"`{waiting}` \| invalid \| — / — \| `run_crashed`; to measure it again: "
        rf"`--config retry={waiting}`",
        section(text, "### Annex B"),
    )


def test_a_missing_run_that_the_index_calls_invalid_is_told_as_such(study: Path) -> None:
    name = "decode_noparser_short_c8_t128_r8"

    def tried(data: Any) -> None:
        data["missing"] = [item for item in data.get("missing") or [] if item["name"] != name]
        data["missing"].append(
            {"name": name, "variant": "noparser", "why": "invalid", "reasons": ["run_crashed"]}
        )

    change_json(study / "runs" / "decode_runs.json", tried)
    text = write(load(study), "en")
    assert f"| `{name}` | invalid | — / — | `run_crashed`; " in section(text, "### Annex B")


def test_an_invalid_run_shows_its_first_error_and_the_way_on(study: Path) -> None:
    name = "decode_grid-mns2-ecp0_short_c2_t64_r2"
    own = section(write(load(study), "en"), "### Annex B")
    assert "first error of a request: ``stream_error 200" in own
    assert "kept as data and measured again only when asked" in own
    assert "another `seed` in workload `screen`" in own, "on the host it is done"
    assert f"--config retry={name}" not in own

    def failed_there(data: Any) -> None:
        data["runs"][name]["status"] = "invalid"

    change_json(study / "runs" / "decode_runs.json", failed_there)
    own = section(write(load(study), "en"), "### Annex B")
    assert f"`--config retry={name}`" in own


def test_the_summary_counts_what_one_sentence_does_not_tell() -> None:
    own = section(write(load(), "en"), "## 1. Summary")
    assert "(5 points: 1 supported, 1 refuted, 1 inconclusive, 1 invalid, 1 not possible)" in own
    assert "the best of 2 measured combinations, starts of each: 1; neighbours closer than" in own


@pytest.mark.parametrize(
    ("n", "which", "enough"),
    [
        *((5, "p50", False), (6, "p50", True), (20, "p50", True), (20, "p10", False)),
        *((28, "p90", False), (29, "p90", True), (29, "p10", True)),
    ],
)
def test_which_percentiles_n_values_can_bound(n: int, which: str, enough: bool) -> None:
    assert numbers.enough_for_percentile(n, which) is enough


def test_the_footnote_is_of_a_percentile(study: Path) -> None:
    def twenty(rows: Rows) -> Rows:
        return [{**row, "n_ok": "20", "n_attempted": "20"} for row in rows]

    change_table(study / "tables" / "runs.csv", twenty)
    own = section(write(load(study), "en"), "### 5. Hardware utilisation")
    assert "† n = 20 (P10, P90): too few" in own
    assert re.search(r"Output TPS P10[^|]*†", own) and not re.search(r"Output TPS P50[^|]*†", own)


def two_boards(data: Any) -> None:
    board = data["ranking"][0]
    data["ranking"].append({**board, "grid": "second", "entries": board["entries"][:1]})


def test_two_grids_have_a_table_each(study: Path) -> None:
    def split(data: Any) -> None:
        cells = [v for v in data["variants"].values() if v.get("grid")]
        cells[0]["grid"] = "second"

    change_json(study / "plan.json", split)
    change_json(study / "verdicts.json", two_boards)
    own = section(write(load(study), "en"), "### Experiment D")
    assert "the 1 combinations of the grid `second`" in own
    assert own.count("Rank counts only") == 2 and "Grid `second`:" in own


def test_the_lead_of_a_board_names_what_it_must_exceed(study: Path) -> None:
    def of_twelve(data: Any) -> None:
        best = data["ranking"][0]["best"]
        best |= {"among": 12, "pairs": 66, "ties": ["grid-mns1-ecp1"]}
        best["runner_up"] |= {"margin": 0.09, "needed": 0.1096, "beyond_noise": False}
        best["baseline"] = {**best["runner_up"], "variant": "base", "margin": None}
        best["baseline"] |= {"beyond_noise": True, "needed": None, "basis": "zero"}

    change_json(study / "verdicts.json", of_twelve)
    own = section(write(load(study), "en"), "### Experiment D")
    said = "a lead must be more than the 11% that noise and drift may give over 66 comparisons"
    assert said in own and "The baseline `base` is at 0." in own
    assert "All 66 pairs of the 12 combinations are compared" in own


def test_a_board_of_shares_speaks_of_chance(study: Path) -> None:
    def counted(data: Any) -> None:
        data["ranking"][0]["best"]["runner_up"] |= {"needed": None, "basis": "points"}

    change_json(study / "verdicts.json", counted)
    own = section(write(load(study), "en"), "### Experiment D")
    assert "more than what chance may give." in own and "in points of a share" in own


def test_a_cell_that_was_measured_unlike_the_rest_has_its_reason(study: Path) -> None:
    def unlike(data: Any) -> None:
        reason = reasons.reason("tokens_differ", what="completion_tokens", a="101", b="31")
        data["ranking"][0]["entries"][1] |= {"state": "unlike", "rank": None, "reasons": [reason]}

    change_json(study / "verdicts.json", unlike)
    own = section(write(load(study), "en"), "### Experiment D")
    assert "not ranked: measured unlike the others" in own
    assert re.search(r"differ in completion\\?_tokens: 101 against 31", own)


def test_an_attached_server_is_told_by_its_address(study: Path) -> None:
    def attach(data: Any) -> None:
        data["variants"]["noparser"]["attach"] = "http://me:pw@gpu:8000"

    change_json(study / "plan.json", attach)
    text = write(load(study), "en")
    said = "ttached to `http://gpu:8000`, identity observed, never started or stopped by decodelab"
    assert f"> A{said}" in text and f"a{said}" in section(text, "## 2. Environment")


def test_a_letter_without_a_title_stands_alone(study: Path) -> None:
    change_json(study / "plan.json", lambda data: data["experiments"]["D"].pop("title"))
    assert "\n### Experiment D\n" in write(load(study), "en")


def test_annex_b_says_which_runs_it_leaves_out() -> None:
    own = section(write(load(), "en"), "### Annex G")
    assert "at its lowest concurrency; the 8 runs above it are not in this table" in own
    assert "Every open loop" not in own


def test_the_targets_and_the_summary_take_an_open_loop_by_its_rate(study: Path) -> None:
    """Two workloads of one scenario are told apart by their names."""

    def only_monitor(data: Any) -> None:
        run = next(r for r in data["runs"] if r["name"].endswith("_monitor"))
        data["runs"] = [run, *(r for r in data["runs"] if r is not run)]

    def gates(data: Any) -> None:
        run = "decode_noparser_short_c2_t128_r4_monitor"
        data["gates"] = [{**data["gates"][0], "run": run, "workload": "monitor"}]

    change_json(study / "plan.json", only_monitor)
    change_json(study / "verdicts.json", gates)
    text = write(load(study), "en")
    assert "- Workload `monitor`, 0.25 requests/s, 128 output tokens: official e2e TPS P10" in text
    assert "Every open loop is held against them" in section(text, "### Annex G")
    assert "- `monitor` 负载、0.25 请求/s、128 token 输出时：" in write(load(study))


def test_one_run_is_not_told_as_several(study: Path) -> None:
    def one(rows: Rows) -> Rows:
        return [{**row, "validity": "invalid" if n == 0 else "valid"} for n, row in enumerate(rows)]

    change_table(study / "tables" / "runs.csv", one)
    text = write(load(study), "en")
    assert "The 1 run below is suspect or invalid." in text
    assert "1 planned run has no result yet" in text


def test_a_verdict_of_an_open_loop_stands_at_its_rate(study: Path) -> None:
    def judged(data: Any) -> None:
        for verdict in data["verdicts"]:
            if verdict["kind"] == "compare_variants":
                verdict["point"] = {"rate": 2.0}

    change_json(study / "verdicts.json", judged)
    assert "; at 2 requests/s" in write(load(study), "en")
    assert "条件：2 请求/s" in write(load(study))


def test_doubt_about_a_run_stands_in_its_line_of_a_curve(study: Path) -> None:
    def suspect(rows: Rows) -> Rows:
        name = "decode_noparser_short_c4_t128_r4"
        return [{**r, "validity": "suspect" if r["run"] == name else "valid"} for r in rows]

    change_table(study / "tables" / "runs.csv", suspect)
    own = section(write(load(study), "en"), "### 4. Concurrency curve")
    assert "| 4 · suspect | 4 |" in own and own.count("suspect |") == 1


def test_a_line_of_a_curve_gives_the_rate_of_an_open_loop(study: Path) -> None:
    def open_loop(rows: Rows) -> Rows:
        name = "decode_noparser_short_c4_t128_r4"
        return [{**r, "rate": "2.5" if r["run"] == name else r["rate"]} for r in rows]

    change_table(study / "tables" / "runs.csv", open_loop)
    own = section(write(load(study), "en"), "### 4. Concurrency curve")
    assert "| 2.5/s (at most 4) | 4 |" in own


def test_starts_without_runs_have_a_source(study: Path) -> None:
    change_table(study / "tables" / "runs.csv", lambda rows: [])

    def simulated(rows: Rows) -> Rows:
        return [{**row, "source": "simulated"} for row in rows]

    starts = study / "tables" / "starts.csv"
    text = starts.read_text(encoding="utf-8").splitlines()
    if "source" not in text[0].split(","):
        starts.write_text("\n".join([text[0] + ",source", *(f"{x}," for x in text[1:])]) + "\n")
    change_table(starts, simulated)
    text = write(load(study), "en")
    assert "**SIMULATED**" in text and "NO DATA" not in text and "**NO FIGURES**" in text


def test_what_a_workload_declares_stands_in_its_set_up(study: Path) -> None:
    def declare(data: Any) -> None:
        run = next(r for r in data["runs"] if r["name"].endswith("_monitor"))
        run["run"] = "d1"
        data["points"] = {"d1": {"rate": 2.5, "arrivals": "constant", "cache": "cold"}}

    assert ", open loop at" not in write(load(study), "en")
    change_json(study / "plan.json", declare)
    own = section(write(load(study), "en"), "### 5. Hardware utilisation")
    said = ", open loop at 2.5 requests/s (`constant`), where the concurrency is a cap"
    assert f"{said}, cache `cold`; variants:" in own
    own = section(write(load(study)), "### 5. ")
    assert "，开环 2.5 请求/s（`constant`），并发为上限，cache `cold`；变体：" in own


POINT = {"scenario": "s", "warmup": 0, "ignore_eos": True, "extra_body": {}, "http": "epoll"}
CONTENT = {"messages": [], "tools": None, "tool_choice": None, "chat_template_kwargs": {}}
THINKING = {"enable_thinking": False, "thinking": False}


@pytest.mark.parametrize(
    ("point", "content", "said"),
    [
        ({}, {}, ""),
        ({"seed": "0"}, {}, ""),
        ({"warmup": 1}, {}, ", after 1 warm-up request"),
        ({"warmup": 2}, {}, ", after 2 warm-up requests"),
        ({"ignore_eos": False}, {}, ", the model may end sooner (`ignore_eos` off)"),
        ({"min_tokens": 16}, {}, ", `min_tokens=16`"),
        ({"extra_body": {"top_k": 1}}, {}, ', `extra_body={"top_k": 1}`'),
        ({"http": "httpx"}, {}, ", `http=httpx`"),
        ({"cross_check": True}, {}, ", `cross_check`"),
        ({"continuous_usage_stats": True}, {}, ", `continuous_usage_stats`"),
        ({"return_token_ids": True}, {}, ", `return_token_ids`"),
        ({"seed": "7"}, {}, ", `seed=7`"),
        ({}, {"prompt_tokens": 512}, ", prompt sized to 512 tokens"),
        ({}, {"tools": [{}, {}]}, ", 2 tools"),
        ({}, {"tools": [{}], "tool_choice": "none"}, ", 1 tool, `tool_choice=none`"),
        ({}, {"chat_template_kwargs": THINKING}, ", thinking off"),
        ({}, {"chat_template_kwargs": dict.fromkeys(THINKING, True)}, ", thinking on"),
        (
            {},
            {"chat_template_kwargs": {**THINKING, "a": 1}},
            ', thinking off, `chat_template_kwargs={"a": 1}`',
        ),
        (
            {},
            {"chat_template_kwargs": {"thinking": True}},
            ', `chat_template_kwargs={"thinking": true}`',
        ),
    ],
)
def test_workloads_that_differ_in_what_is_sent_do_not_read_alike(
    study: Path, point: dict[str, Any], content: dict[str, Any], said: str
) -> None:
    def declare(data: Any) -> None:
        next(r for r in data["runs"] if r["name"].endswith("_monitor"))["run"] = "d1"
        data["points"] = {"d1": {**POINT, **point}}
        data["scenarios"] = {"s": {**CONTENT, **content}}

    change_json(study / "plan.json", declare)
    own = section(write(load(study), "en"), "### 5. Hardware utilisation")
    assert f"sampled beside it{said}; variants:" in own
    assert CHINESE.search(said) is None and write(load(study))  # every key has its Chinese


# the measuring instrument -------------------------------------------------------------------------

ANNEX_INSTRUMENT = "### Annex I: the measuring instrument"
INSTRUMENT = (*DECLARED, *CLIENT, *SERVER, *SECOND, "itl_s_p50")


def floors(study: Path, *given: dict[str, Any] | None) -> None:
    """The starts of the index carry these floors, and nothing else is known of the instrument."""

    def change(data: Any) -> None:
        start = {"variant": "noparser", "start_id": "s", "status": "stopped"}
        data["starts"] = [{**start, "start_json": {"client_floor": floor}} for floor in given]

    change_json(study / "runs" / "decode_runs.json", change)
    change_table(study / "tables" / "runs.csv", lambda rows: without(rows, *INSTRUMENT))


def test_without_any_word_of_the_instrument_there_is_no_annex(study: Path) -> None:
    floors(study, None)
    for language, heading in (("en", "Annex I"), ("zh", "附录 I")):
        assert heading not in write(load(study), language)


@pytest.mark.parametrize(
    ("column", "value", "title"),
    [
        ("stamp_source", "user", "The load client in each run"),
        ("itl_s_p50", "0.1", "Gaps between output events"),
        ("rate", "5", "Open loop, schedule"),
        ("prompt_asked_tokens", "100", "Synthetic prompts"),
        ("cache", "cold", "Prefix cache, declared"),
        ("cross_n_attempted", "3", "through a second client"),
        ("server_preemptions", "1", "What the server itself counted"),
        ("queue_s", "0.5", "Times that the server itself measured"),
    ],
)
def test_a_table_is_there_for_the_one_run_that_has_something_for_it(
    study: Path, column: str, value: str, title: str
) -> None:
    floors(study)

    def one(rows: Rows) -> Rows:
        rows[1][column] = value
        return rows

    change_table(study / "tables" / "runs.csv", one)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert own.count(":\n\n|") == 1 and title in own
    names = [line.split("|")[1] for line in own.splitlines() if line.startswith("| `")]
    assert names == [f" `{list(load(study).runs)[1]}` "]


@pytest.mark.parametrize(
    ("cached", "hits", "by"),
    [("", "", "not checked"), ("0", "", "usage"), ("", "0", "the server's counters")],
)
def test_a_declared_cache_says_whether_anybody_could_check_it(
    study: Path, cached: str, hits: str, by: str
) -> None:
    floors(study)

    def cold(rows: Rows) -> Rows:
        rows[0].update(cache="cold", cached_tokens=cached, server_cache_hits=hits, cache_hit="")
        return [{**row, "cache": row["cache"] if n == 0 else ""} for n, row in enumerate(rows)]

    change_table(study / "tables" / "runs.csv", cold)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert "| hits by usage | hits by the server | checked by |" in own
    assert f"| `cold` | — | — | {by} |" in own


def test_a_note_explains_only_what_is_shown(study: Path) -> None:
    floors(study)

    def uncounted(rows: Rows) -> Rows:
        rows[1]["itl_s_p50"] = "0.1"
        return without(rows, "multi_token_share")

    whole = section(write(load(), "en"), ANNEX_INSTRUMENT)
    assert all(text in whole for text in ("Counted:", "One token:", "Several tokens:"))
    change_table(study / "tables" / "runs.csv", uncounted)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert "Gaps between output events" in own and "any number of tokens" in own
    assert not any(text in own for text in ("Counted:", "One token:", "Several tokens:"))


def test_the_kept_rate_stands_beside_the_asked_one() -> None:
    own = section(write(load(), "en"), ANNEX_INSTRUMENT)
    assert "| asked rate (requests/s) | kept rate (requests/s) |" in own
    assert "_monitor` | 0.25 | 0.24 |" in own


def test_what_went_wrong_in_sizing_a_prompt_is_told(study: Path) -> None:
    own = section(write(load(), "en"), ANNEX_INSTRUMENT)
    assert "sizing the prompt met a problem: `HTTP 404 <not found>`" in own
    change_table(study / "tables" / "runs.csv", lambda rows: without(rows, "prompt_problem"))
    assert "met a problem" not in write(load(study), "en")


def test_a_cache_as_it_is_declares_nothing(study: Path) -> None:
    floors(study)

    def as_is(rows: Rows) -> Rows:
        return [{**row, "cache": "as_is"} for row in rows]

    change_table(study / "tables" / "runs.csv", as_is)
    assert ANNEX_INSTRUMENT not in write(load(study), "en")


def test_a_column_that_no_run_has_is_hidden(study: Path) -> None:
    def user(rows: Rows) -> Rows:
        return [{**row, "client_lag_p99_s": ""} for row in rows]

    assert "| loop late P99 / max | lag P99 |" in write(load(), "en")
    change_table(study / "tables" / "runs.csv", user)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert "| loop late P99 / max | blurred events |" in own


FLOOR = {"streams": 32, "rate_hz": 50.0, "lag_p99_s": 6.3e-5, "client": {"digest": "aa"}}


def test_the_floor_is_printed_once_a_host_and_client(study: Path) -> None:
    other = {**FLOOR, "client": {"digest": "bb"}, "lag_p99_s": 7e-5}
    floors(study, FLOOR, None, FLOOR, other, FLOOR)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert own.count("| `aa` | 32 × 50/s | — / 0.063 ms / — |") == 1
    assert own.count("| `bb` | 32 × 50/s | — / 0.070 ms / — |") == 1
    assert "could not be measured" not in own


def test_a_floor_that_was_not_measured_is_a_line_and_no_table(study: Path) -> None:
    floors(study, {"problem": "no <port> | is free"}, {"problem": "no <port> | is free"})
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert own.count("could not be measured: `no <port> | is free`") == 1
    assert "|---" not in own


def test_a_cross_check_says_how_far_two_clients_are_apart(study: Path) -> None:
    own = section(write(load(), "en"), ANNEX_INSTRUMENT)
    assert (
        "|  | `httpx` · invalid | 0.91s | 8.66 tok/s | 115.4 ms | 256 | 2 / 3 (timeout 1) |" in own
    )
    assert "second client's record: the client's time stamps were late" in own
    assert "|  | difference | +1.0% | −0.1% | +0.2% | −33.3% |  |" in own

    def failed(rows: Rows) -> Rows:
        rows = without(rows, *SECOND)
        rows[0]["cross_problem"] = "it timed out"
        return rows

    change_table(study / "tables" / "runs.csv", failed)
    own = section(write(load(study), "en"), ANNEX_INSTRUMENT)
    assert "no cross-check: `it timed out`" in own and "difference" not in own
    assert "through a second client, right after:\n\n`decode_full" in own  # no table without rows


def test_what_a_run_broke_of_its_declaration_is_said_in_words(study: Path) -> None:
    codes = "cached_tokens_not_as_declared;thinking_not_as_declared;prompt_not_as_sized"
    codes += ";schedule_not_kept;usage_missing;token_counts_missing"

    def suspect(rows: Rows) -> Rows:
        rows[0].update(validity="suspect", reasons=codes)
        return rows

    change_table(study / "tables" / "runs.csv", suspect)
    for language, place in zip(words.LANGUAGES, (0, 1), strict=True):
        text, say = write(load(study), language), words.load(language)
        for code in codes.split(";"):
            assert say.say(f"reason.{code}") in text and f"`{code}`" not in text
            assert code in reasons.TEXTS and reasons.TEXTS[code][place]


# the report of 2026-07-14 -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Chinese report of the replay study, made by the workflow's own steps."""
    folder = tmp_path_factory.mktemp("replay")
    plan = folder / "plan.json"
    study = open_study([str(ROOT / "config" / "2026-07-14-decode.yaml")], {}, ROOT)
    plan.write_text(json.dumps(study.plan), encoding="utf-8")
    import_raw.main(["--plan", str(plan), "--out-dir", str(folder / "runs")])
    given = ["--plan", str(plan), "--tables", str(folder / "tables")]
    aggregate.main(["--plan", str(plan), "--runs", str(folder / "runs"), "--out", given[-1]])
    judge.main([*given, "--out", str(folder / "verdicts.json")])
    return write(load(folder))


PRINTED = yaml.safe_load(
    (ROOT / "tests" / "golden" / "2026-07-14-figures.yaml").read_text(encoding="utf-8")
)["figures"]
HEADINGS = {
    "一": "## 一、",
    "二": "## 二、",
    "三.1": "### 1. ",
    "三.2": "### 2. ",
    "三.3": "### 3. ",
    "三.4": "### 4. ",
    "三.5": "### 5. ",
}
ELSEWHERE = {"平均只有约 29%"}  # round figures that our report has in another section


@pytest.mark.parametrize(
    "figure",
    [figure for figure in PRINTED if figure["printed"] != "True"],
    ids=lambda f: f"{f['section']} {f['text']}",
)
def test_the_replay_prints_every_figure_of_the_original(
    figure: dict[str, str], replayed: str
) -> None:
    """In the section where the original has it; sections four to six may quote from any."""
    heading = HEADINGS.get(figure["section"])
    anywhere = heading is None or figure["text"] in ELSEWHERE
    own = replayed if heading is None or anywhere else section(replayed, heading)
    digits = re.escape(figure["printed"])
    assert re.search(rf"(?<![\d.]){digits}(?![\d.]*\d)", own), own


def test_the_replay_says_that_it_is_reconstructed(replayed: str) -> None:
    assert "> **RECONSTRUCTED（重建）**" in replayed
    assert "MEASURED" not in replayed and "SIMULATED" not in replayed
    assert "日期：2026-07-14" in replayed


def test_the_replay_has_no_annex_on_a_client_that_left_no_record(replayed: str) -> None:
    assert "附录 H" in replayed and "附录 I" not in replayed


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_a_gain_that_a_guard_refutes_is_not_told_as_no_gain(study: Path, language: str) -> None:
    """The config's text for `refuted` says that nothing was gained; here something was, at a price."""

    def guarded(data: Any) -> None:
        data["verdicts"][0].update(effect=0.08, interval=[0.06, 0.1], guarded=["ttft_s"])

    before = write(load(study), language)
    change_json(study / "verdicts.json", guarded)
    text = write(load(study), language)
    catalogue = words.load(language)
    said = str(catalogue.say("explain.guarded"))
    assert said not in before and said in text
    assert {"en": "but a guard got worse: TTFT", "zh": "但护栏指标变差：TTFT"}[language] in text


def test_the_replay_ranks_suspects_as_the_original_and_says_by_what(replayed: str) -> None:
    own = section(replayed, "## 四、瓶颈判断")
    order = (
        "Decode 调度/后端限制",
        "TP 通信或同步开销",
        "MoE decode kernel",
        "Paged attention",
        "API/parser 层",
    )
    places = [own.index(title) for title in order]
    assert places == sorted(places)
    assert "已排除" in own[places[-1] :] and "已排除" not in own[: places[-1]]
    assert "平均 GPU-Util 28.91% \\< 50.00%" in own
    assert "未知" not in own
    ranked = own[places[1] : places[4]]
    assert ranked.count("排序依据：先验") == 3 and "排序依据：证据" in own[: places[1]]
