"""The data dictionary of stream facts: how tokens arrive, what comes behind an end, tags in texts.

Columns of runs.csv, over the run's successes; `stream_facts` works them out.
"""

from __future__ import annotations

from decodelab.columns_telemetry import Column

STREAM = {
    "burst_kind": Column(
        "", "how tokens arrive: single, one_event (several in an event), at_once (events) or both"
    ),
    "event_tokens_mode": Column("tokens", "commonest number of tokens in an output event"),
    "event_tokens_mode_share": Column("share", "counted output events that hold so many"),
    "events_at_once_mode": Column(
        "events", "commonest number of output events that arrive together; 1: one by one"
    ),
    "events_at_once_mode_share": Column("share", "arrivals that bring so many"),
    "step_tokens_mode": Column("tokens", "k: commonest number of tokens of one arrival"),
    "step_tokens_mode_share": Column("share", "arrivals with a known count that bring so many"),
    "step_s_p50": Column("s", "P50 of the time from one arrival to the next"),
    "stop_n": Column("requests", "successes that the model ended itself (stop, tool_calls)"),
    "stop_lengths_n": Column("lengths", "different completion_tokens among them"),
    "stop_at_step_n": Column("lengths", "of these, most that leave one remainder when divided by k"),
    "over_max_n": Column("requests", "successes with more completion_tokens than max_tokens"),
    "finish_told_n": Column("requests", "successes whose events tell the tokens up to the finish"),
    "finish_late_tokens": Column("tokens", "that usage counts beyond those, summed"),
    "text_told_n": Column("requests", "successes whose record tells what their text shows"),
    "after_finish_n": Column("events", "output events behind an event with a finish reason"),
    "stop_named_n": Column("requests", "successes that a stop string ended, as the server names it"),
    "after_stop_chars": Column("characters", "in the answer behind that stop string, summed"),
    "think_ended_n": Column("requests", "successes that went from reasoning to an answer"),
    "think_tags_n": Column("tags", "think tags in an answer as plain text"),
    "tool_tags_n": Column("tags", "tool tags in an answer as plain text"),
    "tags_elsewhere_n": Column("tags", "tags inside reasoning or tool arguments"),
    "tags_split_n": Column("tags", "of all tags, those that came in several events"),
    "tool_calls_n": Column("calls", "tool calls of requests that the model ended itself"),
    "tool_calls_broken_n": Column("calls", "of these, without name or with arguments that are no JSON object"),
}  # fmt: skip
