"""What a training publishes: the champion as ONNX graphs, its intervals, feasibility, group compositions and card.

The matrix limit of a model that predicts pair by pair is estimated in CPU
microseconds of one core, from the size of the model alone, so that equal models state equal limits on every machine;
`tests/bench/test_model_forms.py` compares it with what a pair takes.

The folder is all that the server reads. A folder that is not a model folder is never replaced.
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
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.cards.hub import model_metadata
from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.acceptance.goldens import (
    Golden,
    SlowdownRange,
    goldens_content,
    read_goldens,
    replay_goldens,
)
from interfere.predict.completion import ARRAYS
from interfere.predict.intervals import PairIntervals, pair_interval_arrays
from interfere.predict.manifest import (
    FORMAT,
    GOLDENS_FILE,
    MATRIX_GRAPH,
    PROFILES_FILE,
    MatrixLimit,
    content_digest,
    content_version,
    profiles_content,
)
from interfere.predict.online import prior
from interfere.predict.onnx import load_model
from interfere.protocols import PairEncoder
from interfere.records import JobProfile
from interfere.reports.document import Document
from interfere.reports.text_forms import front_matter, markdown
from interfere.strict_json import json_value
from interfere.training.beliefs import BeliefComparison
from interfere.training.dataset import (
    METRIC,
    Dataset,
    SourceTables,
    known_profiles,
)
from interfere.training.evaluation.candidates import Candidates
from interfere.training.evaluation.gate import unseen_predictions
from interfere.training.evaluation.interval_calibration import calibrate_intervals, partner_counts
from interfere.training.evaluation.scores import scores_document
from interfere.training.groups.evaluation import DomainComposition
from interfere.training.models.completed import (
    completion_of_model,
    encoded_workloads,
    export_matrix_graph,
    export_pair_graph,
    exported_form,
)
from interfere.training.models.feasibility import feasibility_rows, fit_feasibility
from interfere.training.models.gbdt import trees_of
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.goldens import FittedParts, stated_range
from interfere.training.publishing.model_card import TrainingTable, model_card
from interfere.training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors, residual_prior_file

MATRIX_TIME_S = 5.0  # half the time that clients wait by default
ENCODING_US, TREE_US = 1.0, 0.03  # of a pair: 400 trees take 7 to 13 µs on one core
UNKNOWN_KIND_US = 50.0  # of a model without trees that does not factorise: none of ours


def matrix_limit(model: FittedModel, dataset: Dataset) -> MatrixLimit | None:
    """Return the matrix limit of a fitted model, in two digits; None for a model that factorises over jobs."""
    exported, _ = exported_form(model, dataset)
    if hasattr(exported, "to_matrix_onnx"):
        return None
    pairs = MATRIX_TIME_S * 1e6 / pair_cost_us(model)
    step = 10 ** max(len(str(int(pairs))) - 2, 0)
    return MatrixLimit(pairs=int(pairs // step) * step, seconds=MATRIX_TIME_S)


def pair_cost_us(model: FittedModel) -> float:
    """Return the estimated CPU time of one pair among many, in microseconds."""
    trees = trees_of(model)
    return UNKNOWN_KIND_US if trees is None else ENCODING_US + TREE_US * trees.model_text.count("\nTree=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The content of a model folder: the champion of a training, and everything that is fitted beside it."""

    candidates: Candidates
    source: SourceTables
    fitted: FittedParts
    pair_graph: bytes
    matrix_graph: bytes | None  # None for a model that does not factorise over jobs
    worst_parity: float  # log slowdown: largest difference of either graph from its model
    card: Document
    card_metadata: Mapping[str, Any]
    encoded_workloads: Sequence[NDArray[np.float32]]  # by domain: float32[N, F], completed; NaN without a profile
    trained_on: Sequence[TrainingTable]
    residual_prior: bytes  # the file with the prior of the online correction
    measured_pairs: bool  # whether measured pairs are published, and answered by their measurement
    compositions: Sequence[DomainComposition]  # of groups, where the tables hold some
    goldens: Sequence[Golden]  # requests with the answers of the fitted model
    slowdown_range: SlowdownRange  # in which their medians lie
    latencies: Mapping[str, "Publication"] = field(default_factory=dict)  # by metric: of latencies of services

    @property
    def card_text(self) -> str:
        """Return the card as Markdown, its metadata first."""
        return front_matter(self.card_metadata) + markdown(self.card)


NO_LATENCIES: Mapping[str, Publication] = MappingProxyType({})


