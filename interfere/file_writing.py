"""Writes files as a whole or not at all: a file appears under its name only when it is complete."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interfere.errors import UnfitError


def write_atomically(path: Path, write: Any) -> None:
    """Call `write(temporary)` with a name beside `path`, then rename that file: a reader never sees half a file.

    Raises UnfitError where the folder cannot be written.
    """
    temporary = ""
    with _unfit_where_unwritable(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            write(temporary)
            os.chmod(temporary, 0o644)  # mkstemp makes files that only the owner can read
            os.replace(temporary, path)
        finally:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises UnfitError where the folder cannot be written."""
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


def require_writable(workspace: Path) -> None:
    """Make a workspace and check that files can be written there. Raises UnfitError where they cannot."""
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=workspace):
            pass
    except OSError as error:
        raise UnfitError(
            f"the workspace cannot be written ({error.strerror})",
            value=workspace,
            remedy="choose another with --work DIR",
        ) from None


def remove_file(path: Path) -> None:
    """Remove a file that may be missing. Raises UnfitError where the folder cannot be written."""
    with _unfit_where_unwritable(path):
        path.unlink(missing_ok=True)


@contextmanager
def _unfit_where_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnfitError(
            "cannot write here", value=f"{path}: {error.strerror or error}", remedy="choose a folder you may write"
        ) from None


def file_signature(file: Path) -> tuple[int, int, int]:
    """Return what differs once a file was written or replaced: its time of change, its size and its inode."""
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
