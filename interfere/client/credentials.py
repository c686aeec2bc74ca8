"""What a client shows to a server: a token, and over TLS a certificate."""

import os
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import grpc

from interfere.client.local_tokens import LocalToken
from interfere.errors import InvalidInputError

_VARIABLES = {
    "token_file": "TOKEN_FILE",
    "ca": "TLS_CA",
    "certificate": "TLS_CLIENT_CERTIFICATE",
    "key": "TLS_CLIENT_KEY",
}


# Validity of a certificate: two times, of 12 digits (two of the year, until 2049) or 14 (RFC 5280, section 4.1.2.5).
_TIME = rb"(?:\x17\x0d(?:\d{12})Z|\x18\x0f(?:\d{14})Z)"
_VALIDITY = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + rb"[\x17\x18].(\d+)Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files of a client's token and certificates; None where there is none."""

    token_file: Path | None = None
    ca: Path | None = None  # authority of the server's certificate; with it the connection uses TLS
    certificate: Path | None = None  # of the client
    key: Path | None = None

    @classmethod
    def of_environment(cls) -> Self:
        """Return the credentials that the environment names: INTERFERE_TOKEN_FILE and INTERFERE_TLS_*."""
        files = {name: os.environ.get(f"INTERFERE_{variable}", "") for name, variable in _VARIABLES.items()}
        return cls(**{name: Path(file) for name, file in files.items() if file})

    def channel(self, target: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """Return a channel to a server, whose calls are sent with `metadata`. Raises InvalidInputError where a file
        cannot be read, or the client's certificate has expired."""
        if self.token_file is not None:
            _read(self.token_file)
        if self.ca is None:
            channel = grpc.insecure_channel(target, options=options)
        else:
            if expired := self.expired_certificate():
                raise InvalidInputError(
                    "the client's certificate has expired",
                    value=expired,
                    remedy="renew the file that INTERFERE_TLS_CLIENT_CERTIFICATE names",
                )
            pems = (None if file is None else _read(file) for file in (self.ca, self.key, self.certificate))
            channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(*pems), options=options)
        return channel

    def expired_certificate(self) -> str:
        """Return the file and the end of the client's certificate where that has passed, else an empty text."""
        return "" if self.ca is None or self.certificate is None else expiry_of(self.certificate)

    def metadata(self, local: LocalToken) -> tuple[tuple[str, str], ...]:
        """Return the metadata of the next call: the token of the file, read again so that a new one is used at once,
        or else the token of a server on this host."""
        file = self.token_file
        token = local.read() if file is None else _read(file).decode(errors="replace").strip()
        return (("authorization", f"Bearer {token}"),) if token else ()


def expiry_of(file: Path) -> str:
    """Return the file and the end of its first certificate where that has passed, else an empty text.

    A file that cannot be read or holds no certificate is nothing for this function: TLS refuses it.
    """
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    try:
        _, _, rest = file.read_bytes().partition(begin)
        der = ssl.PEM_cert_to_DER_cert((begin + rest.partition(end)[0] + end).decode())
    except (OSError, ValueError):
        return ""
    if (validity := _VALIDITY.search(der)) is None:
        return ""
    digits = validity[1].decode()
    if len(digits) == 12:  # RFC 5280: 50 to 99 are of the last century
        digits = ("20" if digits < "50" else "19") + digits
    until = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return f"{file}, valid until {until:%Y-%m-%d %H:%M} UTC" if until < datetime.now(UTC) else ""


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"a token or certificate cannot be read ({error.strerror})",
            value=file,
            remedy="check INTERFERE_TOKEN_FILE, INTERFERE_TLS_CA, INTERFERE_TLS_CLIENT_CERTIFICATE and _KEY",
        ) from None
