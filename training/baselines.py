"""The published baselines that every model must beat; `evaluate` always scores them beside the models.

A baseline fits a rule, which predicts the log slowdown of rows, and NaN for a row of which it lacks the inputs.

Law 1: a row whose inputs are absent gets the mean of its domain, and `has_inputs` tells so: nothing is imputed.
Law 2: equal dataset and seed give equal predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import MAX_SPEED, MIN_SPEED, speed
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.additive import AdditiveModel, FittedAdditive, MeanModel
from interfere.training.models.protocols import ModelSettings

MIN_KNOWN_SHARE = 0.5  # of the rows must know a column, else the next column of its resource is read

# Columns of one resource, as different sources name it, the most direct one first. Static columns are roofline shares:
# the time that the peak rate would need ÷ the step time.
COMPUTE = ("sm_active_frac", "gpu_util_frac", "busy_frac", "peak_flops_frac")
BANDWIDTH = ("dram_active_frac", "memory_util_frac", "peak_bandwidth_frac")
MEMORY = ("memory_peak_device_frac", "log_memory_peak_mib")

UNSEEN_SPEED = 0.95  # Eva: throughput of a pair that was not measured
NEIGHBOURS = 5  # of the nearest pairs; scikit-learn's default
MIN_VARIANCE = 1e-18  # below which a column counts as constant
# Lucid: bounds of the classes by mean speed under sharing: below the first class 2, below the second class 1, else 0.
CLASS_2_BELOW, CLASS_1_BELOW = 0.85, 0.95
PRUNING = 1e-4  # cost-complexity parameter of Lucid's tree
RANK, RIDGE = 10, 1e-2  # Gavel, `throughput_estimator.py`: DEFAULT_MATRIX_COMPLETION_K, _MU
MAX_SWEEPS, SWEEP_TOLERANCE = 100, 1e-3  # of alternating least squares: defaults of the library that Gavel calls
THRESHOLD_SHARES = np.geomspace(0.5, 0.01, 8)  # thresholds tried, as shares of the largest singular value
MAX_ROUNDS, ROUND_TOLERANCE = 100, 1e-5  # of soft-impute, the authors' R package: maxit, thresh (squared, relative)
VALIDATION_SHARE = 0.1  # of the unordered pairs, on which the threshold is chosen
MIN_SLOWDOWN = 0.5  # lower bound of what a line predicts: no measured slowdown is below it

Floats = NDArray[np.float64]
Rule = Callable[[PairRows], Floats]  # log slowdown float64[p], NaN where the rule has no inputs


# --- what every baseline is -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRule:
    """A rule for the rows that have its inputs, and the mean of the domain for the others. It is never exported."""

    name: str
    rule: Rule
    mean: FittedAdditive

    def predict(self, rows: PairRows) -> Floats:
        """Return the predicted log slowdowns, float64[p]."""
        predicted = self.rule(rows)
        return np.where(np.isnan(predicted), self.mean.predict(rows), predicted)

    def has_inputs(self, rows: PairRows) -> NDArray[np.bool_]:
        """Return bool[p]: whether the rule predicts the row. The mean predicts all other rows."""
        return ~np.isnan(self.rule(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A published method by its name, and the function that fits its rule to a dataset with a seed."""

    name: str
    fit_rule: Callable[[Dataset, int], Rule] = field(repr=False)  # a function prints its address, which no digest bears
    source: str = ""  # where the method was published
    per_domain: bool = False  # one rule for each domain, as the published methods fit one per device

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Fit the rule on all rows of `dataset`, and the mean for the rows that the rule has no inputs for."""
        rule = (
            _rule_by_domain(dataset, lambda kept: self.fit_rule(dataset.take(kept), seed))
            if self.per_domain
            else self.fit_rule(dataset, seed)
        )
        return FittedRule(name=self.name, rule=rule, mean=MeanModel().fit(dataset, 0))


def _rule_by_domain(dataset: Dataset, fit: Callable[[NDArray[np.bool_]], Rule]) -> Rule:
    """Return a rule that is fitted on the rows of each domain apart, and for an unknown domain on all rows.

    `fit` returns the rule fitted on the rows of a mask.
    """
    overall = fit(np.ones(len(dataset), dtype=bool))
    of_domain = {int(d): fit(dataset.rows.domain == d) for d in np.unique(dataset.rows.domain)}

    def rule(rows: PairRows) -> Floats:
        predicted = np.full(len(rows), np.nan)
        for d in np.unique(rows.domain):
            in_domain = rows.domain == d
            predicted[in_domain] = of_domain.get(int(d), overall)(rows.take(in_domain))
        return predicted

    return rule


def no_prediction(rows: PairRows) -> Floats:
    """Predict no row: the rule of a dataset without the inputs."""
    return np.full(len(rows), np.nan)


def known_column(dataset: Dataset, role: str, names: Sequence[str]) -> int | None:
    """Return the index of the first pair column among `names` that at least `MIN_KNOWN_SHARE` of the rows know.

    None where there is no such column. `role` is victim or neighbour.
    """
    for name in names:
        column = dataset.pair_columns.index(f"{role}_{name}")
        if len(dataset) and np.isfinite(dataset.rows.pairs[:, column]).mean() >= MIN_KNOWN_SHARE:
            return column
    return None


def known_columns_of_both(dataset: Dataset, *resources: Sequence[str]) -> tuple[int, ...] | None:
    """Return the columns of victim, then neighbour, for each resource in turn; None where any of them is unknown."""
    columns = [known_column(dataset, role, names) for names in resources for role in ("victim", "neighbour")]
    return None if None in columns else tuple(column for column in columns if column is not None)


def column_values(rows: PairRows, columns: Sequence[int]) -> Floats:
    """Return the values of c pair columns, float64[p, c]."""
    return rows.pairs[:, list(columns)].astype(np.float64)


# --- rules without coefficients ---------------------------------------------------------------------------------------


def default_throughput(dataset: Dataset, seed: int) -> Rule:  # noqa: ARG001 - nothing here is random
    """ŷ = the measured speed of this very pair on this device type and mode, 0.95 for every pair without one.

    Eva (Chang and Venkataraman, EuroSys 2025): a table of pairwise throughputs with 0.95 where nothing is known. The
    throughput of a job beside several others is the product of the pairwise ones; beside one it is a single factor.
    """

    def keys(rows: PairRows) -> list[tuple[int, int, int]]:
        return list(zip(rows.victim.tolist(), rows.neighbour.tolist(), rows.domain.tolist(), strict=True))

    measured = dict(zip(keys(dataset.rows), dataset.log_slowdown.tolist(), strict=True))  # the last row of each pair
    return lambda rows: np.array([measured.get(key, -np.log(UNSEEN_SPEED)) for key in keys(rows)], dtype=np.float64)


def roofline(dataset: Dataset, seed: int) -> Rule:  # noqa: ARG001 - nothing is fitted
    """ŝ = max(1, demand of both jobs on the busiest resource), each demand as a share of the device's peak.

    Roofline (Williams, Waterman and Patterson, CACM 2009) for two jobs on one device: the encoder's column
    `roofline_log_slowdown`, from floating-point operations and bytes per step.
    """
    column = dataset.pair_columns.index("roofline_log_slowdown")
    return lambda rows: rows.pairs[:, column].astype(np.float64)


def nearest_pairs(dataset: Dataset, seed: int, neighbours: int = NEIGHBOURS) -> Rule:  # noqa: ARG001 - nothing here is random
    """log ŝ = mean over the k nearest training rows of the same domain (of all domains, for an unknown one).

    k nearest neighbours (Cover and Hart, IEEE Trans. Inf. Theory 1967) over the job columns of victim and neighbour.
    Each column is centred and scaled by the training rows; a column that is constant or absent there is left out, and
    one that is absent in the predicted row counts as the training mean.
    """
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import StandardScaler

    width = 2 * len(dataset.job_columns)
    present = np.flatnonzero(np.isfinite(dataset.rows.pairs[:, :width]).any(axis=0))
    if not len(present):
        return no_prediction
    scaler = StandardScaler().fit(dataset.rows.pairs[:, present].astype(np.float64))
    varying = scaler.var_ > MIN_VARIANCE
    if not varying.any():
        return no_prediction

    def standardised(pairs: NDArray[np.float32]) -> Floats:
        return np.asarray(np.nan_to_num(scaler.transform(pairs[:, present].astype(np.float64))[:, varying]))

    points = standardised(dataset.rows.pairs)

    def fit(kept: NDArray[np.bool_]) -> Rule:
        nearest = KNeighborsRegressor(n_neighbors=min(neighbours, int(kept.sum())), algorithm="brute")
        nearest.fit(points[kept], dataset.log_slowdown[kept])
        return lambda rows: np.asarray(nearest.predict(standardised(rows.pairs)))

    return _rule_by_domain(dataset, fit)


def three_class_tree(dataset: Dataset, seed: int) -> Rule:
    """log ŝ = mean over the training pairs with the same class of victim and class of neighbour.

    Lucid (Hu et al., ASPLOS 2023; `simulation/analyzer/analyzer.py`): a job is labelled 2, 1 or 0 by its mean speed
    under sharing, and a pruned decision tree predicts the label from the utilisation of device and memory and from the
    memory used. Lucid packs jobs by the sum of their labels and predicts no speed; the mean of the two classes is the
    speed that its labels imply. Two classes that never met have the mean of all rows.
    """
    from sklearn.tree import DecisionTreeClassifier

    columns = known_columns_of_both(dataset, COMPUTE, BANDWIDTH, MEMORY)
    if columns is None:
        return no_prediction
    victim_columns, neighbour_columns = columns[::2], columns[1::2]
    inputs = column_values(dataset.rows, victim_columns)
    known = np.isfinite(inputs).all(axis=1)
    tree = DecisionTreeClassifier(ccp_alpha=PRUNING, random_state=seed)
    tree.fit(inputs[known], class_labels(dataset)[known])

    def predicted_class(rows: PairRows, columns: tuple[int, ...]) -> NDArray[np.int64]:
        """Return int64[p]: the class of the job that the columns describe; -1 where the columns are absent."""
        inputs = column_values(rows, columns)
        known = np.isfinite(inputs).all(axis=1)
        classes = np.full(len(rows), -1)
        if known.any():
            classes[known] = tree.predict(inputs[known])
        return classes

    means = _class_means(
        dataset, predicted_class(dataset.rows, victim_columns), predicted_class(dataset.rows, neighbour_columns)
    )

    def rule(rows: PairRows) -> Floats:
        victim_class = predicted_class(rows, victim_columns)
        neighbour_class = predicted_class(rows, neighbour_columns)
        known = (victim_class >= 0) & (neighbour_class >= 0)
        return np.where(known, means[victim_class, neighbour_class], np.nan)

    return rule


def class_labels(dataset: Dataset) -> NDArray[np.int64]:
    """Return int64[p]: the class of each row's victim, by its mean speed over all its rows of that domain."""
    job_and_domain = dataset.domain * (len(dataset.workloads) + 1) + dataset.rows.victim
    _, job = np.unique(job_and_domain, return_inverse=True)
    mean_speed = np.bincount(job, weights=speed(dataset.log_slowdown)) / np.bincount(job)
    return np.where(mean_speed < CLASS_2_BELOW, 2, np.where(mean_speed < CLASS_1_BELOW, 1, 0))[job]


