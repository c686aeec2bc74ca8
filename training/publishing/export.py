"""From a fitted model to graphs that may be served: stamped with the encoder's fingerprint, and proven equal.

Parity gate: the exported graph, run by ONNX Runtime, against the model it came from, on every training row, on random
rows (absent features, unknown identities, values far outside) and on rows that sit exactly on split thresholds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.onnx import select_feeds
from interfere.protocols import PairEncoder
from training.dataset import Dataset, Rows
from training.models.model import FittedMatrixModel, FittedModel
from training.models.onnx_graph import stamp

BUDGET = 1e-5  # log slowdown; float32 sums of 300 trees or 32 products differ by under 1e-6
RANDOM_JOBS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A graph that passed the gate."""

    content: bytes
    rows: int  # compared
    worst: float  # largest |graph - model| in log slowdown


def export_pair(model: FittedModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> Exported:
    """`pair.onnx` of the model. Raises ModelError when it disagrees with its source."""
    graph = stamp(model.to_onnx(), encoder.fingerprint)
    session = session_of(graph)
    jobs, ids = random_jobs(dataset, seed)
    i, j = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    rows, worst = 0, 0.0
    for part in (
        dataset.rows,
        model.threshold_rows(dataset.rows),
        Rows(
            pairs=encoder.encode_pairs(jobs[i], jobs[j]),
            victim=ids[i],
            neighbour=ids[j],
            domain=np.arange(len(i)) % (len(dataset.domains) + 1),
        ),
    ):
        if len(part):
            rows += len(part)
            worst = max(worst, _distance(run_pairs(session, part), model.predict(part)))
    return _passed(graph, rows, worst, f"pair.onnx of {model.name}")


def export_matrix(model: FittedMatrixModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> Exported:
    """`matrix.onnx` of the model, compared with its pair predictions in both directions."""
    graph = stamp(model.to_matrix_onnx(), encoder.fingerprint)
    jobs, ids = random_jobs(dataset, seed)
    v = len(jobs) // 3  # fewer victims than neighbours: a transposed answer cannot pass
    i, j = (side.ravel() for side in np.indices((v, len(jobs))))
    session = session_of(graph)

    def expected(one: NDArray[np.int64], other: NDArray[np.int64], domain: int) -> NDArray[np.float64]:
        rows = Rows(
            pairs=encoder.encode_pairs(jobs[one], jobs[other]),
            victim=ids[one],
            neighbour=ids[other],
            domain=np.full(len(one), domain),
        )
        return model.predict(rows).reshape(v, len(jobs))

    worst = 0.0
    for domain in range(len(dataset.domains) + 1):
        ahead, back = run_matrix(session, jobs[:v], ids[:v], jobs, ids, domain)
        worst = max(worst, _distance(ahead, expected(i, j, domain)), _distance(back, expected(j, i, domain)))
    return _passed(graph, 2 * v * len(jobs) * (len(dataset.domains) + 1), worst, f"matrix.onnx of {model.name}")


def session_of(graph: bytes) -> Any:
    """An ONNX Runtime session on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run_pairs(session: Any, rows: Rows) -> NDArray[np.float64]:
    """float64[p] of a pair graph."""
    feeds = {"pairs": rows.pairs, "victim": rows.victim, "neighbour": rows.neighbour, "domain": rows.domain}
    return np.asarray(session.run(["log_slowdown"], select_feeds(session, feeds))[0], dtype=np.float64)


def run_matrix(
    session: Any,
    victims: NDArray[np.float32],
    victim_id: NDArray[np.int64],
    neighbours: NDArray[np.float32],
    neighbour_id: NDArray[np.int64],
    domain: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two float64[v, n] of a matrix graph."""
    feeds = {
        "victims": victims,
        "victim_id": victim_id,
        "neighbours": neighbours,
        "neighbour_id": neighbour_id,
        "domain": np.array([domain], dtype=np.int64),
    }
    ahead, back = session.run(["log_victim", "log_neighbour"], select_feeds(session, feeds))
    return np.asarray(ahead, dtype=np.float64), np.asarray(back, dtype=np.float64)


def random_jobs(dataset: Dataset, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """float32[n, F] and int64[n]: columns drawn from the real jobs, moved, a tenth absent; identities from 0 up."""
    rng = np.random.default_rng([seed, 11])
    width = len(dataset.job_names)
    real = dataset.rows.pairs[:, :width]
    drawn = np.stack([rng.choice(real[:, k], size=RANDOM_JOBS) for k in range(width)], axis=1)
    moved = drawn + rng.normal(scale=2.0, size=drawn.shape) * (rng.random(drawn.shape) < 0.5)
    # Not below 0 where a count or share is meant: encode_pairs takes logarithms of sums of some columns.
    jobs = np.where(rng.random(drawn.shape) < 0.1, np.nan, np.maximum(moved, np.minimum(drawn, 0.0)))
    return jobs.astype(np.float32), rng.integers(0, len(dataset.workloads) + 1, size=RANDOM_JOBS)


def _distance(graph: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    """Largest absolute difference; infinite where either is not a number."""
    apart = np.abs(graph - model)
    return float(apart.max()) if np.isfinite(apart).all() else float("inf")


def _passed(graph: bytes, rows: int, worst: float, what: str) -> Exported:
    if not worst <= BUDGET:
        raise ModelError(
            f"{what} disagrees with the model it was exported from",
            value=f"by {worst:.3g} in log slowdown on {rows} rows, {BUDGET:g} are allowed",
            remedy="nothing was published; report it with the versions of lightgbm, torch, onnx and onnxruntime",
        )
    return Exported(content=graph, rows=rows, worst=worst)
