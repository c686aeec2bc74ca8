"""An advisory lock on a store: one server a file, under whatever name; the system releases it when the holder dies.

The lock is on the inode of the store itself, so that links to it are the same store. SQLite's own locks are of another
kind (fcntl), which a process loses when it closes any descriptor of the file: so a descriptor of a store that is locked
already stays open.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from interfere.errors import UnfitError

_kept_open: list[int] = []


class FileLock:
    """Locked from construction until `release`. Raises UnfitError when another process holds the lock."""

    def __init__(self, path: Path) -> None:
        """Lock a store. `path`: the store file. A missing file is created empty, readable by its owner only."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        holder = path.with_name(f"{path.name}.lock")  # names the process
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _kept_open.append(self._descriptor)
            holder_pid = "unknown"
            with suppress(OSError):
                holder_pid = holder.read_text(encoding="utf-8", errors="replace")[:32].strip() or "unknown"
            raise UnfitError(
                f"another server (process {holder_pid}) has this store open",
                value=path,
                remedy="stop it, or give this one a store of its own: --store FILE",
            ) from None
        with suppress(OSError):
            os.fchmod(self._descriptor, 0o600)
        with suppress(OSError), open(os.open(holder, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(str(os.getpid()))

    def release(self) -> None:
        """Release the lock, after the last connection to the store was closed. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
