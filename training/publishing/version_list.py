"""Lists the registered versions: when each was trained, its figures and verdict, and which one is champion."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interfere.predict.manifest import published_version
from interfere.training.publishing.model_registry import CHALLENGER, CHAMPION, MODEL, champion_folder, require_registry
from interfere.training.publishing.tracking import mlflow_connection

FIGURES = ("pair.mae", "job.mae", "job.mae_own", "job.mae_others", "job.coverage_own", "job.coverage_others")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVersion:
    """One version of the registry."""

    number: int
    model: str
    folder_version: str
    registered_at_s: float  # unix time
    gate: str  # passed or refused; "" where it was never judged
    reason: str  # of the verdict
    forced: str  # why it was promoted in spite of the verdict; "" where it was not
    champion: bool
    challenger: bool
    published: bool  # whether it lies in the champion's folder of the workspace
    figures: Mapping[str, float]  # scores on rows never fitted, by "split.score"; NaN where unknown

    @property
    def registered_at(self) -> str:
        """When it was registered, UTC."""
        return datetime.fromtimestamp(self.registered_at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def list_versions(work: Path, tracking: str | None = None) -> tuple[ListedVersion, ...]:
    """All registered versions, newest first. Raises NotFoundError for a workspace without any."""
    require_registry(work, tracking)
    published = published_version(champion_folder(work))
    with mlflow_connection(work, tracking) as mlflow:
        client = mlflow.MlflowClient()
        versions = sorted(client.search_model_versions(f"name = '{MODEL}'"), key=lambda v: -int(v.version))
        aliases = client.get_registered_model(MODEL).aliases if versions else {}
        return tuple(_listed(client, version, aliases, published) for version in versions)


def _listed(client: Any, version: Any, aliases: Mapping[str, str], published: str) -> ListedVersion:
    tags = client.get_model_version(MODEL, version.version).tags
    metrics = client.get_run(version.run_id).data.metrics
    number, folder_version = int(version.version), tags.get("folder_version", "")
    return ListedVersion(
        number=number,
        model=tags.get("model", ""),
        folder_version=folder_version,
        registered_at_s=version.creation_timestamp / 1000,
        gate=tags.get("gate", ""),
        reason=tags.get("gate_reason", ""),
        forced=tags.get("forced", ""),
        champion=int(aliases.get(CHAMPION, 0)) == number,
        challenger=int(aliases.get(CHALLENGER, 0)) == number,
        published=folder_version == published != "",
        figures={name: metrics.get(name, math.nan) for name in FIGURES},
    )
