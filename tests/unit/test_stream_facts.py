"""How tokens arrive, by counts and by times; what can be told of ends and texts, and what cannot."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sample_study import planned_run, request, run_record

from decodelab import records, stream_facts

Events = list[tuple[float, int | None]]


def row(*streams: Events, client: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    requests = []
    for index, stream in enumerate(streams):
        one = request(index, tokens=sum(n or 1 for _t, n in stream))
        one["events"] = {
            "t_s": [t for t, _n in stream],
            "kind": ["content"] * len(stream),
            "tokens": [n for _t, n in stream],
            "t_user_s": [],
        }
        requests.append({**one, **more})
    data = run_record(requests)
    data["client"].update(client or {})
    return stream_facts.row(records.make_run(planned_run("r"), {}, data))


def bursts(k: int, steps: int, step_s: float, each: int | None = 1, jitter: float = 0.0) -> Events:
    """A first token, then k events at once every step, tens of microseconds apart."""
    dice, out, t = random.Random(k), [(0.5, each)], 0.5
    for _ in range(steps):
        t += step_s * (1 + dice.gauss(0, jitter))
        out += [(t + n * dice.uniform(0, 4e-5), each) for n in range(k)]
    return [(t, n) for t, n in sorted(out)]


@pytest.mark.parametrize("k", [2, 4, 8, 16, 32])
def test_events_that_come_at_once(k: int) -> None:
    found = row(bursts(k, 20, 0.03 * k, jitter=0.05))
    assert found["burst_kind"] == "at_once" and found["event_tokens_mode"] == 1
    assert found["events_at_once_mode"] == found["step_tokens_mode"] == k
    assert found["step_s_p50"] == pytest.approx(0.03 * k, rel=0.1)


@pytest.mark.parametrize("step_s", [0.002, 0.1])
@pytest.mark.parametrize("jitter", [0.0, 0.03, 0.3])
def test_single_tokens_are_no_bursts(step_s: float, jitter: float) -> None:
    found = row(*[bursts(1, 200, step_s, jitter=jitter)] * 2)
    assert found["burst_kind"] == "single" and found["step_tokens_mode"] == 1


def test_larger_steps_than_are_thought_of_are_not_told() -> None:
    found = row(*[bursts(80, 10, 1.0)] * 2)
    assert found["burst_kind"] is None and found.get("step_tokens_mode") is None
    assert row(bursts(80, 20, 1.0, each=2))["burst_kind"] == "one_event"


def test_several_tokens_in_an_event_and_both() -> None:
    one = row(bursts(1, 20, 0.1, each=4))
    assert (one["burst_kind"], one["event_tokens_mode"], one["events_at_once_mode"]) == (
        "one_event",
        4,
        1,
    )
    assert one["step_tokens_mode"] == 4
    both = row(bursts(3, 20, 0.1, each=2))
    assert (both["burst_kind"], both["step_tokens_mode"]) == ("both", 6)


def test_stalls_between_single_tokens_are_no_bursts() -> None:
    """A prefill of another request now and then, or one long wait, makes long gaps but no short ones."""
    dice, t, stream = random.Random(1), 0.0, []
    for n in range(300):
        t += 0.01 * (1 + dice.gauss(0, 0.1)) + (0.1 if n % 15 == 7 else 0.0)
        stream.append((t, 1))
    assert row(stream)["burst_kind"] == "single"
    long = [(0.01 * n + (10.0 if n > 100 else 0.0), 1) for n in range(200)]
    assert row(long)["burst_kind"] == "single"


def test_uncounted_events_hold_one_token_each_only_if_there_are_as_many() -> None:
    stream = bursts(4, 20, 0.1, each=None)
    assert row(stream)["step_tokens_mode"] == 4  # request() has as many tokens as events
    unknown = row(stream, completion_tokens=400)
    assert unknown["burst_kind"] == "at_once" and unknown["step_tokens_mode"] is None
    single = row(bursts(1, 40, 0.1, each=None), completion_tokens=400)
    assert single["burst_kind"] is None  # each event may hold anything


def test_a_late_client_tells_nothing_by_times() -> None:
    late = {"output_events": 100, "blurred_events": 40}
    assert row(bursts(4, 20, 0.1), client=late)["burst_kind"] is None
    counted = row(bursts(1, 20, 0.1, each=4), client=late)
    assert counted["burst_kind"] == "one_event" and counted.get("events_at_once_mode") is None


def test_without_events_or_with_few_nothing_is_told() -> None:
    run = records.make_run(planned_run("r"), {}, run_record([request()]))
    assert stream_facts.row(run)["burst_kind"] is None
    assert row(bursts(4, 2, 0.1)).get("step_tokens_mode") is None


TEXT = {
    "tags": {"</think>": {"content": 1, "reasoning": 0, "tool": 0, "split": 1}},
    "tool_calls": 1,
    "tool_calls_broken": 1,
    "after_finish": 2,
    "tokens_at_finish": 80,
    "after_stop": None,
}


def test_ends_and_texts() -> None:
    found = row(bursts(4, 20, 0.1), finish_reason="stop", text=TEXT)
    assert (found["stop_n"], found["stop_lengths_n"], found["stop_at_step_n"]) == (1, 1, 1)
    assert (found["finish_late_tokens"], found["after_finish_n"]) == (1, 2)
    assert (found["think_tags_n"], found["tool_tags_n"], found["tags_split_n"]) == (1, 0, 1)
    assert found["after_stop_chars"] is None and found["tool_calls_broken_n"] == 1
    cut = row(bursts(4, 20, 0.1), finish_reason="length", text=TEXT)
    assert cut["tool_calls_n"] == 0 and cut["stop_n"] == 0  # the limit cut it, not the parser


def test_an_old_record_tells_nothing_of_texts() -> None:
    found = row(bursts(4, 20, 0.1))
    assert found["text_told_n"] == 0 and found.get("think_tags_n") is None
    assert found["stop_n"] is None and found["finish_late_tokens"] is None


def test_lengths_that_end_with_a_step() -> None:
    assert stream_facts.most_alike({13, 17, 21, 25}, 4) == 4
    assert stream_facts.most_alike({13, 14, 21}, 4) == 2
    assert stream_facts.most_alike(set(), 4) == 0
