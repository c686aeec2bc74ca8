"""Converters of the description of the served model."""

from dataclasses import asdict

from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import (
    ModelDomain,
    ModelInfo,
    OnlineState,
    ReporterState,
    Score,
    ServedModels,
    ServedModelSummary,
    TrainingTable,
)
from interfere.wire.scalars import MODE


def model_to_proto(info: ModelInfo) -> pb.GetModelResponse:
    """Versions, training data, domains, scores, online state."""
    return pb.GetModelResponse(
        version=info.version,
        model=info.model,
        matrix_model=info.matrix_model,
        matrix_limit_pairs=info.matrix_limit_pairs,
        selected_by=info.selected_by,
        card=info.card,
        fingerprint=info.fingerprint,
        created_at=info.created_at,
        workloads=info.workloads,
        domains=[pb.Domain(device_type=d.device_type, mode=MODE[d.mode], metric=d.metric) for d in info.domains],
        calibrated=info.calibrated,
        trained_on=[pb.TrainingTable(**asdict(table)) for table in info.trained_on],
        scores=[pb.Score(**asdict(score)) for score in info.scores],
        online=online_to_proto(info.online),
        server_version=info.server_version,
    )


def model_from_proto(message: pb.GetModelResponse) -> ModelInfo:
    """Versions, training data, domains, scores, online state."""
    return ModelInfo(
        version=message.version,
        model=message.model,
        matrix_model=message.matrix_model,
        matrix_limit_pairs=message.matrix_limit_pairs,
        selected_by=message.selected_by,
        card=message.card,
        fingerprint=message.fingerprint,
        created_at=message.created_at,
        workloads=tuple(message.workloads),
        domains=tuple(
            ModelDomain(device_type=d.device_type, mode=MODE.word(d.mode, "mode"), metric=d.metric)
            for d in message.domains
        ),
        calibrated=message.calibrated,
        trained_on=tuple(TrainingTable(table=t.table, rows=t.rows, sha256=t.sha256) for t in message.trained_on),
        scores=tuple(Score(split=s.split, model=s.model, metric=s.metric, value=s.value) for s in message.scores),
        online=online_from_proto(message.online),
        server_version=message.server_version,
    )


def online_to_proto(online: OnlineState) -> pb.OnlineState:
    """State of the online correction."""
    return pb.OnlineState(**asdict(online))


def online_from_proto(message: pb.OnlineState) -> OnlineState:
    """State of the online correction."""
    return OnlineState(
        observations=message.observations,
        pending_solo=message.pending_solo,
        solo_rates=message.solo_rates,
        corrected_jobs=message.corrected_jobs,
        corrected_pairs=message.corrected_pairs,
        quarantined=message.quarantined,
        alarms=message.alarms,
        frozen=tuple(message.frozen),
        outcomes=message.outcomes,
        memory_usages=message.memory_usages,
        reporters=tuple(
            ReporterState(reporter=r.reporter, windows=r.windows, trust=r.trust, weight=r.weight)
            for r in message.reporters
        ),
        changed_domains=tuple(message.changed_domains),
        relearning=message.relearning,
    )


def models_to_proto(models: ServedModels) -> pb.ListModelsResponse:
    """The models that a server can serve."""
    return pb.ListModelsResponse(
        models=[
            pb.ModelSummary(
                version=each.version,
                model=each.model,
                created_at=each.created_at,
                served=each.served,
                taken_s=each.taken_s,
            )
            for each in models.models
        ],
        pinned=models.pinned,
        watched_folder=models.watched_folder,
        refused=models.refused,
    )


def models_from_proto(message: pb.ListModelsResponse) -> ServedModels:
    """The models that a server can serve."""
    return ServedModels(
        models=tuple(
            ServedModelSummary(
                version=each.version,
                model=each.model,
                created_at=each.created_at,
                served=each.served,
                taken_s=each.taken_s,
            )
            for each in message.models
        ),
        pinned=message.pinned,
        watched_folder=message.watched_folder,
        refused=message.refused,
    )
