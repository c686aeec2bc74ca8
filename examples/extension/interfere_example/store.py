"""A store whose address is a folder: `interfere serve --database example-folder:///var/lib/interfere`."""

from pathlib import Path

from interfere.store.store import SqliteStore


def open_folder(address, *, read_only=False, shared=False, on_eviction=lambda *_: None):
    """Open the SQLite file in the folder that the address names, or create it."""
    folder = Path(address.partition("://")[2])
    return SqliteStore(folder / "interfere.db", read_only=read_only, shared=shared, on_eviction=on_eviction)
