"""Plain tables of regions and kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import step_plain, step_read, step_shares

REGIONS = """run\tregion\tcalls_per_forward\tmean_ms_per_token_per_rank\tshare_pct
a\tmoe.routed\t40\t30.0\t75.0
a\tfull_attn\t10\t10.0\t25.0
b\tmoe.routed\t40\t9.0\t100
"""
KERNELS = """rank\tkernel\tcuda_time_ms\tpct_of_cuda\tcalls\tcategory
1\tfenceWaitE (NCCL barrier)\t10.0\t40\t972\tCOMM
2\tgeneral_gemm\t5.0\t20\t160\tGEMM
3\taten::mean\t2.0\t8\t30\tGDN
4\tcudaLaunchKernel\t2.5\t10\t3072\tOVERHEAD
5\tfused_moe_kernel\t1.0\t4\t40\t
"""


def test_a_table_of_regions_is_a_profile_a_run() -> None:
    told = step_plain.read(REGIONS, "decode.tsv")
    assert list(told) == ["a", "b"]
    (table,) = told["a"].tables
    moe, attention = table.regions
    assert (moe.region, moe.calls_per_step, moe.ms_mean, moe.share) == ("moe.routed", 40, 30, 0.75)
    assert attention.ceiling == pytest.approx(1 / 0.75)
    assert told["a"].mode is None and table.phase == "all" and table.step_ms_mean is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (REGIONS, "decode_sync_timers.tsv"),
        ("# taken with sync timers\n" + REGIONS, "decode.tsv"),
        (
            REGIONS.replace("run\t", "mode\t")
            .replace("\na\t", "\nsync\t")
            .replace("\nb\tmoe.", "\nsync\tother."),
            "t",
        ),
    ],
    ids=["name", "comment", "column"],
)
def test_timers_that_synchronise_state_no_shares(text: str, name: str) -> None:
    if "mode" in text:
        text = text.replace("100\n", "0\n")
    told = next(iter(step_plain.read(text, name).values()))
    assert told.mode == "sync" and not told.states_shares and told.valid
    assert all(r.share is None and r.ceiling is None for t in told.tables for r in t.regions)
    assert told.tables[0].regions[0].ms_mean == 30


def test_regions_that_take_longer_than_the_step_are_of_such_timers() -> None:
    text = "region,ms_mean,step_ms\nmoe,30,25\nattention,10,25\n"
    told = step_plain.read(text, "t.csv")[""]
    assert told.mode == "sync" and told.doubts[0].code == "more_than_the_step"
    assert told.tables[0].closure == pytest.approx(0.6)
    whole = step_plain.read(text.replace("25", "50"), "t.csv")[""]
    assert whole.mode is None and whole.tables[0].regions[0].share == pytest.approx(0.6)


def test_times_alone_are_no_shares() -> None:
    told = step_plain.read("region,ms_mean\nmoe,30\nattention,10\n", "t.csv")[""]
    assert [r.share for r in told.tables[0].regions] == [None, None]


def test_phases_and_ranks_are_kept_apart() -> None:
    text = "region,phase,rank,ms_mean,share\nmoe,decode,0,3,50%\nmoe,decode,1,4,0.6\nmoe,prefill,0,9,\n"
    told = step_plain.read(text, "t.csv")[""]
    assert [(t.phase, t.rank) for t in told.tables] == [
        ("decode", 0),
        ("decode", 1),
        ("prefill", 0),
    ]
    assert [t.regions[0].share for t in told.tables] == [0.5, 0.6, None] and told.ranks == 2


def test_a_table_of_kernels_makes_classes() -> None:
    told = step_plain.read(KERNELS, "k.tsv")[""]
    found = {r.region: r for r in told.tables[0].regions}
    assert set(found) == {"collective", "gemm", "linear_attention", "moe"}  # the file knows its own
    assert found["collective"].share == pytest.approx(0.4) and found["collective"].total_ms == 10
    assert found["collective"].calls_per_step is None and found["collective"].ms_mean is None
    assert [k.category for k in told.kernels][3] == "overhead"
    codes = [d.code for d in told.doubts]
    assert codes == ["steps_not_told", "ops_among_kernels", "host_calls_among_kernels"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("region,colour\nmoe,red\n", "wanted name,share, or region"),
        ("region,ms_mean\n", "no rows"),
        ("region,ms_mean\nmoe\n", "line 2: 1 cells, 2 expected"),
        ("region,ms_mean\nmoe,fast\n", "line 2: 'fast' in ms_mean, a number from 0"),
        ("region,ms_mean\nmoe,-1\n", "a number from 0"),
        ("region,ms_mean\nmoe,nan\n", "a number from 0"),
        ("region,ms_mean\nmoe,1\nmoe,2\n", "line 3: moe stands there twice"),
        ("region,ms_mean\n,2\n", "line 2: a region expected"),
        ("region,share_pct\nmoe,70\nattention,60\n", "add up to 1.300"),
        ("region,share_pct\nmoe,170\n", "no share"),
        ("region,ms_mean,ms_mean\nmoe,1,2\n", "column ms_mean stands there twice"),
        ("region,phase,ms_mean\nmoe,dekode,1\n", "phase 'dekode'"),
        ("region,ms_mean,step_ms\nmoe,1,5\nmlp,1,6\n", "2 different step times"),
        ("kernel,cuda_time_ms\nk,1\nk,2\n", "line 3: k stands there twice"),
        ("kernel,cuda_time_ms\n,1\n", "a kernel expected"),
    ],
)
def test_what_is_no_table_says_where_and_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        step_plain.read(text, "t.csv")


@given(
    st.text(max_size=80),
    st.sampled_from(["", "region,ms_mean\n", "kernel,calls,pct\n", "run\tregion\tshare\n"]),
)
def test_any_text_is_a_table_or_a_value_error(text: str, head: str) -> None:
    try:
        told = step_plain.read(head + text, "t")
    except ValueError:
        return
    assert all(p.tables for p in told.values())


def test_evidence_of_a_table_needs_the_run(tmp_path: Path) -> None:
    file = tmp_path / "t.tsv"
    file.write_text(REGIONS, encoding="utf-8")
    with pytest.raises(ValueError, match="several runs in it: a, b"):
        step_shares.of_profile(step_read.one([file]))
    with pytest.raises(ValueError, match="no run c in it, but a, b"):
        step_shares.of_profile(step_read.one([file], "c"))
    shares = step_shares.of_profile(step_read.one([file], "a"))
    assert shares == {"moe.routed": 0.75, "full_attn": 0.25}
    assert step_shares.share_of(shares, "moe*") == (0.75, 0.75)


def test_evidence_needs_shares(tmp_path: Path) -> None:
    file = tmp_path / "sync.tsv"
    file.write_text(REGIONS, encoding="utf-8")
    with pytest.raises(ValueError, match="states no shares"):
        step_shares.of_profile(step_read.one([file], "a"))
