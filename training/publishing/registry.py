"""The model registry: versions of one registered model, and which of them is champion.

A training registers its model as `challenger`, with the gate's verdict; the first one that passes becomes `champion`
too. Promotion obeys the verdict: it moves the alias and publishes that version's folder, read back from its run and
checked, into `models/champion`. Whoever forces a refused version gives a reason, which stays with the version.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import NotFoundError, UnfitError
from interfere.predict.manifest import read_manifest
from training.evaluation.gate import Verdict
from training.publishing.model_folder import replace_folder
from training.publishing.tracking import Run, connected

MODEL = "interfere"
CHAMPION, CHALLENGER = "champion", "challenger"
PUBLISHED = "published"  # artifact folder of a run
PASSED, REFUSED = "passed", "refused"
MOST_TAG = 4_900  # characters of a tag's value; MLflow's limit is 5,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version in the registry."""

    number: int
    champion: bool  # carries the alias now


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The champion of now, its folder fetched for as long as the block runs."""

    number: int
    model: str  # its recipe
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The new champion."""

    number: int
    model: str
    version: str  # of the folder
    folder: Path
    before: int | None  # the champion it replaced
    verdict: str  # the gate's line on it
    judged_against: int | None  # the champion at that time
    forced: str  # why it was promoted in spite of the verdict; "" when it was not


@contextmanager
def present(run: Run) -> Iterator[Present | None]:
    """The champion of the registry; None where there is none."""
    client = run.mlflow.MlflowClient()
    number = _alias(client, CHAMPION) if client.search_registered_models(f"name = '{MODEL}'") else None
    if number is None:
        yield None
        return
    version = client.get_model_version(MODEL, str(number))
    with tempfile.TemporaryDirectory() as scratch:
        folder = run.mlflow.artifacts.download_artifacts(
            run_id=version.run_id, artifact_path=PUBLISHED, dst_path=scratch
        )
        yield Present(number=number, model=version.tags.get("model", ""), folder=Path(folder))


def register(
    run: Run,
    graph: bytes,
    example: Mapping[str, NDArray[Any]],
    *,
    model: str,
    version: str,
    verdict: Verdict,
    judged_against: int | None,
) -> Registered:
    """Register `pair.onnx` with its signature and an input example, as challenger; the first that passed as champion.

    `example` holds one array for each input that a pair graph may have.
    """
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    loaded = onnx.load_from_string(graph)
    inputs = {one.name: example[one.name] for one in loaded.graph.input}
    info = run.mlflow.onnx.log_model(
        loaded,
        name="model",
        signature=ModelSignature(
            inputs=Schema([TensorSpec(value.dtype, (-1, *value.shape[1:]), name) for name, value in inputs.items()]),
            outputs=Schema([TensorSpec(np.dtype(np.float32), (-1,), "log_slowdown")]),
        ),
        input_example=inputs,
        pip_requirements=["onnxruntime", "numpy"],  # given, so that MLflow does not start a process to find out
        save_as_external_data=False,
    )
    client = run.mlflow.MlflowClient()
    if not client.search_registered_models(f"name = '{MODEL}'"):
        client.create_registered_model(MODEL, description="Slowdown of co-located jobs")
    tags = {
        "folder_version": version,
        "model": model,
        "gate": PASSED if verdict.passed else REFUSED,
        "gate_reason": verdict.reason[:MOST_TAG],
        "gate_against": "" if judged_against is None else str(judged_against),
    }
    made = client.create_model_version(MODEL, info.model_uri, run_id=run.id, model_id=info.model_id, tags=tags)
    number = int(made.version)
    client.set_registered_model_alias(MODEL, CHALLENGER, str(number))
    first = verdict.passed and _alias(client, CHAMPION) is None
    if first:
        client.set_registered_model_alias(MODEL, CHAMPION, str(number))
    return Registered(number=number, champion=first)


def promote(
    work: Path, fingerprint: str, *, number: int | None = None, force: str = "", tracking: str | None = None
) -> Promoted:
    """Make a version (the challenger, unless named) champion and publish it.

    Raises NotFoundError for an unknown version, UnfitError for one that the gate refused (unless `force` says why it
    is promoted all the same), ModelError for a folder that must not be served.
    """
    if tracking is None and not (work / "mlflow.db").is_file():
        raise NotFoundError("no model was trained in this workspace", value=work, remedy="interfere train")
    with connected(work, tracking) as mlflow:
        client = mlflow.MlflowClient()
        known = {int(v.version): v for v in client.search_model_versions(f"name = '{MODEL}'")}
        wanted = (_alias(client, CHALLENGER) if known else None) if number is None else number
        if wanted is None or wanted not in known:
            listed = ", ".join(str(k) for k in sorted(known)) or "none: interfere train"
            raise NotFoundError("no such registered version", value=wanted, remedy=f"one of {listed}")
        tags = client.get_model_version(MODEL, str(wanted)).tags
        verdict = tags.get("gate_reason", "registered without a verdict")
        if tags.get("gate") != PASSED and not force:
            raise UnfitError(
                f"version {wanted} did not pass the gate",
                value=verdict,
                remedy="train on more measurements, or promote it all the same: --force REASON",
            )
        before = _alias(client, CHAMPION)
        with tempfile.TemporaryDirectory() as scratch:
            fetched = mlflow.artifacts.download_artifacts(
                run_id=known[wanted].run_id, artifact_path=PUBLISHED, dst_path=scratch
            )
            manifest = read_manifest(Path(fetched), fingerprint)
            copy_folder(Path(fetched), folder := champion_folder(work))
        if force:
            client.set_model_version_tag(MODEL, str(wanted), "forced", force[:MOST_TAG])
        client.set_registered_model_alias(MODEL, CHAMPION, str(wanted))
    against = tags.get("gate_against", "")
    return Promoted(
        number=wanted,
        model=manifest.model,
        version=manifest.version,
        folder=folder,
        before=before,
        verdict=verdict,
        judged_against=int(against) if against else None,
        forced=force,
    )


def champion_folder(work: Path) -> Path:
    """Where the champion of a workspace is published."""
    return work / "models" / CHAMPION


def challenger_folder(work: Path) -> Path:
    """Where the newest model of a workspace is published."""
    return work / "models" / CHALLENGER


def copy_folder(source: Path, target: Path) -> None:
    """Publish a copy of a model folder."""

    def write(fresh: Path) -> None:
        shutil.copytree(source, fresh, dirs_exist_ok=True)

    replace_folder(target, write)


def _alias(client: Any, alias: str) -> int | None:
    return next((int(v) for a, v in client.get_registered_model(MODEL).aliases.items() if a == alias), None)
