"""The restricted master problem: some columns of the placement problem, solved by HiGHS as a linear or integer program.

HiGHS (https://highs.dev, MIT) keeps its basis between rounds, so that a round in which a few hundred columns were added
costs a fraction of a first solve. Costs are divided by `scale` before they reach it: its tolerances are absolute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from highspy import HighsModelStatus
from numpy.typing import NDArray

from interfere.matching.master.pricing import Prices
from interfere.matching.master.problem import ColumnKind, Columns, Floats, Ints, Level, Placement, PlacementProblem
from interfere.time_budget import TimeBudget

Int32s = NDArray[np.int32]
TOLERANCE = 1e-9  # of HiGHS, in scaled units; the least that it takes is 1e-10
INTEGRALITY = 1e-6
PRIMAL_SIMPLEX = 4  # of the option simplex_strategy
# Of the simplex between two looks at the budget: about 50 ms, since an iteration takes longer the more rows there are.
ITERATIONS_TIMES_ROWS, MIN_ITERATIONS = 1_000_000, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelLimit:
    """An earlier level whose sum may not exceed a value."""

    level: Level
    value: float
    scale: float  # of its row


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSolution:
    """A solution of the linear program over the columns at hand."""

    x: Floats  # float64[c]
    value: float
    prices: Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSolution:
    """A solution of the integer program over given columns."""

    placement: Placement | None  # None where the budget did not suffice for any
    lower_bound: float  # of every placement of these columns
    is_optimal: bool


class RestrictedMaster:
    """The columns of one level of a problem at hand, and the linear program over them."""

    def __init__(
        self,
        problem: PlacementProblem,
        level: Level,
        *,
        scale: float,
        tight: Ints,
        limits: Sequence[LevelLimit] = (),
    ) -> None:
        """`tight`: the rows that have to be used up; `limits`: on the sums of earlier levels."""
        self.problem, self.level, self.scale, self.limits = problem, level, scale, tuple(limits)
        self._lower, self._upper = row_bounds(problem, tight, self.limits)
        self.columns = Columns.concatenate([])
        self._keys: set[int] = set()
        self._highs = new_highs()
        # Columns are added to an optimal basis, which stays feasible: the primal simplex goes on from it, without
        # presolve, which would throw it away. Four times faster than the defaults on 600 jobs of distinct weights.
        self._highs.setOptionValue("presolve", "off")
        self._highs.setOptionValue("simplex_strategy", PRIMAL_SIMPLEX)
        rows = len(self._lower)
        none = np.zeros(0, dtype=np.int32)
        self._highs.addRows(rows, self._lower, self._upper, 0, none, none, np.zeros(0))

    def add(self, columns: Columns) -> int:
        """Add columns that are not there yet; returns how many."""
        keys = columns.keys().tolist()
        new = [k for k, key in enumerate(keys) if key not in self._keys]
        if not new:
            return 0
        self._keys.update(keys[k] for k in new)
        added = columns.take(np.array(new, dtype=np.int64))
        start, index, value = matrix_entries(self.problem, added, self.limits)
        cost = added.costs(self.level) / self.scale
        c = len(added)
        self._highs.addCols(c, cost, np.zeros(c), np.full(c, highspy.kHighsInf), len(index), start, index, value)
        self.columns = Columns.concatenate([self.columns, added])
        return c

    def rescale(self, scale: float) -> None:
        """Divide costs by another scale from now on."""
        self.scale = scale
        cost = self.columns.costs(self.level) / scale
        self._highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def solve(self, budget: TimeBudget) -> LinearSolution | None:
        """The linear optimum; None where the columns admit no solution or the budget did not suffice."""
        highs = self._highs
        # The budget is asked between runs of few iterations: a callback in each would take a tenth of the time.
        if not budget.unlimited:
            iterations = max(MIN_ITERATIONS, ITERATIONS_TIMES_ROWS // len(self._lower))
            highs.setOptionValue("simplex_iteration_limit", iterations)
        highs.run()
        while highs.getModelStatus() == HighsModelStatus.kIterationLimit and not budget.expired:
            highs.run()
        if highs.getModelStatus() != HighsModelStatus.kOptimal:
            return None
        solution = highs.getSolution()
        x = np.asarray(solution.col_value, dtype=np.float64)
        dual = np.asarray(solution.row_dual, dtype=np.float64) * self.scale
        dual[np.isneginf(self._lower)] = np.minimum(dual[np.isneginf(self._lower)], 0.0)
        for k, limit in enumerate(self.limits):
            dual[len(dual) - len(self.limits) + k] /= limit.scale
        return LinearSolution(
            x=x, value=highs.getObjectiveValue() * self.scale, prices=Prices.of_rows(self.problem, dual)
        )


def solve_integer_program(
    problem: PlacementProblem,
    level: Level,
    columns: Columns,
    *,
    scale: float,
    tight: Ints,
    limits: Sequence[LevelLimit],
    budget: TimeBudget,
    start: Placement | None = None,
) -> IntegerSolution:
    """The best placement of the given columns."""
    lower, upper = row_bounds(problem, tight, limits)
    highs = new_highs()
    none = np.zeros(0, dtype=np.int32)
    highs.addRows(len(lower), lower, upper, 0, none, none, np.zeros(0))
    begin, index, value = matrix_entries(problem, columns, limits)
    c = len(columns)
    highs.addCols(
        c, columns.costs(level) / scale, np.zeros(c), np.full(c, highspy.kHighsInf), len(index), begin, index, value
    )
    highs.changeColsIntegrality(
        c, np.arange(c, dtype=np.int32), np.full(c, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
    )
    for name in ("mip_rel_gap", "mip_abs_gap"):
        highs.setOptionValue(name, 0.0)
    highs.setOptionValue("mip_feasibility_tolerance", TOLERANCE)
    if not budget.unlimited:
        highs.cbMipInterrupt += interrupt(budget)
        highs.cbSimplexInterrupt += interrupt(budget)
    if start is not None:
        place = {key: k for k, key in enumerate(columns.keys().tolist())}
        at = [place.get(key, -1) for key in start.columns.keys().tolist()]
        if min(at, default=0) >= 0:
            highs.setSolution(len(at), np.array(at, dtype=np.int32), start.count.astype(np.float64))
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    if status == HighsModelStatus.kInfeasible:
        return IntegerSolution(placement=None, lower_bound=np.inf, is_optimal=True)
    bound = float(info.mip_dual_bound) * scale
    x = np.asarray(highs.getSolution().col_value, dtype=np.float64)
    found = len(x) == c and info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    placement = placement_of(columns, x) if found else None
    return IntegerSolution(
        placement=placement,
        lower_bound=bound if np.isfinite(bound) else -np.inf,
        is_optimal=status == HighsModelStatus.kOptimal,
    )


def placement_of(columns: Columns, x: Floats) -> Placement:
    """The placement of a solution in whole numbers."""
    count = np.rint(x).astype(np.int64)
    at = np.flatnonzero(count > 0)
    return Placement(columns=columns.take(at), count=count[at])


def is_integral(x: Floats) -> bool:
    """Whether every value is a whole number, up to rounding."""
    return bool(np.all(np.abs(x - np.rint(x)) <= INTEGRALITY))


def row_bounds(problem: PlacementProblem, tight: Ints, limits: Sequence[LevelLimit]) -> tuple[Floats, Floats]:
    """float64[rows] each: the least and the most that each row may be used."""
    demand = np.concatenate([block.demand for block in problem.blocks])
    seats = np.concatenate([block.seats for block in problem.blocks])
    upper = np.concatenate([demand, problem.capacity, [problem.max_devices], seats]).astype(np.float64)
    lower = np.full(len(upper), -np.inf)
    lower[: len(demand)] = demand
    lower[tight] = upper[tight]
    sums = np.array([limit.value / limit.scale for limit in limits])
    return np.concatenate([lower, np.full(len(sums), -np.inf)]), np.concatenate([upper, sums])


def matrix_entries(
    problem: PlacementProblem, columns: Columns, limits: Sequence[LevelLimit]
) -> tuple[Int32s, Int32s, Floats]:
    """The columns of the constraint matrix: start of each, then row and value of every entry."""
    jobs, seats, capacity, n_rows = problem.row_offsets()
    c, t = len(columns), len(problem.capacity)
    size = np.array([block.size for block in problem.blocks])[columns.block]
    job_row = np.array(jobs)[columns.block]
    seat_row = np.array(seats)[columns.block]
    is_pair, is_seat = columns.kind == ColumnKind.PAIR, columns.kind == ColumnKind.SEAT
    on_empty = is_pair | (columns.kind == ColumnKind.SOLO)
    twice = is_pair & (columns.i == columns.j)
    # Up to four entries, then one for each level limit; the last of the four is a seat or the device limit.
    row = np.full((c, 4 + len(limits)), -1, dtype=np.int64)
    value = np.zeros((c, 4 + len(limits)))
    row[:, 0], value[:, 0] = job_row + columns.i, np.where(twice, 2.0, 1.0)
    other = is_pair & ~twice
    row[other, 1], value[other, 1] = (job_row + columns.j)[other], 1.0
    row[on_empty, 2], value[on_empty, 2] = capacity + columns.resource[on_empty], size[on_empty]
    row[on_empty, 3], value[on_empty, 3] = capacity + t, size[on_empty]
    row[is_seat, 3], value[is_seat, 3] = (seat_row + columns.resource)[is_seat], 1.0
    for k, limit in enumerate(limits):
        cost = columns.costs(limit.level) / limit.scale
        row[:, 4 + k] = np.where(cost != 0.0, n_rows + k, -1)
        value[:, 4 + k] = cost
    used = row >= 0
    start = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]) if c else np.zeros(0)
    return start.astype(np.int32), row[used].astype(np.int32), value[used]


def interrupt(budget: TimeBudget) -> Callable[[highspy.highs.HighsCallbackEvent], None]:
    """What HiGHS calls now and then: it stops once the budget has expired. Its own limit is time on the wall."""

    def stop(event: highspy.highs.HighsCallbackEvent) -> None:
        try:
            expired = budget.expired
        except Exception:  # none may cross HiGHS; the search asks again and raises it
            expired = True
        if expired:
            event.interrupt()

    return stop


def new_highs() -> highspy.Highs:
    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # the bindings' own constructor has no types
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        highs.setOptionValue(name, TOLERANCE)
    return highs
