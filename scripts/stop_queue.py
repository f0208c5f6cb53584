"""Step: ask the agents of a study's hosts to stop: at once, or (--drain) after the launch that runs.

Called when a workflow ends with an error; best effort, so that an unreachable host does not hide
the first error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from decodelab import call, orders
from decodelab.agent_client import AgentClient
from decodelab.host import HostError, open_host
from decodelab.study import open_study


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--drain", action="store_true")
    args = parser.parse_args(argv)
    root = Path.cwd()
    study = open_study([args.config], call.current().control, root)
    for name in study.hosts:
        try:
            host = open_host(name, study.plan["hosts"][name], root)
            client = AgentClient(host)
            if client.present():
                client.stop(orders.owner(study), drain=args.drain)
        except HostError as error:
            print(f"could not stop the queue: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
