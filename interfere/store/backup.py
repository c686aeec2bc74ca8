"""Backups of what a server cannot make again: its store, the models that it serves and goes back to, tables and runs.

A backup is a tar file that only its owner can read. Its last member, the manifest, has the SHA-256 of every other one.
Law 1: a file appears under the name of a backup only when it is complete.
Law 2: a restore replaces nothing before every digest was compared, and moves aside what it replaces.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

from interfere.config import Settings
from interfere.errors import UnavailableError, UnfitError
from interfere.store.sqlite.file import FileLock
from interfere.store.sqlite.maintenance import (
    StoreReport,
    copy_file,
    move_aside,
    put_in_place,
    replace_file,
    require_sound,
)
from interfere.store.store import copy_store

SUFFIX = ".tar"  # of a backup of everything; any other name is a copy of the store alone
MANIFEST, FORMAT = "manifest.json", 1
STORE, RUNS, ARTIFACTS, SERVED = "store.db", "mlflow.db", "mlartifacts", "served"
ATTEMPTS, PAUSE_S = 50, 0.1  # to read a folder that does not change meanwhile: publishing takes a fraction of a second
CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The content of a backup."""

    store: StoreReport
    left_out: tuple[str, ...] = ()  # rows of the store that cannot be read
    files: int = 1
    kept: tuple[str, ...] = ()  # by a restore: the new names of what was replaced


def back_up(settings: Settings, target: Path) -> Backup:
    """Copy the store and the models that the settings name into a new file, also while servers write.

    Everything that was acknowledged before is in the copy. Raises UnfitError where there is no store or the target
    exists, UnavailableError where it cannot be written.
    """
    if target.exists():
        raise UnfitError("will not replace a file", value=target, remedy="give another name for the backup")
    with _told(target), tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        scratch, everything = Path(folder), target.suffix == SUFFIX
        _require_room(scratch, _needed_bytes(settings, everything=everything))
        backup = _copy_store(settings, scratch / STORE)
        if everything:
            backup = replace(backup, files=_write_archive(settings, scratch, scratch / MANIFEST))
        put_in_place(scratch / (MANIFEST if everything else STORE), target)
    return backup


def restore(settings: Settings, source: Path) -> Backup:
    """Replace the store and the models that the settings name by a backup, while no server uses them.

    Raises UnfitError where the backup is damaged, a server holds the place, or the database is not empty.
    """
    if not source.is_file():
        raise UnfitError("there is no backup", value=source, remedy="give the file that interfere store backup wrote")
    with _told(settings.work), ExitStack() as stack:
        # 1. Extract and check everything beside its new place.
        store, files, replacements = source, 1, {}
        if tarfile.is_tarfile(source):
            settings.work.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".restore-", dir=settings.work)))
            store, files = folder / STORE, _extract(source, folder, {*_places(settings)})
            replacements = {folder / name: place for name, place in _places(settings).items()}
        report = require_sound(store)
        # 2. Hold the place.
        store_path, is_replaced = settings.store_path, settings.store_path.exists()
        held, what = (settings.work / "server", "workspace") if settings.database else (store_path, "store")
        held.parent.mkdir(parents=True, exist_ok=True)
        stack.enter_context(closing(FileLock(held, what=what, remedy="stop it, then retry")))
        # 3. Replace. A database comes first, because one that holds anything is refused.
        kept: list[Path | None] = []
        if settings.database:
            copy_store(store, settings.database)
        for new, place in replacements.items():
            if new.exists():
                kept.append(move_aside(place, "before-restore"))
                shutil.move(new, place)
        if not settings.database:
            kept.append(replace_file(store, store_path, is_replaced=is_replaced))
    return Backup(store=report, files=files, kept=tuple(str(path) for path in kept if path is not None))


def _places(settings: Settings) -> dict[str, Path]:
    """Return the places of what a backup holds beside the store, by its name there.

    Left out is what can be made or fetched again (runs/, cards/, public/), and every key.
    """
    names = ("callers.toml", ARTIFACTS, RUNS, "models", "tables")
    return {SERVED: settings.served_models_path, **{name: settings.work / name for name in names}}


def _copy_store(settings: Settings, target: Path) -> Backup:
    left_out: list[str] = []
    if settings.database:
        _, left_out = copy_store(settings.database, target)
        with closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
    else:
        copy_file(settings.store_path, target)
    return Backup(store=require_sound(target), left_out=tuple(left_out))


def _write_archive(settings: Settings, scratch: Path, target: Path) -> int:
    """Write the store that was copied to `scratch`, and everything else, and return the number of files."""
    places, digests = _places(settings), {}
    copies = [STORE]
    if places[RUNS].is_file():  # before the artifacts: what the database names is there already
        copy_file(places[RUNS], scratch / RUNS)
        copies.append(RUNS)
    with _private(target) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for name in copies:
            with open(scratch / name, "rb") as copy:
                digests[name] = _add(archive, name, copy, (scratch / name).stat().st_size)
        for name, content in _workspace_files(places):
            digests[name] = _add(archive, name, BytesIO(content), len(content))
        content = json.dumps({"format": FORMAT, "made_s": time.time(), "sha256": digests}, indent=1).encode()
        _add(archive, MANIFEST, BytesIO(content), len(content))
    return len(digests)


