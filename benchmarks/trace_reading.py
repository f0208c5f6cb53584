"""How long a large Chrome trace takes to read, and how much memory: `python benchmarks/trace_reading.py [--mb 200]`.

A GPU trace of that many megabytes is written step by step (40 layers), in the form of torch.profiler, then read by
`scripts/read_profile.py` in a process of its own. Its truth is known, so the figures read are checked too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tests.unit import gpu_traces  # noqa: E402

LAYERS = 40


def write(path: Path, size: int) -> int:
    """Returns the number of decode steps."""
    recorder = gpu_traces.Recorder()
    head, tail = gpu_traces.text(gpu_traces.document([{}])).split("    {},\n")
    steps = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(head)
        while file.tell() < size:
            gpu_traces.step(recorder, gpu_traces.DECODE, gpu_traces.TOOK, layers=LAYERS)
            file.writelines(json.dumps(event, indent=2) + ",\n" for event in recorder.events)
            recorder.events.clear()
            steps += 1
        file.write(tail)
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.pt.trace.json"
        steps = write(path, args.mb * 1_000_000)
        size = path.stat().st_size / 1e6
        command = [sys.executable, str(ROOT / "scripts/read_profile.py"), str(path)]
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(command, stdout=out)
            _pid, status, usage = os.wait4(child.pid, 0)
            took = time.monotonic() - begin
            out.seek(0)
            told = json.loads(out.read())
    (table,) = told["tables"]
    moe = next(r for r in table["regions"] if r["region"] == "moe")
    right = (table["steps"], moe["calls_per_step"]) == (steps - 1, LAYERS)
    right &= abs(moe["ms_mean"] - LAYERS * gpu_traces.TOOK["moe"] / 1000) < 1e-6
    print(
        f"{size:.0f} MB, {steps} steps: {took:.1f} s ({usage.ru_utime + usage.ru_stime:.1f} s of CPU), "
        f"{usage.ru_maxrss / 1024:.0f} MiB, figures right: {right}"
    )
    return 0 if right and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
