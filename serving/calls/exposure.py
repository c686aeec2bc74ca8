"""What protects a server beyond its own machine: TLS certificates, which are read again when they change."""

import logging
from pathlib import Path

import grpc

from interfere.client.connections import expiry_of
from interfere.client.local_tokens import LOOPBACK
from interfere.config import Settings
from interfere.errors import InvalidInputError
from interfere.file_writing import file_signature

_log = logging.getLogger(__name__)


def is_local(settings: Settings) -> bool:
    """Return whether a server listens to the processes of its own host only."""
    return settings.host in LOOPBACK or settings.host.startswith("unix:")


def check_exposure(settings: Settings) -> None:
    """Raise InvalidInputError where a server beyond this machine would answer strangers, or in the clear."""
    missing = [name for name in ("callers", "tls_certificate") if getattr(settings, name) is None]
    if missing and not is_local(settings) and not settings.insecure:
        raise InvalidInputError(
            "beyond this machine a server needs known callers and TLS",
            value=f"host {settings.host} without {' and '.join(missing)}",
            remedy="see SECURITY.md; or --insecure, where the network lets nobody else reach it",
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidInputError(
            "a certificate and its key go together",
            value=f"tls_certificate {settings.tls_certificate}, tls_key {settings.tls_key}",
            remedy="give both, or neither",
        )
    if settings.tls_client_ca is not None and settings.tls_certificate is None:
        raise InvalidInputError(
            "clients' certificates need TLS", value=settings.tls_client_ca, remedy="give tls_certificate and tls_key"
        )


def server_credentials(settings: Settings) -> grpc.ServerCredentials:
    """Return the credentials of the server. New connections get the certificates that the files hold then.

    A new certificate that has expired already is not taken. Raises InvalidInputError where a file cannot be read, or
    the certificate has expired.
    """
    files = [each for each in (settings.tls_key, settings.tls_certificate, settings.tls_client_ca) if each is not None]
    served = _configuration(files)
    seen = refused = [file_signature(each) for each in files]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration where a file has changed; None goes on with the present one."""
        nonlocal seen, refused
        try:
            now = [file_signature(each) for each in files]
            if now == seen:
                return None
            configuration = _configuration(files)
        except OSError:  # a file is being replaced
            return None
        except InvalidInputError as error:  # told once for each state of the files
            if now != refused:
                _log.warning("the present certificate is kept: %s", error.one_line)
            refused = now
            return None
        seen = now
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        served,
        changed,  # type: ignore[arg-type]  # None is what gRPC documents for no change
        require_client_authentication=settings.tls_client_ca is not None,
    )


def _configuration(files: list[Path]) -> grpc.ServerCertificateConfiguration:
    try:
        key, certificate, *authorities = [each.read_bytes() for each in files]
        if expired := expiry_of(files[1]):
            raise InvalidInputError(
                "the server's certificate has expired",
                value=expired,
                remedy="renew the file that tls_certificate names",
            )
    except OSError as error:
        raise InvalidInputError(
            f"a certificate or key cannot be read ({error.strerror})", value=error.filename, remedy="give PEM files"
        ) from None
    return grpc.ssl_server_certificate_configuration(
        [(key, certificate)], root_certificates=authorities[0] if authorities else None
    )
