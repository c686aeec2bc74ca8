"""The best arrangement of a re-pairing problem, by column generation on its master problem.

1. Linear program over the most valuable columns of each job; price all others; add those that could improve it.
2. Where its solution is not integral: an integer program over the columns whose reduced cost the gap leaves open.
Law: the linear optimum over all columns bounds every arrangement; the answer is never worse than the greedy one.
"""

from dataclasses import dataclass

import highspy
import numpy as np
from highspy import HighsModelStatus

from interfere.matching.master.restricted_master import INTEGRALITY, new_highs
from interfere.matching.rematching.greedy import rematch_greedily
from interfere.matching.rematching.problem import (
    ELSEWHERE,
    WAITS,
    Arrangement,
    Floats,
    Ints,
    Rematching,
    RematchingProblem,
    value_of,
)

FIRST_PER_JOB = 6  # pairs of each job, at their best place, that the first linear program has
ADDED_PER_JOB = 3  # pairs of each job that one pricing round adds
MIN_IMPROVEMENT = 1e-9  # relative to the largest value of a column


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """c groups at places; j = i for a job alone."""

    i: Ints
    j: Ints
    place: Ints
    value: Floats

    def take(self, index: Ints) -> "_Columns":
        return _Columns(i=self.i[index], j=self.j[index], place=self.place[index], value=self.value[index])


def rematch(problem: RematchingProblem) -> Rematching:
    """The best arrangement, and a bound that proves it. The greedy one is kept where it is as good."""
    best = rematch_greedily(problem)
    columns = _all_columns(problem)
    if not len(columns.i):
        return Rematching(arrangement=best.arrangement, value=best.value, upper_bound=best.value)
    return _MasterSearch(problem, columns).solve(best)


def _all_columns(problem: RematchingProblem) -> _Columns:
    """Every allowed column that no other of the same group and place, or of no place, is better than."""
    n, home, shift = problem.n, problem.home, problem.relocation
    i, j = np.triu_indices(n, 1)
    worth = problem.pair[i, j]
    allowed = np.isfinite(worth)
    i, j, worth = i[allowed], j[allowed], worth[allowed]
    pays_i, pays_j = shift[i, j], shift[j, i]
    together = problem.runs[i] & (home[i] == home[j])
    jobs = np.arange(n)
    own = np.diagonal(shift)
    parts = [
        (jobs, jobs, home, problem.alone),
        (jobs, jobs, np.full(n, ELSEWHERE), np.where(problem.runs, problem.alone - own, -np.inf)),
        (i, j, home[i], np.where(together, worth, worth - pays_j)),
        (i, j, np.where(together, WAITS - 1, home[j]), worth - pays_i),
        (
            i,
            j,
            np.full(len(i), ELSEWHERE),
            np.where(problem.runs[i] & problem.runs[j], worth - pays_i - pays_j, -np.inf),
        ),
    ]
    first, second, place, value = (np.concatenate([part[k] for part in parts]) for k in range(4))
    both_wait = (place == ELSEWHERE) & ~problem.runs[first] & ~problem.runs[second]
    # A place of a waiting member is no home: with a running partner, that column is the one of a move elsewhere.
    keep = np.isfinite(value) & (place > WAITS - 1)
    keep &= (np.arange(len(value)) < 2 * n + len(i)) | ~both_wait
    return _Columns(i=first[keep], j=second[keep], place=place[keep], value=value[keep])


