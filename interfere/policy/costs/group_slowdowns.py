"""Slowdowns of every member of groups on one device class, composed from those of their pairs.

Law: of a group of two they are those of the pair.
"""

from functools import cached_property, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.pair_predictions import PairPredictor
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.predict.groups import CopyShares, GroupComposition, composition_of, pair_excess
from interfere.predict.groups.device_shares import MAX_COPIES, slowdowns_in_shares, smaller_slices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
INTERVAL_QUANTILE = 0.95  # that the intervals of predictions end at


class GroupSlowdowns:
    """Slowdowns in groups of n classes of jobs: k pending ones first, then the residents.

    A group is a column of int64[m, g]: the classes of its members.
    """

    def __init__(self, jobs: JobsOnClass, pending: int, context: PlanningContext) -> None:
        self.jobs, self._context = jobs, context
        self._k, self._n = pending, len(jobs.jobs)

    @cached_property
    def of_pairs(self) -> Floats:
        """float64[n, n]: predicted median of each job beside each."""
        return self._predicted(0.5)

    @cached_property
    def _upper_of_pairs(self) -> Floats:
        """float64[n, n]: the quantile 1 - risk."""
        return self._predicted(1 - self._context.limits.slowdown.risk)

    @cached_property
    def interval_distances(self) -> tuple[Floats, Floats]:
        """float64[n, n] each: squared distances of logarithms from the median to the 5 % and 95 % quantile."""
        below, above = self._predicted(1 - INTERVAL_QUANTILE), self._predicted(INTERVAL_QUANTILE)
        return self._squared_distance(below), self._squared_distance(above)

    @cached_property
    def _cap_distances(self) -> Floats:
        """float64[n, n]: the same to the quantile 1 - risk."""
        return self._squared_distance(self._upper_of_pairs)

    def _squared_distance(self, ends: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.log(ends / self.of_pairs) ** 2)

    def _predicted(self, level: float) -> Floats:
        """float64[n, n]: a quantile of the slowdowns of pairs; the questions are those of `pair_costs`."""
        pending = self.jobs.subset(range(self._k))
        residents = self.jobs.subset(range(self._k, self._n))
        found = np.full((self._n, self._n), np.nan)
        for rows, columns, first, second in (
            (pending, pending, 0, 0),
            (pending, residents, 0, self._k),
            (residents, residents, self._k, self._k),
        ):
            predictor = PairPredictor(rows=rows, columns=columns, context=self._context)
            if not rows.profiled.any() or not columns.profiled.any() or not predictor.may_predict:
                continue
            ahead, back = predictor.slowdown_quantile(level)
            i, j = np.flatnonzero(rows.profiled) + first, np.flatnonzero(columns.profiled) + second
            found[np.ix_(j, i)] = back.T
            found[np.ix_(i, j)] = ahead
        return found

    def _sums(self, group: Ints, of_pair: Floats) -> Floats:
        """float64[m, g]: Σ over all others of a value of each pair, float64[n, n]."""
        flat, total = of_pair.ravel(), np.zeros(group.shape)
        for a in range(len(group)):
            row = group[a] * self._n
            for b in range(len(group)):
                if a != b:
                    total[a] += flat[row + group[b]]
        return total

    def of_groups(self, group: Ints) -> Floats:
        """float64[m, g]: predicted median of each member."""
        if len(group) == 1:
            return np.ones(group.shape)
        if len(group) == 2:
            return self._sums(group, self.of_pairs)
        return self._composition.slowdown(self._sums(group, self.excess), len(group) - 1, self._copies(group))

    @cached_property
    def _composition(self) -> GroupComposition:
        return composition_of(self._context.predictor, self.jobs.device_class.type, self.jobs.device_class.mode)

    @cached_property
    def _in_shares(self) -> Floats | None:
        """float64[n, 1 + MAX_COPIES]: slowdown of each job in a share of the device, by its copies; None if unknown."""
        if not smaller_slices(self.jobs.device_class.type):
            return None
        jobs, context = self.jobs, self._context
        slowdowns = [
            np.full(1 + MAX_COPIES, np.nan)
            if profile is None
            else slowdowns_in_shares(profile, partial(context.profile_of_workload, profile.workload))
            for profile in jobs.profiles
        ]
        return np.array(slowdowns) if np.isfinite(slowdowns).any() else None

    @cached_property
    def _workload(self) -> Ints:
        """int64[n]: a number for each workload."""
        number: dict[str, int] = {}
        return np.array([number.setdefault(job.workload, len(number)) for job in self.jobs.jobs], dtype=np.int64)

    def _copies(self, group: Ints) -> CopyShares | None:
        """What is known of each member beside copies of itself; None on most devices."""
        if self._in_shares is None:
            return None
        workload, count = self._workload[group], np.zeros(group.shape, dtype=np.int64)
        for a, b in ordered_pairs(len(group)):
            count[a] += workload[a] == workload[b]
        return CopyShares(self._in_shares[group, np.minimum(count, MAX_COPIES)], count == len(group) - 1)

    @cached_property
    def excess(self) -> Floats:
        """float64[n, n]: what each neighbour adds to the slowdown of each job."""
        return pair_excess(self.of_pairs)

    def upper(self, group: Ints, slowdown: Floats) -> Floats:
        """float64[m, g]: the quantile 1 - risk of each slowdown; of two members that of the pair."""
        if len(group) == 2:
            return self._sums(group, self._upper_of_pairs)
        level = 1 - self._context.limits.slowdown.risk
        scale = NormalDist().inv_cdf(level) / NormalDist().inv_cdf(INTERVAL_QUANTILE)
        return np.asarray(slowdown * np.exp(self.log_distance(group, self._cap_distances, scale)))

    def log_distance(self, group: Ints, of_pairs: Floats, scale: float) -> Floats:
        """float64[m, g]: of the logarithm of each slowdown to the end of its interval, from those of pairs squared."""
        squared = self._sums(group, of_pairs)
        return self._composition.log_distance(squared, len(group) - 1, scale, self._copies(group))


def ordered_pairs(size: int) -> list[tuple[int, int]]:
    """Places of every member and every other."""
    return [(a, b) for a in range(size) for b in range(size) if a != b]
