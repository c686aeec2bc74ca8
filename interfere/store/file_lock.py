"""One server a store: an advisory lock on a file beside it, released by the system when its holder dies."""

import fcntl
import os
from pathlib import Path

from interfere.errors import UnfitError


class FileLock:
    """Held from construction to `release`. Raises UnfitError when another process holds it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise UnfitError(
                f"another server (process {holder}) has this store open",
                value=path.with_suffix(""),
                remedy="stop it, or give this one a store of its own: --store FILE",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Let the next one in; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
