"""The published tables and traces that can be imported: upstream address, licence and sha256, from `sources.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES_FILE = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """One published file. `sha256` is that of the copy that the importers were written against."""

    collection: str  # what `interfere data fetch` calls the files that belong together
    kind: str  # the format: the subcommand of `interfere data import` that reads it
    file: str
    what: str  # a description of its content
    upstream: str
    licence: str
    sha256: str
    note: str = ""
    address: str = ""  # from which it can be downloaded; "" where no address gives these bytes
    by_hand: str = ""  # what a person can do instead of a download, where that is something else
    partial: bool = False  # the checksum is that of a part: a download is larger and cannot be verified


@cache
def public_tables() -> tuple[PublicTable, ...]:
    """All published files that the importers know."""
    return tuple(PublicTable(**entry) for entry in tomllib.loads(SOURCES_FILE.read_text(encoding="utf-8"))["source"])


def find_public_table(sha256: str) -> PublicTable | None:
    """The published file with this checksum; None for any other."""
    return next((table for table in public_tables() if table.sha256 == sha256), None)


def collections() -> tuple[str, ...]:
    """The names of all collections."""
    return tuple(dict.fromkeys(table.collection for table in public_tables()))
