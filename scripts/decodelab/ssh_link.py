"""One SSH connection that is either there or known to be lost: commands go out, bytes come back.

In:  the hops to a host (ssh_alias.py). Out: a `Result` for each command; HostLost when the
connection failed or went away, HostError when repeating does not help.

Commands run on paramiko's raw channels. Fabric's Connection.run() is quadratic in its output, breaks
characters at its read size and never returns from a silent cut. Nothing here waits without end:
every wait looks whether the chain of connections (ssh_chain.py) still lives.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable

import paramiko

from decodelab.host import HostError, Result
from decodelab.own_thread import in_own_thread
from decodelab.ssh_alias import Hop
from decodelab.ssh_chain import LOOK_S, Chain

BEAT_S = 5.0
SILENCE_S = 15.0
FEED_S = 2.0  # for the rest of the input once the command has ended
LINGER_S = 10.0  # for the rest of the output once the command has ended
CHUNK_BYTES = 1 << 20


class SshLink:
    """The connection to one host. Opened by the first call and again by the first one after a loss.

    Several threads may use it. All work on sockets and paramiko's locks happens in threads of its
    own, so that Ctrl-C in the caller breaks nothing: the next call works.
    """

    def __init__(
        self,
        name: str,
        hops: tuple[Hop, ...],
        *,
        beat_s: float = BEAT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.name, self.hops = name, hops
        self.beat_s, self.silence_s = beat_s, silence_s
        self._opening = threading.Lock()
        self._chain: Chain | None = None
        self._reached = False

    def run(self, command: str, stdin: bytes, timeout_s: float) -> Result:
        """Run one shell command to its end, at most `timeout_s`; its whole output in memory."""
        out = bytearray()
        job = _Job(command, stdin, out.extend, late_s=timeout_s, idle_s=None)
        exit_code, err = self._do(job)
        return Result(exit_code, bytes(out), err)

    def stream(
        self, command: str, sink: Callable[[bytes], None], stdin: bytes = b"", idle_s: float = 30
    ) -> Result:
        """Run one shell command and pass its output on as it comes; no byte for `idle_s`: HostLost.

        `sink` is called in another thread, but never after this method has returned.
        """
        exit_code, err = self._do(_Job(command, stdin, sink, late_s=None, idle_s=idle_s))
        return Result(exit_code, b"", err)

    @property
    def reached(self) -> bool:
        """Whether the host let us in at least once."""
        return self._reached

    def close(self) -> None:
        chain, self._chain = self._chain, None
        if chain is not None:
            with contextlib.suppress(TimeoutError):
                in_own_thread(lambda: chain.close("closed"), 2.0)

    def _do(self, job: _Job) -> tuple[int, bytes]:
        try:
            return in_own_thread(lambda: job.do(self._connected()))
        finally:
            job.give_up()  # without effect on one that has ended

    def _connected(self) -> Chain:
        with self._opening:
            if self._chain is None or self._chain.dead:
                self._chain = Chain(self.name, self.hops, self.beat_s, self.silence_s)
                self._reached = True
            return self._chain


class _Job:
    """One command on one channel."""

    def __init__(
        self,
        command: str,
        stdin: bytes,
        sink: Callable[[bytes], None],
        *,
        late_s: float | None,
        idle_s: float | None,
    ) -> None:
        self.command, self.stdin, self.sink = command, stdin, sink
        self.late_s, self.idle_s = late_s, idle_s
        self._err = bytearray()
        self._alone = threading.Lock()  # held while the sink is used
        self._given_up = False

    def give_up(self) -> None:
        """The caller no longer waits: the sink is not called again, the channel closes."""
        with self._alone:
            self._given_up = True

    def do(self, chain: Chain) -> tuple[int, bytes]:
        """sshd ends the whole connection for a word about a channel that is closed already, and paramiko
        may send "end of input" after "close" when two threads do so. So a command without input gets
        none to be ended, and the feeder of another is done before the channel is closed.
        """
        try:
            channel = chain.channel()
            feeder = threading.Thread(target=self._feed, args=(channel,), daemon=True)
            try:
                self._start(chain, channel)
                if self.stdin:
                    feeder.start()
                self._read(chain, channel)
            finally:
                if feeder.ident is not None:
                    feeder.join(FEED_S)
                channel.close()
                chain.gave_back()
        except _SinkError as error:
            raise error.cause from None
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise chain.lost_error(error) from error
        if channel.exit_status < 0:
            # What a killed shell and a broken connection look like alike: nobody knows its end.
            raise chain.lost_error("the command's end was not told")
        return channel.exit_status, bytes(self._err)

    def _start(self, chain: Chain, channel: paramiko.Channel) -> None:
        try:
            channel.exec_command(self.command if self.stdin else f"{self.command} </dev/null")
        except paramiko.SSHException as error:
            if chain.dead:
                raise
            raise HostError(
                f"host {chain.name}: the host lets us in but refuses to run a command.\n"
                "Hint: the account needs an ordinary shell; see ForceCommand and restrict on the host."
            ) from error

    def _feed(self, channel: paramiko.Channel) -> None:
        # A command that ends without reading all of its input is no error; a lost connection is
        # noticed by the reader.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            view = memoryview(self.stdin)
            for at in range(0, len(view), CHUNK_BYTES):
                channel.sendall(bytes(view[at : at + CHUNK_BYTES]))
            channel.shutdown_write()

    def _read(self, chain: Chain, channel: paramiko.Channel) -> None:
        ready = select.poll()
        ready.register(channel.fileno(), select.POLLIN)
        started = heard = time.monotonic()
        while True:
            ready.poll(LOOK_S * 1000)
            if self._take(channel):
                heard = time.monotonic()
                continue
            if chain.dead:
                raise chain.lost_error()
            if channel.exit_status_ready() and (channel.eof_received or channel.closed):
                if self._take(channel):  # came between the last look and the end
                    continue
                return
            if self._given_up:
                return
            self._check_time(chain, channel, time.monotonic() - started, time.monotonic() - heard)
            if channel.exit_status_ready() and time.monotonic() - heard > LINGER_S:
                return  # something in the background holds the pipe; the command itself has ended

    def _take(self, channel: paramiko.Channel) -> bool:
        """Whether there was anything to read."""
        some = False
        while channel.recv_stderr_ready():
            self._err += channel.recv_stderr(CHUNK_BYTES)
            some = True
        while channel.recv_ready():
            data = channel.recv(CHUNK_BYTES)
            some = True
            with self._alone:
                if self._given_up:
                    return False
                try:
                    self.sink(data)
                except Exception as error:
                    raise _SinkError(error) from error
        return some

    def _check_time(
        self, chain: Chain, channel: paramiko.Channel, since_start_s: float, silent_s: float
    ) -> None:
        if self.idle_s is not None and silent_s > self.idle_s:
            raise chain.lost_error(f"no byte came for {self.idle_s:.0f} s")
        # Output that is still on its way over a slow line is not late.
        late = self.late_s is not None and since_start_s > self.late_s and silent_s > LINGER_S
        if late and not channel.exit_status_ready():
            raise HostError(
                f"host {chain.name}: a command gave no answer in {self.late_s:.0f} s.\n"
                "Hint: see whether the host hangs (its .bashrc, a full disk, a dead network file system)."
            )


class _SinkError(Exception):
    """What the sink raised is the caller's own error, not the connection's."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
