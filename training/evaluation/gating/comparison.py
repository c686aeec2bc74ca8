"""Both models on the same tests: error of speed, and regret of matchings and of choices, with a paired bootstrap.

`gate` defines the scores and states which rows are tests. The predictions are those of rows that a model's folds hid:
of the pair, of its victim, and of its neighbour. They are published with a champion, so that a later challenger can be
compared with it on the same trusted rows, which neither saw, although both are fitted on them in the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.matching.exact import match_pairs
from interfere.training.dataset import Dataset, speed
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.scores import Side, choice_costs, rows_of_side

Floats = NDArray[np.float64]
ARRAY = "unseen_{}_log"  # name of each array in the model folder


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenPredictions:
    """Log slowdowns, float64[p] each; NaN for a row that was not tested so."""

    pair: Floats  # both jobs were seen, their pair was not
    own: Floats  # no training row showed the victim
    others: Floats  # no training row showed the neighbour

    def take(self, index: NDArray[Any]) -> "UnseenPredictions":
        """Select rows by an index array or a mask."""
        return UnseenPredictions(pair=self.pair[index], own=self.own[index], others=self.others[index])

    def arrays(self) -> dict[str, Floats]:
        """The arrays of a model folder, by name."""
        return {ARRAY.format(name): getattr(self, name) for name in self.__dataclass_fields__}


def unseen_predictions(dataset: Dataset, evaluations: Sequence[Evaluation]) -> UnseenPredictions:
    """Return one out-of-fold prediction per row of the dataset, from the evaluations of one model on the splits pair
    and job."""
    found = {name: np.full(len(dataset), np.nan) for name in UnseenPredictions.__dataclass_fields__}
    for evaluation in evaluations:
        if evaluation.split == "pair":
            found["pair"][evaluation.index] = evaluation.predicted_log
        elif evaluation.split == "job":
            victim = dataset.rows.victim[evaluation.index]
            for side in Side:
                tests = rows_of_side(side, victim, evaluation.subject)
                found[side][evaluation.index[tests]] = evaluation.predicted_log[tests]
    return UnseenPredictions(**found)


def read_unseen_predictions(arrays: Mapping[str, Any]) -> UnseenPredictions | None:
    """Return the out-of-fold predictions of a model folder; None where the model was published without them."""
    names = {name: ARRAY.format(name) for name in UnseenPredictions.__dataclass_fields__}
    if not all(name in arrays for name in names.values()):
        return None
    return UnseenPredictions(**{field: np.asarray(arrays[name], dtype=np.float64) for field, name in names.items()})


RESAMPLES = 2_000
LOW, HIGH = 0.05, 0.95
RANDOM_HALVES = 20
MIN_JOBS_FOR_HALVES = 8  # halves of fewer jobs allow hardly more than one matching

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPredictions:
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
        """The distinct identities of the workloads, ascending."""
        return np.unique(np.concatenate([self.victim, self.neighbour]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One score of both models, and the 90 % interval of challenger - champion; NaN without tests."""

    challenger: float
    champion: float
    low: float
    high: float

    def worse(self, tolerance: float) -> bool:
        """Whether even the lower end of the interval exceeds the tolerance."""
        return self.low > tolerance

    def text(self, form: str, unit: str = "") -> str:
        """Both scores, and the interval of their difference."""
        return (
            f"{self.challenger:{form}}{unit} against {self.champion:{form}}{unit}"
            f" (difference {self.low:+{form}} to {self.high:+{form}})"
        )


def compare(tests: Sequence[PairedPredictions], seed: int = 0) -> tuple[Difference, Difference]:
    """(error, regret) of both models over all tests; both scores use the same resampled workloads."""
    if not sum(map(len, tests)):
        return no_difference(), no_difference()
    # 1. Sum errors and matching costs by workload.
    workloads = np.unique(np.concatenate([rows.workloads for rows in tests]))
    errors, costs = np.zeros((3, len(workloads))), np.zeros((4, len(workloads)))
    for rows in tests:
        victim = np.searchsorted(workloads, rows.victim)
        terms = (_speed_error(rows, rows.challenger), _speed_error(rows, rows.champion), np.ones(len(rows)))
        for k, term in enumerate(terms):
            errors[k] += np.bincount(victim, weights=term, minlength=len(workloads))
        for domain in np.unique(rows.domain):
            _add_matching_costs(costs, workloads, rows, rows.domain == domain)
    # 2. Turn costs into regret relative to the best matching.
    challenger, champion, best, price = costs
    regrets = np.stack([100.0 * (challenger - best), 100.0 * (champion - best), best + price])
    # 3. Bootstrap both differences over workloads.
    weights = _resample_weights(len(workloads), seed)
    return _bootstrap_difference(errors, weights), _bootstrap_difference(regrets, weights)


