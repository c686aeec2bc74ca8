"""What a client shows to a server: a token, and over TLS a certificate."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import grpc

from interfere.errors import InvalidInputError

_VARIABLES = {
    "token_file": "TOKEN_FILE",
    "ca": "TLS_CA",
    "certificate": "TLS_CLIENT_CERTIFICATE",
    "key": "TLS_CLIENT_KEY",
}


class _Details(NamedTuple):
    """Details of a call, with the token among its metadata."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str]] | None
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _WithToken(grpc.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Sends the token with every call. The file is read each time, so that a new token is used at once."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Send the call with the token among its metadata."""
        metadata = [*(client_call_details.metadata or ()), ("authorization", f"Bearer {self._token()}")]
        details = _Details(
            client_call_details.method,
            client_call_details.timeout,
            metadata,
            client_call_details.credentials,
            getattr(client_call_details, "wait_for_ready", None),
            getattr(client_call_details, "compression", None),
        )
        return continuation(details, request)


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
        """Return a channel to a server. Raises InvalidInputError where a file cannot be read."""
        if self.ca is None:
            channel = grpc.insecure_channel(target, options=options)
        else:
            pems = (None if file is None else _read(file) for file in (self.ca, self.key, self.certificate))
            channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(*pems), options=options)
        if self.token_file is None:
            return channel
        _ = self._token()
        return grpc.intercept_channel(channel, _WithToken(self._token))

    def _token(self) -> str:
        return "" if self.token_file is None else _read(self.token_file).decode(errors="replace").strip()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"a token or certificate cannot be read ({error.strerror})",
            value=file,
            remedy="check INTERFERE_TOKEN_FILE, INTERFERE_TLS_CA, INTERFERE_TLS_CLIENT_CERTIFICATE and _KEY",
        ) from None
