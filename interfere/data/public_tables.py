"""The published tables and traces that can be imported: address, licence and sha256 of each, and their download.

Law: a file appears under its name only whole, and only with the published checksum; of a file whose checksum is not
known, its own is reported. A file that is already there with the right checksum is not downloaded again.
"""

import hashlib
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from http.client import HTTPException
from pathlib import Path

from interfere.errors import NotFoundError
from interfere.file_writing import write_atomically

SOURCES_FILE = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """A published file. `sha256` is the checksum of the copy that the importers were written for."""

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
    """Return all published files of measurements that the importers know."""
    return tuple(PublicTable(**entry) for entry in tomllib.loads(SOURCES_FILE.read_text(encoding="utf-8"))["source"])


def find_public_table(sha256: str) -> PublicTable | None:
    """Return the published file with this checksum; None where there is no such file."""
    return next((table for table in public_tables() if table.sha256 == sha256), None)


def collections() -> tuple[str, ...]:
    """Return the names of all collections of published files."""
    return tuple(dict.fromkeys(table.collection for table in public_tables()))


# --- downloads -------------------------------------------------------------------------------------------------------


TIMEOUT_S = 30.0
MAX_BYTES = 64 * 2**20  # of one file; the largest published one has 1 MB


class FetchStatus(StrEnum):
    """The result of downloading a published file."""

    PRESENT = "present"  # it was there, with the published checksum
    FETCHED = "fetched"  # downloaded, with the published checksum
    UNVERIFIED = "unverified"  # downloaded; this release knows the checksum of a part only
    MISSING = "missing"  # see the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """A file of a collection after the attempt to fetch it."""

    table: PublicTable
    path: Path
    status: FetchStatus
    reason: str = ""  # why it is missing
    sha256: str = ""  # of what is there

    @property
    def by_hand(self) -> str:
        """Return the steps that a person has to take; "" where the file is there."""
        if self.status is not FetchStatus.MISSING:
            return ""
        if self.table.by_hand:
            return self.table.by_hand
        origin = self.table.address or self.table.upstream
        expected = f", sha256 {self.table.sha256}" * (not self.table.partial)
        note = f" ({self.table.note})" if self.table.note else ""
        return f"download {origin} on a machine that reaches it, and save it as {self.path}{expected}{note}"


def fetch_collection(
    name: str, folder: Path, *, mirror: str = "", report: Callable[[str], None] = lambda _: None
) -> tuple[FetchedFile, ...]:
    """Fetch every file of a collection into `folder`; with a mirror, from there by the names of the files.

    Raises NotFoundError for an unknown collection, UnfitError where the folder cannot be written.
    """
    wanted = [table for table in public_tables() if table.collection == name]
    if not wanted:
        raise NotFoundError("no such collection", value=name, remedy=f"one of {', '.join(collections())}")
    return tuple(_fetch(table, folder / table.file, mirror, report) for table in wanted)


def _fetch(table: PublicTable, path: Path, mirror: str, report: Callable[[str], None]) -> FetchedFile:
    result = partial(FetchedFile, table=table, path=path)
    if path.is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest == table.sha256 or table.partial:
            status = FetchStatus.PRESENT if digest == table.sha256 else FetchStatus.UNVERIFIED
            return result(status=status, sha256=digest)
    address = f"{mirror.rstrip('/')}/{table.file}" if mirror else table.address
    if not address:
        return result(status=FetchStatus.MISSING, reason="no address gives these bytes")
    report(f"fetching {address}")
    try:
        content = _download(address)
    except (OSError, HTTPException, ValueError) as error:
        return result(status=FetchStatus.MISSING, reason=f"{address}: {getattr(error, 'reason', None) or error}")
    digest = hashlib.sha256(content).hexdigest()
    if digest != table.sha256 and not table.partial:
        reason = f"{address} gives other bytes: sha256 {digest}, {table.sha256} expected; nothing was kept"
        return result(status=FetchStatus.MISSING, reason=reason)
    write_atomically(path, lambda temporary: Path(temporary).write_bytes(content))
    return result(status=FetchStatus.FETCHED if digest == table.sha256 else FetchStatus.UNVERIFIED, sha256=digest)


def _download(address: str) -> bytes:
    """Return the bytes at an address. Raises OSError or ValueError."""
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise ValueError("not an http or https address")
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # noqa: S310  the scheme was checked
        content: bytes = answer.read(MAX_BYTES + 1)
        length = answer.headers.get("Content-Length")
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
    if length is not None and int(length) != len(content):
        raise ValueError(f"broken off after {len(content)} of {length} bytes")
    return content
