"""Groups as patterns: where many jobs slow one another down alike and differ only in what that costs.

Job classes that differ in costs alone are of one kind. A pattern is a group of kinds on one host, which determines the
excess x = slowdown - 1 of every place in it, and whether it is allowed. A job of class c on a place of excess x costs

    base_c + slope_c · x

so the best group of a pattern at given prices of jobs takes, on each place, the class of the smallest line at x:

    added + Σ over places of min over classes c of the kind (base_c - price_c + slope_c · x)  -  price of what it takes

The minimum of lines is evaluated for all patterns at once. Where a kind has several places in a pattern, which are all
alike, the same job may be counted twice: patterns that then cost less than nothing are evaluated again without.
Domains are job sizes and device classes: lines differ between them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_KIND = -1  # fills up the members of small patterns
MAX_EVALUATED = 6_000  # patterns of negative reduced cost, the smallest, for which groups of jobs are found at once
CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """p patterns of at most m places on the hosts of one problem."""

    kind: Ints  # int64[k] of each job class
    demand: Ints  # int64[k]: jobs of each class
    members: Ints  # int64[p, m]: kinds, ascending, NO_KIND where the pattern is smaller
    excess: Floats  # float64[p, m]
    domain: Ints  # int64[p]: which lines its jobs have
    host: Ints  # int64[p]
    takes: Ints  # int64[p]: of the supply of its host

    def among(self, rows: Ints) -> "Patterns":
        """Some of the patterns."""
        return replace(
            self,
            members=self.members[rows],
            excess=self.excess[rows],
            domain=self.domain[rows],
            host=self.host[rows],
            takes=self.takes[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternCosts:
    """What groups of patterns cost at one level."""

    base: Floats  # float64[d, k]: of a job of each class without excess
    slope: Floats  # float64[d, k] ≥ 0: of one unit of excess
    added: Floats  # float64[p]: of the residents

    def among(self, rows: Ints) -> "PatternCosts":
        """The costs of some of the patterns."""
        return replace(self, added=self.added[rows])

    def less(self, other: "PatternCosts", price: float) -> "PatternCosts":
        """These costs less a price times others."""
        return PatternCosts(
            base=self.base - price * other.base,
            slope=self.slope - price * other.slope,
            added=self.added - price * other.added,
        )

    def of_groups(self, patterns: Patterns, rows: Ints, classes: Ints) -> Floats:
        """float64[n]: of groups int64[n, m] of job classes, each on the places of its pattern."""
        domain, at = patterns.domain[rows][:, None], patterns.members[rows] != NO_KIND
        each = self.base[domain, classes] + self.slope[domain, classes] * patterns.excess[rows]
        total = self.added[rows].copy()
        for place, used in zip(each.T, at.T, strict=True):
            total += np.where(used, place, 0.0)
        return total


class PatternPricing:
    """Finds the groups of smallest reduced cost of all patterns."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        kinds = int(patterns.kind.max(initial=-1)) + 1
        # Every place of every pattern, those of one domain and kind together.
        sets = kinds * self._domains
        small = sets < np.iinfo(np.uint16).max
        number = np.uint16 if small else np.int64  # the small ones are sorted in linear time
        line_set = (patterns.domain * kinds).astype(number) + patterns.members.T.astype(number)
        line_set[patterns.members.T == NO_KIND] = sets  # after all others
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(line_set.ravel(), minlength=sets)[:sets])])
        self._places = np.argsort(line_set, axis=None, kind="stable")[: self._ends[-1]]
        self._excess = patterns.excess.T.ravel()[self._places]
        self._kinds = kinds
        self._find_classes()

    def _find_classes(self) -> None:
        """The classes of each kind, and the patterns in which one job could be counted twice."""
        patterns, kinds = self.patterns, self._kinds
        self._classes_of = [np.flatnonzero(patterns.kind == kind) for kind in range(kinds)]
        width = max(map(len, self._classes_of), default=0)
        self._padded = np.full((kinds, width), -1, dtype=np.int64)
        for kind, classes in enumerate(self._classes_of):
            self._padded[kind, : len(classes)] = classes
        self._repeats = self._has_repeats()

    @property
    def _domains(self) -> int:
        return int(self.patterns.domain.max(initial=-1)) + 1

    def _has_repeats(self) -> NDArray[np.bool_]:
        """bool[p]: has a kind more places than the smallest of its classes has jobs?"""
        members = self.patterns.members
        least = np.array([int(self.patterns.demand[c].min(initial=1)) for c in self._classes_of] + [0], dtype=np.int64)
        found = np.zeros(len(members), dtype=bool)
        for jobs in range(1, members.shape[1]):  # places of one kind follow one another
            has_fewer = np.append(least[:-1] == jobs, False)
            if has_fewer.any():
                for a in range(members.shape[1] - jobs):
                    kind = members[:, a]
                    found |= (kind == members[:, a + jobs]) & has_fewer[kind]
        return found

    def reduced_costs(self, costs: PatternCosts, jobs: Floats, device: Floats) -> Floats:
        """float64[p]: a lower bound on the reduced cost of the best group of each pattern, exact of the lowest.

        `jobs` float64[k] and `device` float64[h]: prices of jobs and of one unit of the supply of each host.
        """
        patterns = self.patterns
        least = self._least_lines(costs, jobs)
        fixed = costs.added - patterns.takes * device[patterns.host]
        reduced = fixed.copy()
        for place in least:
            reduced += place
        again = np.flatnonzero(self._repeats & (reduced < 0))
        if len(again) > MAX_EVALUATED:  # at prices far from the best
            again = again[np.argpartition(reduced[again], MAX_EVALUATED)[:MAX_EVALUATED]]
        rows = CELLS_AT_ONCE // max(1, self._padded.shape[1] * len(least))
        for first in range(0, len(again), max(1, rows)):
            chosen = again[first : first + max(1, rows)]
            _, each = self._assigned(chosen, costs, jobs)
            reduced[chosen] = fixed[chosen] + each.sum(axis=1)
        return reduced

    def best_groups(self, rows: Ints, costs: PatternCosts, jobs: Floats) -> Ints:
        """int64[n, m]: the job classes of the best group of some patterns, on the places of each."""
        classes, _ = self._assigned(rows, costs, jobs)
        return classes

    def _least_lines(self, costs: PatternCosts, jobs: Floats) -> Floats:
        """float64[m, p]: the smallest line of each place; 0 where a pattern has none."""
        least = np.zeros(len(self._excess))
        for line_set in range(self._kinds * self._domains):
            first, last = int(self._ends[line_set]), int(self._ends[line_set + 1])
            if first == last:
                continue
            domain, kind = divmod(line_set, self._kinds)
            classes, x = self._classes_of[kind], self._excess[first:last]
            slopes, intercepts = costs.slope[domain, classes], costs.base[domain, classes] - jobs[classes]
            first_line, *lines = _lower_envelope(slopes, intercepts + slopes * float(x.min()))
            smallest = intercepts[first_line] + slopes[first_line] * x
            for line in lines:
                np.minimum(smallest, intercepts[line] + slopes[line] * x, out=smallest)
            least[first:last] = smallest
        of_places = np.zeros(self.patterns.members.shape[::-1])
        of_places.ravel()[self._places] = least
        return of_places

    def _assigned(self, rows: Ints, costs: PatternCosts, jobs: Floats) -> tuple[Ints, Floats]:
        """int64[n, m] and float64[n, m]: the class on each place, no job twice, and its reduced cost; 0 on no place."""
        patterns, width = self.patterns, self.patterns.members.shape[1]
        domain = patterns.domain[rows]
        classes = np.full((len(rows), width), -1, dtype=np.int64)
        reduced = np.zeros((len(rows), width))
        for a in range(width):
            kind = patterns.members[rows, a]
            at = np.flatnonzero(kind != NO_KIND)
            earlier = (patterns.members[rows[at], :a] == kind[at, None]).sum(axis=1)
            among = self._padded[kind[at]]
            here = domain[at][:, None]
            lines = (
                costs.base[here, among] - jobs[among] + costs.slope[here, among] * patterns.excess[rows[at], a, None]
            )
            lines[among < 0] = np.inf
            # The job that comes next after those on the earlier places of the kind, which are the same.
            order = np.argsort(lines, axis=1, kind="stable")
            ordered = np.take_along_axis(among, order, axis=1)
            jobs_so_far = np.cumsum(np.where(ordered < 0, 0, patterns.demand[ordered]), axis=1)
            chosen = np.argmax(jobs_so_far > earlier[:, None], axis=1)[:, None]
            classes[at, a] = np.take_along_axis(ordered, chosen, axis=1)[:, 0]
            reduced[at, a] = np.take_along_axis(np.take_along_axis(lines, order, axis=1), chosen, axis=1)[:, 0]
        return classes, reduced


def _lower_envelope(slopes: Floats, intercepts: Floats) -> list[int]:
    """The lines that are the smallest of all at some distance x ≥ 0 from where their intercepts are."""
    hull: list[tuple[int, float]] = []  # line, and the x from which it is the smallest
    for line in np.lexsort((-slopes, intercepts)).tolist():  # at 0 the first is the smallest
        slope, intercept = float(slopes[line]), float(intercepts[line])
        while True:
            if not hull:
                hull.append((line, 0.0))
                break
            other, start = hull[-1]
            if slope >= slopes[other]:  # never smaller than the other
                break
            crossing = (intercept - float(intercepts[other])) / (float(slopes[other]) - slope)
            if crossing > start or (crossing == start and start > 0):
                hull.append((line, crossing))
                break
            hull.pop()
    return [line for line, _ in hull]
