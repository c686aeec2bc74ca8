"""The linear and the integer master program over a set of columns, solved by HiGHS.

Rows: jobs of each class (all must be placed), supply of each host class, the device limit, limits on earlier levels.
Costs are divided by a scale before they reach HiGHS, because its tolerances are absolute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np
from highspy import HighsModelStatus

from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    Prices,
)
from interfere.time_budget import TimeBudget

TOLERANCE = 1e-9  # of HiGHS, in scaled units; the least that it takes is 1e-10
PRIMAL_SIMPLEX = 4  # of the option simplex_strategy: added columns leave the basis feasible
MIN_LIMIT_SHARE = 1e-4  # of the largest cost: a limit of 0 would else scale its row beyond what HiGHS takes (1e15)
ITERATIONS = 500  # of the simplex between two looks at the budget
# Work units of the simplex for each row and column: of an iteration, and iterations that its start takes as long as. On
# programs of 300 to 700 rows and 3,000 to 15,000 columns an iteration took 3.5 to 3.9 ns a row and column.
UNITS_PER_ITERATION, ITERATIONS_OF_START = 0.0115, 50
# Work units of an integer program: of a column at first, then of each row and column whenever HiGHS calls back. On
# programs of 250 to 30,000 columns this is .7 to 2 times the CPU time.
UNITS_PER_COLUMN, UNITS_PER_CALL = 90.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """What earlier levels leave open: the allowed columns, supplies that must be used up, and limits on level sums."""

    allowed: Bools  # bool[c]
    tight: Bools  # bool[h + 1], the device limit last
    limits: tuple[tuple[Level, float], ...] = ()
    places: tuple[int, ...] = ()  # of these levels among all

    @classmethod
    def none(cls, problem: PlacementProblem) -> "Restriction":
        """Return the restriction that allows every placement of a problem."""
        return cls(allowed=problem.allowed.copy(), tight=np.zeros(len(problem.supply) + 1, dtype=bool))

    def extended(self, levels: Sequence[Level]) -> "Restriction":
        """Return the restriction with further columns, all allowed; `levels`: all levels with the extended costs."""
        further = len(levels[0].cost) - len(self.allowed)
        limits = tuple((levels[place], value) for place, (_, value) in zip(self.places, self.limits, strict=True))
        return replace(self, allowed=np.concatenate([self.allowed, np.ones(further, dtype=bool)]), limits=limits)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Return the levels whose sums are limited."""
        return tuple(level for level, _ in self.limits)

    @property
    def values(self) -> Floats:
        """Return float64[l]: the upper limits of these sums."""
        return np.array([value for _, value in self.limits])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAnswer:
    """A solution of the linear program with its dual prices."""

    columns: Ints  # int64[n]: the columns in the program at that time
    x: Floats  # float64[n]
    prices: Prices


class LinearProgram:
    """The linear program of one level over the columns added so far; added columns keep the simplex basis."""

    def __init__(self, problem: PlacementProblem, level: Level, restriction: Restriction, *, scale: float) -> None:
        self._rows = _Rows(problem, restriction)
        self._level, self._scale = level, scale
        self.columns = np.zeros(0, dtype=np.int64)
        self._at_hand = np.zeros(len(problem.host), dtype=bool)
        self._highs = new_highs()
        self._highs.setOptionValue("presolve", "off")
        self._highs.setOptionValue("simplex_strategy", PRIMAL_SIMPLEX)
        self._rows.add_to(self._highs)

    def extend(self, problem: PlacementProblem, level: Level, restriction: Restriction) -> None:
        """Replace the problem by the same one with further columns; these are not part of the program until added."""
        self._rows.problem, self._rows.restriction, self._level = problem, restriction, level
        further = np.zeros(len(problem.host) - len(self._at_hand), dtype=bool)
        self._at_hand = np.concatenate([self._at_hand, further])

    def add(self, columns: Ints) -> int:
        """Add the columns that are missing; return their number, 0 where HiGHS refuses their coefficients."""
        columns = np.unique(columns)
        columns = columns[~self._at_hand[columns]]
        if len(columns):
            self._at_hand[columns] = True
            if not _add_columns(self._highs, self._rows, columns, self._level.cost[columns] / self._scale):
                return 0
            self.columns = np.concatenate([self.columns, columns])
        return len(columns)

    def solve(self, budget: TimeBudget) -> LinearAnswer | None:
        """Return the linear optimum; None where there is none or the time budget ran out."""
        highs = self._highs
        if not budget.unlimited:
            highs.setOptionValue("simplex_iteration_limit", ITERATIONS)
        self._run(budget)
        while highs.getModelStatus() == HighsModelStatus.kIterationLimit and not budget.expired:
            self._run(budget)
        if highs.getModelStatus() != HighsModelStatus.kOptimal:
            return None
        solution = highs.getSolution()
        dual = np.asarray(solution.row_dual, dtype=np.float64) * self._scale
        x = np.asarray(solution.col_value, dtype=np.float64)
        return LinearAnswer(columns=self.columns, x=x, prices=self._rows.prices(dual))

    def _run(self, budget: TimeBudget) -> None:
        """Let the simplex iterate, and count its work."""
        self._highs.run()
        iterations = ITERATIONS_OF_START + int(self._highs.getInfo().simplex_iteration_count)
        budget.spend(UNITS_PER_ITERATION * iterations * (len(self._rows.lower) + len(self.columns)))