def build_publication(
    candidates: Candidates,
    source: SourceTables,
    encoder: PairEncoder,
    *,
    pair_intervals: PairIntervals | None = None,
    comparisons: Sequence[BeliefComparison] = (),
    compositions: Sequence[DomainComposition] = (),
    warnings: Sequence[str] = (),
    notice: str = "",
    measured_pairs: bool = True,
    latencies: Mapping[str, Publication] = NO_LATENCIES,
) -> Publication:
    """Export the champion, and fit all other published parts except beliefs and compositions.

    The card contains the `warnings` and the `notice`. Without `measured_pairs` the folder holds no measurement of a
    pair. `latencies` are published inside the folder. Raises ModelError where an exported graph differs from its model.
    """
    dataset, champion, seed = candidates.dataset, candidates.champion_model, candidates.seed
    completion = completion_of_model(champion, dataset)
    # 1. Export the graph of pairs, and that of matrices where the model factorises; check their parity.
    limit = matrix_limit(champion, dataset)
    pair = export_pair_graph(champion, dataset, encoder, seed=seed)
    matrix = None if limit else export_matrix_graph(champion, dataset, encoder, seed=seed)
    worst_parity = max(pair.max_error, matrix.max_error if matrix else 0.0)
    # 2. Encode the known workloads.
    encoded = [encoded_workloads(dataset, d, source.tables, encoder, completion) for d in range(len(dataset.domains))]
    # 3. Fit the prior of the online correction to the champion's out-of-fold errors.
    errors = {each.split: out_of_fold_errors(dataset, each) for each in candidates.champion_evaluations}
    residual_prior = fit_residual_prior(dataset, errors["job"], errors["pair"], errors.get("family"))
    # 4. Gather what is fitted beside the champion; it answers the golden requests.
    fitted = FittedParts(
        model=champion,
        dataset=dataset,
        encoder=encoder,
        completion=completion,
        intervals=calibrate_intervals(dataset, candidates.champion_evaluations),
        pair_intervals=pair_intervals,
        feasibility=fit_feasibility(feasibility_rows(source.tables, encoder, metric=METRIC)),
        compositions={(each.device_type, each.mode): each.composition for each in compositions},
        profiles={(job.workload, job.device_type): job for job in known_profiles(source.tables).jobs},
        matrix_limit=limit,
    )
    # 5. Write the model card.
    trained_on = tuple(
        TrainingTable(table=table.name, rows=int((dataset.table == t).sum()), sha256=digest, icc=icc)
        for t, (table, digest, icc) in enumerate(zip(source.tables, source.digests, source.icc, strict=True))
    )
    document = model_card(
        candidates,
        matrix_limit=limit,
        trained_on=trained_on,
        worst_parity=worst_parity,
        warnings=warnings,
        notice=notice,
        compositions=compositions,
        beliefs=[each.text(candidates.champion) for each in comparisons],
    )
    scores, tables = scores_document(candidates.scores), [table.name for table in source.tables]
    return Publication(
        candidates=candidates,
        source=source,
        fitted=fitted,
        pair_graph=pair.content,
        matrix_graph=matrix.content if matrix else None,
        worst_parity=worst_parity,
        card=document,
        card_metadata=model_metadata(candidates.champion, tables, scores),
        encoded_workloads=tuple(encoded),
        trained_on=trained_on,
        residual_prior=residual_prior_file(residual_prior),
        measured_pairs=measured_pairs,
        compositions=compositions,
        goldens=fitted.goldens(),
        slowdown_range=stated_range(dataset),
        latencies=latencies,
    )


def publish(target: Path, publication: Publication) -> str:
    """Write the model folder and return its version.

    A reader sees the old folder or the new one, never parts of both. Equal models give equal bytes and an equal
    version; only `created_at` differs (`SOURCE_DATE_EPOCH` fixes it). Before the folder is moved into place its graphs
    must answer the golden requests as the fitted model does. Raises ModelError where they do not, UnfitError where the
    folder cannot be written, or where `target` holds something that is not a model folder.
    """
    files = _folder_content(publication)
    version = str(json.loads(files["manifest.json"])["version"])

    # Write them into a new folder, ask what was written, and move it into place.
    def write(folder: Path) -> None:
        for name, data in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        for place in (folder, *(folder / metric for metric in publication.latencies)):
            predictor = load_model(place, publication.fitted.encoder)
            replay_goldens(*read_goldens(place), predictor, predictor.profiles)

    replace_folder(target, write)
    return version


