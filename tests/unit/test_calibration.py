"""benchmarks/calibration.py on few studies: the judge's false verdicts, power and coverage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import calibration
from verdicts import requirements, tally
from verdicts.simulated import Design, Noise, planned

STUDIES = 400  # a standard error of 2 % at a share of 80 %, of 1 % at one of 5 %


def share(found: tally.Tally, word: str) -> tuple[float, float]:
    """(share, two Monte-Carlo standard errors)."""
    value = found.share(word)
    return value, 2 * tally.error(value, found.studies)


@pytest.mark.parametrize(
    ("design", "shape"),
    [
        (Design(1), "linear"),
        (Design(1), "rising"),  # always in favour of the candidate
        (Design(1, "other"), "step"),
        (Design(2), "linear"),
        (Design(2, "own"), "step"),
    ],
)
def test_the_same_server_is_rarely_called_better(
    design: Design, shape: str, tmp_path: Path
) -> None:
    made = planned(design, tmp_path)
    found, _ = tally.run(made, design, Noise(shape=shape), 0.0, STUDIES, seed=1)
    value, reach = share(found, "supported")
    assert value - reach <= requirements.FALSE_SUPPORTED


@pytest.mark.parametrize("aa", ["none", "own"])
def test_a_true_eight_percent_is_found_with_three_starts(aa: str, tmp_path: Path) -> None:
    design = Design(3, aa)
    made = planned(design, tmp_path)
    found, welch = tally.run(made, design, Noise(), 0.08, STUDIES, seed=2)
    value, reach = share(found, "supported")
    assert value + reach >= requirements.POWER
    assert share(found, "refuted")[0] <= 0.01
    assert welch is not None and welch.share("supported") < value


def test_the_interval_holds_and_a_wanted_effect_is_rarely_refuted(tmp_path: Path) -> None:
    design = Design(3)
    made = planned(design, tmp_path)
    found, _ = tally.run(made, design, Noise(), 0.05, STUDIES, seed=3)
    reach = 2 * tally.error(found.coverage, found.studies)
    assert found.coverage + reach >= requirements.COVERAGE
    value, reach = share(found, "refuted")
    assert value - reach <= requirements.FALSE_REFUTED


def test_more_noise_than_the_judge_is_told_of_is_noticed(tmp_path: Path) -> None:
    """The requirements can be missed: one launch an arm whose restarts scatter by 6 %."""
    design = Design(1)
    made = planned(design, tmp_path)
    noise = Noise(across=0.06)
    tallies = {
        effect: tally.run(made, design, noise, effect, STUDIES, seed=4)[0] for effect in (0.0, 0.08)
    }
    row = requirements.Row(design, noise.shape, tallies, {})
    assert any('false "supported"' in text for text in requirements.missed([row]))


def test_the_queue_is_the_plan_s_own(tmp_path: Path) -> None:
    made = planned(Design(2, "own"), tmp_path)
    order = [f"{x['variant']}{x['start']}" for x in made["launches"]]
    assert order == ["base1", "cand1", "base3", "base4", "cand2", "base2"]


def test_the_page_is_written_and_a_miss_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    blocks = [
        f"<!-- {name} -->\nOLD TEXT\n<!-- /{name} -->" for name in ("verdicts", "welch", "shares")
    ]
    page.write_text("# Page\n\n" + "\n\n".join(blocks))
    monkeypatch.setattr(calibration, "DESIGNS", (Design(2),))
    monkeypatch.setattr(calibration, "SHAPES", ("none",))
    assert calibration.main(["--studies", "10", "--write", str(page), "--check"]) == 0
    text = page.read_text()
    assert "OLD TEXT" not in text and "10 studies a cell" in text and text.startswith("# Page")
    monkeypatch.setattr(requirements, "COVERAGE", 1.5)
    assert calibration.main(["--studies", "10", "--check"]) == 1
    assert "missed: 2 starts, field, none" in capsys.readouterr().err
