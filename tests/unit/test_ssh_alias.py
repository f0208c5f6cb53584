"""Aliases against the real `ssh`: what it would do is what the hops say."""

from __future__ import annotations

import pwd
import shutil
import socket
from os import getuid
from pathlib import Path

import pytest

from decodelab.host import HostError
from decodelab.ssh_alias import Hop, resolve

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")
HOME = pwd.getpwuid(getuid()).pw_dir
ME = pwd.getpwuid(getuid()).pw_name


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def ask(tmp_path: Path):
    """ask(text of the configuration, alias) -> hops"""

    def ask_it(text: str, alias: str) -> tuple[Hop, ...]:
        (tmp_path / "config").write_text(text, encoding="utf-8")
        return resolve(alias, str(tmp_path / "config"))

    return ask_it


def names(hops: tuple[Hop, ...]) -> list[str]:
    return [f"{h.user}@{h.host}:{h.port}" for h in hops]


def test_plain_name(ask) -> None:
    (hop,) = ask("", "a.example")
    assert (hop.alias, hop.host, hop.port, hop.user) == ("a.example", "a.example", 22, ME)
    assert (hop.key_name, hop.strict, hop.proxy_command) == ("a.example", "yes", None)
    assert hop.missing_identity_files == () and hop.identity_agent is None
    assert hop.connect_timeout_s == 15
    assert f"{HOME}/.ssh/known_hosts" in hop.known_hosts
    assert "/etc/ssh/ssh_known_hosts" in hop.known_hosts


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("u@h", "u@h:22"),
        ("u@h:2222", "u@h:2222"),
        ("ssh://u@h:2222", "u@h:2222"),
        ("SSH://h:1/", f"{ME}@h:1"),
        ("ssh://u%20v@h", "u v@h:22"),
        ("ssh://u@[::1]:44", "u@::1:44"),
        ("::1", f"{ME}@::1:22"),
        ("dom@in@h", "dom@in@h:22"),
        ("Häuser", f"{ME}@Häuser:22".replace("H", "h")),
        ("a b", None),
        ("", None),
        ("u@", None),
        ("ssh://", None),
        ("a\nb", None),
        ("a\0b", None),
        ("-oProxyCommand=touch x", None),
        ("a;touch x", None),
        ("$(touch x)", None),
        ("h:99999999", None),
    ],
)
def test_ways_to_write_a_name(ask, alias: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(HostError, match=r"(?s)^ssh .*\nHint: "):
            ask("", alias)
    else:
        assert names(ask("", alias)) == [expected]


def test_host_block_and_hosts_of_an_include(ask, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host bi\n  HostName 10.0.0.7\n  Port 2201\n  User lab\n")
    (hop,) = ask(f"Include {tmp_path}/mo*\nHost *\n  User other\n  ConnectTimeout 3\n", "bi")
    assert names((hop,)) == ["lab@10.0.0.7:2201"]
    assert hop.key_name == "[10.0.0.7]:2201" and hop.connect_timeout_s == 3


def test_match(ask) -> None:
    text = 'Match host "*.lan" user ops\n  Port 24\nMatch exec "test %h = x.net"\n  Port 25\n'
    assert names(ask(text, "ops@a.lan")) == ["ops@a.lan:24"]
    assert names(ask(text, "ops@x.net")) == ["ops@x.net:25"]


def test_host_key_alias_has_no_port(ask) -> None:
    (hop,) = ask("Host a\n  HostName h\n  Port 2022\n  HostKeyAlias the-real-name\n", "a")
    assert hop.key_name == "the-real-name"


def test_key_name_uses_the_resolved_name_in_small_letters(ask) -> None:
    (hop,) = ask("Host a\n  HostName FOO.Example\n", "a")
    assert hop.key_name == hop.host == "foo.example"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("yes", "yes"),
        ("ask", "yes"),
        ("accept-new", "accept-new"),
        ("no", "no"),
        ("off", "no"),
    ],
)
def test_strict(ask, written: str, expected: str) -> None:
    (hop,) = ask(f"StrictHostKeyChecking {written}\n", "a")
    assert hop.strict == expected


def test_every_hop_names_its_configuration(ask, tmp_path: Path) -> None:
    hops = ask("Host t\n  ProxyJump one,two\n", "t")
    assert [h.config for h in hops] == [f"{tmp_path}/config"] * 3
    assert resolve("a.example")[0].config is None