def _class_means(dataset: Dataset, victim_class: NDArray[np.int64], neighbour_class: NDArray[np.int64]) -> Floats:
    """Return float64[3, 3]: the mean log slowdown by class of victim and neighbour."""
    means = np.full((3, 3), np.average(dataset.log_slowdown, weights=dataset.weight))
    for i, j in np.ndindex(3, 3):
        members = (victim_class == i) & (neighbour_class == j)
        if members.any():
            means[i, j] = np.average(dataset.log_slowdown[members], weights=dataset.weight[members])
    return means


# --- low-rank completion of the speed table: victims are rows, (domain, neighbour) are columns ------------------------


def gavel_completion(dataset: Dataset, seed: int) -> Rule:
    """Predict by Gavel's rule: ŷ[i, j] is entry j of the completed row that is most similar, by cosine, to row i.

    Gavel (Narayanan et al., OSDI 2020; `scheduler/throughput_estimator.py`): a table of speeds of jobs beside reference
    jobs on every device type. Probabilistic matrix factorisation fills the entries that were not profiled, the job is
    matched to its nearest reference job by cosine, and the throughputs of that reference are used. Here every training
    job is a reference, and a column is found by domain and neighbour (the published code strides the reference columns
    over the full matrix). A job without a row, or a neighbour without a column, has no prediction.
    """
    table, seen = _speed_table(dataset, speed(dataset.log_slowdown))
    product = factorise(table, seen, np.random.default_rng(seed))
    completed = np.where(seen, table, np.clip(product, MIN_SPEED, max(1.0, float(table.max()))))
    known_row, known_column = np.asarray(seen.any(axis=1)), np.asarray(seen.any(axis=0))
    reference = nearest_rows(completed[:, known_column], known_row)

    def rule(rows: PairRows) -> Floats:
        column = _column(dataset, rows)
        known = known_row[rows.victim] & known_column[column]
        return np.where(known, -np.log(completed[reference[rows.victim], column]), np.nan)

    return rule


