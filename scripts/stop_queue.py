"""Step: ask the agents of a study's hosts to stop: at once, or (--drain) after the launch that runs.

Called when a workflow ends with an error; best effort, so that an unreachable host does not hide
the first error.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from decodelab import call, orders
from decodelab.agent_client import AgentClient
from decodelab.host import HostError, open_host
from decodelab.host_trouble import HostTrouble
from decodelab.study import open_study


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--drain", action="store_true")
    parser.add_argument(
        "--wait", type=float, default=0, help="seconds to wait for the server's end"
    )
    args = parser.parse_args(argv)
    root = Path.cwd()
    now = call.current()
    study = open_study([args.config], now.control, root)
    trouble = HostTrouble(root / study.results / "logs", now.session)
    for name in study.hosts:
        if trouble.noted(name) is not None:
            continue  # out of reach: its queue is to go on by itself
        try:
            host = open_host(name, study.plan["hosts"][name], root)
            with contextlib.closing(host):
                client = AgentClient(host)
                if client.present():
                    client.stop(orders.owner(study), drain=args.drain, wait_s=args.wait)
        except HostError as error:
            print(f"could not stop the queue: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
