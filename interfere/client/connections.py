"""How a client reaches servers: what it shows to each (a token, and over TLS a certificate), several servers on one
database as one target, and one call over all that.

Calls take several servers in turn and are repeated on another one; the decisions of a scope go to one of them. Each
server has a weight for each scope, the hash of both, and the heaviest decides (rendezvous hashing: Thaler and
Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998). So all
clients ask the same server about a scope, and only the scopes of a server that is gone move.

Law: routing only saves work that two servers would do twice. Whichever server is asked, the answer is right.
"""

import hashlib
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import grpc

from interfere.client.local_tokens import LocalToken
from interfere.errors import InvalidInputError, UnavailableError
from interfere.tracing import sent_call
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.errors import error_from_status

SERVICE = "interfere.v1.PolicyService"
CONNECT_MS = 1_000  # until a server that does not answer is taken for away, and another one decides
# Between two look-ups of a name; by gRPC's 30 s, servers replaced one after another are all unknown.
RESOLUTION_MS = 1_000
REPEATED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # the latter by a server that stops just now
IN_TURN = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{"service": SERVICE}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": [code.name for code in REPEATED],
            },
        }
    ],
}
LOOK_EVERY_S = 1.0  # at whether a server that did not answer serves again
_HEALTH_CHECK = b"\n" + bytes([len(SERVICE)]) + SERVICE.encode()  # a HealthCheckRequest of grpc.health.v1
_SERVES = b"\x08\x01"  # the HealthCheckResponse SERVING
ChannelOption = tuple[str, int | str]
MESSAGE_BYTES = 64 * 2**20  # both directions; gRPC's default of 4 MiB fails at a matrix of 700 jobs
MESSAGE_OPTIONS: tuple[ChannelOption, ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),  # a scheduler's server is never behind the site's web proxy
)
OpenChannel = Callable[[str, Sequence[ChannelOption]], grpc.Channel]
"""Opens a channel to an address (`10.0.0.1:50051`)."""


def channel_options(target: str) -> list[ChannelOption]:
    """Return the options of the channel that takes all servers of a target in turn; none for one server."""
    if "," not in target and not target.startswith("dns:"):
        return []
    return [
        ("grpc.service_config", json.dumps(IN_TURN)),
        ("grpc.dns_min_time_between_resolutions_ms", RESOLUTION_MS),
    ]


def rendezvous(scope: str, addresses: Sequence[str]) -> list[str]:
    """Return the addresses of servers in the order in which they decide for a scope."""
    return sorted(addresses, key=lambda each: hashlib.sha256(f"{each} {scope or 'default'}".encode()).digest())


def listed_addresses(target: str) -> tuple[str, ...]:
    """Return the addresses that a target lists: those of `ipv4:10.0.0.1:50051,10.0.0.2:50051`, or of `ipv6:...`."""
    scheme, _, addresses = target.partition(":")
    return tuple(addresses.split(",")) if scheme in ("ipv4", "ipv6") else ()


