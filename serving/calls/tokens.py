"""The tokens that a server accepts: files of the host, one a role, and tokens that an issuer signs.

gRPC cannot tell who is at the other end of a local connection, but the host's files can: whoever may read the file of a
role has the role. Tokens of the host are new at each start, so that one sent to another program on the port is worth
nothing, and their files are removed when the server stops.

Issued tokens, such as the projected service-account tokens of Kubernetes, are checked by the issuer's public keys. Law:
only a signature by one of the issuer's present keys, of an asymmetric algorithm, makes a token valid, and only for the
issuer and the audience of the settings, until it expires. Keys are read again when their file changes, and fetched
again from an address when a token names an unknown key: so they rotate without a failed call.
"""

import grp
import json
import os
import secrets
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.client.local_tokens import ROLES, is_own_folder, runtime_folders, server_name, shared_folder
from interfere.errors import InvalidInputError, UnauthenticatedError, UnfitError
from interfere.file_writing import file_signature
from interfere.installation import install_line
from interfere.serving.calls.access import Caller, Role

if TYPE_CHECKING:
    import jwt


TOKEN_BYTES = 32
LOCAL_REMEDY = (
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
            remedy=LOCAL_REMEDY.format(runtime=folder.parent, group=groups if readers else none),
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


# --- tokens that an issuer signs: checked by its public keys ----------------------------------------------------------

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
CLAIMS = ("exp", "iss", "aud", "sub")  # that a token must have
LEEWAY_S = 10.0  # by which the clocks of issuer and server may differ
TIMEOUT_S = 5.0  # of a fetch
FETCH_S = 5.0  # between two fetches for unknown keys: strangers choose what their tokens name
KEEP_S = 300.0  # fetched keys, until they are fetched again: a withdrawn key ends then
MAX_KEYS_BYTES = 2**20
REMEDY = "send a token of this issuer and audience that has not expired, and read its file again when it is renewed"


class IssuedTokens:
    """The tokens of one issuer. Thread-safe."""

    def __init__(self, issuer: str, audience: str, keys: str) -> None:
        """`keys`: file or https address of the issuer's JSON Web Key Set. Raises InvalidInputError where no keys can be
        read there, or PyJWT is not installed."""
        try:
            import jwt
        except ModuleNotFoundError:
            remedy = install_line("serve", "kubernetes")
            raise InvalidInputError("tokens of an issuer need PyJWT", value=issuer, remedy=remedy) from None
        if not issuer or not audience:
            remedy = "set issuer and audience as the tokens have them"
            raise InvalidInputError("issuer_keys go with an issuer and an audience", value=keys, remedy=remedy)
        self._jwt, self._issuer, self._audience, self._place = jwt, issuer, audience, keys
        self._is_address = keys.startswith("https://")
        self._mutex, self._keys, self._signature, self._fetched_s = threading.Lock(), {}, (0, 0, 0), -KEEP_S
        try:
            self._read()
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise InvalidInputError(
                f"the issuer's keys cannot be read ({error})", value=keys, remedy="give a JSON Web Key Set"
            ) from None

    _keys: dict[str, "jwt.PyJWK"]

    def subject(self, token: str) -> str:
        """Return the subject of a token. Raises UnauthenticatedError, which never holds the token, where it is not
        valid."""
        jwt = self._jwt
        try:
            key = self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                raise UnauthenticatedError("the token is signed by none of the issuer's keys", remedy=REMEDY)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": list(CLAIMS)},
            )
        except jwt.ExpiredSignatureError:
            raise UnauthenticatedError("the token has expired", remedy=REMEDY) from None
        except jwt.PyJWTError as error:
            fault = type(error).__name__.removesuffix("Error")
            raise UnauthenticatedError(f"the token is not valid ({fault})", remedy=REMEDY) from None
        return str(claims["sub"])

    def _key(self, key_id: str) -> "jwt.PyJWK | None":
        """Return the key of an id, after the keys were read again where they may have changed. Calls with a known key
        do not wait while another fetches."""
        try:
            if self._may_have_changed(key_id) and self._mutex.acquire(blocking=key_id not in self._keys):
                try:
                    if self._may_have_changed(key_id):
                        self._read()
                finally:
                    self._mutex.release()
        except (OSError, ValueError, self._jwt.PyJWTError):
            pass  # being replaced, or out of reach: the keys stay
        return self._keys.get(key_id)

    def _may_have_changed(self, key_id: str) -> bool:
        if not self._is_address:
            return file_signature(Path(self._place)) != self._signature
        age_s = time.monotonic() - self._fetched_s
        return age_s > KEEP_S or (key_id not in self._keys and age_s > FETCH_S)

    def _read(self) -> None:
        """Read or fetch the keys. Raises OSError, ValueError or PyJWTError, and then leaves them as they are."""
        signature = self._signature
        if self._is_address:
            self._fetched_s = time.monotonic()
            with urllib.request.urlopen(self._place, timeout=TIMEOUT_S) as answer:  # noqa: S310 - https, see above
                content = answer.read(MAX_KEYS_BYTES)
        else:
            signature = file_signature(Path(self._place))
            content = Path(self._place).read_bytes()
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        keys = self._jwt.PyJWKSet.from_dict(document).keys
        self._keys = {str(key.key_id or ""): key for key in keys if key.key_type != "oct"}
        self._signature = signature
