"""Building blocks of the converters: optional numbers, enumerations, and the paths of broken rules."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN, ActionKind, ObjectiveKind, ObservationResult, OutcomeKind, SolveStatus, Source
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from interfere.v1 import policy_pb2 as pb

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Inspection:
    """Collects violations with their paths, so that all are reported at once."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def read(self, path: str, build: Callable[[], T]) -> T | None:
        """The result of `build`, or None after noting its violations under `path`."""
        try:
            return build()
        except InvalidInputError as error:
            own = error.violations or (
                Violation(field="", what=error.what, value=str(error.value), remedy=error.remedy),
            )
            self._violations += [replace(v, field=_join_path(path, v.field)) for v in own]
            return None

    def note(self, violation: Violation) -> None:
        """Add a violation that was found elsewhere."""
        self._violations.append(violation)

    def read_all(self, path: str, messages: Iterable[Any], build: Callable[[Any], T]) -> tuple[T, ...]:
        """The result of `build` for each message of a repeated field; violations of broken ones are noted."""
        try:
            return tuple(map(build, messages))
        except InvalidInputError:
            pass  # once more, for the paths of all that are broken
        records = [self.read(f"{path}[{k}]", partial(build, message)) for k, message in enumerate(messages)]
        return tuple(record for record in records if record is not None)

    def done(self) -> None:
        """Raise InvalidInputError when there are violations."""
        if self._violations:
            raise InvalidInputError.from_violations(self._violations)


def _join_path(path: str, field: str) -> str:
    return f"{path}.{field}" if path and field and field[0] != "[" else path + field


def number(message: Any, name: str, default: float = NAN) -> float:
    """An optional number: `default` when absent. A number that is sent must be finite."""
    if not message.HasField(name):
        return default
    value = float(getattr(message, name))
    if not math.isfinite(value):
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field=name, what="must be finite", value=repr(value), remedy="leave it out when it is not known"
                )
            ]
        )
    return value


def numbers(message: Any, *names: str) -> dict[str, float]:
    """Optional numbers by name, all their violations at once."""
    inspection = Inspection()
    values = {name: inspection.read("", partial(number, message, name)) for name in names}
    inspection.done()
    return {name: value for name, value in values.items() if value is not None}


def set_numbers(message: Any, record: object, *names: str) -> None:
    """Write the finite ones; an absent number is not sent."""
    for name in names:
        value = getattr(record, name)
        if math.isfinite(value):
            setattr(message, name, value)


Word = TypeVar("Word", bound=str)


class Words(Mapping[Word, Any]):
    """A two-way table between the words of an enumeration and its numbers on the wire."""

    def __init__(self, prefix: str, enum: Any, words: Iterable[Word], unspecified: Word | None = None) -> None:
        self._number = {word: int(enum.Value(f"{prefix}_{word.upper()}")) for word in words}
        self._word = {number: word for word, number in self._number.items()}
        if unspecified is not None:
            self._word[0] = unspecified

    def __getitem__(self, word: Word) -> Any:  # an enum value of protobuf, which its stubs type one by one
        return self._number[word]

    def __iter__(self) -> Any:
        return iter(self._number)

    def __len__(self) -> int:
        return len(self._number)

    @property
    def numbers(self) -> Collection[int]:
        """The numbers that have a word."""
        return self._word.keys()

    def word(self, number_: int, field: str) -> Word:
        """The word of a number; a number nobody defined is a violation of `field`."""
        if number_ not in self._word:
            remedy = f"one of {', '.join(self._number)}"
            raise InvalidInputError.from_violations(
                [Violation(field=field, what="unknown value", value=str(number_), remedy=remedy)]
            )
        return self._word[number_]


MODE = Words("SHARING_MODE", pb.SharingMode, SharingMode, unspecified=DEFAULT_MODE)
OBJECTIVE = Words("OBJECTIVE_KIND", pb.ObjectiveKind, ObjectiveKind, unspecified=ObjectiveKind.WEIGHTED_EXCESS)
ACTION = Words("ACTION_KIND", pb.ActionKind, ActionKind)
SOURCE = Words("PREDICTION_SOURCE", pb.PredictionSource, Source)
STATUS = Words("SOLVE_STATUS", pb.SolveStatus, SolveStatus)
OUTCOME = Words("OUTCOME_KIND", pb.OutcomeKind, OutcomeKind)
RESULT = Words("OBSERVATION_RESULT", pb.ObservationResult, ObservationResult)