def low_rank_residual(dataset: Dataset, seed: int) -> Rule:
    """ŷ = additive effects + Z, where the low-rank Z minimises ½ Σ_seen (residual - Z)² + λ ‖Z‖ (nuclear norm).

    Mazumder, Hastie and Tibshirani (JMLR 2010, algorithm 1): Z ← S_λ(seen residuals, Z elsewhere), where S_λ lowers all
    singular values by λ; each λ of a descending path starts from the solution of the previous one. Rows and columns are
    centred by the additive model first, as the authors' `biScale` does; λ is chosen on a tenth of the training pairs.
    """
    groups = np.random.default_rng(seed).permutation(np.unique(dataset.group))
    validation = np.isin(dataset.group, groups[: round(VALIDATION_SHARE * len(groups))])
    can_validate = validation.any() and not validation.all()
    share = _threshold_share(dataset, validation) if can_validate else float(THRESHOLD_SHARES[0])
    additive = AdditiveModel().fit(dataset, seed)
    residual, seen = _speed_table(dataset, _residual_speed(dataset, additive))
    completed = _solution_path(residual, seen, THRESHOLD_SHARES[share <= THRESHOLD_SHARES])[-1]

    def rule(rows: PairRows) -> Floats:
        speeds = speed(additive.predict(rows)) + completed[rows.victim, _column(dataset, rows)]
        return np.asarray(-np.log(np.clip(speeds, MIN_SPEED, MAX_SPEED)))

    return rule


