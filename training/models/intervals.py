"""Calibrates intervals on residuals of rows that were not fitted: the quantiles that `predict.intervals` reads.

`known` stands on the `pair` split, `new` on the `job` split, where a job was held out whole; `few` on whatever of both
has one to three measured partners, and where those are too few, halfway between the other two.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.predict.intervals import EVIDENCE_CLASSES, Intervals, evidence_class, spread
from training.dataset import Dataset

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LOW, HIGH = 0.05, 0.95
MIN_RESIDUALS = 100  # of a group with its own grid: five of them lie outside each end

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class HeldOut(Protocol):
    """Tests of one model, out of fold."""

    @property
    def novelty(self) -> Floats:
        """float64[t]."""

    @property
    def partners(self) -> Ints:
        """int64[t]: measured partners, in the training rows, of the less known job."""

    @property
    def index(self) -> Ints:
        """int64[t]: rows of the dataset."""

    def residual(self, dataset: Dataset) -> Floats:
        """log s - log ŝ, float64[t]."""


def calibrated(dataset: Dataset, found: Sequence[HeldOut]) -> Intervals:
    """Grids from all tests together."""
    return grids_of(
        np.concatenate([one.residual(dataset) for one in found]),
        novelty=np.concatenate([one.novelty for one in found]),
        partners=np.concatenate([one.partners for one in found]),
        domain=np.concatenate([dataset.domain[one.index] + 1 for one in found]),
        domains=len(dataset.domains),
    )


def grids_of(residual: Floats, *, novelty: Floats, partners: Ints, domain: Ints, domains: int) -> Intervals:
    """`domain` is k + 1 for domain k of `domains`. A group with too few residuals takes those of a wider one."""
    scaled, known = residual / spread(novelty), evidence_class(partners)
    everything = _quantiles(scaled)
    overall: list[Floats | None] = [_own(scaled[known == k]) for k in range(len(EVIDENCE_CLASSES))]
    new, few, many = overall
    complete = new is not None and many is not None
    new, many = new if new is not None else everything, many if many is not None else everything
    overall = [new, few if few is not None else (new + many) / 2, many]
    grids = np.empty((len(EVIDENCE_CLASSES), domains + 1, len(LEVELS)))
    for k, grid in enumerate(overall):
        grids[k] = grid
        for d in range(1, domains + 1):
            own = _own(scaled[(known == k) & (domain == d)])
            grids[k, d] = grids[k, 0] if own is None else own
    return Intervals(calibrated=complete, levels=np.array(LEVELS), grids=grids)


def partner_counts(dataset: Dataset) -> Ints:
    """int64[D + 1, N + 1]: with how many others each workload was measured, by domain; 0 is all, and unknown."""
    counts = np.zeros((len(dataset.domains) + 1, len(dataset.workloads) + 1), dtype=np.int64)
    both = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    other = np.concatenate([dataset.rows.neighbour, dataset.rows.victim])
    domain = np.concatenate([dataset.rows.domain, dataset.rows.domain])
    seen = np.unique(np.stack([domain, both, other], axis=1), axis=0)
    np.add.at(counts, (seen[:, 0], seen[:, 1]), 1)
    anywhere = np.unique(seen[:, 1:], axis=0)
    np.add.at(counts[0], anywhere[:, 0], 1)
    return counts


def _own(scaled: Floats) -> Floats | None:
    return _quantiles(scaled) if len(scaled) >= MIN_RESIDUALS else None


def _quantiles(scaled: Floats) -> Floats:
    """float64[q]: at each of `LEVELS`, moved outwards by the share that one more residual may take."""
    outwards = 0.5 + (np.array(LEVELS) - 0.5) * (len(scaled) + 1) / len(scaled)
    return np.quantile(scaled, np.clip(outwards, 0.0, 1.0))
