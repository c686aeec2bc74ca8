"""Writes files whole or not at all: a file appears under its name only when it is complete."""

import os
import tempfile
from pathlib import Path
from typing import Any

from interfere.errors import UnfitError


def write_atomically(path: Path, write: Any) -> None:
    """Call `write(temporary)` with a name beside `path`, then rename that file: a reader never sees half a file.

    Raises UnfitError where the folder cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        write(temporary)
        os.chmod(temporary, 0o644)  # mkstemp makes files that only the owner can read
        os.replace(temporary, path)
    except OSError as error:
        raise UnfitError(
            "cannot write here", value=f"{path}: {error.strerror or error}", remedy="choose a folder you may write"
        ) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def remove_file(path: Path) -> None:
    """Remove a file that may be missing. Raises UnfitError where the folder cannot be written."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnfitError(
            "cannot write here", value=f"{path}: {error.strerror or error}", remedy="choose a folder you may write"
        ) from None