# Jump hosts


def test_jump_chain_in_order(ask) -> None:
    hops = ask("Host t\n  ProxyJump u@one:2222,ssh://v@two:33,[::1]:44,three\n", "t")
    assert names(hops) == ["u@one:2222", "v@two:33", f"{ME}@::1:44", f"{ME}@three:22", f"{ME}@t:22"]
    assert [h.alias for h in hops][-1] == "t"
    assert hops[0].key_name == "[one]:2222"


def test_jump_hosts_are_aliases_as_well(ask) -> None:
    text = "Host gw\n  HostName gw.example\n  User door\nHost t\n  ProxyJump gw\n"
    assert names(ask(text, "t")) == ["door@gw.example:22", f"{ME}@t:22"]


def test_only_the_first_jump_host_uses_its_own_jump(ask) -> None:
    text = (
        "Host t\n  ProxyJump one,two\n"
        "Host one\n  ProxyJump zero\n"
        "Host two\n  ProxyJump never\n  User second\n"
    )
    assert names(ask(text, "t")) == [
        f"{ME}@zero:22",
        f"{ME}@one:22",
        "second@two:22",
        f"{ME}@t:22",
    ]


def test_proxy_command_of_the_first_jump_host_counts(ask) -> None:
    text = "Host t\n  ProxyJump one,two\nHost one two\n  ProxyCommand nc %h %p\n"
    assert [h.proxy_command for h in ask(text, "t")] == ["nc one 22", None, None]


def test_jump_none(ask) -> None:
    text = "Host t\n  ProxyJump none\nHost *\n  ProxyJump gw\n"
    assert names(ask(text, "t")) == [f"{ME}@t:22"]


def test_proxy_command_none(ask) -> None:
    (hop,) = ask("Host t\n  ProxyCommand none\nHost *\n  ProxyCommand nc %h %p\n", "t")
    assert hop.proxy_command is None


def test_tokens_in_jump_and_command(ask) -> None:
    text = "Host t\n  HostName t.example\n  User u\n  ProxyJump %r@gw-%h\n"
    assert names(ask(text, "t"))[0] == "u@gw-t.example:22"
    text = (
        "Host t\n  HostName t.example\n  User u\n  Port 9\n  ProxyCommand x %h %n %p %r %%h 'a b'\n"
    )
    assert ask(text, "t")[0].proxy_command == "x t.example t 9 u %h 'a b'"


def test_circle_over_two_hosts(ask) -> None:
    text = "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n"
    with pytest.raises(HostError) as caught:
        ask(text, "a")
    assert str(caught.value) == (
        "ssh a: the jump hosts lead in a circle: a -> b -> a.\n"
        "Hint: set `ProxyJump none` for a in your ssh configuration."
    )


def test_circle_of_one(ask) -> None:
    with pytest.raises(HostError, match="loop via gw"):
        ask("Host *\n  ProxyJump gw\n", "t")


def test_endless_way(ask) -> None:
    text = "".join(f"Host h{i}\n  ProxyJump h{i + 1}\n" for i in range(40))
    with pytest.raises(HostError, match="Hint: "):
        ask(text, "h0")


# Keys, agent, known_hosts


def test_identity_files(ask, tmp_path: Path) -> None:
    for name in ("key", "with space", "of-the-agent.pub", "t-lab-%"):
        (tmp_path / name).write_text("x")
    lines = [
        f"IdentityFile {tmp_path}/key",
        f'IdentityFile "{tmp_path}/with space"',
        "IdentityFile none",
        f"IdentityFile {tmp_path}/of-the-agent",
        f"IdentityFile {tmp_path}/%n-%r-%%",
        f"IdentityFile {tmp_path}/not-there-%h",
        "IdentityFile ~/.ssh/no-such-key-%u",
        f"IdentityFile {tmp_path}/key",
        "IdentityFile ${NO_SUCH_VARIABLE}/x",
    ]
    (hop,) = ask("Host t\n  User lab\n  HostName t.example\n  " + "\n  ".join(lines), "t")
    assert hop.identity_files == (
        f"{tmp_path}/key",
        f"{tmp_path}/with space",
        f"{tmp_path}/of-the-agent",
        f"{tmp_path}/t-lab-%",
    )
    assert hop.missing_identity_files == (
        f"{tmp_path}/not-there-t.example",
        f"{HOME}/.ssh/no-such-key-{ME}",
        "${NO_SUCH_VARIABLE}/x",
    )
    assert not hop.identities_only