def _threshold_share(dataset: Dataset, validation: NDArray[np.bool_]) -> float:
    """Return the threshold share with the least mean absolute error over the validation rows."""
    training_rows, validation_rows = dataset.take(~validation), dataset.take(validation)
    additive = AdditiveModel().fit(training_rows, 0)
    residual, seen = _speed_table(training_rows, _residual_speed(training_rows, additive))
    expected = _residual_speed(validation_rows, additive)
    entry = validation_rows.rows.victim, _column(training_rows, validation_rows.rows)
    solutions = _solution_path(residual, seen, THRESHOLD_SHARES)
    errors = [float(np.mean(np.abs(expected - solution[entry]))) for solution in solutions]
    return float(THRESHOLD_SHARES[int(np.argmin(errors))])


def _residual_speed(dataset: Dataset, additive: FittedAdditive) -> Floats:
    """Return y - ŷ of the additive model, float64[p]."""
    return speed(dataset.log_slowdown) - speed(additive.predict(dataset.rows))


def factorise(table: Floats, seen: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """Return U·Vᵀ of rank `RANK`, fitted by alternating ridge regressions on the seen entries.

    Probabilistic matrix factorisation (Salakhutdinov and Mnih, NeurIPS 2007).
    """
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
    """Return int64[n]: for each row, the other known row with the largest cosine; the row itself without another."""
    length = np.linalg.norm(completed, axis=1)
    cosine = completed @ completed.T / np.maximum(np.outer(length, length), 1e-12)
    cosine[:, ~known] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    has_no_other = ~np.isfinite(cosine).any(axis=1)
    return np.where(has_no_other, np.arange(len(completed)), np.argmax(cosine, axis=1))


def soft_impute(residual: Floats, seen: NDArray[np.bool_], threshold: float, start: Floats) -> Floats:
    """Return Z for one threshold λ, iterated from `start`."""
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
    """Return Z for each descending threshold, a share of the largest singular value.

    The solution of each threshold is the start of the next.
    """
    largest = float(np.linalg.norm(np.where(seen, residual, 0.0), 2))
    solutions: list[Floats] = []
    for share in shares:
        start = solutions[-1] if solutions else np.zeros_like(residual)
        solutions.append(soft_impute(residual, seen, float(share) * largest, start))
    return solutions


def _ridge(table: Floats, seen: NDArray[np.bool_], factors: Floats) -> Floats:
    """Return the coefficients of each row on `factors`, over its seen entries."""
    mask = seen.astype(np.float64)
    gram = np.einsum("rc,ck,cl->rkl", mask, factors, factors, optimize=True) + RIDGE * np.eye(factors.shape[1])
    return np.asarray(np.linalg.solve(gram, ((mask * table) @ factors)[:, :, None])[:, :, 0])


def _speed_table(dataset: Dataset, entries: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the mean entry by victim and (domain, neighbour), float64[N + 1, (D + 1)·(N + 1)], and which are seen.

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
    """Return int64[p]: domain · (N + 1) + neighbour."""
    return rows.domain * (len(dataset.workloads) + 1) + rows.neighbour


# --- regression on the solo utilisation of the device by both jobs ----------------------------------------------------


def linear_utilisation(dataset: Dataset, seed: int) -> Rule:  # noqa: ARG001 - nothing here is random
    """s = c0 + c1·compute[victim] + c2·compute[neighbour] + c3·bandwidth[victim] + c4·bandwidth[neighbour].

    gpulet (Choi et al., USENIX ATC 2022): a linear regression of the interference factor on the solo utilisation of L2
    and of DRAM bandwidth of both jobs, with one set of constants a GPU type. Here the utilisation of compute units, or
    the nearest known column, stands for L2, which no monitoring tool reports.
    """
    from sklearn.linear_model import LinearRegression

    columns = known_columns_of_both(dataset, COMPUTE, BANDWIDTH)
    if columns is None:
        return no_prediction
    inputs = column_values(dataset.rows, columns)
    known = np.isfinite(inputs).all(axis=1)
    if not known.any():
        return no_prediction
    slowdown = np.exp(dataset.log_slowdown[known])
    line = LinearRegression().fit(inputs[known], slowdown, sample_weight=dataset.weight[known])

    def rule(rows: PairRows) -> Floats:
        predicted = line.intercept_ + column_values(rows, columns) @ line.coef_
        return np.asarray(np.log(np.maximum(MIN_SLOWDOWN, predicted)))

    return rule


def bandwidth_sum(dataset: Dataset, seed: int) -> Rule:  # noqa: ARG001 - nothing here is random
    """s = 1 + k[victim] · bandwidth[neighbour], with one common k for all victims without a training row.

    iGniter (Xu et al., IEEE TPDS 2023; `igniter-algorithm.py`): active time grows by k_i times the summed L2
    utilisation of the co-located jobs, with k_i fitted per workload from shared runs. Memory bandwidth stands for L2.
    iGniter's launch delays and clock frequency need a kernel count and a power model of each device; they are left out.
    """
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


_RULES = (  # name, function that fits the rule, source, one rule a domain
    ("gpulet-linear", linear_utilisation, "gpulet, Choi et al., USENIX ATC 2022", True),
    ("igniter-bandwidth", bandwidth_sum, "iGniter, Xu et al., IEEE TPDS 2023", True),
    ("lucid-tree", three_class_tree, "Lucid, Hu et al., ASPLOS 2023", True),
    ("gavel-completion", gavel_completion, "Gavel, Narayanan et al., OSDI 2020", False),
    ("softimpute", low_rank_residual, "Mazumder, Hastie and Tibshirani, JMLR 2010", False),
    ("knn", nearest_pairs, "Cover and Hart, IEEE Trans. Inf. Theory 1967", False),
    ("eva-default", default_throughput, "Eva, Chang and Venkataraman, EuroSys 2025", False),
    ("roofline", roofline, "Williams, Waterman and Patterson, CACM 2009", False),
)
BASELINES: tuple[ModelSettings | Baseline, ...] = (
    MeanModel(),
    AdditiveModel(),
    *(Baseline(name=name, fit_rule=fit, source=source, per_domain=apart) for name, fit, source, apart in _RULES),
)
