"""Many interchangeable jobs: how many of each class share with each other class, as a small integer program.

Jobs whose costs beside everybody are equal (the same workload at the same weight) form a class and can stand in for
each other, so only counts matter: pairs[s, t] between classes, pairs[t, t] within one, solo[t], with
Σ_s pairs[s, t] + 2 pairs[t, t] + solo[t] = jobs of class t. Among tied jobs the search by reduced costs leaves nearly
all edges open; here the ties are gone, and the limit of devices is one more row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.matching.records import Matching, infeasible_matching, partition_cost
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_CLASSES = 100  # their 5,050 pairs of classes take HiGHS 0.15 s; beyond, the search by reduced costs is as fast
MIN_JOBS_PER_CLASS = 4  # on average; below, the same holds
PROBE_COLUMNS = 16  # enough to tell most rows apart
OBJECTIVE_STEPS = 1e6  # objective units in the cost of the fractional optimum: HiGHS proves an optimum to 1e-6 of one
EQUAL = 1e-9  # relative tolerance of a proved cost
HIGHS_INFEASIBLE = 2  # status of SciPy's linprog and milp


def job_classes(matrix: Floats, solo: Floats) -> Ints | None:
    """int64[n], the class of each job; None when there are too many classes for counting to pay off."""
    n = len(matrix)
    max_classes = min(MAX_CLASSES, n // MIN_JOBS_PER_CLASS)
    # 1. A coarse split by each job's cheapest pair and solo cost.
    _, group = np.unique(np.stack([matrix.min(axis=1), solo]), axis=1, return_inverse=True)
    group = group.ravel()
    if not max_classes or int(group.max()) >= max_classes:
        return None
    # 2. Within each group, jobs are compared with a representative: first in a few columns, then in all.
    probe = np.random.default_rng(n).permutation(n)[:PROBE_COLUMNS]
    job_class, classes = np.full(n, -1, dtype=np.int64), 0
    for number in range(int(group.max()) + 1):
        unclassified = np.flatnonzero(group == number)
        while len(unclassified):
            if classes == max_classes:
                return None
            representative = int(unclassified[0])
            differing = np.count_nonzero(matrix[unclassified[:, None], probe] != matrix[representative, probe], axis=1)
            similar = unclassified[differing <= 2]  # they may differ in the columns of the two jobs themselves
            differs = matrix[similar] != matrix[representative]
            differs[:, representative] = False  # the pair's own cost and the diagonals are not compared
            differs[np.arange(len(similar)), similar] = False
            job_class[similar[~differs.any(axis=1)]] = classes
            classes, unclassified = classes + 1, unclassified[job_class[unclassified] < 0]
    return job_class


def match_job_classes(
    matrix: Floats, solo: Floats, job_class: Ints, *, max_solo: int | None, budget: TimeBudget
) -> Matching | None:
    """The cheapest partition with at most `max_solo` solo jobs; None when time ran out before any was found.

    `matrix` float64[n, n] symmetric with diagonal 2·solo, `solo` float64[n], `job_class` int64[n].
    """
    from scipy.optimize import LinearConstraint, linprog, milp

    program = _CountProgram.of(matrix, solo, job_class)
    if not len(program.cost):
        return infeasible_matching(len(solo))
    # 1. The fractional optimum gives a dual price y per class and the solo price of the device limit.
    max_cost = float(np.abs(program.cost).max()) or 1.0
    relaxed = linprog(
        program.cost / max_cost,
        A_eq=program.rows,
        b_eq=program.jobs,
        method="highs",
        options=_time_limit(budget),
        A_ub=None if max_solo is None else program.is_solo[None],
        b_ub=None if max_solo is None else [max_solo],
    )
    if relaxed.status == HIGHS_INFEASIBLE:
        return infeasible_matching(len(solo))
    if relaxed.status != 0:
        return None
    y = relaxed.eqlin.marginals * max_cost
    solo_price = 0.0 if max_solo is None else max(0.0, -float(relaxed.ineqlin.marginals[0]) * max_cost)
    # 2. The same program in whole numbers and reduced costs: every partition pays Σ jobs · y besides.
    fixed, reduced = float(program.jobs @ y), program.cost - program.rows.T @ y
    step = max(float(program.jobs @ np.abs(y)), max_cost) / OBJECTIVE_STEPS
    constraints = [LinearConstraint(program.rows, program.jobs, program.jobs)]
    if max_solo is not None:
        constraints.append(LinearConstraint(program.is_solo[None], -np.inf, max_solo))
    solution = milp(
        reduced / step,
        integrality=np.ones(len(reduced)),
        constraints=constraints,
        options={**_time_limit(budget), "mip_rel_gap": 0.0},
    )
    if solution.status == HIGHS_INFEASIBLE:
        return infeasible_matching(len(solo))
    if solution.x is None:
        return None
    # 3. Counts become pairs of jobs.
    mate = program.partition(np.rint(solution.x).astype(np.int64), job_class)
    cost = partition_cost(mate, matrix, solo)
    proved = (
        solution.status == 0 and cost - fixed - float(solution.mip_dual_bound) * step <= EQUAL * step * OBJECTIVE_STEPS
    )
    dual_bound = program.bound(y, reduced, solo_price) - solo_price * (max_solo or 0)
    return Matching(
        mate=mate,
        cost=cost,
        lower_bound=cost if proved else min(cost, dual_bound),
        y=y[job_class],
        solo_price=solo_price,
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
    )


def _time_limit(budget: TimeBudget) -> dict[str, float]:
    return {} if budget.unlimited else {"time_limit": budget.remaining_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountProgram:
    """v counts to choose, each of pairs of classes first[v] and second[v] or of solo jobs of class first[v]."""

    jobs: Floats  # float64[k], jobs in each class
    first: Ints  # int64[v]
    second: Ints  # int64[v]
    is_solo: Floats  # float64[v], 1 where the count is of solo jobs
    cost: Floats  # float64[v]
    rows: "csr_array"  # float64[k, v], jobs of each class that one of each variable uses

    @classmethod
    def of(cls, matrix: Floats, solo: Floats, job_class: Ints) -> "_CountProgram":
        """Arguments as in `match_job_classes`."""
        from scipy.sparse import csr_array

        _, representative, jobs = np.unique(job_class, return_index=True, return_counts=True)
        table = matrix[np.ix_(representative, representative)]
        for t in np.flatnonzero(jobs > 1).tolist():  # the cost of two jobs of one class
            a, b = np.flatnonzero(job_class == t)[:2]
            table[t, t] = matrix[a, b]
        table[jobs == 1, jobs == 1] = np.inf
        first, second = np.nonzero(np.triu(np.isfinite(table)))
        single = np.flatnonzero(np.isfinite(solo[representative]))
        v = len(first) + len(single)
        variable = np.arange(v)
        used = np.concatenate([first, single, second])
        user = np.concatenate([variable, variable[: len(second)]])
        return cls(
            jobs=jobs.astype(np.float64),
            first=np.concatenate([first, single]),
            second=np.concatenate([second, single]),
            is_solo=(variable >= len(first)).astype(np.float64),
            cost=np.concatenate([table[first, second], solo[representative[single]]]),
            rows=csr_array((np.ones(len(used)), (used, user)), shape=(len(representative), v)),
        )

    def partition(self, counts: Ints, job_class: Ints) -> Ints:
        """mate int64[n], with as many pairs of each two classes as `counts` int64[v] says."""
        mate = np.arange(len(job_class))
        unpaired = [np.flatnonzero(job_class == t).tolist() for t in range(len(self.jobs))]
        for v in np.flatnonzero((counts > 0) & (self.is_solo == 0)).tolist():
            for _ in range(int(counts[v])):
                a, b = unpaired[self.first[v]].pop(), unpaired[self.second[v]].pop()
                mate[a], mate[b] = b, a
        return mate

    def bound(self, y: Floats, reduced: Floats, solo_price: float) -> float:
        """Σ y + ½ Σ (worst violation of each job, at most 0), where every solo job pays `solo_price` more."""
        slack = np.where(self.is_solo > 0, 2 * (reduced + solo_price), reduced)
        violation = np.zeros(len(y))
        np.minimum.at(violation, self.first, slack)
        np.minimum.at(violation, self.second, slack)
        return float(self.jobs @ (y + violation / 2))
