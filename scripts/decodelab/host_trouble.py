"""Hosts that one call of snakemake could not use: said once, not tried again for each launch.

In:  the study's log folder and the call's session. Out: a file per host with the reason, or the
HostError of a host that has one. Another call tries again.
"""

from __future__ import annotations

from pathlib import Path

from decodelab.host import HostError


class HostTrouble:
    """The notes of one call; without a session (a step run by hand) nothing is noted."""

    def __init__(self, logs: Path, session: str) -> None:
        self.logs, self.session = logs, session

    def note(self, host: str, error: HostError) -> None:
        if self.session:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._file(host).write_text(f"{error}\n", encoding="utf-8")

    def noted(self, host: str) -> str | None:
        """Why this call could not use the host, or None."""
        try:
            return self._file(host).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None

    def check(self, host: str) -> None:
        """Raises HostError if an earlier job of this call could not use the host."""
        reason = self.noted(host)
        if reason is not None:
            raise HostError(
                f"not started: host {host} could not be used earlier in this call: {reason.splitlines()[0]}\n"
                "Hint: `snakemake --cores 1 check_hosts` says what to do; then call snakemake again."
            )

    def _file(self, host: str) -> Path:
        return self.logs / f"host-{host}-{self.session}.log"
