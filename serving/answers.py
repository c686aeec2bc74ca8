"""Answers put together from what the model and its manifest say."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import interfere
from interfere.predict.manifest import Manifest
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch, Prediction, Source
from interfere.wire.messages import ModelDomain, ModelInfo, OnlineState, PairQuery, TrainingTable, scores_of


def predict_known(
    model: Predictor,
    query: PairQuery,
    device_type: str,
    found: Sequence[tuple[JobProfile | None, str]],
    victim: NDArray[np.int64],
    neighbour: NDArray[np.int64],
) -> Prediction:
    """The model's answer where both jobs have profiles; elsewhere the reason why one of them has none."""
    place = np.cumsum([profile is not None for profile, _ in found]) - 1
    missing = np.array([profile is None for profile, _ in found], dtype=bool)
    ask = ~(missing[victim] | missing[neighbour])
    said = model.predict_pairs(
        PairBatch(
            jobs=tuple(profile for profile, _ in found if profile is not None),
            victim=place[victim[ask]],
            neighbour=place[neighbour[ask]],
            device_type=device_type,
            mode=query.mode,
            device_memory_bytes=query.device_memory_bytes,
            allow_extrapolation=query.allow_extrapolation,
        )
    )
    if ask.all():
        return said

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        full = np.full(len(ask), np.nan)
        full[ask] = values
        return full

    source, reason = np.full(len(ask), Source.ABSTAINED, dtype=object), np.full(len(ask), "", dtype=object)
    source[ask], reason[ask] = said.source, said.reason
    for k in np.flatnonzero(~ask):
        reason[k] = found[victim[k]][1] or found[neighbour[k]][1]
    return Prediction(
        median=spread(said.median),
        lower=spread(said.lower),
        upper=spread(said.upper),
        feasibility=spread(said.feasibility),
        source=tuple(source),
        reason=tuple(reason),
    )


def model_info(about: Manifest, online: OnlineState) -> ModelInfo:
    """What is served, and what it has learned."""
    return ModelInfo(
        version=about.version,
        model=about.model,
        matrix_model=about.matrix_model,
        fingerprint=about.fingerprint,
        created_at=about.created_at,
        workloads=about.workloads,
        domains=tuple(ModelDomain(device_type=d.device_type, mode=d.mode, metric=d.metric) for d in about.domains),
        calibrated=about.intervals.calibrated,
        trained_on=tuple(
            TrainingTable(table=str(t["table"]), rows=int(t["rows"]), sha256=str(t["sha256"])) for t in about.trained_on
        ),
        scores=scores_of(about.scores),
        online=online,
        server_version=interfere.__version__,
    )
