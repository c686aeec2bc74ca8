"""What clients are told about the served model: its manifest, its training tables, its scores, its online state."""

import interfere
from interfere.predict.manifest import Manifest
from interfere.wire.messages import ModelDomain, ModelInfo, OnlineState, TrainingTable, scores_of


def model_info(manifest: Manifest, card: str, online: OnlineState) -> ModelInfo:
    """The served model with its card, and the state of its online correction."""
    return ModelInfo(
        version=manifest.version,
        model=manifest.model,
        matrix_model=manifest.model,
        matrix_limit_pairs=0 if manifest.matrix_limit is None else manifest.matrix_limit.pairs,
        selected_by=manifest.selected_by,
        card=card,
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
