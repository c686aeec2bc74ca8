"""Converters of predictions: pairs as messages or columns, matrices as little-endian bytes with their shape."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import MatrixAnswer, MatrixPrediction, PairAnswer, Prediction, Source
from interfere.records.predictions import PREDICTED_NUMBERS
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import finite, word_of_number, words

_SOURCES = words(Source, pb.PredictionSource.DESCRIPTOR)
_NUMBER_OF_SOURCE: dict[Source, Any] = {source: number for number, source in _SOURCES.items()}
_FLOAT = np.dtype("<f4")


def pair_answer_to_proto(answer: PairAnswer, *, columnar: bool = False) -> pb.PredictSlowdownsResponse:
    """Return predictions as a response. With `columnar`, they are sent as columns, unless a pair has further
    neighbours."""
    if columnar and not answer.further:
        columns = _columns_to_proto(answer)
        return pb.PredictSlowdownsResponse(
            columns=columns, model_version=answer.model_version, device_type=answer.device_type
        )
    return pb.PredictSlowdownsResponse(
        predictions=[_row_to_proto(row) for row in answer.rows()],
        model_version=answer.model_version,
        device_type=answer.device_type,
    )


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


def _answer_from_columns(message: pb.PredictSlowdownsResponse) -> PairAnswer:
    columns = message.columns
    numbers = {
        name: np.frombuffer(getattr(columns, name), dtype="<f8").astype(np.float64) for name in PREDICTED_NUMBERS
    }
    sources = {number: word_of_number(_SOURCES, number) for number in set(columns.source)}
    return PairAnswer(
        victim=np.frombuffer(columns.victim, dtype="<u4").astype(np.int64),
        neighbour=np.frombuffer(columns.neighbour, dtype="<u4").astype(np.int64),
        prediction=Prediction(
            source=tuple(sources[number] for number in columns.source),
            reason=tuple(columns.reason) or ("",) * len(columns.source),
            **numbers,
        ),
        model_version=message.model_version,
        device_type=message.device_type,
    )


def pair_answer_from_proto(message: pb.PredictSlowdownsResponse) -> PairAnswer:
    """Return the predictions of a response, in the order of the pairs."""
    if message.HasField("columns"):
        return _answer_from_columns(message)
    rows = message.predictions

    def column(name: str) -> NDArray[np.float64]:
        return np.array([finite(getattr(row, name)) if row.HasField(name) else np.nan for row in rows])

    return PairAnswer(
        victim=np.array([row.victim for row in rows], dtype=np.int64),
        neighbour=np.array([row.neighbour for row in rows], dtype=np.int64),
        further=tuple(tuple(row.further) for row in rows) if any(row.further for row in rows) else (),
        prediction=Prediction(
            source=tuple(word_of_number(_SOURCES, row.source) for row in rows),
            reason=tuple(row.reason for row in rows),
            **{name: column(name) for name in PREDICTED_NUMBERS},
        ),
        model_version=message.model_version,
        device_type=message.device_type,
    )


def matrix_answer_to_proto(answer: MatrixAnswer) -> pb.PredictMatrixResponse:
    """Return matrices as a response: their bytes and their shape."""
    v, n = answer.matrix.victim_slowdown.shape
    return pb.PredictMatrixResponse(
        victims=v,
        neighbours=n,
        victim_slowdown=answer.matrix.victim_slowdown.astype(_FLOAT, copy=False).tobytes(),
        neighbour_slowdown=answer.matrix.neighbour_slowdown.astype(_FLOAT, copy=False).tobytes(),
        feasible=answer.matrix.feasible.tobytes(),
        model_version=answer.model_version,
        device_type=answer.device_type,
    )


def matrix_answer_from_proto(message: pb.PredictMatrixResponse) -> MatrixAnswer:
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
