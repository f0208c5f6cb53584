"""Figures of a capture by hand: levels, energy, phases, derived figures, boards, and their doubts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodelab import telemetry_boards, telemetry_window
from decodelab.telemetry import METRICS, Reading, Sample
from decodelab.telemetry_phases import Phases
from decodelab.telemetry_rejected import Rejected
from decodelab.telemetry_window import Doubt, WindowFigures


def sample(t: float | None, gpu: int = 0, name: str | None = None, **values: float) -> Sample:
    bus = f"00000000:{0x35 + 3 * gpu:02X}:00.0"  # as the dies of an MR-V100 DUO
    reading = Reading(gpu=gpu, uuid=str(gpu), bus=bus, name=name)
    reading.values.update(values)
    return Sample(0, t, reading)


def figures(
    samples: Sequence[Sample],
    window: tuple[float, float] | None = (0.0, 10.0),
    phases: Phases | None = None,
) -> WindowFigures:
    return telemetry_window.figures(samples, len(samples), window, 1.0, phases)


def steady(gpu: int = 0, name: str | None = None, **values: float) -> list[Sample]:
    """Twelve samples from -0.5 s to 10.5 s, all alike."""
    return [sample(t - 0.5, gpu, name, **values) for t in range(12)]


GOOD = {"util_pct": 40.0, "mem_used_mib": 30000.0, "mem_total_mib": 32768.0}
GOOD |= {"power_w": 50.0, "power_cap_w": 250.0}


def test_every_metric_has_all_and_window_figures() -> None:
    given = {name: 10.0 * n for n, name in enumerate(METRICS, 1)}
    found = figures(steady(**given)).values
    for name, value in given.items():
        for figure in ("mean_all", "max_all", "mean_window", "max_window"):
            assert found[f"{name}_{figure}"] == pytest.approx(value)


def test_all_samples_and_the_window_are_two_things() -> None:
    """Ten idle seconds on either side of ten busy ones: the mean over all halves what was drawn."""
    idle = [(t, 0.0) for t in (*range(-10, 0), *range(11, 21))]
    busy = [(t, 90.0) for t in range(11)]
    found = figures([sample(float(t), util_pct=v) for t, v in sorted(idle + busy)]).values
    assert found["util_pct_mean_all"] == pytest.approx(90.0 * 11 / 31)
    assert found["util_pct_mean_window"] == 90.0
    assert (found["smi_samples_gpu"], found["smi_samples_gpu_window"]) == (31, 11)


def test_a_stall_inside_the_window_is_not_trimmed_away() -> None:
    values = [80.0, 80.0, 0.0, 0.0, 0.0, 80.0, 80.0, 80.0, 80.0, 80.0, 80.0]
    found = figures([sample(float(t), util_pct=v) for t, v in enumerate(values)]).values
    # 1 s full, half a second's worth down and up again (two slopes), 2 s idle, 5 s full
    assert found["util_pct_mean_window"] == pytest.approx((80 + 40 + 0 + 0 + 40 + 5 * 80) / 10)
    assert found["idle_share_window"] == pytest.approx(3 / 10)  # 1.5 s to 4.5 s


def test_the_time_at_rest_is_no_count_of_samples() -> None:
    """A tool that is slow while it is busy gives few readings of much time."""
    busy = [(-1.0, 90.0), (3.0, 90.0), (7.0, 90.0)]
    rest = [(8.0, 0.0), (8.5, 0.0), (9.0, 0.0), (9.5, 0.0), (10.0, 0.0)]
    found = figures([sample(t, util_pct=v) for t, v in busy + rest]).values
    assert found["idle_share_window"] == pytest.approx((10 - 7.5) / 10)
    cut = figures([sample(t, util_pct=v) for t, v in busy + rest[:-1]]).values
    assert cut["idle_share_window"] is None  # nothing is extrapolated


def test_derived_figures_by_hand() -> None:
    one = {**GOOD, "power_w": 50.0}
    two = {**GOOD, "power_w": 100.0, "mem_used_mib": 32000.0}
    found = figures([*steady(0, **one), *steady(1, **two)]).values
    assert found["energy_j_window"] == pytest.approx(10 * (50 + 100))
    assert found["cap_share_window"] == pytest.approx(150 / 500)
    assert found["mem_headroom_mib_all"] == found["mem_headroom_mib_window"] == 768.0
    assert found["idle_share_window"] == 0.0


def test_the_share_of_the_cap_follows_a_cap_that_is_lowered() -> None:
    caps = [250.0] * 5 + [150.0] * 6
    samples = [sample(float(t), power_w=100.0, power_cap_w=cap) for t, cap in enumerate(caps)]
    # 4 s at 250 W, one on the slope at 200 W, 5 s at 150 W
    found = figures(samples).values
    assert found["cap_share_window"] == pytest.approx(1000 / (1000 + 200 + 750))


def test_headroom_in_the_window_leaves_out_what_came_after() -> None:
    used = [100.0] * 11 + [900.0]
    samples = [sample(float(t), mem_used_mib=u, mem_total_mib=1000.0) for t, u in enumerate(used)]
    found = figures(samples).values
    assert (found["mem_headroom_mib_all"], found["mem_headroom_mib_window"]) == (100.0, 900.0)


def test_an_extreme_is_a_sample_and_no_interpolated_edge() -> None:
    levels = [(0.0, 100.0, 900.0), (1.0, 0.0, 100.0), (2.0, 10.0, 200.0), (11.0, 90.0, 900.0)]
    samples = [sample(t, util_pct=u, mem_used_mib=m, mem_total_mib=1000.0) for t, u, m in levels]
    found = figures(samples, window=(0.1, 10.0)).values
    assert found["util_pct_max_window"] == 10.0 and found["mem_used_mib_max_window"] == 200.0
    assert found["mem_headroom_mib_window"] == 800.0
    between = figures(samples, window=(3.0, 10.0)).values
    assert between["util_pct_max_window"] is None and between["mem_headroom_mib_window"] is None
    assert between["util_pct_mean_window"] is not None


def test_headroom_is_unknown_where_one_accelerator_does_not_tell() -> None:
    found = figures([*steady(0, **GOOD), *steady(1, util_pct=1.0)]).values
    assert found["mem_headroom_mib_all"] is None and found["mem_headroom_mib_window"] is None
    assert found["energy_j_window"] is None and found["cap_share_window"] is None


# doubts -------------------------------------------------------------------------------------------


def test_good_samples_are_beyond_doubt() -> None:
    phases = Phases(((0.0, 2.0),), ((2.0, 10.0),), ())
    found = figures(steady(**GOOD), phases=phases)
    assert found.doubts == () and found.reasons == ()


def test_each_doubt_names_its_metric() -> None:
    broken = [s for s in steady(**GOOD) if s.t is not None]
    for place in (3, 4, 5, 6):
        broken[place].reading.values["power_w"] = None  # the card answered, but not of its draw
    found = figures(broken)
    assert Doubt("telemetry_gap", "power_w") in found.doubts
    assert Doubt("telemetry_gap", "util_pct") not in found.doubts
    assert found.values["power_w_mean_window"] == 50.0 and found.reasons == ("telemetry_gap",)


def test_an_edge_that_is_interpolated_across_a_hole_is_doubted() -> None:
    samples = [sample(float(t), **GOOD) for t in (-20, *range(1, 12))]
    found = figures(samples)
    assert found.reasons == ("telemetry_gap",) and found.values["energy_j_window"] == 500.0


def test_a_card_that_falls_off_leaves_no_figure_of_all() -> None:
    lost = [s for s in steady(1, **GOOD) if s.t is not None and s.t < 5]
    found = figures([*steady(0, **GOOD), *lost])
    assert found.values["util_pct_mean_window"] is None and found.values["energy_j_window"] is None
    assert found.reasons == ("telemetry_does_not_cover", "telemetry_gap")


def test_a_metric_that_one_card_never_gives_is_named() -> None:
    found = figures([*steady(0, **GOOD), *steady(1, util_pct=40.0, mem_used_mib=1.0)])
    assert Doubt("telemetry_not_reported", "power_w") in found.doubts
    assert found.values["energy_j_window"] is None


def test_a_value_that_was_rejected_was_reported_and_is_told() -> None:
    mute = [*steady(0, **GOOD), *steady(1, **{**GOOD, "power_w": 50.0})]
    for s in mute[12:]:
        s.reading.values["power_w"] = None
    told = {"1": {Rejected("power_w", "sentinel"): 12}}
    found = telemetry_window.figures(mute, 12, (0.0, 10.0), 1.0, rejected=told)
    assert Doubt("telemetry_rejected", "power_w") in found.doubts
    assert Doubt("telemetry_not_reported", "power_w") not in found.doubts
    assert found.values["smi_rejected"] == 12 and found.values["energy_j_window"] is None
    other = telemetry_window.figures(mute[:12], 12, (0.0, 10.0), 1.0, rejected=told)
    assert other.values["smi_rejected"] == 0
    assert not any(doubt.code == "telemetry_rejected" for doubt in other.doubts)


def test_a_mean_over_few_samples_says_so() -> None:
    samples = [sample(t, **GOOD) for t in (0.0, 4.0, 8.0, 12.0)]
    found = telemetry_window.figures(samples, 4, (0.0, 10.0), 4.0)
    assert Doubt("telemetry_few_samples") in found.doubts
    assert found.values["smi_samples_gpu_window"] == 3 and found.reasons == ()


def test_without_a_window_every_window_figure_is_unknown() -> None:
    found = figures(steady(**GOOD), window=None)
    timed = [n for n in found.values if n.endswith(("_window", "_prefill", "_decode"))]
    assert len(timed) > 20 and {found.values[name] for name in timed} == {None}
    assert found.doubts == (Doubt("telemetry_no_window"),)


def test_nothing_at_all_is_nothing() -> None:
    found = figures([])
    assert {v for n, v in found.values.items() if not n.startswith("smi_")} == {None}


# phases -------------------------------------------------------------------------------------------


def test_a_phase_by_hand() -> None:
    """Prefill at 100 W and 90 % from 0 to 4 s, then decode at 60 W and 30 %."""
    levels = [(100.0, 90.0)] * 5 + [(60.0, 30.0)] * 6
    samples = [sample(float(t), power_w=p, util_pct=u) for t, (p, u) in enumerate(levels)]
    found = figures(samples, phases=Phases(((0.0, 4.0),), ((4.0, 10.0),), ())).values
    assert (found["time_share_prefill"], found["time_share_decode"]) == (0.4, 0.6)
    assert found["energy_j_prefill"] == pytest.approx(400.0)
    assert found["power_w_mean_prefill"] == pytest.approx(100.0)
    assert found["util_pct_mean_prefill"] == pytest.approx(90.0)
    # one second on the slope from 100 to 60 W, five at 60 W
    assert found["energy_j_decode"] == pytest.approx(80.0 + 300.0)
    assert found["power_w_mean_decode"] == pytest.approx(380.0 / 6)
    assert found["util_pct_mean_decode"] == pytest.approx((60.0 + 5 * 30.0) / 6)
    assert (found["smi_samples_gpu_prefill"], found["smi_samples_gpu_decode"]) == (5, 7)


def test_a_phase_that_comes_and_goes_between_samples_has_no_figure() -> None:
    short = tuple((t + 0.1, t + 0.3) for t in range(10))
    rest = ((0.3, 1.1), (1.3, 5.1), (5.3, 9.1))  # each long enough
    samples = [sample(float(t), **GOOD) for t in range(-1, 12)]
    found = figures(samples, phases=Phases(short, rest, ()))
    assert found.values["util_pct_mean_prefill"] is None
    assert found.values["energy_j_prefill"] is None
    assert found.values["time_share_prefill"] == pytest.approx(0.2)
    assert found.doubts == (Doubt("telemetry_phase_not_resolved", "prefill"),)
    assert found.values["util_pct_mean_decode"] == pytest.approx(40.0)


def test_a_phase_shorter_than_the_distance_of_the_samples_has_no_figure() -> None:
    """One sample in it says what the card did somewhere around, not in a tenth of a second."""
    samples = [sample(float(t), power_w=200.0 if t == 5 else 50.0) for t in range(-1, 12)]
    found = figures(samples, phases=Phases(((4.95, 5.05),), ((0.0, 4.95), (5.05, 10.0)), ()))
    assert found.values["power_w_mean_prefill"] is None and found.values["energy_j_prefill"] is None
    assert Doubt("telemetry_phase_not_resolved", "prefill") in found.doubts
    assert found.values["power_w_mean_decode"] is not None
    long = figures(samples, phases=Phases(((4.5, 5.6),), ((0.0, 4.5), (5.6, 10.0)), ()))
    assert long.values["energy_j_prefill"] is not None


def test_a_phase_is_held_to_the_distance_that_the_samples_really_have() -> None:
    samples = [sample(t * 3.0, util_pct=50.0) for t in range(-1, 5)]
    found = figures(samples, phases=Phases(((5.0, 7.0),), ((0.0, 5.0), (7.0, 10.0)), ()))
    assert found.values["util_pct_mean_prefill"] is None
    assert found.values["util_pct_mean_decode"] == 50.0


def test_a_metric_that_is_not_reported_makes_no_phase_too_short() -> None:
    found = figures(steady(util_pct=40.0), phases=Phases(((0.0, 4.0),), ((4.0, 10.0),), ()))
    assert not any(doubt.code == "telemetry_phase_not_resolved" for doubt in found.doubts)


def test_a_phase_that_never_was_has_no_time_and_no_doubt() -> None:
    found = figures(steady(**GOOD), phases=Phases(((0.0, 10.0),), (), ()))
    assert found.values["time_share_decode"] == 0.0 and found.values["energy_j_decode"] is None
    assert found.doubts == ()


def test_phases_that_are_not_known_are_told() -> None:
    found = figures(steady(**GOOD))
    assert Doubt("telemetry_phases_unknown", "decode") in found.doubts


@given(st.lists(st.floats(0.0, 400.0), min_size=12, max_size=12), st.floats(2.0, 8.0))
def test_the_phases_energy_is_that_of_the_window(draws: list[float], cut: float) -> None:
    samples = [sample(t - 0.5, power_w=p, util_pct=1.0) for t, p in enumerate(draws)]
    found = figures(samples, phases=Phases(((0.0, cut),), ((cut, 10.0),), ())).values
    prefill, decode, whole = (found[f"energy_j_{name}"] for name in ("prefill", "decode", "window"))
    assert prefill is not None and decode is not None
    assert prefill + decode == pytest.approx(whole, abs=1e-6)


@given(st.integers(0, 11), st.sampled_from(("util_pct", "power_w", "mem_used_mib")))
def test_a_value_that_is_lost_never_becomes_a_zero(place: int, metric: str) -> None:
    samples = steady(**GOOD)
    samples[place].reading.values[metric] = None
    found = figures(samples).values
    assert found[f"{metric}_mean_all"] == GOOD[metric]
    assert found[f"{metric}_mean_window"] in (None, pytest.approx(GOOD[metric]))


# boards with two dies -----------------------------------------------------------------------------

DUO = "Iluvatar MR-V100 DUO"
DIE = {"util_pct": 10.0, "mem_used_mib": 68.0, "mem_total_mib": 32768.0}
BOARD = {**DIE, "power_w": 40.0, "power_cap_w": 350.0}


def test_the_draw_of_a_board_counts_once() -> None:
    """ixsmi's table of an MR-V100 DUO: `N/A / N/A` on one die, the board's draw on the other."""
    found = figures([*steady(0, DUO, **DIE), *steady(1, DUO, **BOARD)])
    assert found.values["energy_j_window"] == pytest.approx(400.0)
    assert found.values["cap_share_window"] == pytest.approx(40 / 350)
    assert found.values["power_w_mean_window"] == pytest.approx(40.0)  # of the board
    assert Doubt("telemetry_board_power", "power_w") in found.doubts
    assert Doubt("telemetry_not_reported", "power_w") not in found.doubts


def test_one_die_alone_has_no_draw_of_its_own() -> None:
    pair = [*steady(0, DUO, **DIE), *steady(1, DUO, **BOARD)]
    silent = telemetry_boards.silent(telemetry_window.by_accelerator(pair))
    assert silent == {"0": "1"}
    mute = telemetry_window.figures(pair[:12], 12, (0.0, 10.0), 1.0, None, silent)
    assert mute.values["energy_j_window"] is None
    assert Doubt("telemetry_power_on_other_die", "power_w") in mute.doubts
    loud = telemetry_window.figures(pair[12:], 12, (0.0, 10.0), 1.0, None, silent)
    assert loud.values["energy_j_window"] == pytest.approx(400.0)
    assert Doubt("telemetry_power_of_whole_board", "power_w") in loud.doubts
    assert Doubt("telemetry_board_power", "power_w") not in loud.doubts


def test_dies_with_a_draw_of_their_own_are_summed() -> None:
    one, other = {**BOARD, "power_cap_w": 205.0}, {**BOARD, "power_cap_w": 205.0, "power_w": 41.0}
    both = [*steady(0, DUO, **one), *steady(1, DUO, **other)]
    assert figures(both).values["energy_j_window"] == pytest.approx(810.0)
    assert telemetry_boards.unsure(telemetry_window.by_accelerator(both)) == []


def test_a_board_s_draw_that_both_dies_print_counts_once() -> None:
    both = [*steady(0, DUO, **BOARD), *steady(1, DUO, **BOARD)]
    for s in both[::2]:
        s.reading.values["power_w"] = 40.5  # it changes between the two looks
    found = figures(both)
    assert found.values["energy_j_window"] == pytest.approx(402.5, abs=2.5)
    assert found.values["cap_share_window"] == pytest.approx(40 / 350, rel=0.02)
    assert telemetry_boards.unsure(telemetry_window.by_accelerator(both)) == []
    for s in both[:12]:
        s.reading.values["power_w"] = 60.0  # each has the board's cap and another draw
    by_gpu = telemetry_window.by_accelerator(both)
    assert telemetry_boards.silent(by_gpu) == {} and telemetry_boards.unsure(by_gpu) == ["0", "1"]


def test_a_draw_that_may_be_the_die_s_or_the_board_s_has_no_energy() -> None:
    """Alike on both dies, and the cap does not tell: two idle dies, or one board twice."""
    idle = {**BOARD, "power_cap_w": 205.0}
    both = [*steady(0, DUO, **idle), *steady(1, DUO, **idle)]
    assert telemetry_boards.unsure(telemetry_window.by_accelerator(both)) == ["0", "1"]
    telemetry_boards.mark_unsure(both)
    found = figures(both)
    assert found.values["energy_j_window"] is None and found.values["cap_share_window"] is None
    assert Doubt("telemetry_unsure_board", "power_w") in found.doubts
    assert found.values["power_w_mean_window"] == pytest.approx(40.0)


def test_a_single_die_card_without_a_draw_is_no_die_of_a_board() -> None:
    mute = {**DIE, "name": "Iluvatar BI-V100"}
    found = figures([*steady(0, **mute), *steady(1, "Iluvatar BI-V100", **BOARD)])
    assert found.values["energy_j_window"] is None


def test_each_board_is_judged_by_itself() -> None:
    four = [*steady(0, DUO, **DIE), *steady(1, DUO, **BOARD)]
    four += [*steady(2, DUO, **DIE), *steady(3, DUO, **DIE)]  # the second board's draw is lost
    assert telemetry_boards.silent(telemetry_window.by_accelerator(four)) == {"0": "1"}
    assert figures(four).values["energy_j_window"] is None
    mixed = [*steady(0, DUO, **DIE), *steady(1, DUO, **BOARD)]
    mixed += steady(9, "Iluvatar MR-V100", **{**BOARD, "power_cap_w": 150.0})
    assert figures(mixed).values["energy_j_window"] == pytest.approx(800.0)


def test_dies_of_two_boards_are_no_pair() -> None:
    """A container sees one die of each: who carries the silent one's draw is not among them."""
    far = [*steady(0, DUO, **BOARD), *steady(9, DUO, **DIE)]
    three = [*steady(1, DUO, **BOARD), *steady(2, DUO, **DIE), *steady(3, DUO, **BOARD)]
    for samples, dies in ((far, ["0", "9"]), (three, ["1", "2", "3"])):
        by_gpu = telemetry_window.by_accelerator(samples)
        assert telemetry_boards.silent(by_gpu) == {}
        assert telemetry_boards.unsure(by_gpu) == dies


def test_a_die_that_tells_its_own_draw_carries_no_other_s() -> None:
    pair = [*steady(0, DUO, **DIE), *steady(1, DUO, **BOARD)]
    for s in pair:
        s.reading.power_of = "die"
    by_gpu = telemetry_window.by_accelerator(pair)
    assert telemetry_boards.silent(by_gpu) == {} and telemetry_boards.unsure(by_gpu) == []
    assert figures(pair).values["energy_j_window"] is None


def test_a_serial_tells_the_dies_of_a_board() -> None:
    pair = [*steady(0, "X", **DIE), *steady(1, "X", **BOARD)]
    for s in pair:
        s.reading.serial = "24"
    assert telemetry_boards.silent(telemetry_window.by_accelerator(pair)) == {"0": "1"}
    for s in pair:
        s.reading.serial = str(s.reading.gpu)  # two boards
    assert telemetry_boards.silent(telemetry_window.by_accelerator(pair)) == {}
