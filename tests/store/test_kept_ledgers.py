"""A ledger that is kept in memory is the one that is stored, on SQLite and on PostgreSQL, whoever writes beside."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interfere.records import AcceptedDeadline, EndPromise, Grant, ScopeLedger
from interfere.store.decisions import StoredLedgers
from interfere.store.store import SqliteStore, Store, open_store
from interfere.testing.stores import promise
from tests.store.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    if request.param == "sqlite":
        opened: Store = SqliteStore(tmp_path / "store.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        opened = open_store(server.new_database())
    yield opened
    opened.close()


def with_nothing_kept(store: Store) -> StoredLedgers:
    """The ledgers as another process sees them."""
    return StoredLedgers(store.ledgers._database, store.decisions)


def edited(ledger: ScopeLedger, number: int, rng: random.Random) -> ScopeLedger:
    """A ledger with some entries fewer, a new one among them, and now and then another order."""

    def changed(entries: tuple[Any, ...], new: Any) -> tuple[Any, ...]:
        kept = [entry for entry in entries if rng.random() < 0.8]
        kept.insert(rng.choice((len(kept), rng.randrange(len(kept) + 1))), new)
        if rng.random() < 0.2:
            rng.shuffle(kept)
        return tuple(kept)

    grant = Grant(job_id=f"j{number}", workload="w", device_ids=("d",), bytes=2.0**30, since_s=float(number))
    accepted = AcceptedDeadline(job_id=f"j{number}", deadline_s=9.0, decision_ids=("d1",))
    return replace(
        ledger,
        now_s=float(number),
        promises=changed(ledger.promises, promise(rng.choice("abc"), f"d{rng.randrange(3)}")),
        accepted_deadlines=changed(ledger.accepted_deadlines, accepted),
        grants=changed(ledger.grants, grant),
        end_promises=changed(ledger.end_promises, EndPromise(job_id=f"j{number}", latest_end_s=0.1 * number)),
        planned_order=changed(ledger.planned_order, f"j{number}"),
    )


def test_a_ledger_that_is_kept_is_the_one_that_is_stored(store: Store) -> None:
    rng, writers = random.Random(1), (store.ledgers, with_nothing_kept(store))
    for k in range(60):
        writer = rng.choice(writers)
        for each in writers:
            assert repr(each.read("s")) == repr(with_nothing_kept(store).read("s"))
        if k % 10 == 9:
            writer.reset("s")
        elif k % 10 == 5:
            writer.release_promises(rng.choice("abc"), "d1", deadlines=True)
        else:
            assert writer.commit(edited(writer.read("s"), k, rng))


def test_a_deleted_ledger_is_not_taken_for_the_next_of_its_scope(store: Store) -> None:
    other = with_nothing_kept(store)
    first, second = (ScopeLedger(scope="s", end_promises=(EndPromise(job_id="a", latest_end_s=s),)) for s in (1.0, 2.0))
    assert store.ledgers.commit(first)
    other.reset("s")
    assert other.commit(second)  # the same revision, clock and number of rows
    assert store.ledgers.read("s").end_promises == second.end_promises
    assert store.ledgers.commit(replace(second, revision=1, planned_order=("b",)))
    assert other.read("s").end_promises == second.end_promises


def test_only_what_changed_is_written(store: Store) -> None:
    promises = tuple(EndPromise(job_id=f"j{k}", latest_end_s=float(k)) for k in range(100))
    store.ledgers.commit(ScopeLedger(scope="s", end_promises=promises))
    ledger = store.ledgers.read("s")
    with store.ledgers._database.read_connection() as connection:
        before = dict(connection.execute("SELECT place, rowid FROM planned").fetchall())
    new = EndPromise(job_id="new", latest_end_s=1.0)
    store.ledgers.commit(replace(ledger, end_promises=(*ledger.end_promises[:50], *ledger.end_promises[51:], new)))
    with store.ledgers._database.read_connection() as connection:
        after = dict(connection.execute("SELECT place, rowid FROM planned").fetchall())
    assert before.items() - after.items() == {(50, before[50])}
    assert (after.keys() - before.keys()) == {100}