class _MasterSearch:
    """The stages of `rematch`."""

    def __init__(self, problem: RematchingProblem, columns: _Columns) -> None:
        self._problem, self._columns = problem, columns
        n = problem.n
        self._rows = n + problem.devices + 1
        self._upper = np.ones(self._rows)
        self._upper[-1] = problem.devices
        self._lower = np.full(self._rows, -np.inf)
        self._lower[:n][problem.runs & np.isinf(problem.stop)] = 1.0
        # A stop is charged by adding its cost to every column of the job, and taking it off once for all jobs.
        self._bonus = np.where(problem.runs & np.isfinite(problem.stop), problem.stop, 0.0)
        self._constant = -float(self._bonus.sum())
        pays = self._bonus[columns.i] + np.where(columns.i == columns.j, 0.0, self._bonus[columns.j])
        self._gain = columns.value + pays
        self._tolerance = MIN_IMPROVEMENT * max(1e-12, float(np.abs(self._gain).max()))

    def solve(self, best: Rematching) -> Rematching:
        """The best arrangement."""
        at_hand, x, dual = self._solve_linear_program(best.arrangement)
        bound = float(np.maximum(self._reduced(dual), 0.0).max(initial=0.0)) * self._problem.devices
        bound += float(self._upper @ np.maximum(dual, 0.0) + self._lower_part(dual)) + self._constant
        if np.all(np.abs(x - np.rint(x)) <= INTEGRALITY):
            found = self._arrangement(at_hand[np.rint(x) > 0])
        else:
            found, bound = self._close_gap(at_hand, dual, bound, best.value)
        value = value_of(self._problem, found)
        if value <= best.value + self._tolerance:
            return Rematching(arrangement=best.arrangement, value=best.value, upper_bound=max(bound, best.value))
        return Rematching(arrangement=found, value=value, upper_bound=max(bound, value))

    def _close_gap(self, at_hand: Ints, dual: Floats, bound: float, value: float) -> tuple[Arrangement, float]:
        """The best arrangement and its value, where the linear program's optimum is not integral."""
        found = self._arrangement(self._solve_integer_program(at_hand))
        value = max(value, value_of(self._problem, found))
        # A column in a better arrangement has no lower reduced cost than the gap: the integer optimum of these, and of
        # those at hand, is the optimum of all.
        is_open = self._reduced(dual) >= value - bound - self._tolerance
        is_open[at_hand] = True
        if int(is_open.sum()) > len(at_hand):
            found = self._arrangement(self._solve_integer_program(np.flatnonzero(is_open)))
        return found, max(value, value_of(self._problem, found))

    def _lower_part(self, dual: Floats) -> float:
        """What rows that have to be used add to the bound: their duals may be negative."""
        must = np.isfinite(self._lower)
        return float(np.minimum(dual[must], 0.0) @ self._lower[must])

    def _reduced(self, dual: Floats) -> Floats:
        """float64[c]: what each column would add to the linear program's value; at most 0 at its optimum."""
        columns, n = self._columns, self._problem.n
        price = dual[columns.i] + np.where(columns.i == columns.j, 0.0, dual[columns.j]) + dual[-1]
        price += np.where(columns.place >= 0, dual[n + np.maximum(columns.place, 0)], 0.0)
        return np.asarray(self._gain - price)

    # --- 1. the linear program ----------------------------------------------------------------------------------------

    def _solve_linear_program(self, start: Arrangement) -> tuple[Ints, Floats, Floats]:
        """Columns at hand, how much of each is used, and the duals of the rows."""
        chosen = self._first_columns(start)
        highs = new_highs()
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(self._rows, self._lower, self._upper, 0, none, none, np.zeros(0))
        has = np.zeros(len(self._gain), dtype=bool)
        added, order = chosen, [chosen]
        while True:
            self._add(highs, added)
            has[added] = True
            highs.run()
            if highs.getModelStatus() != HighsModelStatus.kOptimal:
                raise AssertionError(f"the present arrangement is a solution: {highs.getModelStatus()}")
            solution = highs.getSolution()
            dual = np.asarray(solution.row_dual, dtype=np.float64)
            reduced = np.where(has, -np.inf, self._reduced(dual))
            added = self._best_of_each_job(reduced, ADDED_PER_JOB)
            added = added[reduced[added] > self._tolerance]
            if not len(added):
                return np.concatenate(order), np.asarray(solution.col_value, dtype=np.float64), dual
            order.append(added)

    def _first_columns(self, start: Arrangement) -> Ints:
        """Jobs alone, the groups of an arrangement that is allowed, and the most valuable pairs of each job."""
        columns = self._columns
        alone = np.flatnonzero(columns.i == columns.j)
        keys = {(i, j, place) for i, j, place in start.groups()}
        at = [
            k
            for k, key in enumerate(zip(columns.i.tolist(), columns.j.tolist(), columns.place.tolist(), strict=True))
            if key in keys
        ]
        pairs = np.where(columns.i == columns.j, -np.inf, self._gain)
        best = self._best_of_each_job(pairs, FIRST_PER_JOB)
        return np.unique(np.concatenate([alone, np.array(at, dtype=np.int64), best]))

    def _best_of_each_job(self, score: Floats, count: int) -> Ints:
        """Columns with the largest finite scores, `count` of each job."""
        order = np.argsort(-score, kind="stable")
        order = order[np.isfinite(score[order])]
        taken = np.zeros(len(score), dtype=bool)
        for member in (self._columns.i, self._columns.j):
            jobs = member[order]
            by_job = np.argsort(jobs, kind="stable")
            sorted_jobs = jobs[by_job]
            first = np.searchsorted(sorted_jobs, sorted_jobs)
            taken[order[by_job[np.arange(len(by_job)) - first < count]]] = True
        return np.flatnonzero(taken)

    def _add(self, highs: highspy.Highs, index: Ints) -> None:
        columns, n, c = self._columns.take(index), self._problem.n, len(index)
        rows = np.stack(
            [
                columns.i,
                np.where(columns.i == columns.j, -1, columns.j),
                np.where(columns.place >= 0, n + columns.place, -1),
                np.full(c, self._rows - 1),
            ],
            axis=1,
        )
        used = rows >= 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]) if c else np.zeros(0)
        entries = rows[used].astype(np.int32)
        highs.addCols(
            c,
            self._gain[index],
            np.zeros(c),
            np.full(c, highspy.kHighsInf),
            len(entries),
            start.astype(np.int32),
            entries,
            np.ones(len(entries)),
        )

    # --- 2. the integer program ---------------------------------------------------------------------------------------

    def _solve_integer_program(self, index: Ints) -> Ints:
        """The columns of the best arrangement of those given."""
        highs = new_highs()
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(self._rows, self._lower, self._upper, 0, none, none, np.zeros(0))
        self._add(highs, index)
        c = len(index)
        integer = np.full(c, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        highs.changeColsIntegrality(c, np.arange(c, dtype=np.int32), integer)
        for name in ("mip_rel_gap", "mip_abs_gap"):
            highs.setOptionValue(name, 0.0)
        highs.run()
        x = np.asarray(highs.getSolution().col_value, dtype=np.float64)
        return index[np.rint(x) > 0]

    def _arrangement(self, chosen: Ints) -> Arrangement:
        columns = self._columns.take(chosen)
        mate, place = np.full(self._problem.n, WAITS), np.full(self._problem.n, ELSEWHERE)
        for member, other in ((columns.i, columns.j), (columns.j, columns.i)):
            mate[member], place[member] = other, columns.place
        return Arrangement(mate=mate, place=place)
