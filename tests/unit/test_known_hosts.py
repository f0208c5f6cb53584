"""known_hosts against what `ssh-keygen` writes and finds, and against lines of all kinds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodelab import ssh_keyfile
from decodelab.known_hosts import VERIFIABLE, HostKeys, Verdict, fingerprint

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def keygen(*words: str | Path) -> str:
    return subprocess.run(
        ["ssh-keygen", *map(str, words)], check=True, capture_output=True, text=True, timeout=60
    ).stdout


class Key:
    """A host key made by ssh-keygen: as a line and as what paramiko hands to a check."""

    def __init__(self, folder: Path, name: str, kind: str) -> None:
        self.path = folder / name
        bits = ("-b", "2048") if kind == "rsa" else ()  # the default takes seconds
        keygen("-q", "-t", kind, *bits, "-N", "", "-C", "", "-f", self.path)
        self.line = (folder / f"{name}.pub").read_text().strip()
        self.key = ssh_keyfile.load(str(self.path))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Key]:
    folder = tmp_path_factory.mktemp("keys")
    kinds = [("ed", "ed25519"), ("ed2", "ed25519"), ("rsa", "rsa"), ("ec", "ecdsa")]
    return {name: Key(folder, name, kind) for name, kind in kinds}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., HostKeys]:
    def load_it(*lines: str) -> HostKeys:
        (tmp_path / "kh").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return HostKeys.load([str(tmp_path / "kh")])

    return load_it


def test_fingerprint_is_that_of_ssh_keygen(made: dict[str, Key]) -> None:
    for key in made.values():
        assert fingerprint(key.key) == keygen("-l", "-f", key.path).split()[1]


@pytest.mark.parametrize("name", ["ed", "rsa", "ec"])
def test_known_of_every_type(made, load, name: str) -> None:
    keys = load(f"h {made[name].line}")
    assert keys.check("h", made[name].key) == Verdict("known")
    assert keys.check("other", made[name].key) == Verdict("unknown")
    assert keys.bad_lines == []


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        ("a,b,c", "b", True),
        ("[a]:2222", "[a]:2222", True),
        ("[a]:2222", "a", False),
        ("[a]:2222", "[a]:2223", False),
        ("[127.0.0.*]:22??", "[127.0.0.9]:2201", True),
        ("*.lan,!bad.lan", "good.lan", True),
        ("*.lan,!bad.lan", "bad.lan", False),
        ("!bad.lan,*.lan", "bad.lan", False),
        ("!bad.lan", "other.lan", False),
        ("h?st", "host", True),
        ("h?st", "hst", False),
        ("*", "anything", True),
        ("a*b*c", "aXbXbc", True),
        ("a*b*c", "acb", False),
        ("a*a", "a", False),
        ("HOST", "host", True),
        ("::1", "::1", True),
        ("fe80::*", "fe80::1", True),
        ("a.b", "aXb", False),
        ("", "h", False),
    ],
)
def test_names(made, load, names: str, name: str, expected: bool) -> None:
    keys = load(f"{names or ','} {made['ed'].line}")
    assert (keys.check(name, made["ed"].key).state == "known") is expected
    assert (keys.types_for(name) == ["ssh-ed25519"]) is expected


pattern = st.text("ab.*?!", min_size=1, max_size=6).filter(lambda s: s.strip("!"))


@given(
    names=st.lists(pattern, min_size=1, max_size=3),
    name=st.text("ab.", min_size=1, max_size=6),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_names_as_ssh_keygen_finds_them(made, tmp_path: Path, names: list[str], name: str) -> None:
    file = tmp_path / "kh"
    file.write_text(f"{','.join(names)} {made['ed'].line}\n")
    found = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", file], capture_output=True, timeout=60, check=False
    )
    assert (HostKeys.load([str(file)]).types_for(name) != []) is (found.returncode == 0)


def test_hashed_by_ssh_keygen(made, tmp_path: Path) -> None:
    file = tmp_path / "kh"
    file.write_text(f"one,[two]:2222 {made['ed'].line}\nthree {made['rsa'].line}\n")
    keygen("-H", "-f", file)
    assert "one" not in file.read_text()
    keys = HostKeys.load([str(file)])
    assert keys.bad_lines == []
    for name in ("one", "[two]:2222"):
        assert keys.check(name, made["ed"].key) == Verdict("known")
        assert keys.check(name, made["ed2"].key).state == "changed"
    assert keys.types_for("three") == ["ssh-rsa"]
    assert keys.types_for("two") == keys.types_for("four") == []


def test_one_of_two_keys_of_a_type_is_enough(made, load) -> None:
    keys = load(f"h {made['ed'].line}", f"h {made['ed2'].line}")
    assert keys.check("h", made["ed2"].key) == Verdict("known")


def test_a_wrong_line_of_another_type_does_not_decide(made, load) -> None:
    keys = load(f"h {made['rsa'].line}", f"h {made['ed'].line}")
    assert keys.check("h", made["ed"].key) == Verdict("known")
    assert keys.types_for("h") == ["ssh-rsa", "ssh-ed25519"]


def test_changed_names_the_line_of_the_same_type(made, load, tmp_path: Path) -> None:
    keys = load("# a comment", "", f"h {made['rsa'].line}", f"h {made['ed'].line}")
    assert keys.check("h", made["ed2"].key) == Verdict("changed", f"{tmp_path}/kh", 4)


def test_another_type_counts_as_changed(made, load, tmp_path: Path) -> None:
    keys = load(f"h {made['rsa'].line}")
    assert keys.check("h", made["ed"].key) == Verdict("changed", f"{tmp_path}/kh", 1)


def test_revoked_wins(made, load, tmp_path: Path) -> None:
    keys = load(f"h {made['ed'].line}", f"@revoked\t* {made['ed'].line}", f"h {made['ed2'].line}")
    assert keys.check("h", made["ed"].key) == Verdict("revoked", f"{tmp_path}/kh", 2)
    assert keys.check("h", made["ed2"].key) == Verdict("known")
    assert keys.check("[h]:2222", made["ed"].key).state == "revoked"


def test_a_line_without_the_port_is_good_for_its_own_key_only(made, load) -> None:
    keys = load(f"h {made['ed'].line}")
    assert keys.check("[h]:2222", made["ed"].key) == Verdict("known")
    assert keys.check("[h]:2222", made["ed2"].key) == Verdict("unknown")
    assert keys.types_for("[h]:2222") == []


def test_certificate_authority_is_skipped_and_mentioned(made, load, tmp_path: Path) -> None:
    keys = load(f"@cert-authority *.lan {made['ed'].line}")
    assert keys.check("a.lan", made["ed"].key) == Verdict("unknown")
    assert keys.types_for("a.lan") == []
    assert keys.notes("a.lan") == [
        f"{tmp_path}/kh line 1 trusts host certificates, which are not supported here"
    ]
    assert keys.notes("elsewhere") == []


def test_bad_lines_cost_only_themselves(made, load, tmp_path: Path) -> None:
    ed = made["ed"].line
    kind, encoded = ed.split()
    keys = load(
        "only-a-name",
        f"h {kind} %%%%",
        f"@wrong h {ed}",
        f"h {kind} {encoded[:-12]}",
        f"h ssh-rsa {encoded}",
        "h 1024 35 123456789",
        f"|1|salt {ed}",
        f"h {kind} ключ",
        f"  \th \t {ed} a comment  \r",
    )
    assert [(number, problem) for _, number, problem in keys.bad_lines] == [
        (1, "not three fields (names, key type, key)"),
        (2, "the key is not base64"),
        (3, "unknown marker '@wrong'; allowed are @revoked, @cert-authority"),
        (4, "the key is cut short, or is no 'ssh-ed25519' key"),
        (5, "the key is cut short, or is no 'ssh-rsa' key"),
        (6, "a key of SSH version 1"),
        (7, "a hashed name that is not |1|salt|hash"),
        (8, "the key is not base64"),
    ]
    assert keys.check("h", made["ed"].key) == Verdict("known")
    assert (
        keys.notes("h")[0]
        == f"{tmp_path}/kh line 1 does not count: not three fields (names, key type, key)"
    )


def test_files_that_cannot_be_read(tmp_path: Path, made) -> None:
    (tmp_path / "good").write_text(f"h {made['ed'].line}")
    (tmp_path / "folder").mkdir()
    files = ["/no/such/file", "/dev/null", f"{tmp_path}/folder", "a\0b", f"{tmp_path}/good"]
    keys = HostKeys.load(files)
    assert keys.check("h", made["ed"].key) == Verdict("known")
    assert [(f, n) for f, n, _ in keys.bad_lines] == [(f"{tmp_path}/folder", 0), ("a\0b", 0)]
    assert keys.notes("h")[0] == f"{tmp_path}/folder does not count: not a regular file"


def test_several_files_in_their_order(tmp_path: Path, made) -> None:
    (tmp_path / "a").write_text(f"h {made['ed'].line}\n")
    (tmp_path / "b").write_text(f"\nh {made['ed2'].line}\n")
    keys = HostKeys.load([f"{tmp_path}/a", f"{tmp_path}/b"])
    assert keys.check("h", made["ed2"].key) == Verdict("known")
    assert keys.check("h", made["rsa"].key) == Verdict("changed", f"{tmp_path}/a", 1)


def test_the_server_is_asked_for_the_known_types_only(made, load) -> None:
    assert load("").unwanted_for("h") == []
    assert set(VERIFIABLE) - set(load(f"h {made['rsa'].line}").unwanted_for("h")) == {
        "rsa-sha2-512",
        "rsa-sha2-256",
    }
    both = load(f"h {made['ed'].line}", f"h {made['ec'].line}")
    assert set(VERIFIABLE) - set(both.unwanted_for("h")) == {"ssh-ed25519", "ecdsa-sha2-nistp256"}
    assert {"ssh-ed25519", "rsa-sha2-512", "ecdsa-sha2-nistp256"} <= set(VERIFIABLE)


def test_types_that_cannot_be_verified_here_switch_nothing_off(load) -> None:
    sk = (
        "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIDGhmEYACyUEBhLbtOEYFK7Hgo2Ai9Eof"
        "w7Vv10fVT+XAAAABHNzaDo="
    )
    keys = load(f"h sk-ssh-ed25519@openssh.com {sk}")
    assert keys.bad_lines == []
    assert keys.types_for("h") == ["sk-ssh-ed25519@openssh.com"]
    assert keys.unwanted_for("h") == []


words = st.sampled_from(
    [
        *(
            "@revoked",
            "@cert-authority",
            "h",
            "|1|",
            "|1|c2FsdA==|aGFzaA==",
            "*",
            "!",
            "[",
            "[h]:1",
        ),
        *("ssh-ed25519", "ssh-rsa", "AAAA", "AAAAC3NzaC1lZDI1NTE5AAAAIA==", "#", "@", ","),
    ]
)


@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.lists(st.one_of(words, st.text(max_size=8)), max_size=12).map(
            lambda w: " ".join(w).encode("utf-8", "surrogatepass")
        ),
    ),
    name=st.one_of(st.text(max_size=12), st.just("[h]:1")),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_raises(made, tmp_path: Path, content: bytes, name: str) -> None:
    good = f"h {made['ed'].line}".encode()
    (tmp_path / "kh").write_bytes(content + b"\n" + good)
    keys = HostKeys.load([str(tmp_path / "kh")])
    keys.check(name, made["ed"].key)
    keys.notes(name)
    keys.unwanted_for(name)
    assert keys.check("h", made["ed"].key).state in ("known", "revoked")


def test_a_pattern_with_many_stars_is_found_at_once(made, load) -> None:
    keys = load(f"{'*a' * 500}b {made['ed'].line}")
    assert keys.types_for("a" * 2000) == []
