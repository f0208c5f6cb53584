"""The connection itself: what goes through it unharmed, and how its loss is noticed and told."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from decodelab.host import HostError, HostLost
from decodelab.host_ssh import SshHost
from tests.ssh.sshd import Sshd, dead_port, make_key, public

Make = Callable[..., Sshd]
MakeHost = Callable[..., SshHost]


def test_exit_codes_and_the_two_outputs(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    for code in (0, 1, 66, 124, 126, 127, 137, 255):
        done = host.run(["sh", "-c", f"echo out; echo err >&2; exit {code}"])
        assert (done.exit_code, done.out, done.err) == (code, b"out\n", b"err\n")
    assert sshd.logins() == 1


def test_64_megabytes_come_whole(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    out = host.run(["head", "-c", str(64 << 20), "/dev/zero"]).out
    assert len(out) == 64 << 20 and not out.strip(b"\0")


def test_both_outputs_large_at_once(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    done = host.run(["sh", "-c", "head -c 9000000 /dev/zero >&2; head -c 9000000 /dev/zero"])
    assert (len(done.out), len(done.err)) == (9_000_000, 9_000_000)


def test_two_million_chinese_characters(sshd: Sshd, make_host: MakeHost) -> None:
    text = "解碼吞吐量" * 400_000
    assert make_host(sshd).run(["cat"], text.encode()).out.decode() == text


def test_every_byte_value_both_ways(sshd: Sshd, make_host: MakeHost) -> None:
    data = bytes(range(256)) * (8 << 12)  # 8 MB
    assert make_host(sshd).run(["cat"], data).out == data


def test_input_that_nobody_reads(sshd: Sshd, make_host: MakeHost) -> None:
    assert make_host(sshd).run(["true"], b"x" * (8 << 20)).exit_code == 0


def test_a_background_process_that_holds_the_output(
    sshd: Sshd, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodelab.ssh_link.LINGER_S", 0.5)
    done = make_host(sshd).run(["sh", "-c", "sleep 4 & echo started"])
    assert (done.exit_code, done.out) == (0, b"started\n")


def test_one_session_at_a_time_is_enough(make_sshd: Make, make_host: MakeHost) -> None:
    sshd = make_sshd("MaxSessions 1")
    host = make_host(sshd)
    codes: list[int] = []

    def run() -> None:
        codes.extend(host.run(["sh", "-c", "sleep 0.1"]).exit_code for _ in range(2))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert codes == [0] * 6 and sshd.logins() == 1


def test_no_session_at_all_is_told(
    make_sshd: Make, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodelab.ssh_chain.CHANNEL_S", 0.5)
    with pytest.raises(HostError, match=r"refuses a session.*\n.*MaxSessions"):
        make_host(make_sshd("MaxSessions 0")).run(["true"])


def test_two_threads_share_a_connection(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    seen: dict[str, set[bytes]] = {"a": set(), "b": set()}

    def run(word: str) -> None:
        seen[word] = {host.run(["echo", word]).out for _ in range(20)}

    threads = [threading.Thread(target=run, args=(word,)) for word in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {"a": {b"a\n"}, "b": {b"b\n"}} and sshd.logins() == 1


# -- losses ------------------------------------------------------------------------------------


def later(delay_s: float, act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(delay_s, act)
    timer.daemon = True
    timer.start()
    return timer


def test_a_killed_session_is_a_loss_and_the_next_call_connects_anew(
    sshd: Sshd, make_host: MakeHost
) -> None:
    host = make_host(sshd)
    host.run(["true"])
    later(0.3, sshd.kill_sessions)
    with pytest.raises(HostLost, match=r"connection was lost.*\nHint: "):
        host.run(["sleep", "3"])
    assert host.run(["echo", "again"]).out == b"again\n"
    assert sshd.logins() == 2


def test_a_session_killed_between_two_calls(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    host.run(["true"])
    sshd.kill_sessions()
    time.sleep(0.3)
    assert host.run(["echo", "again"]).out == b"again\n"


def test_a_stopped_sshd_is_noticed_by_its_silence(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd, beat_s=0.2, silence_s=1.5)
    host.run(["true"])
    later(0.2, sshd.pause)
    with pytest.raises(HostLost, match="said nothing for"):
        host.run(["sleep", "30"])
    with pytest.raises(HostLost, match="said nothing for"):
        # Nothing takes the input: the thread that writes hangs, as does the one that asks.
        host.run(["true"])  # a new session process, which runs
        later(0.2, sshd.pause)
        host.run(["sh", "-c", "sleep 1; cat >/dev/null"], b"x" * (32 << 20))
    sshd.resume()
    assert host.run(["echo", "again"]).out == b"again\n"


def test_silence_of_the_command_is_no_loss(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd, beat_s=0.2, silence_s=1.0)
    assert host.run(["sh", "-c", "sleep 2.5; echo done"]).out == b"done\n"


def test_a_stopped_listener(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd, ConnectTimeout=1)
    sshd.pause(listener=True)
    started = time.monotonic()
    with pytest.raises(HostLost, match="Hint: "):
        host.run(["true"])
    assert time.monotonic() - started < 30
    sshd.resume()
    assert host.run(["true"]).exit_code == 0


def test_nobody_listens(sshd: Sshd, make_host: MakeHost) -> None:
    with dead_port() as port, pytest.raises(HostLost, match=f"{port}.*"):
        make_host(sshd, Port=port).run(["true"])


def test_ctrl_c_leaves_the_link_usable(sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(3):
            later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                host.run(["sleep", "20"], b"x" * (1 << 20))
            assert host.run(["echo", "again"]).out == b"again\n"
        host.close()
        sshd.pause(listener=True)
        later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # while it connects
            host.run(["true"])
        sshd.resume()
        assert host.run(["echo", "again"]).out == b"again\n"
    finally:
        signal.signal(signal.SIGINT, before)
    assert sshd.logins() == 2


# -- who answers, and who asks -----------------------------------------------------------------


def jump(gate: Sshd, target: Sshd, folder: Path, **gate_options: object) -> Path:
    config = gate.ssh_config("gate", folder / "jump_config", **gate_options)
    return target.ssh_config("lab", config, ProxyJump="gate")


def test_two_hops(make_sshd: Make, make_host: MakeHost, tmp_path: Path) -> None:
    gate, target = make_sshd(name="gate"), make_sshd(name="target")
    host = make_host(target, config=jump(gate, target, tmp_path), beat_s=0.2, silence_s=1.5)
    assert len(host.run(["head", "-c", str(4 << 20), "/dev/zero"]).out) == 4 << 20
    assert (gate.logins(), target.logins()) == (1, 1)
    # Behind the jump host the socket is one of its channels: only the watch can see a silence.
    later(0.2, target.pause)
    with pytest.raises(HostLost, match="said nothing for"):
        host.run(["sleep", "30"])
    target.resume()
    later(0.3, gate.kill_sessions)
    with pytest.raises(HostLost):
        host.run(["sleep", "3"])
    assert host.run(["true"]).exit_code == 0


@pytest.mark.parametrize("known", ["another key", "none"])
def test_a_jump_host_with_a_wrong_key_is_refused(
    known: str, make_sshd: Make, make_host: MakeHost, tmp_path: Path
) -> None:
    gate, target = make_sshd(name="gate"), make_sshd(name="target")
    if known == "none":
        gate.known_hosts.write_text("")
    else:
        make_key(tmp_path / "other")
        gate.known_hosts.write_text(f"[127.0.0.1]:{gate.port} {public(tmp_path / 'other')}\n")
    with pytest.raises(HostError, match="gate") as caught:
        make_host(target, config=jump(gate, target, tmp_path)).run(["true"])
    assert not isinstance(caught.value, HostLost)
    assert (gate.logins(), target.logins()) == (0, 0)


def test_an_unknown_target_behind_a_known_jump_host(
    make_sshd: Make, make_host: MakeHost, tmp_path: Path
) -> None:
    gate, target = make_sshd(name="gate"), make_sshd(name="target")
    target.known_hosts.write_text("")
    with pytest.raises(HostError, match="SHA256:"):
        make_host(target, config=jump(gate, target, tmp_path)).run(["true"])
    assert target.logins() == 0


def test_an_unknown_key_is_refused_with_what_to_do(sshd: Sshd, make_host: MakeHost) -> None:
    sshd.known_hosts.write_text("")
    with pytest.raises(HostError, match=r"SHA256:[^ ]+(.|\n)*ssh-keyscan") as caught:
        make_host(sshd).run(["true"])
    assert not isinstance(caught.value, HostLost) and sshd.logins() == 0
    assert sshd.known_hosts.read_text() == ""


def test_an_unknown_key_passes_if_the_user_says_so(
    sshd: Sshd, make_host: MakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    sshd.known_hosts.write_text("")
    assert make_host(sshd, StrictHostKeyChecking="no").run(["true"]).exit_code == 0
    assert "unknown host key SHA256:" in capsys.readouterr().err
    assert sshd.known_hosts.read_text() == ""


@pytest.mark.parametrize("strict", ["yes", "accept-new", "no"])
def test_a_changed_key_never_passes(strict: str, sshd: Sshd, make_host: MakeHost) -> None:
    host = make_host(sshd, StrictHostKeyChecking=strict)
    host.run(["true"])
    sshd.stop()
    sshd.change_host_keys()
    sshd.start()
    with pytest.raises(HostError, match=r"known_hosts.*1"):
        for _ in range(2):  # the loss may be noticed first
            try:
                host.run(["true"])
            except HostLost:
                continue
    assert sshd.logins() == 0


def test_the_key_type_that_is_known_is_asked_for(make_sshd: Make, make_host: MakeHost) -> None:
    sshd = make_sshd(host_keys=("ed25519", "ecdsa", "rsa"))
    lines = sshd.known_hosts.read_text().splitlines(keepends=True)
    for line in lines:
        sshd.known_hosts.write_text(line)
        assert make_host(sshd).run(["true"]).exit_code == 0


def test_a_key_that_the_host_does_not_know(sshd: Sshd, make_host: MakeHost, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    with pytest.raises(HostError, match="stranger") as caught:
        make_host(sshd, IdentityFile=key).run(["true"])
    assert not isinstance(caught.value, HostLost)


@pytest.mark.parametrize("agent", ["dead", "silent"])
def test_a_stale_agent_does_not_hold_us_up(
    agent: str, sshd: Sshd, make_host: MakeHost, tmp_path: Path
) -> None:
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        if agent == "silent":
            listener.listen()
        host = make_host(sshd, IdentityAgent=path, IdentitiesOnly="no")
        assert host.run(["echo", "in"]).out == b"in\n"


def test_a_gateway_that_forbids_forwarding(
    make_sshd: Make, make_host: MakeHost, tmp_path: Path
) -> None:
    gate, target = make_sshd("AllowTcpForwarding no", name="gate"), make_sshd(name="target")
    with pytest.raises(HostError, match="gate") as caught:
        make_host(target, config=jump(gate, target, tmp_path)).run(["true"])
    assert not isinstance(caught.value, HostLost)


def test_a_proxy_command(sshd: Sshd, make_host: MakeHost) -> None:
    config = sshd.folder / "proxy_config"
    sshd.ssh_config("gate", config)
    sshd.ssh_config("lab", config, ProxyCommand=f"ssh -F {config} -W %h:%p gate")
    host = make_host(sshd, config=config)
    assert host.run(["echo", "through"]).out == b"through\n"
    assert sshd.logins() == 2
    with pytest.raises(HostLost):
        make_host(sshd, ProxyCommand="exec false").run(["true"])
