"""Damaged rows and pages: the server opens its store with everything else and names what it lost, or says what to
run."""

import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.errors import UnfitError
from interfere.records import DeviceSlots, EndPromise, Grant, ScopeLedger
from interfere.store.rows import StateCheckpoint
from interfere.store.sqlite.maintenance import check, repair
from interfere.store.store import SqliteStore
from interfere.testing.stores import AUDIT, DECISION, MEMORY, OUTCOME, PROFILE, append, promise, window

SLOTS = DeviceSlots(device_id="d", device_type="t", granules=40, granule_bytes=2e9, oversubscription_ratio=1.25)
LEDGER = ScopeLedger(
    scope="s",
    now_s=5.0,
    promises=(promise("a"), promise("b")),
    grants=(Grant(job_id="a", workload="w", device_ids=("d",), bytes=4e9, since_s=5.0),),
    slots=(SLOTS, replace(SLOTS, device_id="e")),
    end_promises=(EndPromise(job_id="y", latest_end_s=7.5),),
    planned_order=("b", "z"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with rows of every kind."""
    store = SqliteStore(tmp_path / "store.db")
    append(store, *(window(str(k)) for k in range(20)), MEMORY, OUTCOME)
    store.profiles.put([PROFILE])
    assert store.ledgers.commit(LEDGER, DECISION)
    store.audits.put(AUDIT)
    store.checkpoints.put(StateCheckpoint(sequence=22, key="k", content=b"state"))
    store.close()
    return tmp_path / "store.db"


def edit(path: Path, statement: str) -> None:
    """Change a store behind its back."""
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def stored(path: Path) -> dict[str, list[str]]:
    """What a server reads of a store."""
    store = SqliteStore(path)
    try:
        ledger = store.ledgers.read("s")
        return {
            "observation": [entry.observation.observation_id for entry in store.observations.entries()],
            "memory": [usage.observation_id for usage in store.observations.memory_usages("j", after_s=0.0)],
            "profile": [profile.workload for profile in store.profiles.all()],
            "decision": [DECISION.snapshot_id] if store.decisions.find("s", DECISION.snapshot_id) else [],
            "account": [AUDIT.decision_id] if store.audits.find(AUDIT.decision_id) else [],
            "promise": [one.action.job_id for one in ledger.promises],
            "granted": [one.job_id for one in ledger.grants] + [one.device_id for one in ledger.slots],
            "planned": [one.job_id for one in ledger.end_promises] + list(ledger.planned_order),
            "snapshot": [one.key for one in store.checkpoints.find("k")],
        }
    finally:
        store.close()


BROKEN_TEXT = "CAST(x'7b80ff7d' AS TEXT)"  # no UTF-8
DAMAGE = {
    "a window": ("observation", "UPDATE observation SET content = '{' WHERE id = '7'", "7"),
    "a window that is no text": ("observation", f"UPDATE observation SET content = {BROKEN_TEXT} WHERE id = '7'", "7"),
    "the id of a window": ("observation", "UPDATE observation SET id = 'other' WHERE id = '7'", "7"),
    "the kind of a window": ("observation", "UPDATE observation SET kind = 'qrogress' WHERE id = '7'", "7"),
    "an answer": ("observation", "UPDATE observation SET result = 'appliee' WHERE id = '7'", "7"),
    "a memory usage": ("observation", "UPDATE observation SET content = '{}' WHERE id = 'm'", "m"),
    "an outcome": ("observation", f"UPDATE observation SET content = {BROKEN_TEXT} WHERE id = 'o'", "o"),
    "a decision": ("decision", "UPDATE decision SET content = 7", "1"),
    "an audit": ("account", "UPDATE account SET request = x'00'", "d1"),
    "a promise": ("promise", "UPDATE promise SET content = '{}' WHERE place = 0", "a"),
    "a grant": ("granted", "UPDATE granted SET content = '[]' WHERE kind = 'grant'", "a"),
    "the kind of a slot": ("granted", "UPDATE granted SET kind = 'slotz' WHERE place = 1", "e"),
    "a planned end": ("planned", "UPDATE planned SET content = 'x' WHERE kind = 'end'", "y"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "statement", "lost"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_row_is_named_and_everything_else_is_served(
    path: Path, caplog: pytest.LogCaptureFixture, table: str, statement: str, lost: str
) -> None:
    before = stored(path)
    edit(path, statement)
    assert any(problem.startswith(f"{table} ") for problem in check(path).problems)
    with caplog.at_level(logging.ERROR):
        now = stored(path)
    assert f"{table} " in caplog.text
    assert "cannot be read" in caplog.text
    assert "restore" in caplog.text
    memory = [name for name in before["memory"] if name != lost]
    assert now == before | {table: [name for name in before[table] if name != lost], "memory": memory}
    report = check(path)
    assert report.problems == ()
    assert report.rows["quarantine"] in (1, 2)  # where its key was damaged, it is missing under the right one
    assert report.set_aside[0].startswith(f"{table} ")
    caplog.clear()
    assert stored(path) == now  # told once
    assert caplog.text == ""


def test_an_observation_that_was_set_aside_is_stored_when_it_is_sent_again(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"bytes"', b'["bytes"'))
    store = SqliteStore(path)
    assert store.observations.find(["m", "7"]).keys() == {"7"}
    append(store, MEMORY)
    assert [usage.observation_id for usage in store.observations.memory_usages("j", after_s=0.0)] == ["m"]
    assert store.observations.largest_memory_usages() == {("w", "t"): MEMORY.bytes}
    store.close()


def test_a_ledger_without_a_readable_header_keeps_its_promises(path: Path) -> None:
    edit(path, "UPDATE ledger SET now_s = 'noon'")
    store = SqliteStore(path)
    ledger = store.ledgers.read("s")
    assert repr(ledger) == repr(replace(LEDGER, now_s=0.0))
    assert store.ledgers.commit(ledger)
    assert store.ledgers.read("s").revision == 1
    store.close()


def test_a_damaged_row_is_left_out_by_readers_that_may_not_write(path: Path) -> None:
    edit(path, "UPDATE observation SET content = '{' WHERE id IN ('3', 'o')")
    content = path.read_bytes()
    store = SqliteStore(path, read_only=True)
    assert len(list(store.observations.entries())) == 20
    assert [entry.observation.observation_id for entry in store.observations.newest(2)] == ["m", "19"]
    store.close()
    assert path.read_bytes() == content


FLIPS = {  # values that could be true
    "a number of a window": ("observation", "content = replace(content, '5.0', '4.0') WHERE id = '7'", "7"),
    "a moment": ("observation", "received_s = received_s + 1e-6 WHERE id = '7'", "7"),
    "the reason of an answer": ("observation", "reason = 'x' WHERE id = '7'", "7"),
    "a memory usage": ("observation", "content = replace(content, '1073741824', '1073741825') WHERE id = 'm'", "m"),
    "a decision": ("decision", "content = x'01'", "1"),
    "a decision that became text": ("decision", "content = CAST(content AS TEXT)", "1"),
    "the digest of a decision": ("decision", "digest = 'e'", "1"),
    "an audit": ("account", "model_version = 'n'", "d1"),
    "a promise": ("promise", "content = replace(content, '120.0', '121.0') WHERE place = 0", "a"),
    "a grant": ("granted", "content = replace(content, '4000000000.0', '4000000001.0') WHERE kind = 'grant'", "a"),
    "the place in a plan": ("planned", "content = 'c' WHERE kind = 'order' AND place = 0", "b"),
    "a checkpoint": ("snapshot", "content = x'00'", "k"),
}


@pytest.mark.parametrize(("table", "change", "lost"), FLIPS.values(), ids=FLIPS)
def test_a_row_is_not_believed_against_its_checksum(
    path: Path, caplog: pytest.LogCaptureFixture, table: str, change: str, lost: str
) -> None:
    before = stored(path)
    edit(path, f"UPDATE {table} SET {change}")
    assert [problem.split()[0] for problem in check(path).problems] == [table]
    now = stored(path)
    assert "its checksum does not match" in caplog.text
    memory = [name for name in before["memory"] if name != lost]
    assert now == before | {table: [name for name in before[table] if name != lost], "memory": memory}
    assert check(path).problems == ()


def test_a_profile_is_not_believed_against_its_checksum(path: Path) -> None:
    edit(path, "UPDATE profile SET content = replace(content, '0.1', '0.2')")
    store = SqliteStore(path)
    assert list(store.profiles.read()) == [(PROFILE.profile_id, "cannot be read (its checksum does not match)")]
    assert list(store.profiles.all()) == []
    store.profiles.put([PROFILE])
    assert list(map(repr, store.profiles.all())) == [repr(PROFILE)]
    store.close()


def test_a_row_is_checked_whenever_it_is_read(path: Path) -> None:
    store = SqliteStore(path)
    edit(path, "UPDATE observation SET content = replace(content, '5.0', '4.0') WHERE id = '7'")
    assert "7" not in store.observations.find(["7"])
    append(store, window("7"))
    assert len(list(store.observations.entries())) == 22
    store.close()


def test_every_write_keeps_the_checksums(path: Path) -> None:
    store = SqliteStore(path)
    store.profiles.put([PROFILE, replace(PROFILE, step_time_s=0.2)])
    store.profiles.remove([PROFILE.profile_id])
    assert store.ledgers.commit(replace(LEDGER, revision=1, promises=LEDGER.promises[1:]))
    store.ledgers.release_promises("b", "d1", deadlines=True)
    store.observations.prune(5, up_to=10)
    store.audits.put(AUDIT)
    for sequence in range(9):
        store.checkpoints.put(StateCheckpoint(sequence=sequence, key="k", content=b"state"))
    assert store.ledgers.commit(ScopeLedger(scope="t", now_s=1.0, planned_order=("a",)))
    store.ledgers.reset("t")
    store.close()
    report = check(path)
    assert report.problems == ()
    with sqlite3.connect(path) as connection:
        (checksums,) = connection.execute("SELECT count(*) FROM checksum").fetchone()
    connection.close()
    assert checksums == sum(report.rows.values())


def test_a_store_of_format_5_is_given_checksums(path: Path) -> None:
    before = stored(path)
    edit(path, "DROP TABLE checksum")
    edit(path, "PRAGMA user_version = 5")
    reader = SqliteStore(path, read_only=True)
    assert len(list(reader.observations.entries())) == 22
    reader.close()
    assert check(path).problems == ()
    assert stored(path) == before
    edit(path, "UPDATE observation SET content = replace(content, '5.0', '4.0') WHERE id = '7'")
    assert check(path).problems == ("observation 7 cannot be read: its checksum does not match",)


def test_a_row_that_vanished_is_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = stored(path)
    edit(path, "DELETE FROM observation WHERE seq = 4")
    edit(path, "DELETE FROM promise WHERE place = 1")
    missing = {"observation 4 cannot be read: it is missing", 'promise ["s",1] cannot be read: it is missing'}
    assert {*check(path).problems} == missing
    assert stored(path) == before | {"observation": [k for k in before["observation"] if k != "3"], "promise": ["a"]}
    assert all(name in caplog.text for name in missing)
    assert check(path).problems == ()


def overwrite(path: Path, table: str) -> None:
    """Fill the first page of a table or index with zeros."""
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(content)


@pytest.mark.parametrize("table", ["promise", "observation_kind"])
def test_damaged_pages_are_refused_with_the_command_that_repairs_them(path: Path, table: str) -> None:
    before = stored(path)
    overwrite(path, table)
    content = path.read_bytes()
    with pytest.raises(UnfitError, match=r"store.db(.|\n)*interfere store repair(.|\n)*interfere store restore"):
        SqliteStore(path)
    assert path.read_bytes() == content
    report, _ = repair(path)
    assert report.problems == ()
    now = stored(path)
    lost = {name for name in before if now[name] != before[name]}
    assert lost == ({"promise"} if table == "promise" else set())
    assert {row.split()[0] for row in report.set_aside} == lost


def test_an_index_that_disagrees_with_its_table_is_made_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = stored(path)
    content = path.read_bytes()
    assert content.count(b"\x0115\x10") == 1  # id 15 in its index, then row 16
    path.write_bytes(content.replace(b"\x0115\x10", b"\x011;\x10"))
    assert check(path).problems
    with caplog.at_level(logging.ERROR):
        assert stored(path) == before
    assert "no row is lost" in caplog.text
    assert check(path).problems == ()
