"""The gate between challenger and champion: error of speed *and* decision regret, on rows that neither saw.

Which rows. Where at least `MIN_ROWS` rows of `MIN_WORKLOADS` workloads are of pairs that the champion's published
folder was not fitted on, those are the tests: pairs held out from this training, predicted by the challenger itself,
and pairs measured since the champion's training, predicted out of fold by the challenger; the champion predicts both
with its published graph. The trusted rows, which were measured and not observed, are tests as well: those that both
were fitted on, each predicted by folds that hid it, the champion's as published with it. Only for a champion of an
earlier release, published without them, the two model types are compared on the same folds of `pair` and `job`.

What is compared, challenger - champion, with a 90 % interval by a paired bootstrap over workloads (2,000 resamples):

    error   mean |y - ŷ| over all tests, y = 1/s clipped as in `speed`
    regret  100 · (Σ_i s_i(P) / Σ_i s_i(M) - 1), in %: s_i(X) is the measured slowdown of job i under the matching X; P
            minimises the sum of predicted slowdowns, M that of measured ones, in each domain: of all its jobs, and of
            20 random halves of them, as a queue holds only some of the jobs; sums run over all of these

A matching pairs as many jobs as it can. Only pairs measured in both directions are allowed, and a job without a partner
runs solo (s = 1). A challenger is worse if the lower end of the interval is above the tolerance. A challenger that is
worse than the champion on either, or worse in error than the mean or the additive baseline on either split, is refused.

By side. For jobs that no training row shows, error, regret and coverage of their own slowdown and of what they do to
others (`sides`) are compared on the trusted rows. A challenger that is worse in error or regret of a side by more than
twice the tolerance, or whose coverage of a side is below `MIN_COVERAGE` and by two standard errors below the
champion's, is refused.

The predictions that are compared are out of fold: of a row whose pair, victim or neighbour the model's folds hid. They
are published with a champion, so that a later challenger can be compared with it on rows that neither saw.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from interfere.matching.pairs import match_pairs
from interfere.predict.acceptance.score import speed, speed_error
from interfere.training.dataset import Dataset, RowColumns
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.scores import Side, choice_costs, rows_of_side

MIN_ROWS, MIN_WORKLOADS = 20, 4  # as many rows as calibrate a new device type; fewer jobs allow one matching only
# A tenth of the difference between two measurements of one pair on the public tables (.012 and .017 in speed), and more
# than the effect of another seed of LightGBM there and on the shipped table (.0006).
ERROR_TOLERANCE = 0.001
REGRET_TOLERANCE = 0.4  # %, the effect of another seed of LightGBM: .15 on Gavel's table, .37 on the shipped one
SIDE_FACTOR = 2.0  # of both tolerances: a side has half of the tests
MIN_COVERAGE = 0.85  # of 90 % intervals over the rows of a side
COVERAGE_ERRORS = 2.0  # standard errors of a coverage of .9 over the rows of a side
RESAMPLES = 2_000
RANDOM_HALVES = 20
MIN_JOBS_FOR_HALVES = 8  # halves of fewer jobs allow hardly more than one matching
ARRAY = "unseen_{}_log"  # name of each array in the model folder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# --- the predictions that are compared --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenPredictions(RowColumns):
    """Out-of-fold predictions: log slowdowns, float64[p] each; NaN for a row that was not tested in this way."""

    pair: Floats  # both jobs were seen, their pair was not
    own: Floats  # no training row showed the victim
    others: Floats  # no training row showed the neighbour

    @classmethod
    def missing(cls, rows: int) -> Self:
        """Return the predictions of rows of which none was tested."""
        return cls(**{field.name: np.full(rows, np.nan) for field in fields(cls)})

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays of a model folder, by name."""
        return {ARRAY.format(field.name): getattr(self, field.name) for field in fields(self)}


def unseen_predictions(dataset: Dataset, evaluations: Sequence[Evaluation]) -> UnseenPredictions:
    """Return one out-of-fold prediction per row of the dataset, from the evaluations of one model on the splits pair
    and job."""
    unseen = UnseenPredictions.missing(len(dataset))
    for evaluation in evaluations:
        if evaluation.split == "pair":
            unseen.pair[evaluation.index] = evaluation.predicted_log
        elif evaluation.split == "job":
            victim = dataset.rows.victim[evaluation.index]
            for side in Side:
                tests = rows_of_side(side, victim, evaluation.subject)
                getattr(unseen, side)[evaluation.index[tests]] = evaluation.predicted_log[tests]
    return unseen


