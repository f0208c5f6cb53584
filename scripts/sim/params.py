"""Every number of the simulated engine, in one table.

They follow what was seen on 4 x BI-V100, about 35 times faster: a batch of two brings no more
tokens per second than one sequence (per-sequence work dominates and grows faster than the batch),
waiting requests slow the running ones, multi-step scheduling saves the host's share of a step,
and the device is idle for most of a decode step.
"""

from __future__ import annotations

from typing import Any

VERSION = "0.6.3+sim"

PARAMS: dict[str, Any] = {
    # host: once per scheduling, so that num_scheduler_steps = k divides it by k
    "host_step_ms": 0.55,  # scheduling, input preparation, output processing
    "host_seq_ms": 0.35,  # more of the same for each running sequence
    "host_waiting_ms": 0.80,  # more of the same for each request in the queue
    "host_chunked_ms": 0.03,  # the chunked-prefill scheduler's extra work
    # device: every step
    "tp_sync_ms": 0.30,  # x log2(tensor parallel size)
    "device_fixed_ms": 1.20,  # a sequence's work that tensor parallelism does not split
    "device_split_ms": 2.40,  # / tensor parallel size
    "batch_exponent": 1.45,  # device time of n sequences = n ** this x that of one
    # prefill: on top of the step that carries it
    "prefill_fixed_ms": 20.0,
    "prefill_token_ms": 0.10,
    # noise, as standard deviations
    "step_jitter": 0.03,  # one step: about 0.3 % over a request of 128 tokens
    "start_jitter": 0.012,  # one server start; cut at 2.5 %
    # share of the device's time in which a kernel really runs
    "decode_busy": 0.355,
    "prefill_busy": 0.95,
    # the model
    "heads": 16,
    "max_position": 262144,
    "weights_mib": 16620.0,  # / tensor parallel size
    "activation_mib": 500.0,
    "kv_block_mib": 0.75,  # 16 tokens; / tensor parallel size
    "think_tokens": 512,  # then </think>, then the answer, then EOS (unless ignore_eos)
    "answer_tokens": 160,
    "chars_per_token": 4,
    # the start: pause after each log line, of which there are about ten
    "start_line_s": 0.018,
    # the cards; a loaded one uses share x total less a rest (0.95 gives BI-V100's 30477 MiB)
    "gpus": 4,
    "gpu_mib": 32768,
    "gpu_rest_mib": 653,
}