def test_identity_file_with_the_tokens_of_this_machine(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY_FOLDER", f"{tmp_path}/keys")
    (hop,) = ask("IdentityFile %d/.x/%u-%L\nIdentityFile ${A_KEY_FOLDER}/%h\n", "t")
    short = socket.gethostname().partition(".")[0]
    assert hop.missing_identity_files == (f"{HOME}/.x/{ME}-{short}", f"{tmp_path}/keys/t")


def test_home_is_the_one_of_the_password_database(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (hop,) = ask("IdentityFile ~/no-such-key\nUserKnownHostsFile ~/kh\n", "t")
    assert hop.missing_identity_files == (f"{HOME}/no-such-key",)
    assert hop.known_hosts[0] == f"{HOME}/kh"


def test_the_default_keys_are_not_missed(ask) -> None:
    assert ask("", "t")[0].missing_identity_files == ()
    assert ask("IdentityFile none\n", "t")[0].identity_files == ()


def test_identities_only_and_certificates(ask, tmp_path: Path) -> None:
    (tmp_path / "c.pub").write_text("x")
    text = f"IdentitiesOnly yes\nCertificateFile {tmp_path}/c.pub\nCertificateFile /no/such\n"
    (hop,) = ask(text, "t")
    assert hop.identities_only
    assert hop.certificate_files == (f"{tmp_path}/c.pub",)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, "/run/from-environment"),
        ("SSH_AUTH_SOCK", "/run/from-environment"),
        ("none", None),
        ("/run/own.sock", "/run/own.sock"),
        ("~/own.sock", f"{HOME}/own.sock"),
        ("/run/%r.sock", "/run/lab.sock"),
        ("$OTHER_SOCKET", "/run/other"),
        ("$NO_SUCH_VARIABLE", None),
    ],
)
def test_agent(
    ask, monkeypatch: pytest.MonkeyPatch, written: str | None, expected: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/from-environment")
    monkeypatch.setenv("OTHER_SOCKET", "/run/other")
    line = "" if written is None else f"  IdentityAgent {written}\n"
    assert ask(f"Host t\n  User lab\n{line}", "t")[0].identity_agent == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("none", []),
        ("/a", ["/a"]),
        ('/a "/b c" ~/d', ["/a", "/b c", f"{HOME}/d"]),
        ("/kh-%h /kh-%k", ["/kh-t", "/kh-al"]),
        ("/dev/null", ["/dev/null"]),
    ],
)
def test_known_hosts_files(ask, written: str, expected: list[str]) -> None:
    text = f"HostKeyAlias al\nGlobalKnownHostsFile none\nUserKnownHostsFile {written}\n"
    assert list(ask(text, "t")[0].known_hosts) == expected


# What goes wrong


def test_no_such_configuration(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        resolve("t", f"{tmp_path}/nowhere")
    assert str(caught.value) == (
        f"ssh t: there is no ssh configuration file {tmp_path}/nowhere.\n"
        "Hint: correct the host's `ssh_config`, or leave it out to use ~/.ssh/config."
    )


def test_bad_configuration_says_where(ask, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        ask("Host t\n  Prot 22\n", "t")
    assert str(caught.value) == (
        f"ssh t: ssh does not accept this: {tmp_path}/config: line 2: Bad configuration option: prot.\n"
        "Hint: correct the alias or your ssh configuration until"
        f" `ssh -G -F {tmp_path}/config t` answers."
    )


def test_fdpass_is_refused(ask) -> None:
    with pytest.raises(HostError, match="ProxyUseFdpass is not supported"):
        ask("Host t\n  ProxyCommand x\n  ProxyUseFdpass yes\n", "t")


def test_no_ssh_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        resolve("t")
    assert str(caught.value) == (
        "ssh t: there is no program `ssh` on this machine.\n"
        "Hint: install the OpenSSH client (Debian: openssh-client); it reads your ssh configuration."
    )


def test_ssh_that_never_answers(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodelab.ssh_alias.ANSWER_LIMIT_S", 0.3)
    with pytest.raises(HostError, match="Match exec"):
        ask('Match exec "exec sleep 5"\n  Port 1\n', "t")
