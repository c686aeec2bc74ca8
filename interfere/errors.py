"""Every error that this project raises on purpose: what went wrong, with which value, and what to do about it.

The tree (neutral code in brackets; one interceptor maps it to a gRPC status, the client maps it back)::

    InterfereError
    ├── InvalidInputError   [INVALID_ARGUMENT]     the input breaks a rule; carries the violation of each field
    │   └── TableError      [INVALID_ARGUMENT]     a table on disk: names file, row, column
    ├── NotFoundError       [NOT_FOUND]            the name is not registered
    ├── ConflictError       [ALREADY_EXISTS]       the id exists with other content
    ├── RetryableError                             may pass later, and says when
    │   ├── LimitError      [RESOURCE_EXHAUSTED]   a stated limit is exceeded
    │   └── UnavailableError [UNAVAILABLE]         a server or disk may come back
    ├── UnfitError          [FAILED_PRECONDITION]  this machine, folder or state does not allow it now
    │   └── ModelError      [FAILED_PRECONDITION]  the model folder must not be served
    └── CancelledError      [CANCELLED]            nobody waits for the answer any longer

Expected refusals (a job that must wait, a pair that does not fit in memory) are data, never exceptions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One field that breaks a rule. `field` is its path in the input, like `pending[3].weight`."""

    field: str
    what: str
    value: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.what} (got {self.value}); {self.remedy}"


class InterfereError(Exception):
    """The base of all errors: `what` went wrong, with which `value`, and the `remedy`.

    >>> from interfere import InterfereError, Job
    >>> try:
    ...     Job(id="j1", workload="gemm", weight=-1.0)
    ... except InterfereError as error:
    ...     print(error.code)
    INVALID_ARGUMENT
    """

    code = "UNKNOWN"
    exit_status = 1  # of a command that ends with it

    def __init__(self, what: str, *, value: object = None, remedy: str = "") -> None:
        self.what, self.value, self.remedy = what, value, remedy
        text = what if value is None else f"{what}: {value}"
        super().__init__(f"{text}\n  remedy: {remedy}" if remedy else text)

    @property
    def one_line(self) -> str:
        """The text of the error without line breaks, for a log line or a reason."""
        return " ".join(str(self).split())


class InvalidInputError(InterfereError):
    """The caller's input breaks rules; all violations are reported at once."""

    code = "INVALID_ARGUMENT"

    def __init__(
        self, what: str, *, value: object = None, remedy: str = "", violations: Sequence[Violation] = ()
    ) -> None:
        super().__init__(what, value=value, remedy=remedy)
        self.violations = tuple(violations)

    @classmethod
    def from_violations(cls, violations: Sequence[Violation]) -> "InvalidInputError":
        """Return one error for one or more violations; its text shows the first and counts the others."""
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        return cls(f"{first.field}: {first.what}{more}", value=first.value, remedy=first.remedy, violations=violations)


class TableError(InvalidInputError):
    """A table on disk breaks its schema; the message names file, row and column."""


class UnauthenticatedError(InterfereError):
    """The server answers known callers only, and does not know this one."""

    code = "UNAUTHENTICATED"


class ForbiddenError(InterfereError):
    """The caller is known, and may not do this."""

    code = "PERMISSION_DENIED"


class NotFoundError(InterfereError):
    """The name is not registered."""

    code = "NOT_FOUND"


class ConflictError(InterfereError):
    """The id exists already, with other content."""

    code = "ALREADY_EXISTS"


class RetryableError(InterfereError):
    """The same request may succeed later: after `retry_after_s` seconds, or after an unknown time where that is
    None."""

    def __init__(
        self, what: str, *, value: object = None, remedy: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(what, value=value, remedy=remedy)
        self.retry_after_s = retry_after_s


class LimitError(RetryableError):
    """A stated limit is exceeded. With `retry_after_s` the limit is a temporary one: the same request may succeed after
    that time."""

    code = "RESOURCE_EXHAUSTED"


class UnfitError(InterfereError):
    """This machine, folder or state does not allow what was asked, until it changes."""

    code = "FAILED_PRECONDITION"


class ModelError(UnfitError):
    """The model folder must not be served: wrong fingerprint, truncated file, missing part."""


class UnavailableError(RetryableError):
    """A server or a disk is away and may come back. The caller may retry, after `retry_after_s` seconds where that is
    known."""

    code = "UNAVAILABLE"


class CancelledError(InterfereError):
    """The caller no longer waits for the answer: it gave up, or its deadline passed."""

    code = "CANCELLED"


def remedy_for_name(
    name: str, known: Iterable[str], otherwise: str = "", *, whole: Mapping[str, str] | None = None
) -> str:
    """Return the remedy for an unknown name: the known name nearest to it, else `otherwise`, else all known names.

    `whole`: how a known name is written in full, where only a part of it is compared.
    """
    names = tuple(known)
    nearest = get_close_matches(name, names, n=1)
    if nearest:
        return f"did you mean {(whole or {}).get(nearest[0], nearest[0])}?"
    return otherwise or f"one of {', '.join(names) or '(none)'}"
