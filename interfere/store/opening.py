"""A store by its address: a SQLite file, or a PostgreSQL database for several servers."""

from pathlib import Path

from interfere.errors import NotFoundError, UnfitError
from interfere.records import ScopeLedger
from interfere.store.database import EvictionListener
from interfere.store.sqlite.store import SqliteStore
from interfere.store.store import Store

StoreAddress = Path | str
"""The file of a SQLite store, or the address of a PostgreSQL database."""
POSTGRESQL = ("postgresql://", "postgres://")


def store_address(text: str) -> StoreAddress:
    """Return the address that a text names."""
    return text if text.startswith(POSTGRESQL) else Path(text)


def open_store(
    address: StoreAddress,
    *,
    read_only: bool = False,
    shared: bool = False,
    on_eviction: EvictionListener = lambda *_: None,
) -> Store:
    """Open a store, or create it. With `read_only`, read it while servers write it.

    `shared` is for worker processes of the server that holds a file; a database is always shared.
    Raises UnfitError where it cannot be used.
    """
    if isinstance(address, Path):
        return SqliteStore(address, read_only=read_only, shared=shared, on_eviction=on_eviction)
    try:
        from interfere.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise UnfitError(
            f"a store in PostgreSQL needs {error.name}", remedy="pip install 'interfere-gpu[postgres]'"
        ) from None
    return PostgresStore(address, read_only=read_only, on_eviction=on_eviction)


def reset_scope(address: StoreAddress, scope: str) -> ScopeLedger:
    """Delete all decisions of a scope and return what its ledger held. This also works while a server has the store
    open.

    Raises NotFoundError where the file does not exist, or does not know the scope.
    """
    if isinstance(address, Path) and not address.exists():
        raise NotFoundError("no such store", value=address, remedy="name the server's: --store FILE, or --work FOLDER")
    store = open_store(address, shared=True)
    try:
        forgotten = store.ledgers.reset(scope)
        known = ", ".join(store.ledgers.scopes()) or "none"
    finally:
        store.close()
    if forgotten is None:
        raise NotFoundError("no decision with a clock was made in this scope", value=scope, remedy=f"one of: {known}")
    return forgotten
