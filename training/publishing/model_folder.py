"""The published model folder: everything the server reads, written beside its place and moved there whole.

Law 1: a reader sees the old folder or the new one, never half of either.
Law 2: equal models give equal bytes and an equal version; only `created_at` differs (`SOURCE_DATE_EPOCH` fixes it).
Law 3: a folder that is not a model folder is never replaced.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.commands.output import jsonable
from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.feasibility import Feasibility
from interfere.predict.intervals import Intervals
from interfere.predict.manifest import FORMAT
from interfere.predict.novelty import JobSpace
from interfere.predict.online import prior
from interfere.protocols import PairEncoder
from training.dataset import Dataset, newest_profiles
from training.evaluation.scores import Scores
from training.models.intervals import partner_counts
from training.publishing.model_card import Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What goes into a folder."""

    model: str
    matrix_model: str
    matrix_mae_vs_pair: float  # mean |y_matrix - y_pair| over all pairs of known workloads
    worst_parity: float  # log slowdown, of both graphs against their models
    pair_graph: bytes
    matrix_graph: bytes
    card: str
    intervals: Intervals
    feasibility: Feasibility | None
    space: JobSpace | None  # where the model's jobs lie; None for a model that cannot tell a new one
    scores: Sequence[tuple[str, str, Scores]]
    trained_on: Sequence[Trained]
    residual_prior: bytes  # where the online correction starts


def publish(
    target: Path, publication: Publication, dataset: Dataset, tables: Sequence[Table], encoder: PairEncoder
) -> str:
    """Write the folder; returns its version. Raises UnfitError when the place cannot be written or is not ours."""
    files = {
        "pair.onnx": publication.pair_graph,
        "matrix.onnx": publication.matrix_graph,
        "arrays.npz": _arrays(publication, dataset, tables, encoder),
        "profiles.json": _json([job.to_dict() for _, job in sorted(newest_profiles(tables).items())]),
        "card.md": publication.card.encode(),
        prior.PRIOR_FILE: publication.residual_prior,
    }
    content = _manifest(publication, dataset, {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    version = hashlib.sha256(_json(content)).hexdigest()[:12]
    files["manifest.json"] = _json({"format": FORMAT, "version": version, "created_at": _now(), **content}, indent=1)

    def write(folder: Path) -> None:
        for name, data in files.items():
            (folder / name).write_bytes(data)

    replace_folder(target, write)
    return version


def require_replaceable(target: Path) -> None:
    """Raises UnfitError when `target` holds something that is not a model."""
    if target.exists() and not (target / "manifest.json").is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UnfitError(
            "will not replace what is not a model folder", value=target, remedy="choose an empty or new folder"
        )


def replace_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder, then put it in the place of `target`."""
    require_replaceable(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        fresh = made / "new"
        fresh.mkdir()
        write(fresh)
        if target.exists():
            target.rename(made / "old")
        fresh.rename(target)
    except OSError as error:
        if not target.exists() and (made / "old").exists():
            (made / "old").rename(target)
        raise _unwritable(target, error) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _unwritable(target: Path, error: OSError) -> UnfitError:
    return UnfitError(
        f"the model folder cannot be written ({error.strerror or error})",
        value=target,
        remedy="choose a folder you may write to, with free space",
    )


def _manifest(publication: Publication, dataset: Dataset, files: Mapping[str, str]) -> dict[str, Any]:
    scores: dict[str, dict[str, Any]] = {}
    for split, model, one in publication.scores:
        scores.setdefault(split, {})[model] = asdict(one)
    return {
        "model": publication.model,
        "fingerprint": dataset.fingerprint,
        "job_features": dataset.job_names,
        "pair_features": dataset.pair_names,
        "workloads": dataset.workloads,
        "domains": [asdict(domain) for domain in dataset.domains],
        "intervals": {
            "calibrated": publication.intervals.calibrated,
            "levels": publication.intervals.levels.tolist(),
            "grids": publication.intervals.grids.tolist(),
        },
        "feasibility": None if publication.feasibility is None else _fits(publication.feasibility),
        "scores": scores,
        "matrix_model": publication.matrix_model,
        "matrix_mae_vs_pair": publication.matrix_mae_vs_pair,
        "trained_on": [asdict(one) for one in publication.trained_on],
        "files": dict(files),
    }


def _arrays(publication: Publication, dataset: Dataset, tables: Sequence[Table], encoder: PairEncoder) -> bytes:
    """Encoded jobs by domain (NaN where a workload has no profile there), measured rows, and where jobs lie."""
    rows, space = dataset.latest(), publication.space
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        partners=partner_counts(dataset),
        **({} if space is None else {f"space_{f.name}": getattr(space, f.name) for f in fields(space)}),
        measured_victim=rows.rows.victim - 1,
        measured_neighbour=rows.rows.neighbour - 1,
        measured_domain=rows.domain,
        measured_log=rows.log_slowdown,
        measured_lower=rows.lower,
        measured_upper=rows.upper,
        allow_pickle=False,
        **{f"features_{k}": job_rows(dataset, k, tables, encoder) for k in range(len(dataset.domains))},
    )
    return buffer.getvalue()


def job_rows(dataset: Dataset, domain: int, tables: Sequence[Table], encoder: PairEncoder) -> NDArray[np.float32]:
    """float32[N, F]: every workload's newest profile on the device type of a domain."""
    profiles = newest_profiles(tables)
    where = dataset.domains[domain]
    rows = np.full((len(dataset.workloads), len(dataset.job_names)), np.nan, dtype=np.float32)
    for k, name in enumerate(dataset.workloads):
        if (profile := profiles.get((name, where.device_type))) is not None:
            rows[k] = encoder.encode_jobs([profile], where.device_type, where.mode)[0]
    return rows


def _fits(model: Feasibility) -> dict[str, Any]:
    return {"level": model.level, "slope": model.slope, "effect": model.effect.tolist()}


def _json(content: Any, *, indent: int | None = None) -> bytes:
    """Strict JSON: NaN becomes null."""
    return (json.dumps(jsonable(content), indent=indent, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _now() -> str:
    """Now, or the moment a reproducible build asks for (reproducible-builds.org, SOURCE_DATE_EPOCH)."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC).isoformat()
