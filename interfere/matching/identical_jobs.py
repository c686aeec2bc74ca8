"""Many jobs of few kinds: how many of each kind share with which, as a small integer program.

Jobs whose costs beside everybody are equal (the same workload at the same weight) can stand in for each other, so only
counts matter: pairs[s, t] between kinds, pairs[t, t] within one, alone[t], with Σ_s pairs[s, t] + 2 pairs[t, t] +
alone[t] = jobs of kind t. Among tied jobs the search by reduced costs leaves nearly all edges open; here the ties are
gone, and the limit of devices is one more row.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.matching.records import Matching, cost_of, infeasible
from interfere.records import SolveStatus

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_KINDS = 100  # 5,050 kinds of pairs take HiGHS 0.15 s; beyond, the search by reduced costs is as fast
JOBS_A_KIND = 4  # on average, below which the same holds
PROBE = 16  # columns that tell most rows apart
STEPS = 1e6  # of the objective in the cost of the fractional optimum: HiGHS proves an optimum to 1e-6 of one
EQUAL = 1e-9  # relative
HIGHS_INFEASIBLE = 2  # status of SciPy's linprog and milp


def kinds_of(matrix: Floats, solo: Floats) -> Ints | None:
    """int64[n], the kind of each job; None when there are too many kinds for counts to be worth it."""
    n = len(matrix)
    most = min(MOST_KINDS, n // JOBS_A_KIND)
    _, group = np.unique(np.stack([matrix.min(axis=1), solo]), axis=1, return_inverse=True)
    group = group.ravel()
    if not most or int(group.max()) >= most:
        return None
    probe = np.random.default_rng(n).permutation(n)[:PROBE]
    kind, kinds = np.full(n, -1, dtype=np.int64), 0
    for each in range(int(group.max()) + 1):
        left = np.flatnonzero(group == each)
        while len(left):
            if kinds == most:
                return None
            one = int(left[0])
            differs = np.count_nonzero(matrix[left[:, None], probe] != matrix[one, probe], axis=1)
            alike = left[differs <= 2]  # at most in the columns of the two themselves
            rest = matrix[alike] != matrix[one]
            rest[:, one] = False  # what two jobs cost each other, and each alone, needs no equal
            rest[np.arange(len(alike)), alike] = False
            kind[alike[~rest.any(axis=1)]] = kinds
            kinds, left = kinds + 1, left[kind[left] < 0]
    return kind


def match_kinds(matrix: Floats, solo: Floats, kind: Ints, *, lonely: int | None, deadline_s: float) -> Matching | None:
    """Cheapest partition of jobs of few kinds, at most `lonely` of them alone; None when time did not do for one.

    `matrix` float64[n, n] symmetric with diagonal 2·solo, `solo` float64[n], `kind` int64[n]; `deadline_s` as
    perf_counter counts.
    """
    from scipy.optimize import LinearConstraint, linprog, milp

    program = _Program.of(matrix, solo, kind)
    if not len(program.cost):
        return infeasible(len(solo))
    top = float(np.abs(program.cost).max()) or 1.0
    relaxed = linprog(
        program.cost / top,
        A_eq=program.rows,
        b_eq=program.jobs,
        method="highs",
        options=_time_left(deadline_s),
        A_ub=None if lonely is None else program.alone[None],
        b_ub=None if lonely is None else [lonely],
    )
    if relaxed.status == HIGHS_INFEASIBLE:
        return infeasible(len(solo))
    if relaxed.status != 0:
        return None
    y = relaxed.eqlin.marginals * top
    paid = 0.0 if lonely is None else max(0.0, -float(relaxed.ineqlin.marginals[0]) * top)
    # The same program in reduced costs: Σ jobs · y is what every partition pays besides.
    fixed, reduced = float(program.jobs @ y), program.cost - program.rows.T @ y
    step = max(float(program.jobs @ np.abs(y)), top) / STEPS
    limits = [LinearConstraint(program.rows, program.jobs, program.jobs)]
    if lonely is not None:
        limits.append(LinearConstraint(program.alone[None], -np.inf, lonely))
    found = milp(
        reduced / step,
        integrality=np.ones(len(reduced)),
        constraints=limits,
        options={**_time_left(deadline_s), "mip_rel_gap": 0.0},
    )
    if found.status == HIGHS_INFEASIBLE:
        return infeasible(len(solo))
    if found.x is None:
        return None
    mate = program.partition(np.rint(found.x).astype(np.int64), kind)
    cost = cost_of(mate, matrix, solo)
    proved = found.status == 0 and cost - fixed - float(found.mip_dual_bound) * step <= EQUAL * step * STEPS
    bound = cost if proved else min(cost, program.bound(y, reduced, paid) - paid * (lonely or 0))
    return Matching(
        mate=mate,
        cost=cost,
        lower_bound=bound,
        y=y[kind],
        alone_price=paid,
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
    )


def _time_left(deadline_s: float) -> dict[str, float]:
    return {"time_limit": max(0.0, deadline_s - time.perf_counter())} if deadline_s < np.inf else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """v variables, each a kind of pair (first[v], second[v]) or, where `alone`, a kind of job by itself."""

    jobs: Floats  # float64[k], jobs of each kind
    first: Ints  # int64[v]
    second: Ints  # int64[v]
    alone: Floats  # float64[v], 1 where the job is by itself
    cost: Floats  # float64[v]
    rows: "csr_array"  # float64[k, v], jobs of each kind that each variable uses

    @classmethod
    def of(cls, matrix: Floats, solo: Floats, kind: Ints) -> "_Program":
        from scipy.sparse import csr_array

        _, one, jobs = np.unique(kind, return_index=True, return_counts=True)
        table = matrix[np.ix_(one, one)]
        for t in np.flatnonzero(jobs > 1).tolist():  # the cost of two of one kind
            a, b = np.flatnonzero(kind == t)[:2]
            table[t, t] = matrix[a, b]
        table[jobs == 1, jobs == 1] = np.inf
        first, second = np.nonzero(np.triu(np.isfinite(table)))
        single = np.flatnonzero(np.isfinite(solo[one]))
        v = len(first) + len(single)
        at = np.arange(v)
        kinds = np.concatenate([first, single, second])
        rows = csr_array((np.ones(len(kinds)), (kinds, np.concatenate([at, at[: len(second)]]))), shape=(len(one), v))
        return cls(
            jobs=jobs.astype(np.float64),
            first=np.concatenate([first, single]),
            second=np.concatenate([second, single]),
            alone=(at >= len(first)).astype(np.float64),
            cost=np.concatenate([table[first, second], solo[one[single]]]),
            rows=rows,
        )

    def partition(self, counts: Ints, kind: Ints) -> Ints:
        """mate int64[n], with as many of each kind of pair as `counts` int64[v] says."""
        mate = np.arange(len(kind))
        free = [np.flatnonzero(kind == t).tolist() for t in range(len(self.jobs))]
        for v in np.flatnonzero((counts > 0) & (self.alone == 0)).tolist():
            for _ in range(int(counts[v])):
                a, b = free[self.first[v]].pop(), free[self.second[v]].pop()
                mate[a], mate[b] = b, a
        return mate

    def bound(self, y: Floats, reduced: Floats, paid: float) -> float:
        """Σ y - ½ Σ (worst violation of each job), as for any prices; `paid` is charged for each job alone."""
        slack = np.where(self.alone > 0, 2 * (reduced + paid), reduced)
        worst = np.zeros(len(y))
        np.minimum.at(worst, self.first, slack)
        np.minimum.at(worst, self.second, slack)
        return float(self.jobs @ (y + worst / 2))