def solve_integer_program(
    problem: PlacementProblem,
    level: Level,
    restriction: Restriction,
    columns: Ints,
    *,
    scale: float,
    budget: TimeBudget,
    start: Placement,
    max_nodes: int,
) -> tuple[Placement | None, float]:
    """Return the best placement found over the given columns, and a lower bound on all placements of these columns."""
    budget.spend(UNITS_PER_COLUMN * len(columns))
    rows, highs = _Rows(problem, restriction), new_highs()
    rows.add_to(highs)
    if not _add_columns(highs, rows, columns, level.cost[columns] / scale):
        return None, -np.inf
    c = len(columns)
    kinds = np.full(c, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
    highs.changeColsIntegrality(c, np.arange(c, dtype=np.int32), kinds)
    for name in ("mip_rel_gap", "mip_abs_gap"):
        highs.setOptionValue(name, 0.0)
    highs.setOptionValue("mip_feasibility_tolerance", 1e-9)
    highs.setOptionValue("mip_max_nodes", max_nodes)
    if not budget.unlimited:
        # The heuristics of HiGHS call nobody back; its own limit is on the wall.
        highs.setOptionValue("time_limit", budget.remaining_wall_s)
        stop = interrupt(budget, UNITS_PER_CALL * (len(rows.lower) + c))
        highs.cbMipInterrupt += stop
        highs.cbSimplexInterrupt += stop
    place = {column: k for k, column in enumerate(columns.tolist())}
    at = [place.get(column, -1) for column in start.column.tolist()]
    if at and min(at) >= 0:
        highs.setSolution(len(at), np.array(at, dtype=np.int32), start.count.astype(np.float64))
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    if status == HighsModelStatus.kTimeLimit:
        budget.cut()
    if status == HighsModelStatus.kInfeasible:
        return None, np.inf
    bound = float(info.mip_dual_bound) * scale
    x = np.asarray(highs.getSolution().col_value, dtype=np.float64)
    found = len(x) == c and info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    placement = None
    if found:
        count = np.rint(x).astype(np.int64)
        placement = Placement(column=columns[count > 0], count=count[count > 0])
    return placement, bound if np.isfinite(bound) else -np.inf


class _Rows:
    """The rows of the master program and the coefficients of each column in them."""

    def __init__(self, problem: PlacementProblem, restriction: Restriction) -> None:
        self.problem, self.restriction = problem, restriction
        self._jobs, self._hosts = len(problem.demand), len(problem.supply)
        self.limit_scale = np.array([_limit_scale(level, value) for level, value in restriction.limits])
        upper = np.concatenate([problem.demand, problem.supply, [problem.max_devices]]).astype(np.float64)
        lower = np.full(len(upper), -np.inf)
        lower[: self._jobs] = problem.demand
        lower[self._jobs :][restriction.tight] = upper[self._jobs :][restriction.tight]
        sums = restriction.values / self.limit_scale
        self.lower = np.concatenate([lower, np.full(len(sums), -np.inf)])
        self.upper = np.concatenate([upper, sums])

    def add_to(self, highs: highspy.Highs) -> None:
        """Add the rows to a HiGHS model that has no columns yet."""
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(len(self.lower), self.lower, self.upper, 0, none, none, np.zeros(0))

    def entries(self, columns: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the start of each column, then the row index and value of every coefficient (sparse, by column)."""
        problem, n = self.problem, len(columns)
        members, host = problem.members[columns], problem.host[columns]
        width, further = members.shape[1], 2 + len(self.restriction.limits)
        row = np.full((n, width + further), -1, dtype=np.int64)
        value = np.zeros((n, width + further))
        # 1. A class that occurs several times has one entry: members are sorted.
        is_first = np.ones(members.shape, dtype=bool)
        is_first[:, 1:] = members[:, 1:] != members[:, :-1]
        is_first &= members != NOBODY
        row[:, :width] = np.where(is_first, members, -1)
        value[:, :width] = (members[:, :, None] == members[:, None, :]).sum(axis=2)
        # 2. What is taken of the host and of the device limit.
        placed = host != WAITS
        row[:, width] = np.where(placed, self._jobs + host, -1)
        row[:, width + 1] = np.where(placed & np.append(problem.is_empty, False)[host], self._jobs + self._hosts, -1)
        value[:, width] = value[:, width + 1] = problem.takes[columns]
        # 3. Sums of earlier levels.
        for k, level in enumerate(self.restriction.levels):
            cost = level.cost[columns] / self.limit_scale[k]
            row[:, width + 2 + k] = np.where(cost != 0.0, self._jobs + self._hosts + 1 + k, -1)
            value[:, width + 2 + k] = cost
        used = row >= 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]])
        return start, row[used], value[used]

    def prices(self, dual: Floats) -> Prices:
        """Return the dual values of the rows as prices."""
        free = np.isneginf(self.lower)
        dual = np.where(free, np.minimum(dual, 0.0), dual)
        hosts = self._jobs + self._hosts
        return Prices(
            jobs=dual[: self._jobs],
            hosts=dual[self._jobs : hosts],
            max_devices=float(dual[hosts]),
            limits=dual[hosts + 1 :] / self.limit_scale,
        )


def _limit_scale(level: Level, value: float) -> float:
    """Return the divisor of a limited sum: its absolute limit, at least a small share of the largest column cost."""
    finite = level.cost[np.isfinite(level.cost)]
    return max(abs(value), MIN_LIMIT_SHARE * float(np.abs(finite).max(initial=0.0))) or 1.0


def _add_columns(highs: highspy.Highs, rows: _Rows, columns: Ints, cost: Floats) -> bool:
    """Add columns to a HiGHS model; False where HiGHS refuses them because a coefficient exceeds 1e15."""
    start, row, value = rows.entries(columns)
    n = len(columns)
    status = highs.addCols(
        n,
        cost,
        np.zeros(n),
        np.full(n, highspy.kHighsInf),
        len(row),
        start.astype(np.int32),
        row.astype(np.int32),
        value,
    )
    return bool(status != highspy.HighsStatus.kError)


def interrupt(budget: TimeBudget, units: float) -> Callable[[highspy.highs.HighsCallbackEvent], None]:
    """Return a HiGHS callback that stops the solver once the budget is spent; each of its calls takes work units.

    HiGHS calls it at each node and between iterations of the simplex, whatever the time; itself it limits wall time
    only.
    """

    def stop(event: highspy.highs.HighsCallbackEvent) -> None:
        budget.spend(units)
        try:
            expired = budget.expired
        except Exception:  # no exception may pass through HiGHS; the search asks again and raises it
            expired = True
        if expired:
            event.interrupt()

    return stop


class _SilentHighs(highspy.Highs):
    """HiGHS that prints nothing: since 1.16 its constructor prints a banner on standard output with its first call."""

    def enableCallbacks(self) -> None:  # noqa: N802  # the first method that the constructor of the bindings calls
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # the bindings have no types


def new_highs() -> highspy.Highs:
    """Return a silent HiGHS solver on one thread with the tolerances of this package."""
    highs = _SilentHighs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        highs.setOptionValue(name, TOLERANCE)
    return highs