def read_unseen_predictions(arrays: Mapping[str, Any]) -> UnseenPredictions | None:
    """Return the out-of-fold predictions of a model folder; None where the model was published without them."""
    names = {field.name: ARRAY.format(field.name) for field in fields(UnseenPredictions)}
    if not all(name in arrays for name in names.values()):
        return None
    return UnseenPredictions(**{field: np.asarray(arrays[name], dtype=np.float64) for field, name in names.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPredictions(RowColumns):
    """Predictions of both models for the same tests. Arrays have one entry per test, `t` in all; log slowdowns."""

    domain: Ints
    victim: Ints
    neighbour: Ints
    measured: Floats
    challenger: Floats
    champion: Floats

    def __len__(self) -> int:
        return len(self.measured)

    @property
    def workloads(self) -> Ints:
        """Return the distinct identities of the workloads, ascending."""
        return np.unique(np.concatenate([self.victim, self.neighbour]))

    @property
    def speed_errors(self) -> tuple[Floats, Floats, Floats]:
        """Return the absolute errors of speed of challenger and champion, and ones to count the tests."""
        errors = (speed_error(self.measured, predicted) for predicted in (self.challenger, self.champion))
        return (*errors, np.ones(len(self)))  # type: ignore[return-value]  # a generator of two


def paired(dataset: Dataset, index: NDArray[Any], challenger: Floats, champion: Floats) -> PairedPredictions:
    """Return the log slowdowns that both models predict for the rows `index` of a dataset, beside the measured ones."""
    rows = dataset.rows
    return PairedPredictions(
        domain=dataset.domain[index],
        victim=rows.victim[index],
        neighbour=rows.neighbour[index],
        measured=dataset.log_slowdown[index],
        challenger=challenger,
        champion=champion,
    )


# --- error and regret of both -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One score of both models, and the 90 % interval of challenger - champion; NaN without tests."""

    challenger: float = math.nan
    champion: float = math.nan
    low: float = math.nan
    high: float = math.nan

    def worse(self, tolerance: float) -> bool:
        """Return whether even the lower end of the interval exceeds the tolerance."""
        return self.low > tolerance

    def text(self, form: str, unit: str = "") -> str:
        """Return both scores, and the interval of their difference, in words."""
        return (
            f"{self.challenger:{form}}{unit} against {self.champion:{form}}{unit}"
            f" (difference {self.low:+{form}} to {self.high:+{form}})"
        )


def compare(tests: Sequence[PairedPredictions], seed: int = 0) -> tuple[Difference, Difference]:
    """Return the difference in error and the difference in regret over all tests.

    Both use the same resampled workloads.
    """
    if not sum(map(len, tests)):
        return Difference(), Difference()
    # 1. Sum errors and matching costs by workload.
    workloads = np.unique(np.concatenate([rows.workloads for rows in tests]))
    errors, costs = np.zeros((3, len(workloads))), np.zeros((4, len(workloads)))
    for rows in tests:
        errors += _sums_by(np.searchsorted(workloads, rows.victim), rows.speed_errors, len(workloads))
        for domain in np.unique(rows.domain):
            _add_matching_costs(costs, workloads, rows.take(rows.domain == domain))
    # 2. Turn costs into regret relative to the best matching.
    challenger, champion, best, price = costs
    regrets = np.stack([100.0 * (challenger - best), 100.0 * (champion - best), best + price])
    # 3. Bootstrap both differences over workloads.
    weights = _resample_weights(len(workloads), seed)
    return _bootstrap_difference(errors, weights), _bootstrap_difference(regrets, weights)


def _sums_by(place: Ints, terms: Sequence[Floats], places: int) -> Floats:
    """Return the sums of each term over the tests of each place, float64[terms, places]."""
    return np.stack([np.bincount(place, weights=term, minlength=places) for term in terms])


def _add_matching_costs(total: Floats, workloads: Ints, rows: PairedPredictions) -> None:
    """Add the matching costs of the tests of one domain to `total`, float64[4, N], as `_matching_costs` orders them."""
    # 1. Average the tests of each ordered pair; a matching may use pairs measured in both directions.
    jobs = rows.workloads
    i, j = np.searchsorted(jobs, rows.victim), np.searchsorted(jobs, rows.neighbour)
    count = np.zeros((len(jobs), len(jobs)))
    np.add.at(count, (i, j), 1.0)
    np.fill_diagonal(count, 0.0)  # a job is no partner of itself
    allowed = (count > 0) & (count.T > 0)
    if not allowed.any():
        return
    # 2. Build the cost tables of the measurements and of both models: the sum of both slowdowns.
    cost_tables = []
    for log_slowdown in (rows.measured, rows.challenger, rows.champion):
        mean_log = np.zeros_like(count)
        np.add.at(mean_log, (i, j), log_slowdown)
        slowdown = np.where(allowed, 1.0 / speed(mean_log / np.maximum(count, 1.0)), np.inf)
        cost_tables.append(slowdown + slowdown.T)
    # 3. Match all jobs, and random halves of them.
    place = np.searchsorted(workloads, jobs)
    for queue in _queues(len(jobs)):
        pairs_of_queue = np.ix_(queue, queue)
        if allowed[pairs_of_queue].any():
            tables = [table[pairs_of_queue] for table in cost_tables]
            total[:, place[queue]] += _matching_costs(tables, allowed[pairs_of_queue])


def _queues(count: int) -> list[Ints]:
    """Return the index arrays of the jobs to match: all jobs, and random halves of them where a half allows several
    matchings."""
    rng = np.random.default_rng([count, 43])
    halves = RANDOM_HALVES if count >= MIN_JOBS_FOR_HALVES else 0
    return [np.arange(count), *(np.sort(rng.permutation(count)[: count // 2]) for _ in range(halves))]


def _matching_costs(cost_tables: Sequence[Floats], allowed: NDArray[np.bool_]) -> Floats:
    """Return float64[4, n]: the measured cost of each job above its dual price under three matchings, and that price.

    The matchings are by the challenger's predictions, by the champion's, and by the measurements. `cost_tables` are the
    cost tables of the measurements, the challenger and the champion. The dual prices prove the matching by the
    measurements to be the best. The cost of a pair above its two prices is split evenly between its jobs. This
    difference is close to 0 for every good pair, so that the bootstrap over jobs does not count as regret which jobs
    are paired. Prices add up to the same sum for all three matchings.
    """
    measured, jobs = cost_tables[0], np.arange(len(allowed))
    matchings = []
    for table in cost_tables:
        prohibitive = np.full(len(jobs), 2.0 * float(table[allowed].max()) * len(jobs))  # pair as many jobs as possible
        matchings.append(match_pairs(table, prohibitive))
    price = np.clip(matchings[0].prices, 0.0, measured[allowed].max())
    best, challenger, champion = (
        np.where(matching.mate == jobs, 1.0 - price, (measured[jobs, matching.mate] - price - price[matching.mate]) / 2)
        for matching in matchings
    )
    return np.stack([challenger, champion, best, price])


def _resample_weights(count: int, seed: int) -> Floats:
    """Return how often each workload was drawn in each resample, float64[RESAMPLES, count]."""
    rng = np.random.default_rng([seed, 41])
    return rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(np.float64)


def _bootstrap_difference(sums: Floats, weights: Floats) -> Difference:
    """Return Σ challenger / Σ base and Σ champion / Σ base, with the interval of their difference.

    `sums` is float64[3, N]: challenger, champion and base by workload.
    """
    challenger, champion, base = sums.sum(axis=1)
    if not base > 0:
        return Difference()
    resampled_base = weights @ sums[2]
    usable = resampled_base > 0
    differences = (weights @ (sums[0] - sums[1]))[usable] / resampled_base[usable]
    low, high = np.quantile(differences, [0.05, 0.95])
    return Difference(
        challenger=float(challenger / base), champion=float(champion / base), low=float(low), high=float(high)
    )


# --- the verdict ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SideComparison:
    """Both models on one side of new jobs."""

    side: Side
    error: Difference  # of speed
    regret: Difference  # in %
    rows: int
    coverage: float  # of the challenger's 90 % intervals; NaN where unknown
    champion_coverage: float

    def text(self) -> str:
        """Return all figures of both models, in one line."""
        return (
            f"{_SIDE_NAMES[self.side]}, {self.rows} rows: error of speed {self.error.text('.4f')}; regret "
            f"{self.regret.text('.2f', ' %')}; coverage {self.coverage:.3f} against {self.champion_coverage:.3f}"
        )

    def worse_scores(self) -> list[str]:
        """Return the scores in which the challenger is worse, in words."""
        of_side = _SIDE_NAMES[self.side]
        worse = [f"{name} of {of_side} {figures}" for name, figures in _worse(self.error, self.regret, SIDE_FACTOR)]
        tolerance = COVERAGE_ERRORS * math.sqrt(0.9 * 0.1 / max(self.rows, 1))
        if self.coverage < MIN_COVERAGE and self.coverage < self.champion_coverage - tolerance:
            worse.append(f"coverage of {of_side} {self.coverage:.3f} against {self.champion_coverage:.3f}")
        return worse


def compare_side(
    side: Side, rows: PairedPredictions, *, coverage: float, champion_coverage: float, seed: int = 0
) -> SideComparison:
    """Return the comparison of both models on the tests of one side of new jobs.

    The bootstrap draws the new jobs. `coverage` and `champion_coverage` are those that each model reached on that side
    out of fold; NaN where unknown.
    """
    error = regret = Difference()
    if len(rows):
        job = rows.victim if side is Side.OWN else rows.neighbour
        jobs, place = np.unique(job, return_inverse=True)
        costs = choice_costs(rows.measured, np.stack([rows.challenger, rows.champion]), job, rows.domain)
        extra = 100.0 * (costs.chosen - costs.best)
        weights = _resample_weights(len(jobs), seed)
        error = _bootstrap_difference(_sums_by(place, rows.speed_errors, len(jobs)), weights)
        regrets = _sums_by(np.searchsorted(jobs, costs.job), (*extra, costs.best), len(jobs))
        regret = _bootstrap_difference(regrets, weights)
    return SideComparison(
        side=side,
        error=error,
        regret=regret,
        rows=len(rows),
        coverage=coverage,
        champion_coverage=champion_coverage,
    )


def _worse(error: Difference, regret: Difference, factor: float = 1.0) -> list[tuple[str, str]]:
    """Return (name, figures) of each score in which the challenger is worse by more than `factor` tolerances."""
    scores = (("error", error, ERROR_TOLERANCE, ".4f", ""), ("regret", regret, REGRET_TOLERANCE, ".2f", " %"))
    return [
        (name, difference.text(form, unit))
        for name, difference, tolerance, form, unit in scores
        if difference.worse(factor * tolerance)
    ]


_SIDE_NAMES = {Side.OWN: "a new job's own slowdown", Side.OTHERS: "what a new job does to others"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the challenger may become champion; `reason` is one line with figures."""

    passed: bool
    reason: str
    against: str  # what it was compared with, and on which rows
    error: Difference  # of speed
    regret: Difference  # in %
    sides: tuple[SideComparison, ...] = ()  # of jobs that no training row shows


def judge(
    tests: Sequence[PairedPredictions],
    against: str,
    *,
    baselines: Sequence[tuple[str, PairedPredictions]] = (),
    sides: Sequence[SideComparison] = (),
    seed: int = 0,
) -> Verdict:
    """Return the verdict on all tests together.

    `baselines` are pairs of a name with its split, and tests in which the baseline takes the champion's place. Without
    tests (the first model of a workspace) only the baselines count.
    """
    # 1. Compare with the champion.
    error, regret = compare(tests, seed)
    figures = f"error of speed {error.text('.4f')}; regret {regret.text('.2f', ' %')}"
    worse_scores = " and ".join(name for name, _ in _worse(error, regret))
    worse_sides = "; ".join(text for side in sides for text in side.worse_scores())
    # 2. Compare with the baselines, until one is better.
    by_baseline = ((name, compare([baseline_tests], seed)[0]) for name, baseline_tests in baselines)
    better = next(((name, difference) for name, difference in by_baseline if difference.worse(ERROR_TOLERANCE)), None)
    # 3. Refuse a challenger that is worse than a baseline, or than the champion in any score.
    if better is not None:
        reason = f"refused: worse than {better[0]}, error of speed {better[1].text('.4f')}"
    elif worse_scores:
        reason = f"refused: worse than {against} in {worse_scores}; {figures}"
    elif worse_sides:
        reason = f"refused: worse than {against} in {worse_sides}"
    elif tests:
        reason = f"passed: not worse than {against}; {figures}"
    else:
        reason = f"passed: {against}, not worse than mean and additive"
    passed = better is None and not (worse_scores or worse_sides)
    return Verdict(passed=passed, reason=reason, against=against, error=error, regret=regret, sides=tuple(sides))


def refused_labels(against: str, contradiction: str) -> Verdict:
    """Return the refusal of a model whose training labels contradict the labels of an earlier training."""
    reason = f"refused: the labels contradict what {against} was trained on: {contradiction}"
    return Verdict(passed=False, reason=reason, against=against, error=Difference(), regret=Difference())
