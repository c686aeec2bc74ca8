"""Four baselines that fit coefficients: low-rank completion of the speed table, and regression on utilisation.

The completed table has victims as rows and (domain, neighbour) as columns; the regressions read the solo utilisation of
the device by both jobs.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.training.baselines.baseline import (
    BANDWIDTH,
    COMPUTE,
    FittedRule,
    Floats,
    Rule,
    column_values,
    fit_per_domain,
    known_column,
    known_columns_of_both,
    no_prediction,
    with_mean_fallback,
)
from interfere.training.dataset import MAX_SPEED, MIN_SPEED, Dataset, PairRows, speed
from interfere.training.models.additive import AdditiveModel, FittedAdditive

RANK, RIDGE = 10, 1e-2  # Gavel, `throughput_estimator.py`: DEFAULT_MATRIX_COMPLETION_K, _MU
MAX_SWEEPS, SWEEP_TOLERANCE = 100, 1e-3  # of alternating least squares: defaults of the library that Gavel calls
THRESHOLD_SHARES = np.geomspace(0.5, 0.01, 8)  # thresholds tried, as shares of the largest singular value
MAX_ROUNDS, ROUND_TOLERANCE = 100, 1e-5  # of soft-impute, the authors' R package: maxit, thresh (squared, relative)
VALIDATION_SHARE = 0.1  # of the unordered pairs, on which the threshold is chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelCompletion:
    """ŷ[i, j] = entry j of the completed row of the other job whose completed row has the largest cosine with row i.

    Gavel (Narayanan et al., OSDI 2020; `scheduler/throughput_estimator.py`): a table of speeds of jobs beside reference
    jobs on every device type. Probabilistic matrix factorisation fills the entries that were not profiled, the job is
    matched to its nearest reference job by cosine, and the throughputs of that reference are used. Here every training
    job is a reference, and a column is found by domain and neighbour (the published code strides the reference columns
    over the full matrix). A job without a row, or a neighbour without a column, has no prediction.
    """

    name: ClassVar[str] = "gavel-completion"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Complete the table, then find the nearest other row of each job."""
        table, seen = _speed_table(dataset, speed(dataset.log_slowdown))
        product = factorise(table, seen, np.random.default_rng(seed))
        completed = np.where(seen, table, np.clip(product, MIN_SPEED, max(1.0, float(table.max()))))
        known_row, known_column = np.asarray(seen.any(axis=1)), np.asarray(seen.any(axis=0))
        reference = nearest_rows(completed[:, known_column], known_row)

        def rule(rows: PairRows) -> Floats:
            column = _column(dataset, rows)
            known = known_row[rows.victim] & known_column[column]
            return np.where(known, -np.log(completed[reference[rows.victim], column]), np.nan)

        return with_mean_fallback(self.name, dataset, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftImpute:
    """ŷ = additive effects + Z, where the low-rank Z minimises ½ Σ_seen (residual - Z)² + λ ‖Z‖ (nuclear norm).

    Mazumder, Hastie and Tibshirani (JMLR 2010, algorithm 1): Z ← S_λ(seen residuals, Z elsewhere), where S_λ lowers all
    singular values by λ; each λ of a descending path starts from the solution of the previous one. Rows and columns are
    centred by the additive model first, as the authors' `biScale` does; λ is chosen on a tenth of the training pairs.
    """

    name: ClassVar[str] = "softimpute"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Choose λ on validation pairs, then solve on all rows."""
        groups = np.random.default_rng(seed).permutation(np.unique(dataset.group))
        validation = np.isin(dataset.group, groups[: round(VALIDATION_SHARE * len(groups))])
        can_validate = validation.any() and not validation.all()
        share = self._choose_share(dataset, validation) if can_validate else float(THRESHOLD_SHARES[0])
        additive = AdditiveModel().fit(dataset, seed)
        residual, seen = _speed_table(dataset, _residual_speed(dataset, additive))
        completed = _solution_path(residual, seen, THRESHOLD_SHARES[share <= THRESHOLD_SHARES])[-1]

        def rule(rows: PairRows) -> Floats:
            speeds = speed(additive.predict(rows)) + completed[rows.victim, _column(dataset, rows)]
            return np.asarray(-np.log(np.clip(speeds, MIN_SPEED, MAX_SPEED)))

        return with_mean_fallback(self.name, dataset, rule)

    def _choose_share(self, dataset: Dataset, validation: NDArray[np.bool_]) -> float:
        """The threshold share with the least mean absolute error over the validation rows."""
        training_rows, validation_rows = dataset.take(~validation), dataset.take(validation)
        additive = AdditiveModel().fit(training_rows, 0)
        residual, seen = _speed_table(training_rows, _residual_speed(training_rows, additive))
        expected = _residual_speed(validation_rows, additive)
        entry = validation_rows.rows.victim, _column(training_rows, validation_rows.rows)
        solutions = _solution_path(residual, seen, THRESHOLD_SHARES)
        errors = [float(np.mean(np.abs(expected - solution[entry]))) for solution in solutions]
        return float(THRESHOLD_SHARES[int(np.argmin(errors))])


def _residual_speed(dataset: Dataset, additive: FittedAdditive) -> Floats:
    """y - ŷ of the additive model, float64[p]."""
    return speed(dataset.log_slowdown) - speed(additive.predict(dataset.rows))


def factorise(table: Floats, seen: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """U·Vᵀ of rank `RANK`: alternating ridge regressions on the seen entries (Salakhutdinov and Mnih, NeurIPS 2007)."""
    left, right = rng.standard_normal((table.shape[0], RANK)), rng.standard_normal((table.shape[1], RANK))
    previous = left @ right.T
    for _ in range(MAX_SWEEPS):
        left = _ridge(table, seen, right)
        right = _ridge(table.T, seen.T, left)
        product = left @ right.T
        if np.linalg.norm(product - previous) / product.size < SWEEP_TOLERANCE:
            return product
        previous = product
    return previous


def nearest_rows(completed: Floats, known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[n]: for each row, the other known row with the largest cosine; the row itself where there is none."""
    length = np.linalg.norm(completed, axis=1)
    cosine = completed @ completed.T / np.maximum(np.outer(length, length), 1e-12)
    cosine[:, ~known] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    has_no_other = ~np.isfinite(cosine).any(axis=1)
    return np.where(has_no_other, np.arange(len(completed)), np.argmax(cosine, axis=1))


def soft_impute(residual: Floats, seen: NDArray[np.bool_], threshold: float, start: Floats) -> Floats:
    """Z for one threshold λ, iterated from `start`."""
    current = start
    for _ in range(MAX_ROUNDS):
        u, d, v = np.linalg.svd(np.where(seen, residual, current), full_matrices=False)
        updated = (u * np.maximum(d - threshold, 0.0)) @ v
        change = float(np.sum((updated - current) ** 2))
        scale = float(np.sum(current**2))
        current = updated
        if change <= ROUND_TOLERANCE * max(scale, 1e-12):
            break
    return current


def _solution_path(residual: Floats, seen: NDArray[np.bool_], shares: Floats) -> list[Floats]:
    """Z for each descending threshold (a share of the largest singular value), started from the previous solution."""
    largest = float(np.linalg.norm(np.where(seen, residual, 0.0), 2))
    solutions: list[Floats] = []
    for share in shares:
        start = solutions[-1] if solutions else np.zeros_like(residual)
        solutions.append(soft_impute(residual, seen, float(share) * largest, start))
    return solutions


def _ridge(table: Floats, seen: NDArray[np.bool_], factors: Floats) -> Floats:
    """Coefficients of each row on `factors`, over its seen entries."""
    mask = seen.astype(np.float64)
    gram = np.einsum("rc,ck,cl->rkl", mask, factors, factors, optimize=True) + RIDGE * np.eye(factors.shape[1])
    return np.asarray(np.linalg.solve(gram, ((mask * table) @ factors)[:, :, None])[:, :, 0])


def _speed_table(dataset: Dataset, entries: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """(mean entry by victim and (domain, neighbour), float64[N + 1, (D + 1)·(N + 1)], 0 where unseen; which are seen).

    Identity 0 and domain 0, the unknown ones, are rows and columns that are never seen.
    """
    identities = len(dataset.workloads) + 1
    shape = identities, (len(dataset.domains) + 1) * identities
    entry = dataset.rows.victim, _column(dataset, dataset.rows)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, entry, entries)
    np.add.at(count, entry, 1.0)
    return total / np.maximum(count, 1.0), np.asarray(count > 0)


def _column(dataset: Dataset, rows: PairRows) -> NDArray[np.int64]:
    """int64[p]: domain · (N + 1) + neighbour."""
    return rows.domain * (len(dataset.workloads) + 1) + rows.neighbour


MIN_SLOWDOWN = 0.5  # lower bound of what a line predicts: no measured slowdown is below it


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearUtilisation:
    """s = c0 + c1·compute[victim] + c2·compute[neighbour] + c3·bandwidth[victim] + c4·bandwidth[neighbour].

    gpulet (Choi et al., USENIX ATC 2022): a linear regression of the interference factor on the solo utilisation of L2
    and of DRAM bandwidth of both jobs, with one set of constants a GPU type. Here the utilisation of compute units, or
    the nearest known column, stands for L2, which no monitoring tool reports.
    """

    name: ClassVar[str] = "gpulet-linear"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares in each domain, over the rows for which all four inputs are known."""
        return fit_per_domain(self.name, dataset, self._fit_rule)

    def _fit_rule(self, dataset: Dataset) -> Rule:
        columns = known_columns_of_both(dataset, COMPUTE, BANDWIDTH)
        if columns is None:
            return no_prediction
        inputs = _with_intercept(column_values(dataset.rows, columns))
        known = np.isfinite(inputs).all(axis=1)
        root_weight = np.sqrt(dataset.weight[known])
        slowdown = np.exp(dataset.log_slowdown[known])
        coefficients = np.linalg.lstsq(inputs[known] * root_weight[:, None], slowdown * root_weight, rcond=None)[0]

        def rule(rows: PairRows) -> Floats:
            predicted = _with_intercept(column_values(rows, columns)) @ coefficients
            return np.asarray(np.log(np.maximum(MIN_SLOWDOWN, predicted)))

        return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthSum:
    """s = 1 + k[victim] · bandwidth[neighbour], with one common k for all victims without a training row.

    iGniter (Xu et al., IEEE TPDS 2023; `igniter-algorithm.py`): active time grows by k_i times the summed L2
    utilisation of the co-located jobs, with k_i fitted per workload from shared runs. Memory bandwidth stands for L2.
    iGniter's launch delays and clock frequency need a kernel count and a power model of each device; they are left out.
    """

    name: ClassVar[str] = "igniter-bandwidth"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Least squares through the origin in each domain, for each victim and for all of them together."""
        return fit_per_domain(self.name, dataset, self._fit_rule)

    def _fit_rule(self, dataset: Dataset) -> Rule:
        column = known_column(dataset, "neighbour", BANDWIDTH)
        if column is None:
            return no_prediction
        bandwidth = column_values(dataset.rows, [column])[:, 0]
        known = np.isfinite(bandwidth)
        bandwidth, victim, weight = bandwidth[known], dataset.rows.victim[known], dataset.weight[known]
        excess = np.expm1(dataset.log_slowdown[known])
        identities = len(dataset.workloads) + 1
        numerator = np.bincount(victim, weights=weight * excess * bandwidth, minlength=identities)
        denominator = np.bincount(victim, weights=weight * bandwidth**2, minlength=identities)
        overall = numerator.sum() / denominator.sum() if denominator.sum() > 0 else 0.0
        k = np.divide(numerator, denominator, out=np.full(identities, overall), where=denominator > 0)

        def rule(rows: PairRows) -> Floats:
            predicted = 1 + k[rows.victim] * column_values(rows, [column])[:, 0]
            return np.asarray(np.log(np.maximum(MIN_SLOWDOWN, predicted)))

        return rule


def _with_intercept(inputs: Floats) -> Floats:
    """The inputs behind a column of ones."""
    return np.column_stack([np.ones(len(inputs)), inputs])
