"""Secret values in text, records and files: all spellings, cut pieces, numbers untouched."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from cargo import mask as mask_module
from cargo import reasons, secret_files, start_cause
from cargo.event_log import EventLog
from cargo.mask import Mask, url_passwords
from cargo.room import RESERVE_BYTES, Reserve

VALUE = 'p"q\\r ü$(x)%'


def test_every_spelling_is_found() -> None:
    mask = Mask([VALUE])
    for text in (VALUE, json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False), repr(VALUE)):
        assert "q" not in mask.text(f"a {text} b") and "***" in mask.text(text)
    assert mask.text("Bearer%20" + "p%22q%5Cr%20%C3%BC%24%28x%29%25") == "Bearer%20***"
    assert mask.text("nothing here") == "nothing here"


def test_of_two_values_the_longer_goes_first() -> None:
    assert Mask(["abcdefgh", "abcdefgh-ijkl"]).text("x abcdefgh-ijkl y") == "x *** y"


def test_lines_of_a_value_are_found_too() -> None:
    mask = Mask(["-----BEGIN\nline number two\n\n-----END-----"])
    assert mask.text("it says: line number two.") == "it says: ***."


def test_pieces_at_the_edges_of_a_cut_message() -> None:
    mask = Mask(["0123456789abcdef"])
    assert mask.text("key 0123456789ab") == "key ***"
    assert mask.text("89abcdef was the key") == "*** was the key"
    assert mask.text("key 0123456") == "key 0123456"  # too short to tell


def test_nothing_to_hide() -> None:
    mask = Mask(["", "short", "       "])
    assert not mask and mask.text("short") == "short" and mask.deep({"a": 1}) == {"a": 1}


def test_records_keep_their_numbers() -> None:
    mask = Mask(["12345678"])
    record = {"n": 12345678, "t": 0.12345678, "text": ["it is 12345678"], "12345678": None}
    assert mask.deep(record) == {
        "n": 12345678,
        "t": 0.12345678,
        "text": ["it is ***"],
        "***": None,
    }


def test_files_are_masked(tmp_path: Path) -> None:
    numbers = [0.1, 1e-9, 123456789012345678, 1.7976931348623157e308]
    (tmp_path / "run.json").write_text(json.dumps({"e": VALUE, "x": numbers}))
    (tmp_path / "a.jsonl").write_text(f"{json.dumps({'e': VALUE})}\n{json.dumps({'f': 1.5})}\n")
    (tmp_path / "torn.json").write_text('{"e": "' + VALUE)
    (tmp_path / "server.log").write_text(f"one\n{VALUE}\nthree\n")
    (tmp_path / "clean.json").write_text('{ "spaces":   1 }')
    (tmp_path / "link").symlink_to("server.log")
    size = (tmp_path / "server.log").stat().st_size
    Mask([VALUE]).folder(str(tmp_path))
    assert json.loads((tmp_path / "run.json").read_text()) == {"e": "***", "x": numbers}
    assert [json.loads(x) for x in (tmp_path / "a.jsonl").read_text().splitlines()] == [
        {"e": "***"},
        {"f": 1.5},
    ]
    assert (tmp_path / "torn.json").read_text().endswith("***")
    log = (tmp_path / "server.log").read_text()
    assert log.startswith("one\n***") and log.endswith("***\nthree\n")
    assert (tmp_path / "server.log").stat().st_size == size  # in place
    assert (tmp_path / "clean.json").read_text() == '{ "spaces":   1 }'


def test_a_value_across_the_blocks_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_module, "BLOCK_BYTES", 16)
    value, log = "secretvalue", tmp_path / "log"
    for shift in range(40):
        log.write_bytes(b"." * shift + value.encode() * 2 + b"." * 7)
        Mask([value]).file(str(log))
        assert log.read_bytes() == b"." * shift + b"*" * 22 + b"." * 7


def test_events_are_masked_and_torn_lines_go(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "a"}\n{"event": "half')
    log = EventLog(str(path), Mask([VALUE]))
    log.emit("b", words=[VALUE], odd="\udcff")
    log.close()
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {"event": "a"} and second["words"] == ["***"] and second["odd"] == "\\xff"
    path.write_bytes(b"only half")
    EventLog(str(path)).close()
    assert path.read_bytes() == b""


def test_the_reserve_is_given_up_for_the_last_words(tmp_path: Path) -> None:
    reserve = Reserve(str(tmp_path / "reserve"))
    reserve.hold()
    assert os.path.getsize(reserve.path) == RESERVE_BYTES
    tries = []

    def full_once() -> None:
        tries.append(os.path.exists(reserve.path))
        if len(tries) == 1:
            raise OSError(28, "No space left on device")

    reserve.write(full_once)
    assert tries == [True, False]
    with pytest.raises(PermissionError):
        reserve.write(lambda: (_ for _ in ()).throw(PermissionError(13, "no")))


@pytest.mark.parametrize(
    "value", ["pä+/ss w'ord~?>\u20ac1", "-----BEGIN\nlïne number two+\n-----END"]
)
def test_how_programs_spell_a_value(value: str) -> None:
    """Whole or line by line; in base64 also with a newline behind it."""
    mask = Mask([value])
    for part in {value, value.splitlines()[min(1, value.count("\n"))]}:
        data = part.encode()
        spelled = [ascii(part)[1:-1], repr(data)[2:-1], quote_plus(part), quote(part)]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            spelled += [encode(data).decode(), encode(data).decode().rstrip("=")]
        for form in spelled:
            assert mask.text(f"<{form}>").rstrip("=>") == "<***", form
        with_newline = base64.b64encode(data + b"\n").decode()
        assert mask.text(with_newline).startswith("***") and len(mask.text(with_newline)) <= 7


def test_the_password_of_a_url() -> None:
    text = "env: 'http://me:p@s'w@proxy:80/x': No such file; http://a:80,x://:pw@b ssh://git@c"
    masked = "env: 'http://me:***@proxy:80/x': No such file; http://a:80,x://:***@b ssh://git@c"
    assert url_passwords(text) == masked
    assert start_cause.explain("env: 'http://me:p@s@proxy': No such file or directory")[
        "root_cause"
    ] == ("env: 'http://me:***@proxy': No such file or directory")
    assert reasons.cause("launch_script", text)["root_cause"] == masked


def test_a_secret_that_is_no_text_is_refused_without_it() -> None:
    words = secret_files.trouble({"A": "secretive\udcff"})
    assert words is not None and "A is not UTF-8" in words and "secretive" not in words
