"""A model behind a fact completion: absent facts are estimated before the inner model reads them.

The inner model is fitted on completed rows and its graph reads completed rows; `predict` takes rows with absent facts.

The exported graph carries the encoder's fingerprint. A parity check compares it, run by ONNX Runtime, with its model on
every training row, on random rows (absent features, unknown identities, values far outside the training range) and on
rows exactly on split thresholds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import PARITY_BUDGET
from interfere.predict.completion import FactCompletion, fit_completion
from interfere.predict.graphs import open_session
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.predict.transfer.process import all_pairs
from interfere.protocols import PairEncoder
from interfere.training.dataset import Dataset, PairRows, known_profiles, pair_rows
from interfere.training.models.gbdt import trees_of
from interfere.training.models.onnx_graph import (
    run_matrix_graph,
    run_pair_graph,
    share_equal_constants,
    stamp_fingerprint,
)
from interfere.training.models.protocols import FittedModel, ModelSettings

RANDOM_JOBS = 32  # of the parity check
ENCODER = FeatureEncoder()  # computes the columns of a pair again from its two completed jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCompleted:
    """A fitted model with the fact completion of its training rows."""

    inner: Any  # a FittedModel, perhaps with a `space` or `to_matrix_onnx`
    completion: FactCompletion

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return str(self.inner.name)

    @property
    def space(self) -> JobSpace | None:
        """Return the space of the known jobs, or None for a model without one."""
        space: JobSpace | None = getattr(self.inner, "space", None)
        return space

    def completed(self, rows: PairRows) -> PairRows:
        """Return the rows with absent facts estimated, as the inner model reads them."""
        return complete_rows(rows, self.completion)

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Return predicted log slowdowns, float64[p]."""
        return np.asarray(self.inner.predict(self.completed(rows)), dtype=np.float64)

    def novelty(self, rows: PairRows) -> NDArray[np.float64]:
        """Return the novelty of each pair, float64[p] in [0, 1]; 0 for a model without a space of jobs."""
        if self.space is None:
            return np.zeros(len(rows))
        distinct = distinct_jobs(rows)
        novelty = self.space.novelty(*self.completion.complete(distinct.jobs))
        return pair_novelty(novelty[distinct.victim], novelty[distinct.neighbour])

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx` of the inner model, which reads completed rows."""
        return bytes(self.inner.to_onnx())


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedModel:
    """Settings of a model that is fitted on rows with estimated absent facts."""

    inner: ModelSettings

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return self.inner.name

    def fit(self, dataset: Dataset, seed: int) -> FittedCompleted:
        """Fit the completion on the jobs of these rows, then the inner model on the completed rows."""
        completion = completion_of(dataset)
        return FittedCompleted(inner=self.inner.fit(complete_dataset(dataset, completion), seed), completion=completion)


def settings_of(model: ModelSettings) -> ModelSettings:
    """Return the settings of the model without fact completion."""
    return model.inner if isinstance(model, CompletedModel) else model


def exported_form(model: FittedModel, dataset: Dataset) -> tuple[Any, Dataset]:
    """Return the model whose graph is exported, and the dataset in the form that this graph reads."""
    if isinstance(model, FittedCompleted):
        return model.inner, complete_dataset(dataset, model.completion)
    return model, dataset


def completion_of(dataset: Dataset) -> FactCompletion:
    """Return a fact completion fitted on the distinct jobs of the dataset."""
    distinct = distinct_jobs(dataset.rows)
    workload = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    return fit_completion(distinct.jobs, workload[distinct.first])


def complete_dataset(dataset: Dataset, completion: FactCompletion) -> Dataset:
    """Return the dataset with absent facts estimated."""
    return replace(dataset, rows=complete_rows(dataset.rows, completion))


def complete_rows(rows: PairRows, completion: FactCompletion) -> PairRows:
    """Return the rows with the absent facts of both jobs estimated."""
    if not any(np.isnan(jobs).any() for jobs in jobs_of_rows(rows)):
        return rows
    distinct = distinct_jobs(rows)
    completed, _ = completion.complete(distinct.jobs)
    return replace(rows, pairs=ENCODER.encode_pairs(completed[distinct.victim], completed[distinct.neighbour]))


def jobs_of_rows(rows: PairRows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the encoded victims and neighbours of the rows, float32[p, F] each."""
    width = len(ENCODER.job_names)
    return rows.pairs[:, :width], rows.pairs[:, width : 2 * width]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctJobs:
    """The distinct encoded jobs of `p` rows: a large table repeats each job in hundreds of rows."""

    jobs: NDArray[np.float32]  # float32[m, F], in the order of their bits
    first: NDArray[np.int64]  # int64[m]: where each occurs first among the p victims, then the p neighbours
    victim: NDArray[np.int64]  # int64[p]: place of each row's victim among the jobs
    neighbour: NDArray[np.int64]  # int64[p]


def distinct_jobs(rows: PairRows) -> DistinctJobs:
    """Return the distinct jobs of the rows. Jobs are equal where all their bits are: NaN equals NaN."""
    jobs = np.concatenate(jobs_of_rows(rows))
    bits = jobs.view(np.uint32).astype(">u4").view(f"V{jobs.shape[1] * 4}")[:, 0]  # compared as numbers, first to last
    _, first, place = np.unique(bits, return_index=True, return_inverse=True)
    victim, neighbour = place.reshape(2, len(rows))
    return DistinctJobs(jobs=jobs[first], first=first, victim=victim, neighbour=neighbour)


def completion_of_model(model: FittedModel, dataset: Dataset) -> FactCompletion:
    """Return the fact completion of a fitted model; for a model without one, a completion fitted on the dataset."""
    return model.completion if isinstance(model, FittedCompleted) else completion_of(dataset)


def encoded_workloads(
    dataset: Dataset, domain: int, tables: Sequence[Table], encoder: PairEncoder, completion: FactCompletion
) -> NDArray[np.float32]:
    """Return float32[N, F]: the encoded profile of each workload on the domain's device type; NaN without one."""
    profiles = {(job.workload, job.device_type): job for job in known_profiles(tables).jobs}
    place = dataset.domains[domain]
    rows = np.full((len(dataset.workloads), len(dataset.job_columns)), np.nan, dtype=np.float32)
    for k, name in enumerate(dataset.workloads):
        if (profile := profiles.get((name, place.device_type))) is not None:
            rows[k] = completion.complete(encoder.encode_jobs([profile], place.device_type, place.mode))[0][0]
    return rows


# --- exported and compared with the model -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedGraph:
    """A graph that passed the parity check."""

    content: bytes
    rows_compared: int
    max_error: float  # largest |graph - model| in log slowdown


def export_pair_graph(model: FittedModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> ExportedGraph:
    """Export `pair.onnx` of the model. Raises ModelError where the graph differs from the model."""
    model, dataset = exported_form(model, dataset)
    graph = stamp_fingerprint(share_equal_constants(model.to_onnx()), encoder.fingerprint)
    session = open_session(graph)
    jobs, ids = random_jobs(dataset, seed)
    i, j = all_pairs(len(jobs))
    random_rows = pair_rows(encoder, jobs, ids, i, j, np.arange(len(i)) % (len(dataset.domains) + 1))
    trees = trees_of(model)
    on_thresholds = [trees.threshold_rows(dataset.rows)] if trees else []
    compared = [rows for rows in (dataset.rows, *on_thresholds, random_rows) if len(rows)]
    max_error = max(_max_difference(run_pair_graph(session, rows), model.predict(rows)) for rows in compared)
    rows_compared = sum(map(len, compared))
    return _require_parity(graph, rows_compared, max_error, f"pair.onnx of {model.name}")


def export_matrix_graph(model: FittedModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> ExportedGraph:
    """Export `matrix.onnx` of a model that factorises over jobs, compared with its pair predictions in both directions.

    Raises ModelError where they differ.
    """
    model, dataset = exported_form(model, dataset)
    assert hasattr(model, "to_matrix_onnx"), "a model that factorises over jobs"
    graph = stamp_fingerprint(share_equal_constants(model.to_matrix_onnx()), encoder.fingerprint)
    session = open_session(graph)
    jobs, ids = random_jobs(dataset, seed)
    v = len(jobs) // 3  # fewer victims than neighbours, so that a transposed matrix cannot pass
    i, j = (side.ravel() for side in np.indices((v, len(jobs))))

    def predicted(victim: NDArray[np.int64], neighbour: NDArray[np.int64], domain: int) -> NDArray[np.float64]:
        return model.predict(pair_rows(encoder, jobs, ids, victim, neighbour, domain)).reshape(v, len(jobs))

    max_error = 0.0
    for domain in range(len(dataset.domains) + 1):
        log_victim, log_neighbour = run_matrix_graph(session, jobs[:v], ids[:v], jobs, ids, domain)
        victim_error = _max_difference(log_victim, predicted(i, j, domain))
        neighbour_error = _max_difference(log_neighbour, predicted(j, i, domain))
        max_error = max(max_error, victim_error, neighbour_error)
    rows_compared = 2 * v * len(jobs) * (len(dataset.domains) + 1)
    return _require_parity(graph, rows_compared, max_error, f"matrix.onnx of {model.name}")


def random_jobs(dataset: Dataset, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return (float32[n, F], int64[n]): random jobs as columns, and their identities.

    Every column is drawn from the real jobs; half of the drawn values are shifted, and a tenth is absent. Identities
    are random and may be 0.
    """
    rng = np.random.default_rng([seed, 11])
    width = len(dataset.job_columns)
    real = dataset.rows.pairs[:, :width]
    drawn = np.stack([rng.choice(real[:, k], size=RANDOM_JOBS) for k in range(width)], axis=1)
    shifted = drawn + rng.normal(scale=2.0, size=drawn.shape) * (rng.random(drawn.shape) < 0.5)
    # Counts and shares stay non-negative: encode_pairs takes logarithms of sums of some columns.
    jobs = np.where(rng.random(drawn.shape) < 0.1, np.nan, np.maximum(shifted, np.minimum(drawn, 0.0)))
    return jobs.astype(np.float32), rng.integers(0, len(dataset.workloads) + 1, size=RANDOM_JOBS)


def _max_difference(graph: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    """Return the largest absolute difference; infinite where either holds NaN."""
    difference = np.abs(graph - model)
    return float(difference.max()) if np.isfinite(difference).all() else float("inf")


def _require_parity(graph: bytes, rows_compared: int, max_error: float, subject: str) -> ExportedGraph:
    if not max_error <= PARITY_BUDGET:
        raise ModelError(
            f"{subject} disagrees with the model it was exported from",
            value=f"by {max_error:.3g} in log slowdown on {rows_compared} rows, {PARITY_BUDGET:g} are allowed",
            remedy="nothing was published; report it with the versions of lightgbm, torch, onnx and onnxruntime",
        )
    return ExportedGraph(content=graph, rows_compared=rows_compared, max_error=max_error)
