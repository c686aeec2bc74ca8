"""Tokens that an issuer signs, such as the projected service-account tokens of Kubernetes: checked by its public keys.

Law: only a signature by one of the issuer's present keys, of an asymmetric algorithm, makes a token valid, and only for
the issuer and the audience of the settings, until it expires. Keys are read again when their file changes, and fetched
again from an address when a token names an unknown key: so they rotate without a failed call.
"""

import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.errors import InvalidInputError, UnauthenticatedError
from interfere.installation import install_line

if TYPE_CHECKING:
    import jwt

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
            return _signature(Path(self._place)) != self._signature
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
            signature = _signature(Path(self._place))
            content = Path(self._place).read_bytes()
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        keys = self._jwt.PyJWKSet.from_dict(document).keys
        self._keys = {str(key.key_id or ""): key for key in keys if key.key_type != "oct"}
        self._signature = signature


def _signature(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
