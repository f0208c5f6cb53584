"""A small study as text, for tests to edit."""

from __future__ import annotations

from typing import Any

import yaml

SMALL = """\
study: small
host: here
hosts:
  here: {transport: local, devices: 4, telemetry: ixsmi}
server:
  command: ["{python}", "{simulator}"]
  model: /models/tiny
  engine: vllm-v0
  flags: {-tp: 4, --max-num-seqs: 2, --tool-call-parser: hermes}
variants:
  base: {}
  fast: {flags: {--num-scheduler-steps: 4}}
workloads:
  short: {requests: 3, max_tokens: 64}
  curve: {concurrency: [1, 2], requests: 3, max_tokens: 32}
experiments:
  A:
    runs: {base: [short, curve], fast: [short, curve]}
    question: {kind: compare_variants, metric: e2e_tps, workload: short, baseline: base,
      candidate: fast, smallest_effect: 5%}
"""


def study_with(**keys: Any) -> dict[str, Any]:
    """The study with further keys of the workload `short`."""
    data: dict[str, Any] = yaml.safe_load(SMALL)
    data["workloads"]["short"] |= keys
    return data
