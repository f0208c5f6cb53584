"""The host agent's folder: who may queue what, what a stop drops, what counts as whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cargo import agent, agent_status, procs, queue_store, secret_files, stopped_sessions, whole
from cargo.intake import check_order, submit_orders
from cargo.queue_store import Store, StoreError


def order(number: int, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "schema": "decodelab.order/1",
        "launch": f"{number:016x}",
        "server": {"digest": f"{number:016x}", "start": 1, "argv": ["python"], "attach": None},
        "limits": dict.fromkeys(("start_s", "silence_s", "probe_s", "stop_grace_s", "life_s"), 1),
        "runs": [{"digest": f"{number + 256:016x}"}],
    }
    made.update(changes)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path))
    store.prepare()
    return store


def submit(store: Store, owner: str, *numbers: int, **more: Any) -> dict[str, Any]:
    batch = {"owner": owner, "orders": [order(n) for n in numbers], **more}
    with store.locked():
        return submit_orders(store, batch)


def queue(store: Store) -> list[int]:
    return [int(item.launch, 16) for item in store.queued()]


def put_run(store: Store, number: int, attempt: str, status: str = "done") -> Path:
    folder = Path(store.launch_dir(f"{number:016x}")) / "runs" / f"{number + 256:016x}" / attempt
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    whole.seal(str(folder), {"start_id": "s", "run": "r"}, status, [])
    return folder


def test_submitting_twice_changes_nothing(store: Store) -> None:
    submit(store, "me", 1, 2)
    before = [item.path for item in store.queued()]
    submit(store, "me", 1, 2)
    assert [item.path for item in store.queued()] == before


def test_my_batch_replaces_mine_and_leaves_others(store: Store) -> None:
    submit(store, "me", 1, 2)
    submit(store, "you", 3)
    answer = submit(store, "me", 2, 4)
    assert answer["dropped"] == [f"{1:016x}"] and queue(store) == [2, 3, 4]
    submit(store, "me", 4, 2)
    assert queue(store) == [3, 4, 2]
    assert submit(store, "me", 3)["already"] == {f"{3:016x}": "queued"}
    assert queue(store) == [3]


def test_without_replace_orders_are_added(store: Store) -> None:
    submit(store, "me", 1)
    submit(store, "me", 2, replace=False)
    assert queue(store) == [1, 2]


def test_an_order_queued_again_takes_its_new_content(store: Store) -> None:
    submit(store, "me", 1)
    changed = order(1, label="new")
    with store.locked():
        submit_orders(store, {"owner": "me", "orders": [changed]})
    head = store.head()
    assert head is not None and head["label"] == "new" and len(store.queued()) == 1


def test_finished_launches_are_not_queued_again(store: Store) -> None:
    os.makedirs(store.launch_dir(f"{1:016x}"))
    store.write_outcome(f"{1:016x}", "done", None, None, [], {}, 0.0, 1.0)
    answer = submit(store, "me", 1, 2)
    assert answer["already"] == {f"{1:016x}": "finished"} and queue(store) == [2]


def test_a_stop_drops_what_was_queued_before_it_only(store: Store) -> None:
    submit(store, "me", 1, 2)
    (Path(store.root) / "stop").write_text("now")  # by hand, with nobody to take it up
    submit(store, "you", 3)
    assert queue(store) == [3]
    store.apply_stop()
    assert queue(store) == [3]
    store.clear_stop()
    assert store.stop_word() is None


@pytest.mark.parametrize(
    ("text", "word"), [("now\n", "now"), ("drain", "drain"), ("", "now"), ("halt!", "now")]
)
def test_stop_words(store: Store, text: str, word: str) -> None:
    (Path(store.root) / "stop").write_text(text)
    assert store.stop_word() == word


def test_now_outranks_drain(store: Store) -> None:
    store.ask_to_stop("drain")
    store.ask_to_stop("now")
    store.ask_to_stop("drain")
    assert store.stop_word() == "now"


def test_a_dropped_order_keeps_what_was_measured_for_it(store: Store) -> None:
    submit(store, "me", 1, 2)
    put_run(store, 1, "s-1")
    store.halt("why", [])
    outcome = store.outcome(f"{1:016x}")
    assert outcome is not None and outcome["status"] == "stopped"
    assert outcome["runs"][f"{257:016x}"]["attempt"] == "s-1"
    assert queue(store) == [] and store.kept() == [f"{1:016x}"]
    halted = store.halted()
    assert halted is not None and halted["reason"] == "why"


def test_half_made_runs_are_not_seen_and_good_attempts_win(store: Store) -> None:
    put_run(store, 1, "s-1", "invalid")
    put_run(store, 1, "s-2")
    half = put_run(store, 1, ".s-3.tmp")
    torn = put_run(store, 1, "s-4")
    (torn / "DONE.json").write_text('{"schema"')
    assert half.exists()
    found = store.finished_runs(f"{1:016x}")
    assert [run["attempt"] for run in found.values()] == ["s-2"]


def test_an_order_file_that_is_torn_is_set_aside(store: Store) -> None:
    submit(store, "me", 1, 2)
    Path(store.queued()[0].path).write_text("{")
    head = store.head()
    assert head is not None and head["launch"] == f"{2:016x}"


def test_the_agent_is_known_by_start_time_and_boot(store: Store) -> None:
    store.write_agent(os.getpid(), current=None)
    assert store.agent_alive() is not None
    record = store.agent()
    assert record is not None
    for change in ({"start_time": record["start_time"] + 1}, {"boot_id": "another"}):
        whole.write_json(store.at("agent.json"), {**record, **change})
        assert store.agent_alive() is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "x"}, "schema"),
        ({"launch": "../../etc"}, "16 hex digits"),
        ({"launch": "0" * 16 + "\n"}, "16 hex digits"),
        ({"server": {"digest": "/"}}, "server.digest"),
        ({"server": {"digest": "0" * 16, "argv": "python -m x"}}, "list of strings"),
        ({"limits": {"start_s": 1}}, "silence_s"),
        ({"limits": {**order(1)["limits"], "stages": {"weights": "1 h"}}}, "limits.stages"),
        ({"device_check": {"mode": "on", "devices": ["0"]}}, "device_check needs mode"),
        ({"runs": {}}, "runs must be a list"),
        ({"runs": [{"digest": ".."}]}, "16 hex digits"),
    ],
)
def test_orders_that_cannot_be_carried_out(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        check_order(order(1, **changes))


def test_a_lock_that_is_held_has_a_deadline(store: Store) -> None:
    with (
        store.locked(),
        pytest.raises(StoreError, match=r"queue\.lock"),
        Store(store.root).locked(0.05),
    ):
        pass


def test_seal_names_every_file_and_writes_done_last(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.part").write_text("half")
    done = whole.seal(str(tmp_path), {"run": "r"}, "done", [])
    assert list(done["files"]) == ["a.txt"]
    assert done["files"]["a.txt"] == whole.sha256_of(str(tmp_path / "a.txt"))
    assert json.loads((tmp_path / "DONE.json").read_text()) == done


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    target.write_text("old")
    with pytest.raises(TypeError):
        whole.write(str(target), "not bytes")  # type: ignore[arg-type]
    assert target.read_text() == "old"
    assert whole.read_json(str(tmp_path / "missing")) is None


def test_a_half_start_is_sealed_as_what_it_was(store: Store) -> None:
    launch = f"{1:016x}"
    for name, t_ready in (("start-a", 5.0), ("start-b", None)):
        folder = Path(store.launch_dir(launch)) / name
        folder.mkdir(parents=True)
        record = {"start_id": name[6:], "server": "s", "start": 1, "t_ready": t_ready}
        (folder / "start.json").write_text(json.dumps(record))
    store.seal_half_starts(launch)
    assert store.starts(launch) == ["a", "b"]
    assert store.start_came_up(launch, "a") and not store.start_came_up(launch, "b")
    done = whole.read_json(os.path.join(store.launch_dir(launch), "start-b", "DONE.json"))
    assert done is not None and done["status"] == "invalid"


def test_a_process_is_never_confused_with_a_later_one() -> None:
    me = procs.identify(os.getpid())
    assert me is not None and procs.alive(me)
    assert not procs.alive(procs.Proc(me.pid, me.start_time + 1))
    assert procs.send(procs.Proc(os.getppid(), 1), 9) is False  # our parent survives this line
    assert queue_store.DIGEST.match("0" * 16) and not queue_store.DIGEST.match("0" * 17)


def test_jobs_of_one_call_do_not_drop_each_others_orders(store: Store) -> None:
    """Whatever resources the user gives Snakemake, two jobs of a host may hand over at once."""

    def batch(session: str, *numbers: int) -> dict[str, Any]:
        orders = [{**order(n), "session": session} for n in numbers]
        return {"owner": "me", "orders": orders, "replace": True}

    submit_orders(store, batch("a", 1, 2, 3))
    assert submit_orders(store, batch("a", 2, 3))["dropped"] == []
    assert submit_orders(store, batch("a", 3))["dropped"] == []
    assert queue(store) == [1, 2, 3]
    assert submit_orders(store, batch("b", 2))["dropped"] == [f"{n:016x}" for n in (1, 3)]


def of_session(session: str, *numbers: int, owner: str = "me") -> dict[str, Any]:
    return {"owner": owner, "orders": [{**order(n), "session": session} for n in numbers]}


REFUSED = {"queued": [], "already": {}, "dropped": [], "refused": "stopped by hand"}


@pytest.mark.parametrize("alive", [True, False])
def test_a_call_that_was_stopped_by_hand_orders_nothing_more(store: Store, alive: bool) -> None:
    """Whether its order runs or waits; a neighbour's call and a later call go on."""
    submit_orders(store, of_session("a", 1, 2))
    submit_orders(store, of_session("n", 3, owner="neighbour"))
    if alive:
        store.write_agent(os.getpid(), current=f"{1:016x}", owner="me")
    agent.stop(store, drain=False, wait_s=0, owner="me")
    assert agent_status.status(store, f"{2:016x}")["stopped_sessions"] == ["a"]
    before = queue(store)
    assert before == ([1, 3] if alive else [3])
    assert submit_orders(store, of_session("a", 2)) == REFUSED and queue(store) == before
    store.remove_agent()
    store.clear_stop()
    assert "refused" not in submit_orders(store, of_session("b", 2)) and 2 in queue(store)


