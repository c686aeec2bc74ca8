"""Records to protobuf messages and back, by the names of their fields and the descriptor of the message.

Law 1: from_proto(type(r), to_proto(r, message)) == r, for every record and its message.
Law 2: whatever bytes arrive, `from_proto` gives a valid record or InvalidInputError with the path of every broken rule.

What follows from the names and types alone:
- An optional number that is NaN or infinite, a None and an empty text are not sent; a number that is sent is finite.
- A field that was not sent takes the default of the record; a number or truth value without presence is 0 or false.
- The word of an enumeration is the name of its member; the unspecified word stands for the default.
- A record that stands in place (`Limits.slowdown`) has its fields beside the others.
The tables below list what does not follow. Predictions travel as messages or as columns, matrices as little-endian
bytes with their shape.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, Violation
from interfere.records import (
    NAN,
    MatrixAnswer,
    MatrixPrediction,
    MemoryDemand,
    ObjectiveKind,
    Observation,
    PairAnswer,
    Prediction,
    Reported,
    Rule,
    RuleKind,
    Snapshot,
    Source,
    Unreadable,
)
from interfere.records.checks import Inspection
from interfere.records.observations import OBSERVATION_TYPES, observation_kind
from interfere.records.predictions import PREDICTED_NUMBERS
from interfere.records.record import (
    FieldReader,
    RecordField,
    RecordReader,
    compiled_once,
    fields_of,
    is_record,
    read_each,
)
from interfere.sharing_modes import DEFAULT_MODE
from interfere.v1 import policy_pb2 as pb
from interfere.wire.bounds import check_bounds, shortened
from interfere.wire.job_times import with_times

M = TypeVar("M", bound=Message)
R = TypeVar("R")

_PACKAGE = "interfere.v1."
# The word that stands for an enumeration's unspecified one.
_UNSPECIFIED: dict[str, Any] = {"SharingMode": DEFAULT_MODE, "ObjectiveKind": ObjectiveKind.AUTO}
_ZERO_IS_ABSENT = {"Job.gpus"}  # numbers without presence, where 0 means the default
_NOT_SENT_AT = {"Device.oversubscription_ratio": 1.0}  # numbers that are left out at this value
# Records in which a newer server may send enum values unknown to this release: these are read as absent.
_EXTENSIBLE = (Rule, MemoryDemand)
MAX_REASON = 1_000  # characters that say why an observation was rejected


def to_proto(record: object, message: type[M]) -> M:
    """Return a record as a protobuf message."""
    return message(**_writer(type(record), message.DESCRIPTOR)(record))


def from_proto(record_type: type[R], message: Message) -> R:
    """Return the record of a protobuf message. Raises InvalidInputError with the path of every broken rule."""
    record: R = _reader(record_type, message.DESCRIPTOR)(message)
    return record


# --- records to messages ----------------------------------------------------------------------------------------------


@compiled_once
def _writer(record_type: Any, descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that converts a record to the constructor arguments of its message, by field name."""
    if (shape := _SHAPES.get(descriptor.name)) and shape.write is not None:
        return shape.write
    sent = [each for each in fields_of(record_type) if each.name in descriptor.fields_by_name]
    names = [each.name for each in sent]
    get = attrgetter(*(each.path for each in sent)) if len(sent) > 1 else lambda record: (getattr(record, names[0]),)
    encoders = [_encoder(each, descriptor.fields_by_name[each.name]) for each in sent]
    encoded = [(name, encode) for name, encode in zip(names, encoders, strict=True) if encode is not None]

    def write(record: Any) -> dict[str, Any]:
        values = dict(zip(names, get(record)))  # noqa: B905 - as many, and this is what a large snapshot waits for
        for name, encode in encoded:
            if (value := values[name]) is not None:
                values[name] = encode(value)
        return values

    return write