def compare_side(side: Side, rows: PairedPredictions, seed: int = 0) -> tuple[Difference, Difference]:
    """(error, regret) of both models on one side of new jobs; the bootstrap draws those jobs."""
    if not len(rows):
        return no_difference(), no_difference()
    # 1. Sum errors by job.
    job = rows.victim if side is Side.OWN else rows.neighbour
    jobs, place = np.unique(job, return_inverse=True)
    weights = _resample_weights(len(jobs), seed)
    terms = (_speed_error(rows, rows.challenger), _speed_error(rows, rows.champion), np.ones(len(rows)))
    error = _bootstrap_difference(np.stack([np.bincount(place, weights=term) for term in terms]), weights)
    # 2. Sum by job what its choice of a partner costs.
    costs = choice_costs(rows.measured, np.stack([rows.challenger, rows.champion]), job, rows.domain)
    sums = np.zeros((3, len(jobs)))
    for k, values in enumerate((*(100.0 * (costs.chosen - costs.best)), costs.best)):
        np.add.at(sums[k], np.searchsorted(jobs, costs.job), values)
    return error, _bootstrap_difference(sums, weights)


def no_difference() -> Difference:
    """The difference without tests: NaN throughout."""
    nan = float("nan")
    return Difference(challenger=nan, champion=nan, low=nan, high=nan)


def _speed_error(rows: PairedPredictions, predicted: Floats) -> Floats:
    return np.abs(speed(rows.measured) - speed(predicted))


def _add_matching_costs(total: Floats, workloads: Ints, rows: PairedPredictions, in_domain: NDArray[np.bool_]) -> None:
    """Add the matching costs of one domain to `total`, float64[4, N]; its rows are those of `_matching_costs`."""
    # 1. Average the tests of each ordered pair; a matching may use pairs measured in both directions.
    victim, neighbour = rows.victim[in_domain], rows.neighbour[in_domain]
    jobs = np.unique(np.concatenate([victim, neighbour]))
    i, j = np.searchsorted(jobs, victim), np.searchsorted(jobs, neighbour)
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
        np.add.at(mean_log, (i, j), log_slowdown[in_domain])
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
    """The sets of jobs that are matched: all, and random halves where these allow more than one matching."""
    rng = np.random.default_rng([count, 43])
    halves = RANDOM_HALVES if count >= MIN_JOBS_FOR_HALVES else 0
    return [np.arange(count), *(np.sort(rng.permutation(count)[: count // 2]) for _ in range(halves))]


def _matching_costs(cost_tables: Sequence[Floats], allowed: NDArray[np.bool_]) -> Floats:
    """float64[4, n]: each job's measured cost above its dual price, under the matching by the challenger, by the
    champion, and by the measurements; and the price itself.

    `cost_tables` are those of the measurements, the challenger and the champion. The dual prices prove the matching by
    the measurements to be the best. A pair's cost above its two prices is split evenly between its jobs; it is close to
    0 for every good pair, so that resampling jobs does not count as regret which jobs are paired. Prices add up to the
    same sum for all three matchings.
    """
    measured, jobs = cost_tables[0], np.arange(len(allowed))
    matchings = []
    for table in cost_tables:
        prohibitive = np.full(len(jobs), 2.0 * float(table[allowed].max()) * len(jobs))  # pair as many jobs as possible
        matchings.append(match_pairs(table, prohibitive))
    price = np.clip(matchings[0].y, 0.0, measured[allowed].max())
    best, challenger, champion = (
        np.where(matching.mate == jobs, 1.0 - price, (measured[jobs, matching.mate] - price - price[matching.mate]) / 2)
        for matching in matchings
    )
    return np.stack([challenger, champion, best, price])


def _resample_weights(count: int, seed: int) -> Floats:
    """float64[RESAMPLES, count]: how often each workload was drawn."""
    rng = np.random.default_rng([seed, 41])
    return rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(np.float64)


def _bootstrap_difference(sums: Floats, weights: Floats) -> Difference:
    """The difference of Σ challenger / Σ base and Σ champion / Σ base; `sums` float64[3, N] by workload."""
    challenger, champion, base = sums.sum(axis=1)
    if not base > 0:
        return no_difference()
    resampled_base = weights @ sums[2]
    usable = resampled_base > 0
    differences = (weights @ (sums[0] - sums[1]))[usable] / resampled_base[usable]
    low, high = np.quantile(differences, [LOW, HIGH])
    return Difference(
        challenger=float(challenger / base), champion=float(champion / base), low=float(low), high=float(high)
    )
