"""A real OpenSSH server for tests: private configuration, keys, log and port on loopback.

In:  a scratch folder, options of sshd_config, key types. Out: a running `Sshd` that answers the
user who runs the tests, an ssh_config that reaches it, and the faults that a test may make:
its sessions killed, stopped, its listener stopped, its key changed. Only processes that this
object started are ever signalled. Nothing under ~/.ssh or /etc/ssh is read or written; the
session's HOME is an empty folder, so that the machine's own .bashrc plays no part. There is no sftp
subsystem, since nothing may need one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

START_S = 20.0
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def why_not() -> str | None:
    """Why no sshd can be started here, or None if it can."""
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "needs OpenSSH: apt-get install --no-install-recommends openssh-server"
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    if not os.path.isdir("/run/sshd"):
        return "sshd needs the folder /run/sshd: sudo mkdir -m 0755 /run/sshd"
    return None


class Sshd:
    """One sshd. `with Sshd(tmp_path, "MaxSessions 1") as sshd: …` or `start()` and `stop()`.

    folder    scratch folder of this server, made if it is not there
    options   lines of sshd_config; they stand first, and sshd takes the first value of an option
    host_keys types of its host keys: "ed25519", "ecdsa", "rsa"
    address   where it listens and what ssh_config and known_hosts say
    prefix    words before the sshd command, which must end in an exec (so that the pid stays the
              same): ["ip", "netns", "exec", NAME] or ["unshare", "-m", "sh", "-c", '…; exec "$@"', "sh"]
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        host_keys: Sequence[str] = ("ed25519",),
        address: str = "127.0.0.1",
        port: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder, self.address, self.options, self.prefix = folder, address, options, prefix
        self.port = port or _free_port()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.home = folder / "home"  # HOME of the sessions; put a .bashrc here
        self.client_key = folder / "client_key"
        self.authorized_keys = folder / "authorized_keys"
        self.known_hosts = folder / "known_hosts"  # right for this server
        self.log_file = folder / "sshd.log"
        self.host_keys = [folder / f"host_{kind}" for kind in host_keys]
        self._process: subprocess.Popen[bytes] | None = None
        self.home.mkdir(parents=True, exist_ok=True)
        for key, kind in [
            (self.client_key, "ed25519"),
            *zip(self.host_keys, host_keys, strict=True),
        ]:
            make_key(key, kind)
        self.authorized_keys.write_text(public(self.client_key) + "\n")
        self.learn()

    def __enter__(self) -> Sshd:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until it listens. May be called again after `stop`."""
        assert SSHD and why_not() is None, why_not()
        assert self._process is None, "is running"
        self._write_config()
        self.log_file.write_text("")
        command = [*self.prefix, SSHD, "-D", "-E", str(self.log_file), "-f", str(self._config())]
        # A pipe as its stdout would be inherited by every session and never reach its end.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + START_S
        while "Server listening on" not in self.log():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"sshd did not start: {self.log()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the listener and its sessions. What sessions left running in the background stays."""
        if self._process is None:
            return
        self.resume(listener=True)
        sessions = self.sessions()
        self._process.terminate()
        for pid in sessions:
            _signal(pid, signal.SIGKILL)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process = None

    @property
    def pid(self) -> int:
        """The listener."""
        assert self._process is not None, "not running"
        return self._process.pid

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def logins(self) -> int:
        """How many logins this server accepted since its start."""
        return self.log().count("Accepted publickey for")

    # -- faults ----------------------------------------------------------------------------

    def sessions(self) -> list[int]:
        """Its session processes, parents first: one or two for each connection."""
        found, ask = [], [self.pid]
        while ask:
            children = _children(ask.pop(0))
            ask += children
            found += [pid for pid in children if _comm(pid).startswith("sshd")]
        return found

    def kill_sessions(self) -> int:
        """kill -9 of every session process: connections break, commands run on. How many."""
        return sum(_signal(pid, signal.SIGKILL) for pid in self.sessions())

    def pause(self, *, listener: bool = False) -> None:
        """SIGSTOP of the sessions: open connections fall silent while the kernel goes on to
        acknowledge. With `listener`, new connections fall silent as well.
        """
        if listener:
            _signal(self.pid, signal.SIGSTOP)
        for pid in self.sessions():
            _signal(pid, signal.SIGSTOP)

    def resume(self, *, listener: bool = True) -> None:
        for pid in self.sessions():
            _signal(pid, signal.SIGCONT)
        if listener:
            _signal(self.pid, signal.SIGCONT)

    def stop_listening(self) -> None:
        """End the listener alone: connections stay, new ones are refused. `start` brings it back,
        and this object then no longer knows the sessions of before.
        """
        assert self._process is not None, "not running"
        self._process.terminate()
        self._process.wait(10)
        self._process = None

    # -- how to reach it -------------------------------------------------------------------

    def learn(self, file: Path | None = None) -> None:
        """Write this server's keys into `file`, its own known_hosts by default."""
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        lines = [f"{name} {public(key)}\n" for key in self.host_keys]
        (file or self.known_hosts).write_text("".join(lines))

    def change_host_keys(self) -> None:
        """New keys of the same types, as after a new installation; takes effect at the next
        `start`. known_hosts keeps the old ones.
        """
        for key in self.host_keys:
            kind = key.name.removeprefix("host_")
            key.unlink()
            make_key(key, kind)

    def ssh_config(self, alias: str = "lab", file: Path | None = None, **options: object) -> Path:
        """Add a Host block for this server to `file` (its own ssh_config by default); returns it.

        `options` are those of ssh_config; they stand first and ssh takes the first value:
        `sshd.ssh_config("lab", ProxyJump="gate")`, `IdentityFile=None` leaves the line out.
        """
        values: dict[str, object] = {
            **options,
            **{k: v for k, v in self._reach().items() if k not in options},
        }
        lines = [f"Host {alias}", *(f"    {k} {v}" for k, v in values.items() if v is not None)]
        file = file or self.folder / "ssh_config"
        with file.open("a") as f:
            f.write("\n".join(lines) + "\n\n")
        return file

    def _reach(self) -> dict[str, object]:
        return {
            "HostName": self.address,
            "Port": self.port,
            "User": self.user,
            "IdentityFile": self.client_key,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "ConnectTimeout": 10,
        }

    def _config(self) -> Path:
        return self.folder / "sshd_config"

    def _write_config(self) -> None:
        # A Match block lasts to the end of the file, so such options stand last.
        first = [line for line in self.options if not line.startswith("Match ")]
        last = [line for line in self.options if line.startswith("Match ")]
        own = [
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            *(f"HostKey {key}" for key in self.host_keys),
            f"AuthorizedKeysFile {self.authorized_keys}",
            f"SetEnv HOME={self.home}",
            "PidFile none",
            "UsePAM no",
            "StrictModes no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UseDNS no",
            "MaxStartups 100",
            "PrintMotd no",
            "LogLevel VERBOSE",
        ]
        self._config().write_text("\n".join([*first, *own, *last]) + "\n")


def make_key(path: Path, kind: str = "ed25519", *, passphrase: str = "") -> Path:
    """A new key pair at `path`, unless it is there."""
    if not path.exists():
        size = ["-b", "2048"] if kind == "rsa" else []
        command = ["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-C", "test"]
        subprocess.run([*command, "-f", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path


def public(key: Path) -> str:
    """The public half, as it stands in authorized_keys or after the name in known_hosts."""
    return " ".join(key.with_name(key.name + ".pub").read_text().split()[:2])


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """A port that nobody listens on, held for the while so that nobody gets it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
