"""Token files of servers on this host: where a server writes them, and which of them a client sends.

A server on the loopback address gives each role a token in a file of its own, in a folder named after the server's
port. Whoever may read the file has the role. A client reads the file of the strongest role that it may read.
"""

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
ROLES = ("operate", "decide", "report", "read", "predict")  # strongest first: each may do what those after it may
SYSTEM_FOLDER = Path("/run/interfere")  # of a service: `RuntimeDirectory=interfere` of its unit, or of root
MAX_TOKEN_BYTES = 4096
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class TokenFile(NamedTuple):
    """A token, its file, and when the file was written (nanoseconds since 1970)."""

    token: str
    path: Path
    written_ns: int


def runtime_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders that may hold the folders of servers; a server takes the first that it may write."""
    if given := environ.get("INTERFERE_RUNTIME"):
        return [Path(given)]
    folders = [SYSTEM_FOLDER]
    if of_session := environ.get("XDG_RUNTIME_DIR"):
        folders.append(Path(of_session) / "interfere")
    of_user = Path(f"/run/user/{os.geteuid()}")
    if of_user.is_dir() and of_user / "interfere" not in folders:
        folders.append(of_user / "interfere")
    return [*folders, shared_folder()]


def shared_folder() -> Path:
    """Return the folder for a host without runtime folders. It lies where everybody may write: check its owner."""
    return Path(tempfile.gettempdir()) / f"interfere-{os.geteuid()}"


def is_own_folder(folder: Path) -> bool:
    """Return whether a folder is no link, belongs to this user, and cannot be written by others."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def server_name(target: str) -> str:
    """Return the name of a server's folder: its port, or the path of its socket; empty for one on another host."""
    if target.startswith("unix:"):
        return target.removeprefix("unix:").strip("/").replace("/", "-")
    host, _, port = target.rpartition(":")
    return port if host in LOOPBACK and port.isdecimal() else ""


class LocalToken:
    """The token that a client sends to a server on this host. Thread-safe."""

    def __init__(self, target: str) -> None:
        """`target`: the address of the server."""
        self._name = server_name(target)
        self._path: Path | None = None  # of the token that was sent last

    def read(self) -> str:
        """Return the token of the strongest role that this process may read, of the server that started last; empty
        where there is none. The file is read each time: a server writes new tokens when it starts."""
        if not self._name:
            return ""
        path = self._path
        found = None if path is None else _read(path)
        if found is None:
            tokens = [token for folder in runtime_folders() if (token := strongest_token(folder, self._name))]
            found = max(tokens, key=lambda token: token.written_ns, default=None)
        self._path = None if found is None else found.path
        return "" if found is None else found.token


def strongest_token(folder: Path, name: str) -> TokenFile | None:
    """Return the token of the strongest role that this process may read in a server's folder; None without any."""
    if folder == shared_folder() and not is_own_folder(folder):
        return None
    return next((token for role in ROLES if (token := _read(folder / name / f"{role}.token"))), None)


def _read(path: Path) -> TokenFile | None:
    """Return what a token file holds; None for a file that this process may not read, and for anything but a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        token = os.read(descriptor, MAX_TOKEN_BYTES).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return TokenFile(token, path, status.st_mtime_ns) if _TOKEN.fullmatch(token) else None
