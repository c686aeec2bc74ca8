"""The published model folder, read and checked: nothing is served that does not match its manifest byte for byte."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import ModelError
from interfere.predict.feasibility import Feasibility
from interfere.predict.intervals import Intervals

FORMAT = 2
FILES = ("pair.onnx", "matrix.onnx", "arrays.npz", "profiles.json", "card.md")
REMEDY = "publish it again with: interfere train --publish DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A device type, sharing mode and metric that the model saw in training."""

    device_type: str
    mode: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a model folder says of itself."""

    model: str
    version: str
    created_at: str
    fingerprint: str
    workloads: tuple[str, ...]  # workloads[k] has identity k + 1; 0 is an unknown one
    domains: tuple[Domain, ...]
    intervals: Intervals
    feasibility: Feasibility | None  # None where no pair of the tables failed to fit
    scores: Mapping[str, Any]
    matrix_model: str
    trained_on: tuple[Mapping[str, Any], ...]


def read_manifest(folder: Path, fingerprint: str) -> Manifest:
    """Check every file of `folder` against its sha256 and the encoder's `fingerprint`. Raises ModelError."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise ModelError("not a model folder: it has no manifest.json", value=folder, remedy=REMEDY)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise ModelError("a model folder of another format", value=raw["format"], remedy=REMEDY)
        manifest = _parse(raw)
        hashes = {name: str(raw["files"][name]) for name in {*FILES, *raw["files"]} if Path(name).name == name}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"manifest.json cannot be read ({error!r})", value=path, remedy=REMEDY) from None
    if manifest.fingerprint != fingerprint:
        raise ModelError(
            "the model was trained under another feature encoder",
            value=f"{manifest.fingerprint}, this program encodes {fingerprint}",
            remedy="retrain with this version: interfere train",
        )
    for name, expected in hashes.items():
        file = folder / name
        if not file.is_file():
            raise ModelError("a file of the model folder is missing", value=file, remedy=REMEDY)
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise ModelError(
                "a file of the model folder differs from its manifest (truncated or edited)", value=file, remedy=REMEDY
            )
    return manifest


def _parse(raw: Mapping[str, Any]) -> Manifest:
    intervals, fits = raw["intervals"], raw["feasibility"]
    return Manifest(
        model=str(raw["model"]),
        version=str(raw["version"]),
        created_at=str(raw["created_at"]),
        fingerprint=str(raw["fingerprint"]),
        workloads=tuple(raw["workloads"]),
        domains=tuple(Domain(device_type=d["device_type"], mode=d["mode"], metric=d["metric"]) for d in raw["domains"]),
        intervals=Intervals(
            calibrated=bool(intervals["calibrated"]),
            levels=np.array(intervals["levels"], dtype=np.float64),
            grids=np.array(intervals["grids"], dtype=np.float64),
        ),
        feasibility=None
        if fits is None
        else Feasibility(
            level=float(fits["level"]), slope=float(fits["slope"]), effect=np.array(fits["effect"], dtype=np.float64)
        ),
        scores=raw["scores"],
        matrix_model=str(raw["matrix_model"]),
        trained_on=tuple(raw["trained_on"]),
    )