def test_secrets_go_when_a_submit_leaves_their_owner_without_orders(store: Store) -> None:
    """All finished between two looks, or refused: no agent comes along that would remove the file."""
    kept = Path(secret_files.path_of(store.root, "me"))
    secret_files.put(store.root, "me", {"TOKEN": "a-long-value"})
    submit_orders(store, of_session("a", 1))
    assert kept.exists(), "an order needs them"
    Path(store.launch_dir(f"{1:016x}")).mkdir()
    store.write_outcome(f"{1:016x}", "done", None, None, [], {}, 1.0, 2.0)
    store.remove(f"{1:016x}")
    assert not kept.exists()
    secret_files.put(store.root, "me", {"TOKEN": "a-long-value"})
    answer = submit_orders(store, of_session("a", 1))
    assert answer["already"] == {f"{1:016x}": "finished"} and not kept.exists()
    submit_orders(store, of_session("b", 2))
    agent.stop(store, drain=False, wait_s=0, owner="me")
    secret_files.put(store.root, "me", {"TOKEN": "a-long-value"})
    assert submit_orders(store, of_session("b", 2)) == REFUSED and not kept.exists()


def test_a_drain_ends_no_call(store: Store) -> None:
    submit_orders(store, of_session("a", 1))
    agent.stop(store, drain=True, wait_s=0, owner="me")
    assert queue(store) == [] and stopped_sessions.known(store) == []


def test_the_last_twenty_stopped_calls_are_known(store: Store) -> None:
    for number in range(25):
        submit_orders(store, of_session(f"s{number}", number))
        agent.stop(store, drain=False, wait_s=0, owner=None)
    assert stopped_sessions.known(store) == [f"s{number}" for number in range(5, 25)]
    Path(store.at("stopped.json")).write_text('{"sessions": [1, {"session": 2}]}')
    assert stopped_sessions.known(store) == []


def test_records_are_printable_and_the_queue_is_exact(store: Store) -> None:
    odd = order(1, odd="\udcff\ud800", label='"\u20ac\\')
    with store.locked():
        submit_orders(store, {"owner": "m\udcff", "orders": [odd]})
    head = store.head()
    assert head is not None and head["odd"] == "\udcff\ud800" and head["owner"] == "m\\xff"
    shown = json.loads(whole.dump(head).decode())
    assert shown["odd"] == "\\xff\\ud800" and shown["label"] == '"\u20ac\\'
