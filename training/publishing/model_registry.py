"""The model registry in MLflow: versions of one registered model, and which of them is champion.

A training registers its model as `challenger`, with the gate's verdict; the first one that passes becomes `champion`
too. Promotion obeys the verdict: it moves the alias and publishes the folder of that version, read back from its run
and checked, to `models/champion`. To force a refused version, a reason is required, which is stored with the version.
"""

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interfere.errors import NotFoundError, UnfitError
from interfere.predict.manifest import published_version, read_manifest
from interfere.training.evaluation.gating.gate import Verdict
from interfere.training.publishing.model_folder import replace_folder
from interfere.training.publishing.run_logging import Example, log_pair_graph
from interfere.training.publishing.tracking import DATABASE, Run, mlflow_connection

MODEL = "interfere"  # name of the registered model
CHAMPION, CHALLENGER = "champion", "challenger"  # aliases
PUBLISHED = "published"  # artifact folder of a run
PASSED, REFUSED = "passed", "refused"
MAX_TAG_LENGTH = 4_900  # characters of a tag's value; MLflow's limit is 5,000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    """A version in the registry."""

    number: int
    champion: bool  # whether it has the champion alias


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionVersion:
    """The present champion, with its folder downloaded for the duration of the block."""

    number: int
    model: str  # one of `interfere.training.models.catalogue.MODELS`
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A version that became champion."""

    number: int
    model: str
    version: str  # of the folder
    folder: Path
    before: int | None  # the champion that it replaced
    verdict: str  # the gate's reason for it
    judged_against: int | None  # the champion that it was judged against
    forced: str  # the reason for promoting it in spite of the verdict; "" for one that passed


@contextmanager
def fetch_champion(mlflow: Any) -> Iterator[ChampionVersion | None]:
    """Download the registry's champion for the duration of the block; None where there is none.

    `mlflow` is connected to the registry.
    """
    client = mlflow.MlflowClient()
    number = _version_with_alias(client, CHAMPION) if _model_exists(client) else None
    if number is None:
        yield None
        return
    version = client.get_model_version(MODEL, str(number))
    with tempfile.TemporaryDirectory() as scratch:
        folder = mlflow.artifacts.download_artifacts(run_id=version.run_id, artifact_path=PUBLISHED, dst_path=scratch)
        yield ChampionVersion(number=number, model=version.tags.get("model", ""), folder=Path(folder))


def register(
    run: Run,
    graph: bytes,
    example: Example,
    *,
    model: str,
    version: str,
    verdict: Verdict,
    judged_against: int | None,
) -> RegisteredVersion:
    """Register `pair.onnx` as challenger; the first version that passes the gate also becomes champion."""
    # 1. Log the graph with its signature and an input example.
    info = log_pair_graph(run, graph, example)
    # 2. Create a version with the verdict in its tags.
    client = run.mlflow.MlflowClient()
    if not _model_exists(client):
        client.create_registered_model(MODEL, description="Slowdown of co-located jobs")
    tags = {
        "folder_version": version,
        "model": model,
        "gate": PASSED if verdict.passed else REFUSED,
        "gate_reason": verdict.reason[:MAX_TAG_LENGTH],
        "gate_against": "" if judged_against is None else str(judged_against),
    }
    created = client.create_model_version(MODEL, info.model_uri, run_id=run.id, model_id=info.model_id, tags=tags)
    number = int(created.version)
    # 3. Set the aliases.
    client.set_registered_model_alias(MODEL, CHALLENGER, str(number))
    becomes_champion = verdict.passed and _version_with_alias(client, CHAMPION) is None
    if becomes_champion:
        client.set_registered_model_alias(MODEL, CHAMPION, str(number))
    return RegisteredVersion(number=number, champion=becomes_champion)


def promote(
    work: Path, fingerprint: str, *, number: int | None = None, force: str = "", tracking: str | None = None
) -> Promotion:
    """Make a version (the challenger, unless `number` is given) champion, and publish it.

    Raises NotFoundError for an unknown version, UnfitError for one that the gate refused (unless `force` gives the
    reason for promoting it in spite of that), ModelError for a folder that must not be served.
    """
    require_registry(work, tracking)
    with mlflow_connection(work, tracking) as mlflow:
        # 1. Find the version.
        client = mlflow.MlflowClient()
        versions = {int(v.version): v for v in client.search_model_versions(f"name = '{MODEL}'")}
        selected = (_version_with_alias(client, CHALLENGER) if versions else None) if number is None else number
        if selected is None or selected not in versions:
            listed = ", ".join(str(k) for k in sorted(versions)) or "none: interfere train"
            raise NotFoundError("no such registered version", value=selected, remedy=f"one of {listed}")
        # 2. Obey the gate's verdict.
        tags = client.get_model_version(MODEL, str(selected)).tags
        verdict = tags.get("gate_reason", "registered without a verdict")
        if tags.get("gate") != PASSED and not force:
            raise UnfitError(
                f"version {selected} did not pass the gate",
                value=verdict,
                remedy="train on more measurements, or promote it all the same: --force REASON",
            )
        # 3. Download, check and publish its folder.
        previous = _version_with_alias(client, CHAMPION)
        folder = champion_folder(work)
        with tempfile.TemporaryDirectory() as scratch:
            downloaded = mlflow.artifacts.download_artifacts(
                run_id=versions[selected].run_id, artifact_path=PUBLISHED, dst_path=scratch
            )
            manifest = read_manifest(Path(downloaded), fingerprint)
            copy_folder(Path(downloaded), folder)
        # 4. Move the alias.
        if force:
            client.set_model_version_tag(MODEL, str(selected), "forced", force[:MAX_TAG_LENGTH])
        client.set_registered_model_alias(MODEL, CHAMPION, str(selected))
    judged_against = tags.get("gate_against", "")
    return Promotion(
        number=selected,
        model=manifest.model,
        version=manifest.version,
        folder=folder,
        before=previous,
        verdict=verdict,
        judged_against=int(judged_against) if judged_against else None,
        forced=force,
    )


def require_registry(work: Path, tracking: str | None) -> None:
    """Raise NotFoundError for a workspace in which nothing was trained."""
    if tracking is None and not (work / DATABASE).is_file():
        raise NotFoundError("no model was trained in this workspace", value=work, remedy="interfere train")


def champion_folder(work: Path) -> Path:
    """Return the folder where the champion of a workspace is published."""
    return work / "models" / CHAMPION


def challenger_folder(work: Path) -> Path:
    """Return the folder where the newest model of a workspace is published."""
    return work / "models" / CHALLENGER


def copy_folder(source: Path, target: Path) -> None:
    """Publish a copy of a model folder."""

    def write(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True)

    replace_folder(target, write)


def _model_exists(client: Any) -> bool:
    return bool(client.search_registered_models(f"name = '{MODEL}'"))


def _version_with_alias(client: Any, alias: str) -> int | None:
    """The version that has the alias; None where no version has it."""
    return next((int(v) for a, v in client.get_registered_model(MODEL).aliases.items() if a == alias), None)


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
        """The time of registration, UTC."""
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
