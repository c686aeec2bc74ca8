"""Exports fitted models as ONNX graphs with the encoder's fingerprint; a parity check proves each equal to its model.

The parity check compares the graph, run by ONNX Runtime, with the model on every training row, on random rows (absent
features, unknown identities, values far outside the training range) and on rows exactly on split thresholds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.protocols import PairEncoder
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.completed import exported_form
from interfere.training.models.onnx_graph import share_equal_constants, stamp_fingerprint
from interfere.training.models.onnx_session import open_session, run_matrix_graph, run_pair_graph
from interfere.training.models.protocols import FittedModel

PARITY_BUDGET = 1e-5  # log slowdown; float32 sums of 300 trees or 32 products differ by under 1e-6
RANDOM_JOBS = 32


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
    i, j = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    random_rows = PairRows(
        pairs=encoder.encode_pairs(jobs[i], jobs[j]),
        victim=ids[i],
        neighbour=ids[j],
        domain=np.arange(len(i)) % (len(dataset.domains) + 1),
    )
    rows_compared, max_error = 0, 0.0
    for rows in (dataset.rows, model.threshold_rows(dataset.rows), random_rows):
        if len(rows):
            rows_compared += len(rows)
            max_error = max(max_error, _max_difference(run_pair_graph(session, rows), model.predict(rows)))
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
        rows = PairRows(
            pairs=encoder.encode_pairs(jobs[victim], jobs[neighbour]),
            victim=ids[victim],
            neighbour=ids[neighbour],
            domain=np.full(len(victim), domain),
        )
        return model.predict(rows).reshape(v, len(jobs))

    max_error = 0.0
    for domain in range(len(dataset.domains) + 1):
        log_victim, log_neighbour = run_matrix_graph(session, jobs[:v], ids[:v], jobs, ids, domain)
        victim_error = _max_difference(log_victim, predicted(i, j, domain))
        neighbour_error = _max_difference(log_neighbour, predicted(j, i, domain))
        max_error = max(max_error, victim_error, neighbour_error)
    rows_compared = 2 * v * len(jobs) * (len(dataset.domains) + 1)
    return _require_parity(graph, rows_compared, max_error, f"matrix.onnx of {model.name}")


def random_jobs(dataset: Dataset, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(float32[n, F], int64[n]): jobs whose columns are drawn from real jobs, half of them shifted and a tenth absent;
    and random identities, 0 included."""
    rng = np.random.default_rng([seed, 11])
    width = len(dataset.job_columns)
    real = dataset.rows.pairs[:, :width]
    drawn = np.stack([rng.choice(real[:, k], size=RANDOM_JOBS) for k in range(width)], axis=1)
    shifted = drawn + rng.normal(scale=2.0, size=drawn.shape) * (rng.random(drawn.shape) < 0.5)
    # Counts and shares stay non-negative: encode_pairs takes logarithms of sums of some columns.
    jobs = np.where(rng.random(drawn.shape) < 0.1, np.nan, np.maximum(shifted, np.minimum(drawn, 0.0)))
    return jobs.astype(np.float32), rng.integers(0, len(dataset.workloads) + 1, size=RANDOM_JOBS)


def _max_difference(graph: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    """Largest absolute difference; infinite where either holds NaN."""
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
