"""The data dictionary of telemetry's figures: what runs.csv has of a capture, and the table of each
accelerator.

In: the SMI metrics. Out: FIGURES, IN_USE and DOUBT (columns of runs.csv), GPU (of gpus.csv).
"""

from __future__ import annotations

from typing import NamedTuple

from decodelab import telemetry
from decodelab.telemetry_window import OF_BOARDS


class Column(NamedTuple):
    unit: str
    meaning: str


_WINDOW = (
    "from the first t0 to the last tL of all requests sent, whatever came of them (of a success "
    "without tL its tE)"
)
_PREFILL = "while a request waits for its first token (queue and prefill)"
_DECODE = "while none waits for its first token and one is in decode"
_PHASES = {"prefill": _PREFILL, "decode": _DECODE}
_OVER = dict.fromkeys(telemetry.METRICS, "over the accelerators that report it")
_OVER |= dict.fromkeys(OF_BOARDS, "over the boards that report it, a board of several dies once")


def _levels(metric: str) -> dict[str, Column]:
    unit, meaning = telemetry.METRICS[metric]
    return {
        f"{metric}_mean_all": Column(
            unit, f"{meaning}: mean over all samples of all accelerators that report it"
        ),
        f"{metric}_max_all": Column(unit, f"{meaning}: maximum over all samples"),
        f"{metric}_mean_window": Column(
            unit, f"{meaning}: time-weighted mean inside the run's window, {_OVER[metric]}"
        ),
        f"{metric}_max_window": Column(
            unit, f"{meaning}: largest sample inside the run's window; empty: there is none"
        ),
    }


def _phase(name: str, when: str) -> dict[str, Column]:
    return {
        f"time_share_{name}": Column("share", f"of the run's window, {when}"),
        f"smi_samples_gpu_{name}": Column(
            "samples", f"of the accelerator with the fewest readings of util_pct {when}"
        ),
        f"util_pct_mean_{name}": Column("%", f"time-weighted mean utilisation {when}"),
        f"power_w_mean_{name}": Column("W", f"time-weighted mean draw of a board {when}"),
        f"energy_j_{name}": Column("J", f"energy {when}"),
    }


FIGURES = {
    **{name: column for metric in telemetry.METRICS for name, column in _levels(metric).items()},
    "power_cap_w": Column("W", "largest power limit seen"),
    "gpus": Column("accelerators", "accelerators seen in the capture"),
    "energy_j_window": Column(
        "J", f"energy of all accelerators inside the run's window, each board once: {_WINDOW}"
    ),
    "cap_share_window": Column(
        "share", "energy_j_window / what the power limits allow in the same time"
    ),
    "mem_headroom_mib_all": Column("MiB", "least total - used of any accelerator, all samples"),
    "mem_headroom_mib_window": Column(
        "MiB", "the same of the samples inside the run's window; empty unless each has one there"
    ),
    "idle_share_window": Column(
        "share", "time of the run's window whose nearest sample reads 0 % utilisation"
    ),
    "tokens_per_joule": Column(
        "tok/J", "completion_tokens / energy_j_window: tokens of successes, energy of all requests"
    ),
    "joules_per_token": Column("J/tok", "energy_j_window / completion_tokens"),
    **{name: column for phase in _PHASES.items() for name, column in _phase(*phase).items()},
}

MINE = (  # shown for the accelerators in use alone, too
    "util_pct_mean_window",
    "power_w_mean_window",
    "energy_j_window",
    "cap_share_window",
    "tokens_per_joule",
    "joules_per_token",
)
_HOW = (
    "env (visible devices of the server), devices (the host's list), all (the engine needs as many as "
    "were seen), processes (as many as it needs have one) or memory (as many hold more than a tenth)"
)
IN_USE = {
    "gpus_in_use": Column(
        "accelerators", "of these, used by the variant's server; empty: it cannot be told"
    ),
    "gpus_in_use_by": Column("", f"by what that is known: {_HOW}"),
    **{
        f"{name}_in_use": Column(FIGURES[name].unit, f"{name} of the accelerators in use alone")
        for name in MINE
    },
}
_ABOUT = (
    "codes of what speaks against a figure or keeps it from being known, `code:what`, joined by ;"
)
_VALIDITY = (
    "of the figures inside the window: valid; suspect: one of utilisation, memory and power is not "
    "known or doubted; invalid: none is known"
)
DOUBT = {
    "smi_validity": Column("", _VALIDITY),
    "smi_reasons": Column("", _ABOUT),
    "smi_validity_in_use": Column("", f"{_VALIDITY}; of the accelerators in use alone"),
    "smi_reasons_in_use": Column("", f"{_ABOUT}; of the accelerators in use alone"),
}
REJECTED = {
    "smi_rejected": Column("values", "values that cannot be true (sentinels), set to unknown"),
    "smi_rejected_why": Column("", "how many of what and why: metric:count:why, joined by ;"),
}
SAMPLER = {
    "smi_tool": Column("", "tool that was called; none: the host has none"),
    "smi_form": Column("", "form of its output that was asked for; empty: not told"),
    "smi_loop": Column("", "yes: sampled by the tool's own loop, not by a call a sample"),
    "smi_interval_s": Column("s", "interval of the samples that the sampler promised to hold"),
    "smi_wanted_interval_s": Column("s", "interval that the config asks for"),
    "smi_cost_s": Column("s", "least time of some calls when the sampler chose how to call it"),
    "smi_problem": Column(
        "", "why there is no sample at all, in the tool's or the sampler's words"
    ),
}
GPU = {
    "scope": Column("", "gpu: this accelerator; in_use: all that the run used; all: all seen"),
    "gpu": Column(
        "", "index in the calls that show the most accelerators; empty: it changed even there"
    ),
    "uuid": Column("", "the accelerator's key: UUID, else bus id, else index, else row"),
    "name": Column("", "model as the tool names it"),
    "in_use": Column("", "yes or no; empty: it cannot be told"),
    "in_use_by": Column("", f"by what that is known: {_HOW}"),
    "smi_samples": Column("samples", "of the accelerators of this row"),
    "smi_samples_gpu": Column("samples", "of the accelerator with the fewest readings of util_pct"),
    "smi_samples_gpu_window": Column("samples", "the same inside the run's window"),
    **REJECTED,
    **FIGURES,
    "validity": Column("", _VALIDITY),
    "reasons": Column("", _ABOUT),
}
