"""A table of speeds with holes, filled as if it had few causes: rows are jobs, columns are neighbours on a domain."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from training.baselines.baseline import FittedRule, Floats, guarded
from training.baselines.effects import AdditiveModel, FittedAdditive
from training.dataset import Dataset, Rows
from training.evaluation.scores import MAX_SPEED, MIN_SPEED, speed

RANK, RIDGE = 10, 1e-2  # Gavel, `throughput_estimator.py`: DEFAULT_MATRIX_COMPLETION_K, _MU
SWEEPS, SMALL = 100, 1e-3  # of alternating least squares, as the library it calls stops
PATH = np.geomspace(0.5, 0.01, 8)  # thresholds tried, as shares of the largest singular value
ROUNDS, CLOSE = 100, 1e-5  # the authors' R package: maxit, thresh (squared change relative to the squared norm)
VALIDATION = 0.1  # share of the unordered pairs that chooses the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelCompletion:
    """ŷ[i, j] = the completed row, at j, of the other job whose completed row points the way that i's does.

    Gavel (Narayanan et al., OSDI 2020; `scheduler/throughput_estimator.py`): speeds of jobs beside reference
    jobs on every device type; probabilistic matrix factorisation fills what was not profiled, the job is taken for its
    nearest reference by cosine, and that reference's throughputs are used. Here every trained job is a reference and a
    column is found by domain and neighbour (the published code strides the reference columns over the full matrix). A
    job without a row, or a neighbour without a column, has no answer.
    """

    name: ClassVar[str] = "gavel-completion"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Factorise, then find each job's nearest other one."""
        table, seen = _matrix(dataset, speed(dataset.log_slowdown))
        filled = np.clip(factorised(table, seen, np.random.default_rng(seed)), MIN_SPEED, max(1.0, float(table.max())))
        filled = np.where(seen, table, filled)
        known_row, known_column = np.asarray(seen.any(axis=1)), np.asarray(seen.any(axis=0))
        alike = nearest(filled[:, known_column], known_row)

        def rule(rows: Rows) -> Floats:
            column = _column(dataset, rows)
            there = known_row[rows.victim] & known_column[column]
            return np.where(there, -np.log(filled[alike[rows.victim], column]), np.nan)

        return guarded(self.name, dataset, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftImpute:
    """ŷ = additive effects + Z, Z the low-rank matrix minimising ½ Σ_seen (residual - Z)² + λ ‖Z‖ nuclear.

    Mazumder, Hastie and Tibshirani (JMLR 2010, algorithm 1): Z ← S_λ(seen residuals, Z elsewhere), S_λ the singular
    value decomposition with λ taken off; warm starts down a path of λ. Rows and columns are centred first, as the
    authors' `biScale` does, by the additive baseline; λ is chosen on a tenth of the training pairs.
    """

    name: ClassVar[str] = "softimpute"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Choose λ, then solve on all rows."""
        groups = np.random.default_rng(seed).permutation(np.unique(dataset.group))
        hidden = np.isin(dataset.group, groups[: round(VALIDATION * len(groups))])
        share = self._share(dataset, hidden) if hidden.any() and not hidden.all() else float(PATH[0])
        centre = AdditiveModel().fit(dataset, seed)
        residual, seen = _matrix(dataset, _missed(dataset, centre))
        completed = _path(residual, seen, PATH[share <= PATH])[-1]

        def rule(rows: Rows) -> Floats:
            speeds = speed(centre.predict(rows)) + completed[rows.victim, _column(dataset, rows)]
            return np.asarray(-np.log(np.clip(speeds, MIN_SPEED, MAX_SPEED)))

        return guarded(self.name, dataset, rule)

    def _share(self, dataset: Dataset, hidden: NDArray[np.bool_]) -> float:
        shown, asked = dataset.take(~hidden), dataset.take(hidden)
        centre = AdditiveModel().fit(shown, 0)
        residual, seen = _matrix(shown, _missed(shown, centre))
        wanted = _missed(asked, centre)
        place = asked.rows.victim, _column(shown, asked.rows)
        missed = [float(np.mean(np.abs(wanted - one[place]))) for one in _path(residual, seen, PATH)]
        return float(PATH[int(np.argmin(missed))])


def _missed(dataset: Dataset, centre: FittedAdditive) -> Floats:
    """y - ŷ, float64[p]."""
    return speed(dataset.log_slowdown) - speed(centre.predict(dataset.rows))


def factorised(table: Floats, seen: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """U·Vᵀ of rank `RANK`: ridge regressions on the seen entries in turn (Salakhutdinov and Mnih, NeurIPS 2007)."""
    left, right = rng.standard_normal((table.shape[0], RANK)), rng.standard_normal((table.shape[1], RANK))
    before = left @ right.T
    for _ in range(SWEEPS):
        left = _ridge(table, seen, right)
        right = _ridge(table.T, seen.T, left)
        product = left @ right.T
        if np.linalg.norm(product - before) / product.size < SMALL:
            return product
        before = product
    return before


def nearest(filled: Floats, known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[n]: of each row, the other known row with the largest cosine; itself where there is none."""
    length = np.linalg.norm(filled, axis=1)
    cosine = filled @ filled.T / np.maximum(np.outer(length, length), 1e-12)
    cosine[:, ~known] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    alone = ~np.isfinite(cosine).any(axis=1)
    return np.where(alone, np.arange(len(filled)), np.argmax(cosine, axis=1))


def soft_impute(residual: Floats, seen: NDArray[np.bool_], threshold: float, start: Floats) -> Floats:
    """Z at one threshold, from `start`."""
    current = start
    for _ in range(ROUNDS):
        u, d, v = np.linalg.svd(np.where(seen, residual, current), full_matrices=False)
        following = (u * np.maximum(d - threshold, 0.0)) @ v
        moved = float(np.sum((following - current) ** 2))
        scale = float(np.sum(current**2))
        current = following
        if moved <= CLOSE * max(scale, 1e-12):
            break
    return current


def _path(residual: Floats, seen: NDArray[np.bool_], shares: Floats) -> list[Floats]:
    """Z at each threshold (shares of the largest singular value, falling), each started from the one before."""
    largest = float(np.linalg.norm(np.where(seen, residual, 0.0), 2))
    found: list[Floats] = []
    for share in shares:
        found.append(
            soft_impute(residual, seen, float(share) * largest, found[-1] if found else np.zeros_like(residual))
        )
    return found


def _ridge(table: Floats, seen: NDArray[np.bool_], other: Floats) -> Floats:
    """Each row's coefficients on `other` over its seen entries."""
    mask = seen.astype(np.float64)
    gram = np.einsum("rc,ck,cl->rkl", mask, other, other, optimize=True) + RIDGE * np.eye(other.shape[1])
    return np.asarray(np.linalg.solve(gram, ((mask * table) @ other)[:, :, None])[:, :, 0])


def _matrix(dataset: Dataset, entries: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """float64[N + 1, (D + 1)·(N + 1)] of mean entries by (victim, domain and neighbour), 0 where unseen; what was seen.

    Identity and domain 0, the unknown ones, are rows and columns that are never seen.
    """
    side = len(dataset.workloads) + 1
    shape = side, (len(dataset.domains) + 1) * side
    place = dataset.rows.victim, _column(dataset, dataset.rows)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, place, entries)
    np.add.at(count, place, 1.0)
    return total / np.maximum(count, 1.0), np.asarray(count > 0)


def _column(dataset: Dataset, rows: Rows) -> NDArray[np.int64]:
    """int64[p]: domain · (N + 1) + neighbour."""
    return rows.domain * (len(dataset.workloads) + 1) + rows.neighbour
