"""Writes the published model folder, all that the server reads, and replaces an older one in a single move.

Law 1: a reader sees the old folder or the new one, never parts of both.
Law 2: equal models give equal bytes and an equal version; only `created_at` differs (`SOURCE_DATE_EPOCH` fixes it).
Law 3: a folder that is not a model folder is never replaced.
"""

import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.completion import ARRAYS
from interfere.predict.feasibility import Feasibility
from interfere.predict.manifest import FORMAT, MATRIX_GRAPH
from interfere.predict.model_profiles import PROFILES_FILE, profiles_content
from interfere.predict.online import prior
from interfere.predict.pair_intervals import pair_interval_arrays
from interfere.records import JobProfile
from interfere.strict_json import json_value
from interfere.training.dataset import Dataset, known_profiles
from interfere.training.interval_calibration import partner_counts
from interfere.training.publishing.publication import Publication


def publish(target: Path, publication: Publication, dataset: Dataset, tables: Sequence[Table]) -> str:
    """Write the folder and return its version.

    Raises UnfitError where it cannot be written, or where `target` holds something that is not a model folder.
    """
    # 1. Render the files.
    files = {
        "pair.onnx": publication.pair_graph,
        **({MATRIX_GRAPH: publication.matrix_graph} if publication.matrix_graph else {}),
        "arrays.npz": _arrays(publication, dataset),
        PROFILES_FILE: profiles_content(_profiles_by_job(tables)),
        "card.md": publication.card.encode(),
        prior.PRIOR_FILE: publication.residual_prior,
    }
    # 2. Describe them in the manifest; the version is a digest of its content.
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    content = _manifest_content(publication, dataset, digests)
    version = hashlib.sha256(_json(content)).hexdigest()[:12]
    header = {"format": FORMAT, "version": version, "created_at": _creation_time()}
    files["manifest.json"] = _json({**header, **content}, indent=1)

    # 3. Write them into a new folder, and move it into place.
    def write(folder: Path) -> None:
        for name, data in files.items():
            (folder / name).write_bytes(data)

    replace_folder(target, write)
    return version


def _profiles_by_job(tables: Sequence[Table]) -> list[JobProfile]:
    """Return the profiles of each source, grouped by job. The server combines them with the registered profiles."""
    return sorted(known_profiles(tables).profiles, key=lambda profile: (profile.workload, profile.device_type))


def require_replaceable(target: Path) -> None:
    """Raises UnfitError where `target` holds something that is not a model folder."""
    if target.exists() and not (target / "manifest.json").is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UnfitError(
            "will not replace what is not a model folder", value=target, remedy="choose an empty or new folder"
        )


def replace_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder, then put it in the place of `target`.

    The old folder is put back where that fails. Raises UnfitError as `publish`.
    """
    require_replaceable(target)
    # 1. Make a scratch folder on the same file system.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise _unwritable(target, error) from None
    old, new = scratch / "old", scratch / "new"
    try:
        # 2. Fill the new folder.
        new.mkdir()
        write(new)
        # 3. Exchange the folders.
        if target.exists():
            target.rename(old)
        new.rename(target)
    except OSError as error:
        if not target.exists() and old.exists():
            old.rename(target)
        raise _unwritable(target, error) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unwritable(target: Path, error: OSError) -> UnfitError:
    return UnfitError(
        f"the model folder cannot be written ({error.strerror or error})",
        value=target,
        remedy="choose a folder you may write to, with free space",
    )


def _manifest_content(publication: Publication, dataset: Dataset, digests: Mapping[str, str]) -> dict[str, Any]:
    """The manifest without format, version and creation time."""
    scores: dict[str, dict[str, Any]] = {}
    for split, model, model_scores in publication.scores:
        scores.setdefault(split, {})[model] = asdict(model_scores)
    return {
        "model": publication.model,
        "selected_by": publication.selected_by,
        "fingerprint": dataset.fingerprint,
        "job_features": dataset.job_columns,
        "pair_features": dataset.pair_columns,
        "workloads": dataset.workloads,
        "domains": [asdict(domain) for domain in dataset.domains],
        "intervals": {
            "calibrated": publication.intervals.calibrated,
            "levels": publication.intervals.levels.tolist(),
            "grids": publication.intervals.grids.tolist(),
            "abstains_above": _finite(publication.intervals.abstains_above),
        },
        "feasibility": None if publication.feasibility is None else _feasibility_content(publication.feasibility),
        "scores": scores,
        "matrix_limit": None if publication.matrix_limit is None else asdict(publication.matrix_limit),
        **({"groups": [each.to_json() for each in publication.compositions]} if publication.compositions else {}),
        "trained_on": [asdict(table) for table in publication.trained_on],
        "files": dict(digests),
    }


def _finite(value: float) -> float | None:
    """The value, None for infinity: strict JSON has none."""
    return value if math.isfinite(value) else None


def _feasibility_content(model: Feasibility) -> dict[str, Any]:
    return {"level": model.level, "slope": model.slope, "effect": model.effect.tolist()}


def _arrays(publication: Publication, dataset: Dataset) -> bytes:
    """Return the arrays of `arrays.npz`.

    They are the encoded workloads by domain, the measured rows (if published) with the champion's out-of-fold
    predictions, partner counts, intervals of single pairs, and completion and space of the jobs.
    """
    latest, space, completion = dataset.latest_index(), publication.space, publication.completion
    latest = latest[~dataset.aligned[latest]] if publication.measured_pairs else latest[:0]
    rows = dataset.take(latest)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        partners=partner_counts(dataset),
        **({} if space is None else {f"space_{f.name}": getattr(space, f.name) for f in fields(space)}),
        **pair_interval_arrays(publication.pair_intervals),
        **{f"completion_{name}": getattr(completion, name) for name in ARRAYS},
        measured_victim=rows.rows.victim - 1,
        measured_neighbour=rows.rows.neighbour - 1,
        measured_domain=rows.domain,
        measured_log=rows.log_slowdown,
        measured_lower=rows.lower,
        measured_upper=rows.upper,
        **publication.unseen.take(latest).arrays(),
        allow_pickle=False,
        **{f"features_{k}": jobs for k, jobs in enumerate(publication.encoded_workloads)},
    )
    return buffer.getvalue()


def _json(content: Any, *, indent: int | None = None) -> bytes:
    """Strict JSON: NaN becomes null."""
    return (json.dumps(json_value(content), indent=indent, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _creation_time() -> str:
    """The present time, or that of a reproducible build (reproducible-builds.org, SOURCE_DATE_EPOCH)."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC).isoformat()