def _encoder(of: RecordField, field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """Return a function that encodes the value of a field; None where the value is sent unchanged."""
    encode = _value_encoder(of, field)
    if not field.is_repeated:
        return encode
    if of.collection is frozenset:
        return lambda values: sorted(map(encode, values)) if encode else sorted(values)
    return encode and (lambda values: [encode(value) for value in values])


def _value_encoder(of: RecordField, field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        return _writer(of.type, field.message_type)
    if field.enum_type is not None:
        number_of = {word: number for number, word in words(of.type, field.enum_type).items() if number}
        return partial(_number_of_word, number_of)
    if field.has_presence and of.type is str:
        return lambda text: text or None
    if field.has_presence and of.type is float:
        left_out = _NOT_SENT_AT.get(field.full_name.removeprefix(_PACKAGE))
        return lambda number: number if math.isfinite(number) and number != left_out else None
    return None


def _number_of_word(number_of: dict[Any, int], word: Any) -> int | None:
    return number_of[word] if word else None


# --- messages to records ----------------------------------------------------------------------------------------------


@compiled_once
def _reader(record_type: Any, descriptor: Any) -> Callable[..., Any]:
    if shape := _SHAPES.get(descriptor.name):
        return shape.read
    return _fields_reader(record_type, descriptor)


@compiled_once
def _fields_reader(record_type: Any, descriptor: Any) -> Callable[..., Any]:
    """Return a function that builds the record of a message from the fields that both have and from further given
    values."""
    readers, absent, always = {}, {}, []
    for each in fields_of(record_type):
        field = descriptor.fields_by_name.get(each.name)
        if field is None:
            continue
        readers[field] = _field_reader(each, field, record_type)
        if (value := _absent_value(each, field)) is not MISSING:
            absent[each.name] = value
        elif each.default is MISSING:
            always.append(field)
    build = RecordReader(record_type, readers, absent).build

    def read(message: Message, given: Mapping[str, Any] | None = None) -> Any:
        sent = list(message.ListFields())
        for field in always:  # whose absence breaks a rule
            if not any(other is field for other, _ in sent):
                sent.append((field, getattr(message, field.name)))
        return build(sent, given)

    return read if always else lambda message, given=None: build(message.ListFields(), given)


def _absent_value(of: RecordField, field: FieldDescriptor) -> Any:
    """Return the value of a field that was not sent. MISSING means the default, or that the field must be read
    anyway."""
    if field.is_repeated:
        return of.collection() if of.collection and of.default is MISSING else MISSING
    if field.message_type is not None:
        return MISSING
    if field.enum_type is not None:
        return _UNSPECIFIED.get(field.enum_type.name, MISSING) if of.default is MISSING else MISSING
    if field.has_presence or of.type is str:
        is_number = field.has_presence and of.type is float
        return (NAN if is_number else of.type()) if of.default is MISSING else MISSING
    return MISSING if field.full_name.removeprefix(_PACKAGE) in _ZERO_IS_ABSENT else of.type()


def _field_reader(of: RecordField, field: FieldDescriptor, record_type: type) -> FieldReader:
    read = _value_reader(of, field, record_type)
    if field.is_repeated:
        collection = of.collection or tuple
        if read is None:
            return FieldReader(of.name, collection)
        if collection is tuple:
            return FieldReader(of.name, partial(read_each, read), is_record(of.type))
        return FieldReader(of.name, lambda values: collection(read_each(read, values)))
    return FieldReader(of.name, read, field.message_type is not None)


def _value_reader(of: RecordField, field: FieldDescriptor, record_type: type) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        return _read_rule if of.type is Rule else _reader(of.type, field.message_type)
    if field.enum_type is not None:
        word_of = words(of.type, field.enum_type)
        if record_type in _EXTENSIBLE and of.default is not MISSING:
            return lambda number: word_of.get(number, of.default)
        return partial(word_of_number, word_of)
    return finite if field.has_presence and of.type is float else None


def _read_rule(message: Any) -> Rule | None:
    """Return the rule of a message; None where its kind is unknown to this release."""
    is_known = message.kind in words(RuleKind, message.DESCRIPTOR.fields_by_name["kind"].enum_type)
    return from_proto(Rule, message) if is_known else None


def finite(number: float) -> float:
    """Return the number. Raises InvalidInputError where it is NaN or infinite."""
    if math.isfinite(number):
        return number
    what, remedy = "must be finite", "leave it out when it is not known"
    raise InvalidInputError.from_violations([Violation(field="", what=what, value=repr(number), remedy=remedy)])


def word_of_number(words: dict[int, Any], number: int) -> Any:
    """Return the enumeration member with a number on the wire. Raises InvalidInputError for an undefined number."""
    if number in words:
        return words[number]
    remedy = f"one of {', '.join(map(str, words.values()))}"
    raise InvalidInputError.from_violations(
        [Violation(field="", what="unknown value", value=str(number), remedy=remedy)]
    )


@compiled_once
def words(kind: Iterable[Any], enum: EnumDescriptor) -> dict[int, Any]:
    """Return the members of an enumeration by their numbers on the wire."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    number_of = {value.name.removeprefix(prefix): value.number for value in enum.values if value.number}
    word_of = {number_of[member.name]: member for member in kind}
    return word_of | ({0: _UNSPECIFIED[enum.name]} if enum.name in _UNSPECIFIED else {})


# --- messages of another shape than their records ---------------------------------------------------------------------


class _Shape(NamedTuple):
    """The conversion of a message whose fields differ from the fields of its record."""

    write: Callable[[Any], dict[str, Any]] | None  # None: as all others
    read: Callable[[Any], Any]


def _write_pair(pair: tuple[int, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {"victim": pair[0], "neighbour": pair[1]}
    return values if len(pair) == 2 else values | {"further": pair[2:]}


def _read_pair(message: pb.OrderedPair) -> tuple[int, ...]:
    return (message.victim, message.neighbour, *message.further)


def _write_observation(observation: Observation) -> dict[str, Any]:
    kind = observation_kind(observation)
    message_type = pb.Observation.DESCRIPTOR.fields_by_name[kind].message_type
    return {"observation_id": observation.observation_id, kind: _writer(type(observation), message_type)(observation)}


def _read_observation(message: pb.Observation) -> Observation:
    kind = message.WhichOneof("what")
    if kind is None:
        what, remedy = "an observation without content", f"send one of {', '.join(OBSERVATION_TYPES)}"
        raise InvalidInputError(what, value=message.observation_id, remedy=remedy)
    content = getattr(message, kind)
    reader = _fields_reader(OBSERVATION_TYPES[kind], content.DESCRIPTOR)
    inspection = Inspection()
    observation = inspection.read(kind, lambda: reader(content, {"observation_id": message.observation_id}))
    inspection.done()
    return cast(Observation, observation)


def _read_snapshot(message: pb.MatchRequest) -> Snapshot:
    """Return the snapshot of a request without a delta, with the times of its columns."""
    if message.HasField("delta"):
        what, remedy = "a delta is no snapshot without its base", "send the whole snapshot"
        raise InvalidInputError(what, value=message.delta.base_id, remedy=remedy)
    return with_times(_fields_reader(Snapshot, message.DESCRIPTOR)(message), message.times)


# --- predictions ------------------------------------------------------------------------------------------------------

_SOURCES = words(Source, pb.PredictionSource.DESCRIPTOR)
_NUMBER_OF_SOURCE: dict[Source, Any] = {source: number for number, source in _SOURCES.items()}
_FLOAT = np.dtype("<f4")


def pair_answer_to_proto(answer: PairAnswer, *, columnar: bool) -> pb.PredictSlowdownsResponse:
    """Return predictions as a response. With `columnar`, they are sent as columns, unless a pair has further
    neighbours."""
    if columnar and not answer.further:
        columns = _columns_to_proto(answer)
        return pb.PredictSlowdownsResponse(
            columns=columns, model_version=answer.model_version, device_type=answer.device_type
        )
    return to_proto(answer, pb.PredictSlowdownsResponse)


def _write_pair_answer(answer: PairAnswer) -> dict[str, Any]:
    rows = [_row_to_proto(row) for row in answer.rows()]
    return {"predictions": rows, "model_version": answer.model_version, "device_type": answer.device_type}


def _row_to_proto(row: dict[str, Any]) -> pb.PairPrediction:
    """Return the message of one pair. Absent numbers are left out."""
    present = {name: row[name] for name in PREDICTED_NUMBERS if math.isfinite(row[name])}
    others = {name: row[name] for name in ("victim", "neighbour", "reason", "further")}
    return pb.PairPrediction(source=_NUMBER_OF_SOURCE[row["source"]], **others, **present)


def _columns_to_proto(answer: PairAnswer) -> pb.PairColumns:
    prediction = answer.prediction
    return pb.PairColumns(
        victim=answer.victim.astype("<u4").tobytes(),
        neighbour=answer.neighbour.astype("<u4").tobytes(),
        source=bytes([_NUMBER_OF_SOURCE[source] for source in prediction.source]),
        reason=prediction.reason if any(prediction.reason) else (),
        **{name: getattr(prediction, name).astype("<f8", copy=False).tobytes() for name in PREDICTED_NUMBERS},
    )


def _read_pair_answer(message: pb.PredictSlowdownsResponse) -> PairAnswer:
    """Return the predictions of a response, sent as columns or as one message for each pair, in the order of the
    pairs."""
    columns, rows = message.columns, message.predictions
    if message.HasField("columns"):
        numbers = {
            name: np.frombuffer(getattr(columns, name), dtype="<f8").astype(np.float64) for name in PREDICTED_NUMBERS
        }
        victim, neighbour = (np.frombuffer(data, dtype="<u4") for data in (columns.victim, columns.neighbour))
        sources = {number: word_of_number(_SOURCES, number) for number in set(columns.source)}
        source = tuple(sources[number] for number in columns.source)
        reason = tuple(columns.reason) or ("",) * len(source)
    else:
        numbers = {
            name: np.array([finite(getattr(row, name)) if row.HasField(name) else np.nan for row in rows])
            for name in PREDICTED_NUMBERS
        }
        victim, neighbour = np.array([row.victim for row in rows]), np.array([row.neighbour for row in rows])
        source = tuple(word_of_number(_SOURCES, row.source) for row in rows)
        reason = tuple(row.reason for row in rows)
    return PairAnswer(
        victim=victim.astype(np.int64),
        neighbour=neighbour.astype(np.int64),
        further=tuple(tuple(row.further) for row in rows) if any(row.further for row in rows) else (),
        prediction=Prediction(source=source, reason=reason, **numbers),
        model_version=message.model_version,
        device_type=message.device_type,
    )


def _write_matrix_answer(answer: MatrixAnswer) -> dict[str, Any]:
    matrix = answer.matrix
    victims, neighbours = matrix.victim_slowdown.shape
    return {
        "victims": victims,
        "neighbours": neighbours,
        "victim_slowdown": matrix.victim_slowdown.astype(_FLOAT, copy=False).tobytes(),
        "neighbour_slowdown": matrix.neighbour_slowdown.astype(_FLOAT, copy=False).tobytes(),
        "feasible": matrix.feasible.tobytes(),
        "model_version": answer.model_version,
        "device_type": answer.device_type,
    }


def _read_matrix_answer(message: pb.PredictMatrixResponse) -> MatrixAnswer:
    """Return the matrices of a response. Raises InvalidInputError where the bytes do not fit the shape."""
    shape = (message.victims, message.neighbours)

    def matrix(name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        data = getattr(message, name)
        if len(data) != shape[0] * shape[1] * dtype.itemsize:
            raise InvalidInputError(
                f"{name} does not hold {shape[0]} × {shape[1]} numbers",
                value=f"{len(data)} bytes",
                remedy="use matching versions of client and server",
            )
        return np.frombuffer(data, dtype=dtype).reshape(shape)

    return MatrixAnswer(
        matrix=MatrixPrediction(
            victim_slowdown=matrix("victim_slowdown", _FLOAT).astype(np.float32, copy=False),
            neighbour_slowdown=matrix("neighbour_slowdown", _FLOAT).astype(np.float32, copy=False),
            feasible=matrix("feasible", np.dtype(np.uint8)),
        ),
        model_version=message.model_version,
        device_type=message.device_type,
    )


_SHAPES = {
    "OrderedPair": _Shape(_write_pair, _read_pair),
    "Observation": _Shape(_write_observation, _read_observation),
    "MatchRequest": _Shape(None, _read_snapshot),
    "PredictSlowdownsResponse": _Shape(_write_pair_answer, _read_pair_answer),
    "PredictMatrixResponse": _Shape(_write_matrix_answer, _read_matrix_answer),
}
"""By the name of the message."""


def report_from_proto(message: pb.ReportObservationsRequest) -> tuple[Reported, ...]:
    """Return a batch of observations. An invalid observation becomes `Unreadable`; the others are kept."""
    return tuple(_read_reported(k, observation) for k, observation in enumerate(message.observations))


def _read_reported(k: int, message: pb.Observation) -> Reported:
    try:
        check_bounds(message)
        return _read_observation(message)
    except InvalidInputError as error:
        reason = "; ".join(map(str, error.violations[:5])) or f"{error.what}; {error.remedy}"
        observation_id, reason = shortened((message.observation_id, f"observations[{k}]: {reason}"), MAX_REASON)
        return Unreadable(observation_id=observation_id, reason=reason)
