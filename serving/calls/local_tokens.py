"""Identity by default on one host: a token file for each role, written when the server starts.

gRPC cannot tell who is at the other end of a local connection, but the host's files can: whoever may read the file of a
role has the role. Tokens are new at each start, so that one sent to another program on the port is worth nothing, and
their files are removed when the server stops.
"""

import grp
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from interfere.client.local_tokens import ROLES, is_own_folder, runtime_folders, server_name, shared_folder
from interfere.errors import UnauthenticatedError, UnfitError
from interfere.serving.calls.access import Caller, Role

TOKEN_BYTES = 32
REMEDY = (
    "run as the user who started the server or as root, with INTERFERE_RUNTIME={runtime}; or {group}; "
    "or start the server with --insecure, which answers every process of this host"
)


class LocalTokens:
    """The tokens of a server for the processes of its host. Files are written once its port is known."""

    def __init__(self) -> None:
        self._tokens = {role: secrets.token_urlsafe(TOKEN_BYTES) for role in ROLES}
        self._groups = {role: group for role in ROLES if (group := _group(f"interfere-{role}")) is not None}
        self.folder: Path | None = None  # of the files, once they are written

    def callers(self) -> Mapping[str, Caller]:
        """Return the caller of each token, by the SHA-256 of the token. A role includes those below it."""
        return {
            sha256(token.encode()).hexdigest(): Caller(name=f"local/{role}", roles=frozenset(map(Role, ROLES[rank:])))
            for rank, (role, token) in enumerate(self._tokens.items())
        }

    def write(self, target: str) -> None:
        """Write the files of a server that listens at `target`. Raises UnfitError where no folder can be written."""
        failures = []
        for runtime in runtime_folders():
            folder = runtime / server_name(target)
            try:
                if not runtime.exists():
                    runtime.mkdir(parents=True)
                    runtime.chmod(0o711)  # names are no secret; members of a role's group must get through
                if runtime == shared_folder():
                    _require_own(runtime)
                folder.mkdir(mode=0o700, exist_ok=True)
                _require_own(folder)
                folder.chmod(0o711 if self._groups else 0o700)
                for role, token in self._tokens.items():
                    self._write_token(folder / f"{role}.token", role, token)
            except OSError as error:
                failures.append(f"{folder} ({error.strerror})")
                continue
            self.folder = folder
            return
        raise UnfitError(
            "the token files cannot be written",
            value=", ".join(failures),
            remedy="name a folder: INTERFERE_RUNTIME=DIR, for server and clients; or --insecure for none",
        )

    def remove(self) -> None:
        """Remove the files, unless another server has replaced them."""
        for role, token in self._tokens.items():
            path = (self.folder or Path()) / f"{role}.token"
            with suppress(OSError):
                if path.read_text(encoding="ascii").strip() == token:
                    path.unlink()
        if self.folder is not None:
            with suppress(OSError):
                self.folder.rmdir()

    def refusal(self, what: str) -> UnauthenticatedError:
        """Return the error for a call without a valid token: the files, their groups, and the ways to be answered."""
        folder = self.folder or Path()
        readers = [f"{role}: group interfere-{role}" for role in self._groups]
        groups = f"join the group of a role ({', '.join(f'interfere-{role}' for role in self._groups)})"
        none = "let root create the group interfere-ROLE, join it, and start the server again as root"
        return UnauthenticatedError(
            what,
            value=f"{folder}/ROLE.token, ROLE one of {', '.join(ROLES)} ({', '.join(readers) or 'no groups'})",
            remedy=REMEDY.format(runtime=folder.parent, group=groups if readers else none),
        )

    def _write_token(self, path: Path, role: str, token: str) -> None:
        """Write a token that the owner may read, and the group of its role where the host has that group."""
        descriptor, temporary = tempfile.mkstemp(prefix=f".{role}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(token + "\n")
                file.flush()
                if role in self._groups:
                    with suppress(PermissionError):  # neither root nor a member of the group
                        os.fchown(descriptor, -1, self._groups[role])
                        os.fchmod(descriptor, 0o640)
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _require_own(folder: Path) -> None:
    """Raise PermissionError for a folder of somebody else, who could replace what is written there."""
    if not is_own_folder(folder):
        raise PermissionError(None, "it belongs to somebody else")


def _group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
