"""The data dictionary of telemetry's figures: what runs.csv has of a capture, and the table of each
accelerator.

In: the SMI metrics. Out: FIGURES, IN_USE and DOUBT (columns of runs.csv), GPU (of gpus.csv).
"""

from __future__ import annotations

from typing import NamedTuple

from decodelab import telemetry


class Column(NamedTuple):
    unit: str
    meaning: str


_PREFILL = "while a request waits for its first token (queue and prefill)"
_DECODE = "while none waits for its first token and one is in decode"
_PHASES = {"prefill": _PREFILL, "decode": _DECODE}


def _levels(metric: str) -> dict[str, Column]:
    unit, meaning = telemetry.METRICS[metric]
    return {
        f"{metric}_mean_all": Column(unit, f"{meaning}: mean over all samples of all accelerators"),
        f"{metric}_max_all": Column(unit, f"{meaning}: maximum over all samples"),
        f"{metric}_mean_window": Column(
            unit, f"{meaning}: time-weighted mean inside the run's window"
        ),
        f"{metric}_max_window": Column(unit, f"{meaning}: maximum inside the run's window"),
    }


def _phase(name: str, when: str) -> dict[str, Column]:
    return {
        f"time_share_{name}": Column("share", f"of the run's window, {when}"),
        f"smi_samples_gpu_{name}": Column(
            "samples", f"of the accelerator with the fewest readings of util_pct {when}"
        ),
        f"util_pct_mean_{name}": Column("%", f"time-weighted mean utilisation {when}"),
        f"power_w_mean_{name}": Column("W", f"time-weighted mean draw {when}"),
        f"energy_j_{name}": Column("J", f"energy {when}"),
    }


FIGURES = {
    **{name: column for metric in telemetry.METRICS for name, column in _levels(metric).items()},
    "power_cap_w": Column("W", "largest power limit seen"),
    "gpus": Column("accelerators", "accelerators seen in the capture"),
    "energy_j_window": Column(
        "J", "energy of all accelerators inside the run's window, each board once"
    ),
    "cap_share_window": Column(
        "share", "energy_j_window / what the power limits allow in the same time"
    ),
    "mem_headroom_mib_all": Column("MiB", "least total - used of any accelerator, all samples"),
    "mem_headroom_mib_window": Column("MiB", "the same inside the run's window"),
    "idle_share_window": Column(
        "share", "time of the run's window whose nearest sample reads 0 % utilisation"
    ),
    "tokens_per_joule": Column("tok/J", "completion_tokens / energy_j_window"),
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
}
GPU = {
    "scope": Column("", "gpu: this accelerator; in_use: all that the run used; all: all seen"),
    "gpu": Column("", "index as first printed"),
    "uuid": Column("", "the accelerator's key: UUID, else bus id, else index, else row"),
    "name": Column("", "model as the tool names it"),
    "in_use": Column("", "yes or no; empty: it cannot be told"),
    "in_use_by": Column("", f"by what that is known: {_HOW}"),
    "smi_samples": Column("samples", "of the accelerators of this row"),
    "smi_samples_gpu": Column("samples", "of the accelerator with the fewest readings of util_pct"),
    "smi_samples_gpu_window": Column("samples", "the same inside the run's window"),
    **FIGURES,
    "validity": Column("", _VALIDITY),
    "reasons": Column("", _ABOUT),
}