def _folder_content(publication: Publication) -> dict[str, bytes]:
    """Return the files of a model folder by name; the models of latencies have folders of their own inside it."""
    # 1. Render the files.
    files = {
        "pair.onnx": publication.pair_graph,
        **({MATRIX_GRAPH: publication.matrix_graph} if publication.matrix_graph else {}),
        "arrays.npz": _arrays(publication),
        PROFILES_FILE: profiles_content(_profiles_by_job(publication.source.tables)),
        "card.md": publication.card_text.encode(),
        prior.PRIOR_FILE: publication.residual_prior,
        GOLDENS_FILE: goldens_content(publication.goldens, publication.slowdown_range),
    }
    # 2. Describe them in the manifest; the version is a digest of its content.
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    inside = {metric: _folder_content(head) for metric, head in publication.latencies.items()}
    latencies = {metric: content_digest(json.loads(content["manifest.json"])) for metric, content in inside.items()}
    described = _manifest_content(publication, digests) | ({"latencies": latencies} if latencies else {})
    content = json_value({"format": FORMAT, **described})
    version = content_version(content)
    header = {"format": FORMAT, "version": version, "created_at": _creation_time()}
    files["manifest.json"] = _json({**header, **content}, indent=1)
    return files | {f"{metric}/{name}": data for metric, of in inside.items() for name, data in of.items()}


def _profiles_by_job(tables: Sequence[Table]) -> list[JobProfile]:
    """Return the profiles of each source, sorted by job. The server combines them with the registered profiles."""
    return sorted(known_profiles(tables).profiles, key=lambda profile: (profile.workload, profile.device_type))


def require_replaceable(target: Path) -> None:
    """Raise UnfitError where `target` holds something that is not a model folder."""
    if target.exists() and not (target / "manifest.json").is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UnfitError(
            "will not replace what is not a model folder", value=target, remedy="choose an empty or new folder"
        )


def replace_folder(target: Path, write: Callable[[Path], object]) -> None:
    """Replace the folder `target` by a new one that `write` fills.

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


def _manifest_content(publication: Publication, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest without format, version and creation time."""
    candidates, dataset = publication.candidates, publication.candidates.dataset
    fitted = publication.fitted
    intervals, feasibility, limit = fitted.intervals, fitted.feasibility, fitted.matrix_limit
    no_threshold = math.isinf(intervals.abstains_above)  # strict JSON has no infinity
    return {
        "model": candidates.champion,
        "selected_by": candidates.selected_by,
        "fingerprint": dataset.fingerprint,
        "job_features": dataset.job_columns,
        "pair_features": dataset.pair_columns,
        "workloads": dataset.workloads,
        "domains": [asdict(domain) for domain in dataset.domains],
        "intervals": {
            "calibrated": intervals.calibrated,
            "levels": intervals.levels.tolist(),
            "grids": intervals.grids.tolist(),
            "abstains_above": None if no_threshold else intervals.abstains_above,
        },
        "feasibility": feasibility
        and {"level": feasibility.level, "slope": feasibility.slope, "effect": feasibility.effect.tolist()},
        "scores": scores_document(candidates.scores),
        "matrix_limit": limit and asdict(limit),
        **({"groups": [each.to_json() for each in publication.compositions]} if publication.compositions else {}),
        "trained_on": [asdict(table) for table in publication.trained_on],
        "files": dict(digests),
    }


def _arrays(publication: Publication) -> bytes:
    """Return the arrays of `arrays.npz`.

    They are the encoded workloads by domain, the measured rows (if published) with the champion's out-of-fold
    predictions, partner counts, intervals of single pairs, and completion and space of the jobs.
    """
    candidates, completion = publication.candidates, publication.fitted.completion
    dataset, space = candidates.dataset, getattr(candidates.champion_model, "space", None)  # for novelty
    unseen, latest = unseen_predictions(dataset, candidates.champion_evaluations), dataset.latest_index()
    latest = latest[~dataset.aligned[latest]] if publication.measured_pairs else latest[:0]
    rows = dataset.take(latest)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        partners=partner_counts(dataset),
        **({} if space is None else {f"space_{f.name}": getattr(space, f.name) for f in fields(space)}),
        **pair_interval_arrays(publication.fitted.pair_intervals),
        **{f"completion_{name}": getattr(completion, name) for name in ARRAYS},
        measured_victim=rows.rows.victim - 1,
        measured_neighbour=rows.rows.neighbour - 1,
        measured_domain=rows.domain,
        measured_log=rows.log_slowdown,
        measured_lower=rows.lower,
        measured_upper=rows.upper,
        **unseen.take(latest).arrays(),
        allow_pickle=False,
        **{f"features_{k}": jobs for k, jobs in enumerate(publication.encoded_workloads)},
    )
    return buffer.getvalue()


def _json(content: Any, *, indent: int | None = None) -> bytes:
    """Return strict JSON, in which NaN is null."""
    return (json.dumps(json_value(content), indent=indent, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _creation_time() -> str:
    """Return the present time, or that of a reproducible build (reproducible-builds.org, SOURCE_DATE_EPOCH)."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC).isoformat()
