"""The model registry: versions of one registered model, and which of them is champion.

A training registers its model as `challenger`; the first one of a workspace becomes `champion` too. Promotion moves the
alias and publishes that version's folder, read back from its run and checked, into `models/champion`.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.errors import NotFoundError
from interfere.predict.manifest import read_manifest
from training.publish import replace_folder
from training.tracking import Run, connected

MODEL = "interfere"
CHAMPION, CHALLENGER = "champion", "challenger"
PUBLISHED = "published"  # artifact folder of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version in the registry."""

    number: int
    champion: bool  # carries the alias now


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The new champion."""

    number: int
    model: str
    version: str  # of the folder
    folder: Path
    before: int | None  # the champion it replaced


def register(run: Run, graph: bytes, *, columns: int, version: str) -> Registered:
    """Register `pair.onnx` (f = `columns`) with its signature as challenger; as champion where there is none."""
    import numpy as np
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    inputs = (("pairs", np.float32, (-1, columns)), ("victim", np.int64, (-1,)), ("neighbour", np.int64, (-1,)))
    info = run.mlflow.onnx.log_model(
        onnx.load_from_string(graph),
        name="model",
        signature=ModelSignature(
            inputs=Schema([TensorSpec(np.dtype(kind), shape, name) for name, kind, shape in inputs]),
            outputs=Schema([TensorSpec(np.dtype(np.float32), (-1,), "log_slowdown")]),
        ),
        pip_requirements=["onnxruntime", "numpy"],  # given, so that MLflow does not start a process to find out
        save_as_external_data=False,
    )
    client = run.mlflow.MlflowClient()
    if not client.search_registered_models(f"name = '{MODEL}'"):
        client.create_registered_model(MODEL, description="Slowdown of co-located jobs")
    made = client.create_model_version(
        MODEL, info.model_uri, run_id=run.id, model_id=info.model_id, tags={"folder_version": version}
    )
    number = int(made.version)
    client.set_registered_model_alias(MODEL, CHALLENGER, str(number))
    first = _alias(client, CHAMPION) is None
    if first:
        client.set_registered_model_alias(MODEL, CHAMPION, str(number))
    return Registered(number=number, champion=first)


def promote(work: Path, fingerprint: str, *, number: int | None = None) -> Promoted:
    """Make a version (the challenger, unless named) champion and publish it. Raises NotFoundError or ModelError."""
    if not (work / "mlflow.db").is_file():
        raise NotFoundError("no model was trained in this workspace", value=work, remedy="interfere train")
    with connected(work) as mlflow:
        client = mlflow.MlflowClient()
        known = {int(v.version): v for v in client.search_model_versions(f"name = '{MODEL}'")}
        wanted = _alias(client, CHALLENGER) if number is None else number
        if wanted not in known:
            listed = ", ".join(str(k) for k in sorted(known)) or "none: interfere train"
            raise NotFoundError("no such registered version", value=wanted, remedy=f"one of {listed}")
        before = _alias(client, CHAMPION)
        with tempfile.TemporaryDirectory() as scratch:
            fetched = mlflow.artifacts.download_artifacts(
                run_id=known[wanted].run_id, artifact_path=PUBLISHED, dst_path=scratch
            )
            manifest = read_manifest(Path(fetched), fingerprint)
            copy_folder(Path(fetched), folder := champion_folder(work))
        client.set_registered_model_alias(MODEL, CHAMPION, str(wanted))
    return Promoted(number=wanted, model=manifest.model, version=manifest.version, folder=folder, before=before)


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