def _workspace_files(places: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file beside the databases, in one order.

    The files of the models, and those of one table, are of one moment. Artifacts of runs are only ever added.
    """
    for name, place in sorted(places.items()):
        if name in (SERVED, "models"):
            yield from _unchanging(name, place)
        elif name == "tables":
            for table in sorted(each for each in place.glob("[!.]*") if each.is_dir()):
                yield from _unchanging(f"{name}/{table.name}", table)
        elif name == ARTIFACTS:
            for file in _files(place):
                if (content := _content(file)) is not None:
                    yield f"{name}/{file.relative_to(place).as_posix()}", content
        elif name != RUNS and (content := _content(place)) is not None:
            yield name, content


def _unchanging(name: str, folder: Path) -> list[tuple[str, bytes]]:
    """Return name and content of each file of a folder, as they were at one moment.

    Raises UnavailableError where the folder changes at every attempt, or a model in it is half published.
    """
    for _ in range(ATTEMPTS):
        before = _states(folder)
        contents = [(f"{name}/{file.relative_to(folder).as_posix()}", _content(file)) for file in before]
        if before == _states(folder) and not _is_exchanged(folder):
            return [(path, content) for path, content in contents if content is not None]
        time.sleep(PAUSE_S)
    raise UnavailableError(
        "the folder changes while it is copied", value=folder, remedy="let what writes there end, then retry"
    )


def _states(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Return what changes when a file is written or replaced, by file."""
    states = {}
    for file in _files(folder):
        try:
            state = file.stat()
        except FileNotFoundError:
            continue
        states[file] = (state.st_ino, state.st_size, state.st_mtime_ns)
    return states


def _is_exchanged(folder: Path) -> bool:
    """Return whether a model folder is away for the moment in which another takes its place."""
    olds = [old.parent.name for old in folder.glob(".*-*/old")]
    return any(not (folder / name[1:].rpartition("-")[0]).exists() for name in olds)


def _files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted; links are followed, hidden files are half written."""
    found = []
    for path, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(path, name) for name in names if not name.startswith(".")]
    return sorted(file for file in found if file.is_file())


def _private(file: Path) -> IO[bytes]:
    return open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


class _Hashing:
    """A file that is read once, and its SHA-256."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        chunk = self._file.read(size)
        self.sha256.update(chunk)
        return chunk


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes], size: int) -> str:
    """Append a member, and return its SHA-256."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(time.time())
    reading = _Hashing(file)
    archive.addfile(member, reading)
    return reading.sha256.hexdigest()


def _extract(source: Path, folder: Path, names: set[str]) -> int:
    """Extract the files in the manifest of a backup, and return their number. Raises UnfitError."""
    try:
        with tarfile.open(source, mode="r:") as archive:
            members = {member.name: member for member in archive if member.isfile()}
            _require_room(folder, 2 * sum(member.size for member in members.values()))
            manifest = json.loads(_opened(archive, members, MANIFEST).read())
            if manifest["format"] > FORMAT:
                raise UnfitError(
                    "the backup is of a newer release", value=manifest["format"], remedy="upgrade interfere"
                )
            for name, digest in manifest["sha256"].items():
                parts = PurePosixPath(name).parts
                if ".." in parts or parts[0] not in {STORE, *names}:
                    raise UnfitError("not a file of a backup", value=name, remedy="take another backup")
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                reading = _Hashing(_opened(archive, members, name))
                with _private(target) as file:
                    shutil.copyfileobj(reading, file, CHUNK_BYTES)
                if reading.sha256.hexdigest() != digest:
                    raise UnfitError("a file of the backup is damaged", value=name, remedy="take another backup")
            return len(manifest["sha256"])
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UnfitError(
            "not a whole backup", value=f"{source}: {error!r}"[:300], remedy="take another backup"
        ) from None


def _opened(archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], name: str) -> IO[bytes]:
    if name not in members or (file := archive.extractfile(members[name])) is None:
        raise UnfitError("a file of the backup is missing", value=name, remedy="take another backup")
    return file


def _needed_bytes(settings: Settings, *, everything: bool) -> int:
    """Return the bytes that a backup takes while it is made: the databases are copied, then written."""
    databases = [] if settings.database else [settings.store_path]
    files: list[Path] = []
    if everything:
        places = _places(settings)
        databases.append(places.pop(RUNS))
        files = [file for place in places.values() for file in (place, *_files(place))]
    copies = 1 + everything
    return sum(
        count * each.stat().st_size
        for count, group in ((copies, databases), (1, files))
        for each in group
        if each.is_file()
    )


def _require_room(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise UnavailableError(
            f"the disk has too little room: {needed_bytes / 2**20:.0f} MiB are needed",
            value=f"{folder.parent}: {free_bytes / 2**20:.0f} MiB",
            remedy="free the disk, or choose another folder, then retry",
        )


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """Raise one error of this project for every error of the system."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise UnavailableError(
            f"cannot be written ({getattr(error, 'strerror', None) or error})",
            value=place,
            remedy="make the folder writable, with free space, then retry",
        ) from None
