"""An error that crosses the wire keeps class, what, value, remedy and violations, and fits into trailing metadata."""

import pytest
from google.rpc import error_details_pb2

from interfere import errors
from interfere.wire.errors import error_from_status, status_of

VIOLATION = errors.Violation(field="pending[3].weight", what="must be ≥ 0", value="-1", remedy="send a number")
KINDS = [
    errors.InvalidInputError("broken", value=3, remedy="mend it", violations=[VIOLATION]),
    errors.TableError("bad row", value="t.parquet", remedy="look"),
    errors.NotFoundError("nobody", value="x", remedy="register"),
    errors.ConflictError("same id", remedy="new id"),
    errors.LimitError("too much", value=10**9, remedy="less"),
    errors.UnfitError("cannot", remedy="elsewhere"),
    errors.ModelError("wrong fingerprint", value="abc", remedy="retrain"),
    errors.UnavailableError("disk full", remedy="free it"),
]


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_there_and_back(error: errors.InterfereError) -> None:
    status = status_of(error)
    again = error_from_status(error.code, status.message, status.SerializeToString(), "somewhere:1")
    assert type(again) is type(error)
    assert (str(again), again.remedy) == (str(error), error.remedy)
    assert getattr(again, "violations", ()) == getattr(error, "violations", ())


def test_other_clients_get_bad_request() -> None:
    status = status_of(KINDS[0])
    fields = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(fields)
    assert fields.field_violations[0].field == "pending[3].weight"
    assert "send a number" in fields.field_violations[0].description


def test_many_long_violations_still_fit_the_trailing_metadata() -> None:
    many = [
        errors.Violation(field=f"pending[{k}].id", what="must be short", value="v" * 5000, remedy="r")
        for k in range(500)
    ]
    status = status_of(errors.InvalidInputError.from_violations(many))
    assert len(status.SerializeToString()) * 4 / 3 + len(status.message.encode()) < 8192
    again = error_from_status("INVALID_ARGUMENT", status.message, status.SerializeToString(), "t")
    assert isinstance(again, errors.InvalidInputError)
    assert again.violations[0].field == "pending[0].id"
    assert "499 more" in str(again)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", errors.UnavailableError),
        ("DEADLINE_EXCEEDED", errors.UnavailableError),
        ("RESOURCE_EXHAUSTED", errors.LimitError),
        ("INVALID_ARGUMENT", errors.InvalidInputError),
        ("INTERNAL", errors.InterfereError),
    ],
)
@pytest.mark.parametrize("details", [None, b"", b"\xff\xff\xff"])
def test_a_status_without_our_details_finds_the_class_of_its_code(
    code: str, kind: type[errors.InterfereError], details: bytes | None
) -> None:
    error = error_from_status(code, "text", details, "host:1")
    assert type(error) is kind
    assert "host:1" in str(error)
    assert error.remedy
