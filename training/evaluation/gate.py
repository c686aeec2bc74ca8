"""The gate between challenger and champion: error of speed *and* decision regret, on rows that neither was fitted on.

Which rows. Where at least `MIN_ROWS` rows of `MIN_WORKLOADS` workloads are of pairs that the champion's published
folder was not fitted on, those are judged: pairs held out from this training, answered by the challenger itself, and
pairs new since the champion, answered by the challenger's folds that did not see them; the champion answers with its
published graph. Elsewhere both recipes answer out of fold, on the same folds of the splits `pair` and `job`.

What is compared, challenger - champion, with a 90 % interval by a paired bootstrap over workloads (2,000 resamples):

    error   mean |y - ŷ| over all tests, y = 1/s clipped as in `scores`
    regret  100 · (Σ_i s_i(P) / Σ_i s_i(M) - 1), in %: s_i(X) is the measured slowdown of job i under the matching X; P
            minimises the sum of predicted slowdowns, M that of measured ones, for each domain by itself: of all its
            jobs, and of 20 random halves of them, as queues come; sums run over all of these

A matching pairs as many jobs as it can: only pairs measured in both directions are allowed, and a job that is left over
runs alone (s = 1). Worse means: the lower end of that interval is above the tolerance. A challenger that is worse than
the champion on either, or in error than the mean or the additive baseline on either split, is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.exact import match_pairs
from training.evaluation.scores import speed

RESAMPLES = 2_000
LOW, HIGH = 0.05, 0.95
MIN_ROWS, MIN_WORKLOADS = 20, 4  # as many as calibrate a new device type; fewer jobs leave no choice of a matching
HALVES, MIN_HALVED = 20, 8  # random halves that are matched; a half of fewer than eight jobs leaves no choice
# A tenth of what two measurements of one pair differ by on the public tables (.012 and .017 in speed), and above what
# another seed of LightGBM makes there and on the shipped table (.0006).
ERROR_TOLERANCE = 0.001
REGRET_TOLERANCE = 0.4  # %, what another seed of LightGBM makes: .15 on Gavel's table, .37 on the shipped one

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Both models' answers to the same tests. All arrays have one entry a test, `t` in all; log slowdowns."""

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
        """Distinct identities, ascending."""
        return np.unique(np.concatenate([self.victim, self.neighbour]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One score of both, and the 90 % interval of challenger - champion; NaN where there was nothing to compare."""

    challenger: float
    champion: float
    low: float
    high: float

    def worse(self, tolerance: float) -> bool:
        """Is the challenger worse beyond doubt and tolerance?"""
        return self.low > tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """May the challenger become champion? `reason` is one line with figures."""

    passed: bool
    reason: str
    against: str  # whom it was compared with, and on which rows
    error: Difference  # speed
    regret: Difference  # %


def judge(
    contests: Sequence[Contest], against: str, *, baselines: Sequence[tuple[str, Contest]] = (), seed: int = 0
) -> Verdict:
    """The verdict on all contests together; `baselines` are (name and split, contest with it as champion).

    With no contest (the first model of a workspace) only the baselines count.
    """
    error, regret = compare(contests, seed)
    for name, one in baselines:
        cheap, _ = compare([one], seed)
        if cheap.worse(ERROR_TOLERANCE):
            return Verdict(
                passed=False,
                reason=f"refused: worse than {name}, error of speed {_said(cheap, '.4f')}",
                against=against,
                error=error,
                regret=regret,
            )
    found = f"error of speed {_said(error, '.4f')}; regret {_said(regret, '.2f', ' %')}"
    bad = [
        name
        for name, one, tolerance in (("error", error, ERROR_TOLERANCE), ("regret", regret, REGRET_TOLERANCE))
        if one.worse(tolerance)
    ]
    if bad:
        reason = f"refused: worse than {against} in {' and '.join(bad)}; {found}"
    elif contests:
        reason = f"passed: not worse than {against}; {found}"
    else:
        reason = f"passed: {against}, not worse than mean and additive"
    return Verdict(passed=not bad, reason=reason, against=against, error=error, regret=regret)


def compare(contests: Sequence[Contest], seed: int = 0) -> tuple[Difference, Difference]:
    """(error, regret) of both models, pooled over the contests; the same resampled workloads for both scores."""
    if not sum(map(len, contests)):
        return nothing(), nothing()
    names = np.unique(np.concatenate([one.workloads for one in contests]))
    errors, regrets = np.zeros((3, len(names))), np.zeros((4, len(names)))
    for one in contests:
        place = np.searchsorted(names, one.victim)
        for k, apart in enumerate((_apart(one, one.challenger), _apart(one, one.champion), np.ones(len(one)))):
            errors[k] += np.bincount(place, weights=apart, minlength=len(names))
        for d in np.unique(one.domain):
            _add_matchings(regrets, names, one, one.domain == d)
    weights = _resampled(len(names), seed)
    best = regrets[2] + regrets[3]
    missed = np.stack([100.0 * (regrets[0] - regrets[2]), 100.0 * (regrets[1] - regrets[2]), best])
    return _difference(errors, weights), _difference(missed, weights)


def nothing() -> Difference:
    """Of no tests."""
    nan = float("nan")
    return Difference(challenger=nan, champion=nan, low=nan, high=nan)


def _apart(one: Contest, predicted: Floats) -> Floats:
    return np.abs(speed(one.measured) - speed(predicted))


def _add_matchings(total: Floats, names: Ints, one: Contest, here: NDArray[np.bool_]) -> None:
    """Add each job's share of the measured cost under the challenger's, the champion's and the best matching, and its
    price: float64[4, N].

    The shares are what a job and its mate cost above the prices that prove the best matching, half each: beside 0 for
    every good pair, so that resampling jobs does not count as regret who happens to sit with whom. Prices add up to the
    same for all three.
    """
    victim, neighbour = one.victim[here], one.neighbour[here]
    jobs = np.unique(np.concatenate([victim, neighbour]))
    i, j = np.searchsorted(jobs, victim), np.searchsorted(jobs, neighbour)
    count = np.zeros((len(jobs), len(jobs)))
    np.add.at(count, (i, j), 1.0)
    np.fill_diagonal(count, 0.0)  # a job is no partner of itself
    both = (count > 0) & (count.T > 0)
    if not both.any():
        return
    costs = []
    for values in (one.measured, one.challenger, one.champion):
        grid = np.zeros_like(count)
        np.add.at(grid, (i, j), values[here])
        slowdown = np.where(both, 1.0 / speed(grid / np.maximum(count, 1.0)), np.inf)
        costs.append(slowdown + slowdown.T)
    place = np.searchsorted(names, jobs)
    for waiting in _waiting(len(jobs)):
        among = np.ix_(waiting, waiting)
        if both[among].any():
            total[:, place[waiting]] += _shares([cost[among] for cost in costs], both[among])


def _waiting(count: int) -> list[Ints]:
    """Which jobs are matched with one another: all, and random halves where these leave a choice."""
    rng = np.random.default_rng([count, 43])
    halves = HALVES if count >= MIN_HALVED else 0
    return [np.arange(count), *(np.sort(rng.permutation(count)[: count // 2]) for _ in range(halves))]


def _shares(costs: Sequence[Floats], both: NDArray[np.bool_]) -> Floats:
    """float64[4, n] of n jobs, by measured, the challenger's and the champion's costs; see `_add_matchings`."""
    measured, me, found = costs[0], np.arange(len(both)), []
    for cost in costs:
        alone = np.full(len(me), 2.0 * float(cost[both].max()) * len(me))  # never instead of a pair
        found.append(match_pairs(cost, alone))
    price = np.clip(found[0].y, 0.0, measured[both].max())
    best, challenger, champion = (
        np.where(one.mate == me, 1.0 - price, (measured[me, one.mate] - price - price[one.mate]) / 2) for one in found
    )
    return np.stack([challenger, champion, best, price])


def _resampled(count: int, seed: int) -> Floats:
    """float64[RESAMPLES, count]: how often each workload was drawn."""
    rng = np.random.default_rng([seed, 41])
    return rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(np.float64)


def _difference(sums: Floats, weights: Floats) -> Difference:
    """Of Σ challenger / Σ base and Σ champion / Σ base, `sums` float64[3, N] by workload."""
    total = sums.sum(axis=1)
    if not total[2] > 0:
        return nothing()
    base = weights @ sums[2]
    apart = (weights @ (sums[0] - sums[1]))[base > 0] / base[base > 0]
    low, high = np.quantile(apart, [LOW, HIGH])
    return Difference(
        challenger=float(total[0] / total[2]), champion=float(total[1] / total[2]), low=float(low), high=float(high)
    )


def _said(one: Difference, form: str, unit: str = "") -> str:
    """Both figures, and the interval of their difference."""
    return (
        f"{one.challenger:{form}}{unit} against {one.champion:{form}}{unit}"
        f" (difference {one.low:+{form}} to {one.high:+{form}})"
    )
