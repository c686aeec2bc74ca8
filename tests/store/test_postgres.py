"""The PostgreSQL store: the laws of every store, and a database that is away, newer or not ours."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from interfere.errors import UnavailableError, UnfitError
from interfere.store.opening import open_store
from interfere.store.postgres import FORMAT, PostgresStore
from tests.store.conformance import StoreLaws, append, window
from tests.store.postgres_server import PostgresServer


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.new_database()


class TestPostgresStore(StoreLaws):
    @pytest.fixture
    def open_store(self, address: str) -> Iterator[Callable[[], PostgresStore]]:
        opened: list[PostgresStore] = []

        def open_() -> PostgresStore:
            opened.append(PostgresStore(address))
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
    assert append(store, window("b")) == 2
    assert [entry.observation.observation_id for entry in store.observations.entries()] == ["a", "b"]
    store.close()


def test_fields_of_observations_are_columns_for_dashboards(address: str) -> None:
    store = open_store(address)
    append(store, window("a", slowdown=1.5, steps=float("nan")))
    store.close()
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT job_id, slowdown, content -> 'company' FROM observed").fetchall()
    assert rows == [("j", 1.5, ["x"])]
