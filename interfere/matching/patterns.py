"""Patterns of groups, for job classes that slow one another down alike and differ only in their costs.

Job classes that differ in costs alone are of one kind. A pattern is a multiset of kinds on one host. It determines the
excess slowdown x = slowdown - 1 of each of its places, and whether the group is allowed. A job of class c on a place of
excess x costs

    base_c + slope_c · x

So at given job prices the best group of a pattern puts on each place the class with the smallest line at x, and has the
reduced cost

    added + Σ over places of min over classes c of the kind (base_c - price_c + slope_c · x)  -  price of what it takes

The minimum of the lines is evaluated for all patterns at once. A kind may have several equal places in a pattern, where
the same job can be counted twice: patterns of negative reduced cost are evaluated again without repeated jobs.
Domains are job sizes and device classes; the lines differ between domains.
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
    """p patterns of at most m places each on the hosts of one problem."""

    kind: Ints  # int64[k] of each job class
    demand: Ints  # int64[k]: jobs of each class
    members: Ints  # int64[p, m]: kinds, ascending, NO_KIND where the pattern is smaller
    excess: Floats  # float64[p, m]
    domain: Ints  # int64[p]: which lines its jobs have
    host: Ints  # int64[p]
    takes: Ints  # int64[p]: units of its host's supply that each pattern takes

    def among(self, rows: Ints) -> "Patterns":
        """Return the patterns of the given rows."""
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
    """The cost coefficients of all patterns at one level."""

    base: Floats  # float64[d, k]: of a job of each class without excess
    slope: Floats  # float64[d, k] ≥ 0: of one unit of excess
    added: Floats  # float64[p]: of the residents

    def among(self, rows: Ints) -> "PatternCosts":
        """Return the cost coefficients of the given rows."""
        return replace(self, added=self.added[rows])

    def less(self, other: "PatternCosts", price: float) -> "PatternCosts":
        """Return these costs minus `price` times the other costs."""
        return PatternCosts(
            base=self.base - price * other.base,
            slope=self.slope - price * other.slope,
            added=self.added - price * other.added,
        )

    def of_groups(self, patterns: Patterns, rows: Ints, classes: Ints) -> Floats:
        """Return float64[n]: the cost of each group; `classes` int64[n, m]: the job classes on the pattern's places."""
        domain, at = patterns.domain[rows][:, None], patterns.members[rows] != NO_KIND
        each = self.base[domain, classes] + self.slope[domain, classes] * patterns.excess[rows]
        total = self.added[rows].copy()
        for place, used in zip(each.T, at.T, strict=True):
            total += np.where(used, place, 0.0)
        return total


class PatternPricing:
    """The pricing step of column generation: finds the groups of smallest reduced cost over all patterns."""

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
        """Find the job classes of each kind, and the patterns in which one job could be counted twice."""
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
        """Return bool[p]: whether a kind has more places in the pattern than its smallest class has jobs."""
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
        """Return float64[p]: a lower bound on the least reduced cost within each pattern, exact for the lowest.

        `jobs` float64[k] are the dual prices of the job classes, `device` float64[h] those of one unit of each host's
        supply.
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
        """Return int64[n, m]: the job classes of the best group of each of the patterns `rows`, by place."""
        classes, _ = self._assigned(rows, costs, jobs)
        return classes

    def _least_lines(self, costs: PatternCosts, jobs: Floats) -> Floats:
        """Return float64[m, p]: the value of the smallest line on each place; 0 on places that a pattern lacks."""
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
        """Return the class on each place, no job twice, and its reduced cost (0 on no place), [n, m] each."""
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
    """Return the lines on the lower envelope for x ≥ 0, in order of the x from which each is smallest."""
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
