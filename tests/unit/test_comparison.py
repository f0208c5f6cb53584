"""Two sides of run files: what is refused, what is said, and how sure it may be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import compare
import numpy as np
import pytest
from sample_study import request, run_record

from decodelab import comparison, records

RUN = {
    "scenario": "short",
    "max_tokens": 101,
    "concurrency": 1,
    "requests": 4,
    "warmup": 0,
    "temperature": 0.0,
    "ignore_eos": True,
    "extra_body": {},
    "cache": "as_is",
    "prompt_sha256": "aa11",
    "rate": None,
    "arrivals": None,
}


def write(folder: Path, name: str, rates: list[float], **more: Any) -> Path:
    """A run file with one request a rate; `run` and `request` change settings and requests."""
    requests = [
        {**request(i, rate=rate), **more.get("request", {})} for i, rate in enumerate(rates)
    ]
    data = run_record(requests, source=more.get("source", "measured"))
    data["run"] = {**RUN, **more.get("run", {})}
    data["client"]["digest"] = more.get("digest", "c0ffee")
    path = folder / name
    path.write_text(json.dumps(data))
    return path


def called(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = compare.main([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


FAST, SLOW = [8.70, 8.72, 8.74, 8.76], [8.30, 8.32, 8.33, 8.35]


def test_one_start_a_side_is_told_with_the_restart_floor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path, "a.json", FAST), write(tmp_path, "b.json", SLOW)
    code, out, err = called(capsys, a, b)
    assert (code, err) == (0, "")
    assert "−4.6% (−8.6% … −0.6%; the estimate ± the restart floor of 4%)" in out
    assert "one start in A and B" in out and "verdict: refuted" in out
    assert "none from n = 4" in out  # a median of four has no distribution-free interval
    tables = [line for line in out.splitlines() if line.startswith(("|", "+"))]
    assert len({len(line) for line in tables}) == 1 and len(tables[0]) <= compare.LOG_WIDTH


def test_ttft_has_its_own_floor_and_lower_is_better(tmp_path: Path) -> None:
    a = write(tmp_path, "a.json", FAST)
    b = write(tmp_path, "b.json", FAST, request={"t_start_s": 0.25})
    found = comparison.compare(comparison.load([a], [b]), "ttft_s")
    assert found.change is not None and found.change.floor == 0.30
    assert found.change.effect == pytest.approx(-0.5) and found.verdict == "supported"


def test_several_starts_are_judged_by_their_scatter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = [write(tmp_path, f"a{n}.json", [v * 1.002**n for v in SLOW]) for n in range(3)]
    b = [write(tmp_path, f"b{n}.json", [v * 1.2 * 1.002**n for v in SLOW]) for n in range(3)]
    code, out, _ = called(capsys, *a, "--with", *b)
    assert code == 0 and "verdict: supported" in out and "pooled variance" in out
    assert "restart floor" not in out and "taken as one of its own" in out


def test_files_of_one_start_are_one_start(tmp_path: Path) -> None:
    a = [write(tmp_path, f"a{n}.json", SLOW) for n in range(2)]
    index = {"runs": {p.stem: {"file": p.name, "start_id": "s1"} for p in a}}
    (tmp_path / "decode_runs.json").write_text(json.dumps(index))
    b = write(tmp_path, "b.json", FAST)
    found = comparison.compare(comparison.load(a, [b]), "decode_rate")
    assert len(found.a.starts) == 1 and found.a.n == 8
    assert found.change is not None and found.change.method == "floor"


def test_a_run_that_its_receipt_calls_invalid_is_invalid(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.json", SLOW), write(tmp_path, "run.json", FAST)
    (tmp_path / "DONE.json").write_text(
        json.dumps({"start_id": "s", "status": "invalid", "reasons": ["server_died"]})
    )
    found = comparison.compare(comparison.load([a], [b]), "decode_rate")
    assert found.verdict == "invalid" and "died" in found.why[0] and found.change is None


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        ({"run": {"scenario": "tool"}}, "scenario", ("short", "tool")),
        ({"run": {"max_tokens": 512}}, "max_tokens", ("101", "512")),
        ({"run": {"concurrency": 2}}, "concurrency", ("1", "2")),
        ({"run": {"requests": 3}}, "requests", ("4", "3")),
        ({"run": {"warmup": 2}}, "warmup", ("0", "2")),
        ({"run": {"extra_body": {"top_k": 1}}}, "extra_body", ("{}", '{"top_k": 1}')),
        ({"run": {"cache": "cold"}}, "cache", ("as_is", "cold")),
        ({"run": {"prompt_sha256": "bb22"}}, "prompt_sha256", ("aa11", "bb22")),
        ({"run": {"rate": 5.0}}, "rate", ("null", "5.0")),  # a closed loop against an open one
        ({"run": {"arrivals": "poisson"}}, "arrivals", ("null", "poisson")),
        ({"run": {"min_tokens": 64}}, "min_tokens", ("null", "64")),
        ({"request": {"prompt_tokens": 55}}, "prompt_tokens", ("40", "55")),
        ({"request": {"completion_tokens": 90}}, "completion_tokens", ("101", "90")),
        ({"request": {"cached_tokens": 32}}, "cache hits", ("0.0%", "80.0%")),
        ({"source": "simulated"}, "source", ("measured", "simulated")),
    ],
)
def test_unlike_runs_are_refused_by_key_and_both_values(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    key: str,
    values: tuple[str, str],
) -> None:
    a, b = write(tmp_path, "a.json", SLOW), write(tmp_path, "b.json", FAST, **change)
    code, out, err = called(capsys, a, b)
    assert (code, out) == (2, "")
    line = next(text for text in err.splitlines() if key in text)
    assert all(value in line for value in (*values, "a.json", "b.json"))
    code, out, err = called(capsys, a, b, "--force")
    assert (code, err) == (0, "")
    assert out.startswith("UNLIKE: ") and key in out.splitlines()[0] and "verdict: " in out


def test_files_of_one_side_must_be_alike_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path, "a.json", SLOW), write(tmp_path, "a2.json", SLOW, run={"concurrency": 4})
    code, _, err = called(capsys, *a, "--with", write(tmp_path, "b.json", FAST))
    assert code == 2 and "concurrency: 1 in" in err and "a2.json" in err


def test_another_client_is_a_warning_and_what_is_not_on_record_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path, "a.json", SLOW)
    b = write(tmp_path, "b.json", SLOW, digest="0ther", run={"warmup": None})
    code, out, _ = called(capsys, a, b)
    assert code == 0
    assert "client.digest differs: 0ther, c0ffee" in out
    assert "not on record, so not compared: warmup" in out


def test_open_loops_of_unlike_rate_are_refused_and_of_one_rate_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = {"rate": 2.5, "arrivals": "poisson", "cache": "cold"}
    a = write(tmp_path, "a.json", SLOW, run=loop)
    code, _, err = called(capsys, a, write(tmp_path, "b.json", FAST, run={**loop, "rate": 4.0}))
    assert code == 2 and "rate: 2.5 in" in err and "4.0 in" in err and "arrivals" not in err
    code, out, _ = called(capsys, a, write(tmp_path, "c.json", FAST, run=loop))
    assert code == 0 and "open loop 2.5/s poisson · cache cold" in out


OLDER = dict.fromkeys(("cache", "prompt_sha256", "rate", "arrivals"))


@pytest.mark.parametrize("absent", [False, True])
def test_a_record_from_before_these_keys_is_compared_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], absent: bool
) -> None:
    a, b = write(tmp_path, "a.json", SLOW, run=OLDER), write(tmp_path, "b.json", FAST)
    if absent:
        data = json.loads(a.read_text())
        data["run"] = {key: value for key, value in data["run"].items() if key not in OLDER}
        a.write_text(json.dumps(data))
    code, out, err = called(capsys, a, b)
    assert (code, err) == (0, "") and "verdict: " in out
    assert f"not on record, so not compared: cache, prompt_sha256 ({a})" in out
    code, _, err = called(capsys, a, write(tmp_path, "c.json", FAST, run={"rate": 5.0}))
    assert code == 2 and "rate: null in" in err  # it can only have been a closed loop


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),  # another start draws other words
        ({"seed": "short@1/1"}, 2),  # one seed and yet other words
        ({"prompt_sizing": {"asked": 2048}}, 2),
        ({"prompt_sizing": None}, 2),
    ],
)
def test_synthetic_prompts_of_two_starts_are_alike_though_their_words_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], code: int
) -> None:
    sized = {"prompt_sizing": {"asked": 1024}, "seed": "short@1/1"}
    a = write(tmp_path, "a.json", SLOW, run=sized)
    other = {**sized, "seed": "short@1/2", "prompt_sha256": "bb22", **change}
    found, _, err = called(capsys, a, write(tmp_path, "b.json", FAST, run=other))
    assert found == code and ("prompt_sha256: aa11 in" in err) is (code == 2)


def test_optional_stream_extras_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path, "a.json", SLOW, run={"return_token_ids": False})
    b = write(tmp_path, "b.json", FAST, run={"return_token_ids": True})
    code, out, _ = called(capsys, a, b)
    assert code == 0 and "run.return_token_ids differs: False, True" in out


@pytest.mark.parametrize("where", ["index", "raw"])
def test_starts_of_two_drivers_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """Without a plan nobody knows whether that was the question."""
    sides = []
    for name, driver in (("a", "3.2.3"), ("b", "4.0.0")):
        folder = tmp_path / name / "run" / "attempt"
        folder.mkdir(parents=True)
        sides.append(write(folder, "run.json", FAST))
        smi = {"table": f"IX-ML: 3.2.3   Driver Version: {driver}  |"}
        start = {"identity": {"machine": {"smi": smi}}}
        entry = {"start_id": name, "status": "done", "reasons": []}
        if where == "index":
            index = {
                "runs": {"r": {**entry, "file": "run.json"}},
                "starts": [{"start_id": name, "start_json": start}],
            }
            (folder / "decode_runs.json").write_text(json.dumps(index))
        else:
            (folder / "DONE.json").write_text(json.dumps(entry))
            (tmp_path / name / f"start-{name}").mkdir()
            (tmp_path / name / f"start-{name}" / "start.json").write_text(json.dumps(start))
    code, out, err = called(capsys, *sides)
    assert (code, err) == (0, "")
    assert "not one identity: driver differs: 3.2.3, 4.0.0" in out


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": "decodelab.run/1", "source": "measured"}']
)
def test_a_file_that_is_no_record_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    a, b = write(tmp_path, "a.json", SLOW), tmp_path / "b.json"
    b.write_text(text)
    code, out, err = called(capsys, a, b)
    assert (code, out) == (1, "") and "b.json" in err
    code, _, err = called(capsys, a, tmp_path / "absent.json")
    assert code == 1 and "absent.json" in err


def test_a_field_of_the_wrong_type_is_an_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", SLOW)
    data = json.loads(path.read_text())
    data["requests"][0]["t_first_s"] = "soon"
    path.write_text(json.dumps(data))
    with pytest.raises(records.UnreadableRecord, match=r"a\.json"):
        comparison.load([path], [path])


def test_a_metric_without_values_decides_nothing(tmp_path: Path) -> None:
    a, b = (write(tmp_path, f"{n}.json", SLOW) for n in "ab")
    found = comparison.compare(comparison.load([a], [b]), "itl_s")  # no events on record
    assert found.verdict == "invalid" and "itl_s" in found.why[0]


def test_wrong_arguments_end_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["a.json"], ["a", "b", "c"], ["a", "b", "--metric", "success_rate"]):
        with pytest.raises(SystemExit) as ended:
            compare.main(args)
        assert ended.value.code == 2
    assert "is none of" in capsys.readouterr().err


def test_intervals_need_enough_values() -> None:
    assert comparison.median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert comparison.median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    three = comparison.shift_of([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert three is not None and three.interval is None
    assert comparison.shift_of([0.0], [1.0]) is None


def test_the_shift_of_four_and_four_by_the_table_of_mann_and_whitney() -> None:
    """P(U = 0) = 1/70 on each side: one pairwise difference is cut off at either end, and no more
    than that one, since P(U <= 1) = 2/70 is above 2.5 %.
    """
    a, b = [1.0, 2.0, 3.0, 5.0], [10.0, 20.0, 30.0, 50.0]
    found = comparison.shift_of(a, b)
    assert found is not None and found.interval is not None
    assert found.change == pytest.approx(9.0)
    assert found.interval == pytest.approx((10.0 / 5.0 - 1, 50.0 / 1.0 - 1))


def test_the_interval_of_the_shift_holds_its_level() -> None:
    random = np.random.default_rng(7)
    held = 0
    for _ in range(1000):
        a, b = (list(np.exp(random.standard_t(2, size=5) * 0.01)) for _ in range(2))
        found = comparison.shift_of(a, b)
        assert found is not None and found.interval is not None
        low, high = found.interval
        held += low <= 0.0 <= high and math.isfinite(high)
    assert held / 1000 >= 0.94


def test_gaps_of_bursts_are_not_held_against_even_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No flags are known here: the gaps themselves show that events came in fours."""

    def streamed(name: str, gaps: list[float]) -> Path:
        path = write(tmp_path, name, [10.0] * 4)
        data = json.loads(path.read_text())
        times = list(np.cumsum([0.5, *gaps]))
        n = len(times)
        for item in data["requests"]:
            item.update(t_start_s=0.0, t_first_s=0.5, t_last_s=times[-1], t_end_s=times[-1])
            item["events"] = {"t_s": times, "kind": ["content"] * n, "tokens": [1] * n}
        path.write_text(json.dumps(data))
        return path

    even = streamed("even.json", [0.1] * 100)
    bursts = streamed("bursts.json", [0.0005, 0.0005, 0.0005, 0.3985] * 25)
    code, _, err = called(capsys, even, bursts, "--metric", "itl_s_p50")
    assert code == 2 and "events come in bursts" in err
    code, _, err = called(capsys, even, bursts, "--metric", "tpot_s")
    assert (code, err) == (0, "")
