"""One question about many candidates: the best of equal ones is hardly ever called better."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from verdicts.simulated import Design, Noise, measured, planned

from decodelab import among, decisions, judge

STUDIES = 120


def verdicts(made: dict[str, Any], noise: Noise, effect: float, seed: int) -> list[dict[str, Any]]:
    tables = measured(made, noise, effect, np.random.default_rng(seed))
    return judge.answer("E", made["experiments"]["E"]["questions"][0], made, tables)


def supported(made: dict[str, Any], noise: Noise, effect: float) -> float:
    found = [verdicts(made, noise, effect, seed) for seed in range(STUDIES)]
    words = [decisions.overall(one["verdict"] for one in answers) for answers in found]
    return words.count("supported") / STUDIES


@pytest.mark.parametrize(("cells", "starts"), [(24, 1), (12, 2), (12, 3)])
@pytest.mark.parametrize("smallest", [0.0, 0.05])
def test_of_equal_candidates_hardly_ever_one_is_supported(
    cells: int, starts: int, smallest: float, tmp_path: Path
) -> None:
    made = planned(Design(starts, cells=cells), tmp_path)
    made["experiments"]["E"]["questions"][0]["smallest_effect"] = smallest
    noise = Noise(across=0.04 if starts > 1 else 0.02, drift=0.03)
    share = supported(made, noise, 0.0)
    assert share - 2 * math.sqrt(0.05 * 0.95 / STUDIES) <= 0.05


def test_a_true_lead_among_many_is_found(tmp_path: Path) -> None:
    made = planned(Design(3, cells=12), tmp_path)
    assert supported(made, Noise(), 0.12) >= 0.8
    answers = verdicts(made, Noise(), 0.12, 1)
    words = {one["candidate"]: one["verdict"] for one in answers}
    assert words.pop("cand-mns4") == "supported" and "supported" not in words.values()


def test_what_is_taken_back_says_why_and_a_single_pair_is_as_it_was(tmp_path: Path) -> None:
    alone, many = (planned(Design(1, cells=cells), tmp_path) for cells in (1, 24))
    quiet = Noise(within=0.0, across=0.0, drift=0.0)
    assert [among.pairs(made["experiments"]["E"]["questions"][0]) for made in (alone, many)] == [
        1,
        24,
    ]
    assert verdicts(alone, quiet, 0.09, 1)[0]["verdict"] == "supported"
    first = verdicts(many, quiet, 0.09, 1)[0]
    assert (first["candidate"], first["verdict"]) == ("cand-mns4", "inconclusive")
    (why,) = [one for one in first["reasons"] if one["code"] == "one_of_many"]
    assert "24 pairs" in why["en"] and "24" in why["zh"]
    assert verdicts(many, quiet, 0.15, 1)[0]["verdict"] == "supported"
