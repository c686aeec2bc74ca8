"""The public tables that can be imported: upstream address, licence and sha256 of each, kept in `sources.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """One published file. `sha256` is of the copy that the importers were written against."""

    kind: str  # the importer that reads it
    file: str
    what: str
    upstream: str
    licence: str
    sha256: str
    note: str = ""


@cache
def public_tables() -> tuple[PublicTable, ...]:
    """All of them."""
    return tuple(PublicTable(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["source"])


def published(sha256: str) -> PublicTable | None:
    """The public table with exactly these bytes."""
    return next((table for table in public_tables() if table.sha256 == sha256), None)
