"""The client's figures about itself, and the schedule of an open loop."""

from __future__ import annotations

import itertools
import statistics

import pytest

from cargo import schedule, self_check
from cargo.exchange import WHOLE, Exchange, Read, RunClock
from cargo.self_check import Tally, figures

MS = 1_000_000


def exchange(index: int, sent_ms: int, ended_ms: int, due_ms: int | None = None) -> Exchange:
    made = Exchange(index, False)
    made.due_ns = None if due_ms is None else due_ms * MS
    made.begun_ns = (sent_ms - 1) * MS
    made.connected_ns = made.begun_ns + MS // 2
    made.sent_ns = sent_ms * MS
    made.status = 200
    data = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    made.reads = [Read(sent_ms * MS + MS, None, data), Read(ended_ms * MS, None, data * 2)]
    made.end(WHOLE, ended_ms * MS)
    made.decoder.catch_up()
    return made


def tally(*exchanges: Exchange) -> Tally:
    found = Tally()
    for one in exchanges:
        found._take(one, RunClock(0, None))
    found.cpu_s = 0.25
    return found


def test_achieved_concurrency_is_a_step_function_with_its_mean() -> None:
    found = figures(tally(exchange(0, 10, 30), exchange(1, 20, 30), exchange(2, 30, 50)), 0.5, 0)
    assert found["open_requests"] == {
        "t_s": [0.01, 0.02, 0.03, 0.03, 0.03, 0.05],
        "n": [1, 2, 1, 0, 1, 0],
    }
    assert found["concurrency_max"] == 2
    assert found["concurrency_mean"] == pytest.approx((20 + 10 + 20) / 40)
    assert found["cpu_share"] == 0.5
    assert found["connect_p50_s"] == found["connect_max_s"] == 0.0005


def test_reads_that_hold_several_events_are_counted() -> None:
    found = figures(tally(exchange(0, 10, 30)), 1.0, 0)
    assert (found["reads"], found["coalesced_reads"], found["user_stamped_reads"]) == (2, 1, 2)
    assert found["stamp_source"] == "user"
    assert found["schedule_late_max_s"] is None


def test_events_of_a_late_read_but_its_last_are_blurred() -> None:
    """A read of two events: nothing of it had come when the client last looked."""
    on_time, late = exchange(0, 10, 100), exchange(1, 10, 100)
    on_time.reads[1] = on_time.reads[1]._replace(since_ns=90 * MS)
    late.reads[1] = late.reads[1]._replace(since_ns=84 * MS)
    found = figures(tally(on_time, late), 1.0, 0)
    assert (found["output_events"], found["blurred_events"]) == (6, 1)


def test_lateness_against_the_schedule_is_of_the_beginning_and_not_of_the_answer() -> None:
    found = figures(tally(exchange(0, 11, 30, 0), exchange(1, 21, 99, 19)), 1.0, 0)
    assert found["schedule_late_max_s"] == pytest.approx(0.010)
    assert found["schedule_late_p50_s"] == pytest.approx((0.010 + 0.001) / 2)


def test_many_points_are_thinned_and_the_last_one_stays() -> None:
    found = figures(tally(*(exchange(n, 2 * n + 2, 2 * n + 3) for n in range(3000))), 10.0, 0)
    points = found["open_requests"]
    assert len(points["t_s"]) == len(points["n"]) <= self_check._POINTS + 1
    assert points["t_s"][-1] == pytest.approx(6.001)
    assert points["n"][-1] == 0


def test_a_short_poisson_schedule_has_the_rate_that_was_asked_for() -> None:
    for seed in "abcdefgh":
        due = schedule.due_times(4, "poisson", 9, seed)
        assert due == sorted(due)
        assert due[-1] == pytest.approx(2.0)
    assert schedule.due_times(4, "poisson", 1, "a") == [0]


def test_nothing_was_sent() -> None:
    found = figures(Tally(), 0.0, 0)
    empty = ("stamp_source", "cpu_share", "concurrency_mean", "concurrency_max", "open_requests")
    assert [found[name] for name in empty] == [None] * 5


def test_tallies_of_processes_add_up() -> None:
    one, two = tally(exchange(0, 10, 30)), tally(exchange(1, 20, 40))
    two.ended = "stalled"
    one.add(two)
    found = figures(one, 1.0, 0)
    assert found["reads"] == 4
    assert found["concurrency_max"] == 2
    assert found["ended"] == "stalled"
    assert found["cpu_s"] == 0.5


def test_a_constant_schedule() -> None:
    assert schedule.due_times(4, "constant", 5, "x") == [0, 0.25, 0.5, 0.75, 1.0]


def test_a_poisson_schedule_is_drawn_from_the_seed_and_has_exponential_gaps() -> None:
    due = schedule.due_times(10, "poisson", 20001, "x")
    assert due == schedule.due_times(10, "poisson", 20001, "x")
    assert due != schedule.due_times(10, "poisson", 20001, "y")
    assert due[0] == 0
    assert due[-1] == pytest.approx(2000)
    gaps = [two - one for one, two in itertools.pairwise(due)]
    assert min(gaps) >= 0
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.pstdev(gaps) == pytest.approx(0.1, rel=0.03)
