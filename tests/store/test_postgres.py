"""The PostgreSQL store: the laws of every store, and a database that is away, newer or not ours."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from interfere.commands import store as commands
from interfere.errors import CancelledError, UnavailableError, UnfitError
from interfere.records import ScopeLedger
from interfere.store import postgres as postgres_module
from interfere.store.postgres import FORMAT
from interfere.store.rows import StateCheckpoint
from interfere.store.store import Store, copy_store, open_store
from interfere.testing.stores import (
    AUDIT,
    DECISION,
    MEMORY,
    OTHER,
    PROFILE,
    ROLLBACK,
    StoreLaws,
    append,
    promise,
    window,
)
from interfere.time_budget import interruptible
from tests.store.postgres_server import PostgresServer
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.new_database()


class TestPostgresStore(StoreLaws):
    @pytest.fixture
    def open_store(self, address: str) -> Iterator[Callable[[], Store]]:
        opened: list[Store] = []

        def open_() -> Store:
            opened.append(open_store(address))
            return opened[-1]

        yield open_
        for store in opened:
            store.close()


def test_a_newer_schema_is_refused_and_a_reader_makes_no_tables(address: str) -> None:
    with pytest.raises(UnfitError, match="not a store of this release"):
        open_store(address, read_only=True)
    open_store(address).close()
    with psycopg.connect(address) as connection:
        connection.execute("INSERT INTO store_format VALUES (%s, 0)", (FORMAT + 1,))
    with pytest.raises(UnfitError, match="newer release"):
        open_store(address)


def test_a_reader_writes_nothing(address: str) -> None:
    open_store(address).close()
    reader = open_store(address, read_only=True)
    with pytest.raises(UnfitError, match="read-only"):
        append(reader, window("a"))
    assert list(reader.observations.entries()) == []
    reader.close()


def test_a_database_that_is_away_is_told_and_a_store_comes_back_with_it(postgres: PostgresServer, address: str) -> None:
    with pytest.raises(UnavailableError, match="the database is away"):
        open_store(address.replace("test", "nowhere"))
    store = open_store(address)
    append(store, window("a"))
    postgres.stop("immediate")
    try:
        with pytest.raises(UnavailableError, match="the database is away"):
            append(store, window("b"))
    finally:
        postgres.start()
    wait_until(lambda: _attempt(store) == 2, "the database takes connections again")
    assert [entry.observation.observation_id for entry in store.observations.entries()] == ["a", "b"]
    store.close()


def _attempt(store: Store) -> int | UnavailableError:
    """Append a window; the error where a busy machine has no connection yet."""
    try:
        return append(store, window("b"))
    except UnavailableError as error:
        return error


def test_fields_of_observations_are_columns_for_dashboards(address: str) -> None:
    store = open_store(address)
    append(store, window("a", slowdown=1.5, steps=float("nan")))
    store.close()
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT job_id, slowdown, content -> 'company' FROM observed").fetchall()
    assert rows == [("j", 1.5, ["x"])]


def test_a_store_is_copied_from_a_file_to_a_database_and_back(address: str, tmp_path: Path) -> None:
    file, back = tmp_path / "store.db", tmp_path / "back.db"
    store = open_store(file)
    append(store, window("a"), MEMORY, ROLLBACK)
    store.profiles.put([PROFILE, OTHER], "somebody")
    store.audits.put(AUDIT)
    store.checkpoints.put(StateCheckpoint(sequence=2, key="k", content=b"state"))
    ledger = ScopeLedger(scope="s", now_s=5.0, promises=(promise("b"), promise("group")), planned_order=("b",))
    assert store.ledgers.commit(ledger, DECISION)
    copy_store(file, address)  # while a server holds the file
    with pytest.raises(UnfitError, match="not empty"):
        copy_store(file, address)
    done = CliRunner().invoke(commands.app, ["copy", address, str(back), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"]["observation"] == 3
    for copy in (open_store(address), open_store(back)):
        assert [repr(entry) for entry in copy.observations.entries()] == [repr(e) for e in store.observations.entries()]
        assert list(map(repr, copy.profiles.all())) == list(map(repr, store.profiles.all()))
        assert repr(copy.ledgers.read("s")) == repr(store.ledgers.read("s"))
        assert copy.decisions.find("s", "1") == DECISION
        assert copy.audits.find("d1") == AUDIT
        assert [each.content for each in copy.checkpoints.find("k")] == [b"state"]
        assert append(copy, window("next")) == 4
        copy.close()
    store.close()


@pytest.fixture
def two(address: str) -> Iterator[tuple[Store, Store]]:
    """Two servers' stores on one database."""
    stores = open_store(address), open_store(address)
    yield stores
    for store in stores:
        store.close()


def waited_s(store: Store, work: str, patience_s: float) -> float:
    """Return how long a server waits for another one that does the same work."""
    begin_s = time.monotonic()
    with store.database.claim(work, patience_s):
        return time.monotonic() - begin_s


def test_a_server_waits_while_another_does_the_same_work(two: tuple[Store, Store]) -> None:
    first, second = two
    with first.database.claim("a", 1.0), ThreadPoolExecutor(1) as pool:
        assert waited_s(second, "b", PATIENCE_S) < PATIENCE_S  # other work
        assert waited_s(second, "a", 0.3) >= 0.3  # it is a hint: patience ends
        waiting = pool.submit(waited_s, second, "a", PATIENCE_S)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        first.close()  # as a server that is killed
        assert waiting.result(PATIENCE_S) >= 0.3
    assert waited_s(second, "a", PATIENCE_S) < PATIENCE_S


def test_work_goes_on_where_the_hint_is_lost_with_its_connection(
    postgres: PostgresServer, two: tuple[Store, Store]
) -> None:
    first, second = two
    with first.database.claim("a", 1.0):
        postgres.stop("immediate")
        assert waited_s(second, "a", PATIENCE_S) < PATIENCE_S
        postgres.start()
    assert waited_s(first, "a", PATIENCE_S) + waited_s(second, "a", PATIENCE_S) < PATIENCE_S


def test_a_caller_that_gives_up_while_it_waits_holds_nothing(two: tuple[Store, Store]) -> None:
    first, second = two

    def give_up() -> None:
        raise CancelledError("nobody waits")

    with first.database.claim("a", 1.0), interruptible(give_up), pytest.raises(CancelledError):
        waited_s(second, "a", PATIENCE_S)
    assert waited_s(first, "a", PATIENCE_S) < PATIENCE_S


def test_a_process_that_is_stopped_amid_a_write_holds_nobody_up_for_long(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_module._OF_SESSION, "idle_in_transaction_session_timeout", "300ms")
    stopped, other = open_store(address), open_store(address)

    def write() -> None:
        with stopped.database.transaction() as connection:
            stopped.database.take_numbers(connection, "observation", 1)
            assert append(other, window("a")) == 1  # waits until PostgreSQL ends the session
            stopped.database.take_numbers(connection, "observation", 1)

    with pytest.raises(UnavailableError, match="the database is away"):
        write()
    stopped.close()
    other.close()
