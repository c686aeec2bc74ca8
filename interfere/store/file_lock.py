"""An advisory lock on a file beside the store: one server a store; the system releases it when the holder dies."""

import fcntl
import os
from pathlib import Path

from interfere.errors import UnfitError


class FileLock:
    """Locked from construction until `release`. Raises UnfitError when another process holds the lock."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder_pid = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise UnfitError(
                f"another server (process {holder_pid}) has this store open",
                value=path.with_suffix(""),
                remedy="stop it, or give this one a store of its own: --store FILE",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Release the lock. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
