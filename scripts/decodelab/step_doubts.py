"""What makes a profile doubtful, in plain words for the command line and for errors.

The codes of traces and plain tables; of others the code and its figures are told.
"""

from __future__ import annotations

from decodelab.step_table import Problem

DOUBTS = {
    "trace_cut": "{file} ends before its end ({why}): {events} events of it were read",
    "events_without_time": "{file}: {events} events without a usable begin and duration are left out",
    "nothing_timed": "{file}: neither kernels nor CPU ops in its {events} events",
    "steps_not_found": "{file}: no steps are told in it, so shares are of all that was traced and nothing is per step",
    "steps_by_sequence": "{file}: no annotations of steps; a step is what the device repeats from sampler to sampler",
    "not_linked": "{file}: of {share:.0%} of the device's work it is told which call launched it;"
    " the rest counts for the step in which it ran",
    "collectives_unlike": "ranks {ranks} made unlike collective calls, so waiting and transfer cannot be parted",
    "not_closed": "{phase}, rank {rank}: the regions add up to {closure:+.1%} of the step's time more or less",
    "more_than_the_step": "{phase}: the regions add up to {closure:+.1%} more than the step:"
    " timers that synchronise, which order regions and state no shares",
    "steps_not_told": "{file}: the table does not tell of how many steps it is: times are totals, and shares"
    " are of the device's time",
    "ops_among_kernels": "framework ops among kernels, whose time may be counted twice: {names}",
    "host_calls_among_kernels": "calls of the host, no time of the device, counted in no class: {names}",
}


def sentence(problem: Problem) -> str:
    told = DOUBTS.get(problem.code)
    if told is None:
        figures = ", ".join(f"{name} {value}" for name, value in problem.figures.items())
        return f"{problem.code}: {figures}" if figures else problem.code
    shown = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        for name, value in problem.figures.items()
    }
    return told.format(**shown)
