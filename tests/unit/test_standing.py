"""Launches sorted by what has become of them, and the sums that `status` makes of them."""

from __future__ import annotations

import pytest
import status

from decodelab.standing import Standing, was_stopped


@pytest.mark.parametrize(
    ("reason", "stopped"),
    [
        ("stopped: stopped\nNothing final was stored", True),
        ("the queue of host h was stopped by hand.\nHint: call snakemake again", True),
        ("invalid: server_died", False),
        ("not started: the queue of host h was stopped: no space left", False),
    ],
)
def test_what_was_stopped_by_hand_did_not_fail(reason: str, stopped: bool) -> None:
    assert was_stopped(reason) is stopped


def test_what_came_to_nothing_is_still_to_be_done() -> None:
    standing = Standing("h", done=["a"], remaining=["b", "c"])
    standing.came_to_nothing("b", "invalid: server_died")
    standing.came_to_nothing("c", "stopped: stopped")
    assert standing.failed == {"b": "invalid: server_died"} and standing.stopped == ["c"]
    assert standing.remaining == [] and sorted(standing.to_do) == ["b", "c"]
    assert standing.total == 3
    assert "2 to be tried again" in status._rest([standing], 60.0)
    standing.tried_again({"b"})
    assert standing.failed == {} and standing.remaining == ["b"] and standing.total == 3


def test_nothing_left_to_do_only_if_all_is_done() -> None:
    assert status._rest([Standing("h", done=["a"])], 0.0) == "nothing left to do"


def test_nobody_knows_the_end_on_a_host_out_of_reach() -> None:
    standing = Standing("h", remaining=["a"])
    assert status._end(standing, status.Seen("not reachable", known=False), 60.0) == "unknown"
    assert status._end(standing, status.Seen("nothing"), 60.0).startswith("not at work")