class ScopeRouting:
    """Chooses the server that decides for a scope. Thread-safe; it never waits for the network."""

    def __init__(self, target: str, open_channel: OpenChannel) -> None:
        """Choose among the servers of a target. A name that a resolver of its own resolves (`dns://RESOLVER/NAME`) has
        no known addresses: calls take its servers in turn."""
        self._open_channel, self._addresses, self._name, self._port = open_channel, listed_addresses(target), "", ""
        if target.startswith("dns:") and (not target.startswith("dns://") or target.startswith("dns:///")):
            self._name, _, self._port = target.removeprefix("dns:").lstrip("/").rpartition(":")
        self._channels: dict[str, grpc.Channel] = {}
        self._away: set[str] = set()
        self._look_up_s, self._mutex = 0.0, threading.Lock()

    def choose(self, scope: str) -> tuple[str, rpc.PolicyServiceStub] | None:
        """Return the address and the stub of the server that decides for a scope; None where the choice is the
        channel's, as only one server is known, or none of them answers."""
        now_s = time.monotonic()
        with self._mutex:
            if self._name and now_s >= self._look_up_s:
                self._look_up_s = now_s + RESOLUTION_MS / 1e3
                threading.Thread(target=self._resolve, name="resolver", daemon=True).start()
            if len(self._addresses) < 2:
                return None
            for address in rendezvous(scope, self._addresses):
                if address not in self._away:
                    if address not in self._channels:
                        certified: list[ChannelOption] = [("grpc.ssl_target_name_override", self._name)]
                        options = [("grpc.min_reconnect_backoff_ms", CONNECT_MS), *(certified if self._name else [])]
                        self._channels[address] = self._open_channel(address, options)
                    return address, rpc.PolicyServiceStub(self._channels[address])
        return None

    def note_away(self, address: str) -> None:
        """Let the next servers decide for the scopes of one that does not answer, until it serves again."""
        with self._mutex:
            if address in self._away:
                return
            self._away.add(address)
        threading.Thread(target=self._look, args=(address,), name="look", daemon=True).start()

    def _look(self, address: str) -> None:
        """Wait until a server serves again, or is no longer among those of the target."""
        while (channel := self._channels.get(address)) is not None:
            time.sleep(LOOK_EVERY_S)
            with suppress(grpc.RpcError, ValueError):  # ValueError: the channel was closed
                check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
                if check(_HEALTH_CHECK, timeout=LOOK_EVERY_S) == _SERVES:
                    break
        with self._mutex:
            self._away.discard(address)

    def _resolve(self) -> None:
        """Look the addresses of the name up. Where that fails, the present ones stay."""
        with suppress(OSError):
            found = socket.getaddrinfo(self._name.strip("[]"), self._port, type=socket.SOCK_STREAM)
            hosts = {str(address[0]) for *_, address in found}
            addresses = tuple(
                sorted(f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts)
            )
            with self._mutex:
                self._addresses = addresses
                self._channels = {each: channel for each, channel in self._channels.items() if each in addresses}

    def close(self) -> None:
        """Close the connections."""
        with self._mutex:
            channels, self._channels, self._addresses, self._name = list(self._channels.values()), {}, (), ""
        for channel in channels:
            channel.close()


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


class SentCalls:
    """Sends the calls of one client: over which connection, with which token, again to another server where one goes
    away; statuses become errors."""

    def __init__(self, target: str, credentials: Credentials) -> None:
        """Prepare the channels to the servers at a target. They connect when they are first used."""
        self._target, self._credentials, self._local_token = target, credentials, LocalToken(target)
        self._channel = self._open(target, channel_options(target))
        self._stub = rpc.PolicyServiceStub(self._channel)
        self._routing = ScopeRouting(target, self._open)

    def _open(self, target: str, options: Sequence[ChannelOption]) -> grpc.Channel:
        return self._credentials.channel(target, [*MESSAGE_OPTIONS, *options])

    def wait_connected(self, timeout_s: float) -> None:
        """Wait until a server takes connections. Raises UnavailableError."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise UnavailableError(
                f"no server within {timeout_s:g} s", value=self._target, remedy="start it with: interfere serve"
            ) from None

    def send(self, method: str, request: Any, timeout_s: float) -> Any:
        """Return the answer to a request. A decision goes to the server that decides for its scope. Raises the error of
        a status."""
        end_s = time.monotonic() + timeout_s
        try:
            if method == "Match" and (chosen := self._routing.choose(request.scope)):
                address, stub = chosen
                try:
                    return self._send_to(stub, method, request, timeout_s)
                except grpc.RpcError as error:
                    if error.code() in (*REPEATED, grpc.StatusCode.DEADLINE_EXCEEDED):
                        self._routing.note_away(address)
                    if error.code() not in REPEATED:
                        raise
            return self._send_to(self._stub, method, request, max(0.0, end_s - time.monotonic()))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and (expired := self._credentials.expired_certificate()):
                raise UnavailableError(
                    "the client's certificate has expired", value=expired, remedy="renew it, then restart this client"
                ) from None
            trailing = error.trailing_metadata() or ()
            raw = next((item.value for item in trailing if item.key == "grpc-status-details-bin"), None)
            raise error_from_status(error.code().name, error.details() or "", raw, self._target) from None

    def _send_to(self, stub: rpc.PolicyServiceStub, method: str, request: Any, timeout_s: float) -> Any:
        with sent_call(f"{SERVICE}/{method}") as headers:
            metadata = [*self._credentials.metadata(self._local_token), *headers]
            return getattr(stub, method)(request, timeout=timeout_s, metadata=metadata)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()
        self._routing.close()
