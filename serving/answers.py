"""Answers composed from the model's predictions and its manifest."""

from collections.abc import Mapping

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
    lookups: Mapping[int, tuple[JobProfile | None, str]],
    victim: NDArray[np.int64],
    neighbour: NDArray[np.int64],
) -> Prediction:
    """The model's prediction where both jobs have profiles; elsewhere the pair abstains with the reason.

    `lookups`: of every job of a pair its profile, or None and the reason why there is none.
    """
    known = {job: profile for job, (profile, _) in lookups.items() if profile is not None}
    index = np.full(len(query.jobs), -1)
    index[list(known)] = range(len(known))
    victim_index, neighbour_index = index[victim], index[neighbour]
    predictable = (victim_index >= 0) & (neighbour_index >= 0)
    prediction = model.predict_pairs(
        PairBatch(
            jobs=tuple(known.values()),
            victim=victim_index[predictable],
            neighbour=neighbour_index[predictable],
            device_type=device_type,
            mode=query.mode,
            device_memory_bytes=query.device_memory_bytes,
            allow_extrapolation=query.allow_extrapolation,
        )
    )
    if predictable.all():
        return prediction

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        all_pairs = np.full(len(predictable), np.nan)
        all_pairs[predictable] = values
        return all_pairs

    source = np.full(len(predictable), Source.ABSTAINED, dtype=object)
    reason = np.full(len(predictable), "", dtype=object)
    source[predictable], reason[predictable] = prediction.source, prediction.reason
    for k in np.flatnonzero(~predictable):
        reason[k] = lookups[int(victim[k])][1] or lookups[int(neighbour[k])][1]
    return Prediction(
        median=spread(prediction.median),
        lower=spread(prediction.lower),
        upper=spread(prediction.upper),
        feasibility=spread(prediction.feasibility),
        source=tuple(source),
        reason=tuple(reason),
    )


def model_info(manifest: Manifest, online: OnlineState) -> ModelInfo:
    """The served model and the state of its online correction."""
    return ModelInfo(
        version=manifest.version,
        model=manifest.model,
        matrix_model=manifest.matrix_model,
        fingerprint=manifest.fingerprint,
        created_at=manifest.created_at,
        workloads=manifest.workloads,
        domains=tuple(ModelDomain(device_type=d.device_type, mode=d.mode, metric=d.metric) for d in manifest.domains),
        calibrated=manifest.intervals.calibrated,
        trained_on=tuple(
            TrainingTable(table=str(t["table"]), rows=int(t["rows"]), sha256=str(t["sha256"]))
            for t in manifest.trained_on
        ),
        scores=scores_of(manifest.scores),
        online=online,
        server_version=interfere.__version__,
    )
