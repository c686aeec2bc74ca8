"""Errors as google.rpc.Status: BadRequest details for clients in general, ErrorDetail for the client of this project.

Law: error_from_status(…, status_of(e)) has the class, what, value, remedy and violations of e, up to `DETAIL_BYTES`.
"""

import re
from dataclasses import asdict, fields
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from interfere import errors
from interfere.errors import InterfereError, InvalidInputError, LimitError, UnavailableError, Violation
from interfere.v1 import policy_pb2 as pb

# Trailing metadata over 8 KiB is refused by gRPC's defaults. The details travel twice, in base64, beside the message.
DETAIL_BYTES = 1800
MAX_TEXT = 300  # characters of one value or remedy that travel
M = TypeVar("M", bound=Message)
_CERTIFICATE_REFUSAL = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)")  # what gRPC says of a failed handshake
_VIOLATION_FIELDS = tuple(each.name for each in fields(Violation))

_BY_CODE: dict[str, type[InterfereError]] = {
    "INVALID_ARGUMENT": errors.InvalidInputError,
    "UNAUTHENTICATED": errors.UnauthenticatedError,
    "PERMISSION_DENIED": errors.ForbiddenError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.ConflictError,
    "RESOURCE_EXHAUSTED": errors.LimitError,
    "FAILED_PRECONDITION": errors.UnfitError,
    "UNAVAILABLE": errors.UnavailableError,
    "DEADLINE_EXCEEDED": errors.UnavailableError,
    "CANCELLED": errors.UnavailableError,
}
_BY_CLASS_NAME: dict[str, type[InterfereError]] = {
    error_class.__name__: error_class for error_class in (*_BY_CODE.values(), errors.TableError, errors.ModelError)
}


def status_of(error: InterfereError) -> status_pb2.Status:
    """Return the google.rpc.Status of an error: code, message, and details."""
    detail = pb.ErrorDetail(
        kind=type(error).__name__,
        what=_shortened(error.what),
        value="" if error.value is None else _shortened(str(error.value)),
        remedy=_shortened(error.remedy),
    )
    status = status_pb2.Status(code=code_pb2.Code.Value(error.code), message=_shortened(str(error), 2 * MAX_TEXT))
    bad_request = error_details_pb2.BadRequest()
    for violation in error.violations if isinstance(error, InvalidInputError) else ():
        short = Violation(**{name: _shortened(getattr(violation, name)) for name in _VIOLATION_FIELDS})
        described = bad_request.field_violations.add(
            field=short.field, description=f"{short.what} (got {short.value}); {short.remedy}"
        )
        if bad_request.ByteSize() > DETAIL_BYTES and len(bad_request.field_violations) > 1:
            bad_request.field_violations.remove(described)
            break
        detail.violations.add(**asdict(short))
    if bad_request.field_violations:
        status.details.add().Pack(bad_request)
    status.details.add().Pack(detail)
    if isinstance(error, LimitError | UnavailableError) and error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(1e3 * error.retry_after_s))
        status.details.add().Pack(retry)
    return status


def error_from_status(code: str, message: str, details: bytes | None, target: str) -> InterfereError:
    """Return the error that the server raised. Where the details are missing, its class is chosen by the code."""
    if (detail := _unpacked(details, pb.ErrorDetail())) is not None and detail.kind in _BY_CLASS_NAME:
        return _error_from_detail(detail, details or b"")
    if code == "DEADLINE_EXCEEDED":
        return UnavailableError("no answer in time", value=target, remedy="give more time (timeout_s), or ask for less")
    if code == "UNAVAILABLE" and (refusal := _CERTIFICATE_REFUSAL.search(message)):
        return UnavailableError(
            f"the server's certificate is refused: {refusal[1]}",
            value=target,
            remedy="renew the server's certificate, or name the authority that signed it (INTERFERE_TLS_CA)",
        )
    if code in ("UNAVAILABLE", "CANCELLED"):
        remedy = "start it with: interfere serve; or give its address (--target)"
        return UnavailableError(
            f"the policy server does not answer ({_shortened(message)})", value=target, remedy=remedy
        )
    if code == "RESOURCE_EXHAUSTED":
        remedy = "send a smaller request, or fewer at once"
        return errors.LimitError(f"the policy server refused: {_shortened(message)}", value=target, remedy=remedy)
    error_class = _BY_CODE.get(code, InterfereError)
    return error_class(f"{code}: {_shortened(message)}", value=target, remedy="see the log of the server")


def _error_from_detail(detail: pb.ErrorDetail, details: bytes) -> InterfereError:
    """Return an error of the class that a detail names. `details`: the serialized status that contains the detail."""
    further: dict[str, Any] = {}
    error_class = _BY_CLASS_NAME[detail.kind]
    if issubclass(error_class, InvalidInputError):
        further["violations"] = tuple(
            Violation(**{name: getattr(each, name) for name in _VIOLATION_FIELDS}) for each in detail.violations
        )
    elif issubclass(error_class, LimitError | UnavailableError):
        retry = _unpacked(details, error_details_pb2.RetryInfo())
        further["retry_after_s"] = None if retry is None else retry.retry_delay.ToMilliseconds() / 1e3
    return error_class(detail.what, value=detail.value or None, remedy=detail.remedy, **further)


def _unpacked(status: bytes | None, message: M) -> M | None:
    """Return a message filled from the detail of its type in a serialized status; None where the status has no such
    detail."""
    try:
        details = status_pb2.Status.FromString(status or b"").details
    except DecodeError:
        return None
    return message if any(packed.Unpack(message) for packed in details) else None


def _shortened(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
