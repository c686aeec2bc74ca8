"""A PostgreSQL server for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.store.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of a module."""
    with running_postgres() as server:
        yield server
