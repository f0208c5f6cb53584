"""A network of one cable: a namespace for a host, joined by a veth pair that a test can pull.

In:  root's rights. Out: `Cable` with the host's address, `pull`, `plug`, `slow`. Names are the
test's own; nothing of the machine's network is touched.
"""

from __future__ import annotations

import os
import subprocess

import pytest


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def need_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("network and mount namespaces need root")
    for probe in (["unshare", "-n", "true"], ["ip", "-V"]):
        try:
            subprocess.run(probe, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no namespaces here: {' '.join(probe)}: {error}")


class Cable:
    """The host's end is in the namespace, ours outside."""

    count = 0

    def __init__(self) -> None:
        Cable.count += 1
        # Two bytes tell the cables of parallel test processes apart.
        low, high = os.getpid() % 250, Cable.count % 250
        self.name = f"dlc{os.getpid()}"[:9] + f"n{Cable.count}"
        self.near, self.far = (
            f"10.213.{low}.{4 * high % 248 + 1}",
            f"10.213.{low}.{4 * high % 248 + 2}",
        )
        self.link = self.name + "a"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
            ip("addr", "add", f"{self.near}/30", "dev", self.link)
            ip("link", "set", self.link, "up")
            ip("-n", self.name, "addr", "add", f"{self.far}/30", "dev", "eth0")
            ip("-n", self.name, "link", "set", "eth0", "up")
            ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    @property
    def inside(self) -> list[str]:
        """The words before a command that is to run in the namespace."""
        return ["ip", "netns", "exec", self.name]

    def pull(self) -> None:
        """Nothing passes and nobody says so: both ends believe in the connection."""
        ip("-n", self.name, "link", "set", "eth0", "down")

    def plug(self) -> None:
        ip("-n", self.name, "link", "set", "eth0", "up")

    def slow(self, kbit_per_s: int) -> None:
        """Both directions, by a token bucket (netem is a kernel module that not every machine has)."""
        for where, device in (([], self.link), (["-n", self.name], "eth0")):
            words = ["tc", *where, "qdisc", "replace", "dev", device, "root", "tbf"]
            words += ["rate", f"{kbit_per_s}kbit", "burst", "8kb", "latency", "400ms"]
            subprocess.run(words, check=True, capture_output=True, text=True)

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self.link], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
