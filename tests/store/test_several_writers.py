"""Laws of a store that several processes write at once, on SQLite and on PostgreSQL, and proofs that they bite."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from interfere.store.store import SqliteStore, Store, open_store, store_address
from tests.store.postgres_server import PostgresServer
from tests.waiting import PATIENCE_S, wait_until

WRITERS = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store, with its tables. That of SQLite is held by this process, as by a server."""
    if request.param == "sqlite":
        store: Store = SqliteStore(tmp_path / "store.db")
        yield str(tmp_path / "store.db")
        store.close()
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        address = server.new_database()
        open_store(address).close()
        yield address


def start(address: str, what: str, count: int) -> list[subprocess.Popen[str]]:
    """Start the writers."""
    command = [sys.executable, "-m", "tests.store.writer", address, what]
    return [
        subprocess.Popen([*command, f"w{k}", str(count)], stdout=subprocess.PIPE, text=True) for k in range(WRITERS)
    ]


def finish(writers: list[subprocess.Popen[str]]) -> list[str]:
    """Return what the writers were told is stored."""
    told = [writer.communicate(timeout=PATIENCE_S)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    return [line for lines in told for line in lines]


class Follower(threading.Thread):
    """Follows the log by number, as another server does."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.over = threading.Event()
        self._address = address

    def run(self) -> None:
        store, last = open_store(store_address(self._address), read_only=True), 0
        while True:
            is_last_look = self.over.is_set()
            for entry in store.observations.entries(after=last):
                last = entry.sequence
                self.seen.append(entry.observation.observation_id)
            if is_last_look:
                break
        store.close()


def follow(address: str, what: str, count: int) -> tuple[list[str], list[str], list[str]]:
    """Return what a follower saw, what the log holds in the end, and what was acknowledged."""
    follower = Follower(address)
    follower.start()
    try:
        acknowledged = finish(start(address, what, count))
    finally:
        follower.over.set()
        follower.join()
    store = open_store(store_address(address), read_only=True)
    entries = list(store.observations.entries())
    store.close()
    assert what != "log" or [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    return follower.seen, [entry.observation.observation_id for entry in entries], acknowledged


def test_a_follower_misses_nothing_and_sees_the_order_of_the_log(address: str) -> None:
    seen, stored, acknowledged = follow(address, "log", 60)
    assert seen == stored
    assert sorted(stored) == sorted(acknowledged)


def test_the_law_bites_numbers_of_a_sequence_are_missed(postgres: PostgresServer) -> None:
    address = postgres.new_database()
    open_store(address).close()
    with psycopg.connect(address) as connection:
        connection.execute("CREATE SEQUENCE naive INCREMENT 20")
    seen, stored, acknowledged = follow(address, "naive-log", 150)
    assert sorted(stored) == sorted(acknowledged)
    assert len(seen) < len(stored)


def revision(address: str) -> int:
    """Return the revision of the ledger in the end."""
    store = open_store(store_address(address), read_only=True)
    try:
        return store.ledgers.read("s").revision
    finally:
        store.close()


def test_as_many_commits_are_acknowledged_as_the_ledger_has_revisions(address: str) -> None:
    told = finish(start(address, "ledger", 40))
    assert revision(address) == len(told) == 40 * WRITERS
    assert sorted(map(int, told)) == list(range(1, 40 * WRITERS + 1))


def test_the_law_bites_commits_that_read_and_then_write_are_lost(postgres: PostgresServer) -> None:
    address = postgres.new_database()
    open_store(address).close()
    told = finish(start(address, "naive-ledger", 100))
    assert revision(address) < len(told)


@pytest.mark.parametrize("what", ["log", "ledger"])
def test_a_writer_that_is_killed_takes_nothing_acknowledged_with_it(address: str, what: str) -> None:
    writers = start(address, what, 10**6)
    outputs: list[list[str]] = [[] for _ in writers]

    def read(k: int) -> None:
        outputs[k] += writers[k].stdout or ()

    readers = [threading.Thread(target=read, args=(k,)) for k in range(WRITERS)]
    for reader in readers:
        reader.start()
    for k, writer in enumerate(writers):  # one after the other: each dies amid the writes of the others
        wait_until(lambda k=k: len(outputs[k]) > 20 * (k + 1), "the writer writes")  # type: ignore[misc]
        writer.kill()
        writer.wait()
    for reader in readers:
        reader.join()
    told = [line.strip() for lines in outputs for line in lines if line.endswith("\n")]
    if what == "ledger":
        assert len(set(told)) == len(told) <= revision(address) <= len(told) + WRITERS
        return
    store = open_store(store_address(address), read_only=True)
    stored = [entry.observation.observation_id for entry in store.observations.entries()]
    store.close()
    assert len(set(stored)) == len(stored)
    assert set(told) <= set(stored)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_database_loses_nothing_acknowledged(postgres: PostgresServer, mode: str) -> None:
    address = postgres.new_database()
    open_store(address).close()
    follower = Follower(address)
    writers = start(address, "log", 150)
    first = [writer.stdout.readline().strip() for writer in writers if writer.stdout]  # all of them write
    postgres.stop(mode)
    postgres.start()
    told = [*first, *finish(writers)]
    follower.over.set()
    follower.run()
    # A write whose answer was lost is stored and not acknowledged; its writer went on with another one.
    assert set(told) <= set(follower.seen)
    assert len(set(follower.seen)) == len(follower.seen)
