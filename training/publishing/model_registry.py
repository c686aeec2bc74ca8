"""The model registry in MLflow: versions of one registered model, and which of them is champion.

A training registers its model as `challenger`, with the gate's verdict; the first one that passes becomes `champion`
too. Promotion obeys the verdict: it moves the alias and publishes the folder of that version, read back from its run
and checked, to `models/champion`. To force a refused version, a reason is required, which is stored with the version.

A policy server knows folders alone: a follower publishes the version that an alias names, whenever it moves. Law: the
folder holds a whole model that passed the gate or was forced, or the one before.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.client import PolicyClient
from interfere.errors import InterfereError, NotFoundError, UnavailableError, UnfitError
from interfere.predict.manifest import published_version, read_manifest
from interfere.training.evaluation.gate import Verdict
from interfere.training.publishing.publication import Publication, replace_folder
from interfere.training.publishing.tracking import DATABASE, MODEL, Run, mlflow_connection
from interfere.training.publishing.training_record import (
    PUBLISHED,
    description,
    headline,
    log_registered_model,
    metrics_of,
)

if TYPE_CHECKING:
    from interfere.training.evaluation.drift import DriftReport

DESCRIPTION = """Slowdown of a job (victim) beside another (neighbour) on one device, with a 90 % interval.

Input: victim, neighbour, device_type, mode; for jobs that it never saw also victim_profile and neighbour_profile, their
facts as JSON. Output: slowdown, low, high, source, reason."""
CHAMPION, CHALLENGER = "champion", "challenger"  # aliases
PASSED, REFUSED = "passed", "refused"
FIGURES = ("pair.mae", "job.mae", "job.mae_own", "job.mae_others", "job.coverage_own", "job.coverage_others")
MAX_TAG_LENGTH = 4_900  # characters of a tag's value; MLflow's limit is 5,000
SERVER_TAG = "server"  # of a version: what the server says of it

Connect = Callable[[], PolicyClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One version of the registered model, with the gate's verdict on it."""

    number: int
    model: str  # one of `interfere.training.models.catalogue.MODELS`
    folder_version: str
    run_id: str
    registered_at_s: float  # unix time
    gate: str  # passed or refused; "" where it was never judged
    reason: str  # of the verdict
    judged_against: int | None  # the champion that it was judged against
    forced: str  # why it was promoted in spite of the verdict; "" where it was not
    champion: bool  # whether it has this alias
    challenger: bool

    @property
    def registered_at(self) -> str:
        """Return the time of registration, UTC."""
        return datetime.fromtimestamp(self.registered_at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVersion(ModelVersion):
    """A version of the registry beside its figures."""

    published: bool  # whether it lies in the champion's folder of the workspace
    figures: Mapping[str, float]  # scores on rows never fitted, by "split.score"; NaN where unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionVersion:
    """A champion, and a folder that holds its published files."""

    version: ModelVersion
    folder: Path
    before: int | None = None  # the champion that a promotion replaced


@contextmanager
def fetch_champion(mlflow: Any) -> Iterator[ChampionVersion | None]:
    """Download the registry's champion for the duration of the block; None where there is none.

    `mlflow` is connected to the registry.
    """
    version = next((each for each in _versions(mlflow.MlflowClient()) if each.champion), None)
    if version is None:
        yield None
        return
    with downloaded(mlflow, version) as folder:
        yield ChampionVersion(version=version, folder=folder)


def register(
    run: Run,
    folder: Path,
    publication: Publication,
    *,
    version: str,
    verdict: Verdict,
    judged_against: int | None,
) -> ModelVersion:
    """Register a published folder as challenger; the first version that passes the gate also becomes champion."""
    candidates = publication.candidates
    # 1. Log the folder as a model, with the metrics of the run.
    info = log_registered_model(run, folder, candidates.dataset)
    run.log_metrics(metrics_of(candidates.scores, candidates.champion), info.model_id)
    # 2. Create a version with the verdict in its tags.
    client = run.mlflow.MlflowClient()
    if not client.search_registered_models(f"name = '{MODEL}'"):
        client.create_registered_model(MODEL, description=DESCRIPTION)
    tags = {
        "folder_version": version,
        "model": candidates.champion,
        "license": "apache-2.0",
        "task": "tabular-regression",
        "datasets": ", ".join(table.table for table in publication.trained_on),
        "gate": PASSED if verdict.passed else REFUSED,
        "gate_reason": verdict.reason[:MAX_TAG_LENGTH],
        "gate_against": "" if judged_against is None else str(judged_against),
    }
    created = client.create_model_version(
        MODEL,
        info.model_uri,
        run_id=run.id,
        model_id=info.model_id,
        tags=tags,
        description=description(publication),
    )
    # 3. Set the aliases.
    client.set_registered_model_alias(MODEL, CHALLENGER, created.version)
    if verdict.passed and not any(each.champion for each in _versions(client)):
        _make_champion(client, created.version, run.id)
    return next(each for each in _versions(client) if each.number == int(created.version))


def _make_champion(client: Any, version: str, run_id: str) -> None:
    """Give a version the alias `champion`, and show its headline metrics on the page of the model.

    A description that somebody has written themselves stays as it is.
    """
    client.set_registered_model_alias(MODEL, CHAMPION, version)
    if (client.get_registered_model(MODEL).description or "").startswith(DESCRIPTION):
        figures = headline(client.get_run(run_id).data.metrics)
        client.update_registered_model(MODEL, f"{DESCRIPTION}\n\nChampion, version {version}: {figures}")


def log_drift(work: Path, drift: "DriftReport", tracking: str | None = None) -> int | None:
    """Log how far new observations are from what was expected to the champion's version, and return its number.

    The newest summary is its tag `drift`; the numbers become metrics of its run, one step each time. None without a
    champion.
    """
    with mlflow_connection(work, tracking) as mlflow:
        client = mlflow.MlflowClient()
        champion = version_of_alias(client, CHAMPION)
        if champion is None:
            return None
        summary = f"{datetime.now(UTC):%Y-%m-%d %H:%M}: {drift.markdown().splitlines()[0]}"
        client.set_model_version_tag(MODEL, str(champion.number), "drift", summary[:MAX_TAG_LENGTH])
        for name, value in drift.figures().items():
            step = len(client.get_metric_history(champion.run_id, name))
            client.log_metric(champion.run_id, name, value, step=step)
        return champion.number


def promote(
    work: Path, fingerprint: str, *, number: int | None = None, force: str = "", tracking: str | None = None
) -> ChampionVersion:
    """Make a version (the challenger, unless `number` is given) champion, and publish it.

    Raises NotFoundError for an unknown version, UnfitError for one that the gate refused (unless `force` gives the
    reason for promoting it in spite of that), ModelError for a folder that must not be served.
    """
    _require_registry(work, tracking)
    with mlflow_connection(work, tracking) as mlflow:
        # 1. Find the version.
        client = mlflow.MlflowClient()
        versions = _versions(client)
        is_selected = (each.challenger if number is None else each.number == number for each in versions)
        selected = next((each for each, found in zip(versions, is_selected, strict=True) if found), None)
        if selected is None:
            listed = ", ".join(str(each.number) for each in reversed(versions)) or "none: interfere train"
            raise NotFoundError("no such registered version", value=number, remedy=f"one of {listed}")
        # 2. Obey the gate's verdict.
        if not force:
            require_passed(replace(selected, forced=""))
        # 3. Download, check and publish its folder.
        folder = champion_folder(work)
        with downloaded(mlflow, selected) as source:
            read_manifest(source, fingerprint)  # refuses a folder that must not be served
            copy_folder(source, folder)
        # 4. Move the alias.
        if force:
            client.set_model_version_tag(MODEL, str(selected.number), "forced", force[:MAX_TAG_LENGTH])
        _make_champion(client, str(selected.number), selected.run_id)
    return ChampionVersion(
        version=replace(selected, forced=force or selected.forced),
        folder=folder,
        before=next((each.number for each in versions if each.champion), None),
    )


def list_versions(work: Path, tracking: str | None = None) -> tuple[ListedVersion, ...]:
    """Return all registered versions, newest first. Raises NotFoundError for a workspace without any."""
    _require_registry(work, tracking)
    published = published_version(champion_folder(work))
    with mlflow_connection(work, tracking) as mlflow:
        client = mlflow.MlflowClient()
        listed = []
        for each in _versions(client):
            metrics = client.get_run(each.run_id).data.metrics
            figures = {name: metrics.get(name, math.nan) for name in FIGURES}
            is_published = each.folder_version == published != ""
            listed.append(ListedVersion(**asdict(each), published=is_published, figures=figures))
        return tuple(listed)


def require_passed(version: ModelVersion) -> None:
    """Raise UnfitError for a version that the gate refused and nobody forced."""
    if version.gate != PASSED and not version.forced:
        raise UnfitError(
            f"version {version.number} did not pass the gate",
            value=version.reason,
            remedy="train on more measurements, or promote it all the same: interfere promote --force REASON",
        )


def version_of_alias(client: Any, alias: str) -> ModelVersion | None:
    """Return the version that has an alias; None where none has. Raises what the registry raises."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_model_version_by_alias(MODEL, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return _model_version(found, {alias: found.version})


class AliasFollower:
    """Publishes the version that an alias names. One thread looks."""

    def __init__(
        self, mlflow: Any, alias: str, folder: Path, fingerprint: str, *, connect: Connect | None = None
    ) -> None:
        """Follow an alias of the registry that `mlflow` is connected to, into a folder.

        `fingerprint`: of the encoder of this program; `connect`: a client of the server whose words are noted, None for
        none.
        """
        self._mlflow, self._alias, self._folder, self._fingerprint = mlflow, alias, folder, fingerprint
        self._connect, self._noted = connect, ("", "")

    def look(self) -> str:
        """Publish the version that the alias names now, unless it is published already; returns what changed in one
        line, "" where nothing did.

        Raises NotFoundError without such a version, UnfitError where the gate refused it, ModelError where it must not
        be served, UnavailableError where the registry does not answer.
        """
        client = self._mlflow.MlflowClient()
        try:
            version = version_of_alias(client, self._alias)
            if version is None:
                remedy = "interfere train, or set it in MLflow"
                raise NotFoundError(f"no version of {MODEL} has this alias", value=self._alias, remedy=remedy)
            told = self._publish(version)
            return "; ".join(filter(None, (told, self._note_server(client, version))))
        except InterfereError:
            raise
        except Exception as error:  # whatever MLflow and its HTTP client raise
            raise UnavailableError(
                "the registry does not answer as it should", value=repr(error)[:300], remedy="the next look tries again"
            ) from None

    def _publish(self, version: ModelVersion) -> str:
        if version.folder_version == published_version(self._folder) != "":
            return ""
        require_passed(version)
        with downloaded(self._mlflow, version) as folder:
            read_manifest(folder, self._fingerprint)  # refuses a folder that must not be served
            copy_folder(folder, self._folder)
        return f"version {version.number} ({version.model} {version.folder_version}) is published to {self._folder}"

    def _note_server(self, client: Any, version: ModelVersion) -> str:
        """Write the server's report on a version into the registry, and return it where it is new."""
        if self._connect is None:
            return ""
        try:
            with self._connect() as server:
                said = f"{server.target}: {server_words(server, version.folder_version)}"
        except InterfereError as error:
            said = f"no answer: {error.what}"
        if (version.folder_version, said) == self._noted:
            return ""
        self._noted = version.folder_version, said
        client.set_model_version_tag(MODEL, str(version.number), SERVER_TAG, said[:MAX_TAG_LENGTH])
        return said


def server_words(server: PolicyClient, version: str) -> str:
    """Return in words whether a server serves a version, and how the version does on trial."""
    models = server.list_models()
    served = next((each.version for each in models.models if each.served), "")
    if models.refused.startswith(f"{version}: "):
        return f"refused: {models.refused}"
    trial = f"on trial: {models.trial}" if models.trial.startswith(f"{version} beside ") else ""
    if served == version:
        return f"serves {version}" + (f", {trial}" if trial else "")
    return trial or f"serves {served}" + (", which is pinned" if models.pinned else "")


def champion_folder(work: Path) -> Path:
    """Return the folder where the champion of a workspace is published."""
    return work / "models" / CHAMPION


def challenger_folder(work: Path) -> Path:
    """Return the folder where the newest model of a workspace is published."""
    return work / "models" / CHALLENGER


def copy_folder(source: Path, target: Path) -> None:
    """Publish a copy of a model folder."""
    replace_folder(target, lambda folder: shutil.copytree(source, folder, dirs_exist_ok=True))


def _require_registry(work: Path, tracking: str | None) -> None:
    """Raise NotFoundError for a workspace in which nothing was trained."""
    if tracking is None and not (work / DATABASE).is_file():
        raise NotFoundError("no model was trained in this workspace", value=work, remedy="interfere train")


def _versions(client: Any) -> list[ModelVersion]:
    """Return all versions of the registered model, newest first."""
    found = sorted(client.search_model_versions(f"name = '{MODEL}'"), key=lambda version: -int(version.version))
    aliases = client.get_registered_model(MODEL).aliases if found else {}
    return [_model_version(client.get_model_version(MODEL, each.version), aliases) for each in found]


def _model_version(found: Any, aliases: Mapping[str, str]) -> ModelVersion:
    """Return a version as MLflow gives it, one by one: a search leaves its tags out."""
    number, tags = int(found.version), found.tags
    judged_against = tags.get("gate_against", "")
    return ModelVersion(
        number=number,
        model=tags.get("model", ""),
        folder_version=tags.get("folder_version", ""),
        run_id=found.run_id,
        registered_at_s=found.creation_timestamp / 1000,
        gate=tags.get("gate", ""),
        reason=tags.get("gate_reason", "registered without a verdict"),
        judged_against=int(judged_against) if judged_against else None,
        forced=tags.get("forced", ""),
        champion=int(aliases.get(CHAMPION, 0)) == number,
        challenger=int(aliases.get(CHALLENGER, 0)) == number,
    )


@contextmanager
def downloaded(mlflow: Any, version: ModelVersion) -> Iterator[Path]:
    """Download the published folder of a version for the duration of the block."""
    with tempfile.TemporaryDirectory() as scratch:
        download = mlflow.artifacts.download_artifacts
        model = Path(download(f"models:/{MODEL}/{version.number}", dst_path=scratch))
        carried = [folder for folder in model.glob("artifacts/*") if folder.is_dir()]
        # Versions of earlier releases are graphs; their folder lies in their run.
        yield (
            carried[0] if carried else Path(download(run_id=version.run_id, artifact_path=PUBLISHED, dst_path=scratch))
        )
