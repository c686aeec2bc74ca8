"""One plan for the pending jobs of all sizes: every job starts alone, beside another, or waits, with a reason.

Ties are broken by submission: of jobs that could take each other's place at the same cost, the earlier starts. Law: no
level's value changes by that.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from interfere.matching.problem import NOBODY, WAITS, GroupLookup, Placement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.answer.starts import all_waiting, merge_plans, pairings
from interfere.policy.context import MAX_CLOSING_TIMES, PlanningContext
from interfere.policy.costs.candidates import resident_floor
from interfere.policy.costs.job_classes import company_lengths
from interfere.policy.problem_size import independent_parts, problem_size
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.greedy import place_greedily, waiting_jobs
from interfere.policy.solve.search import DecisionSolution, all_proved, largest_cost, solve_decision, thresholds
from interfere.policy.solve.starts import start_groups
from interfere.records import Job, LevelKind, Plan, PlanLevel, Snapshot, SolveStatus
from interfere.records.cluster import DEFAULT_SEATS

# Costs of pairs and seats up to which all parts are planned as one problem: they take 20 ms.
CELLS_OF_ONE_PROBLEM = 100_000
SHARE_OF_SEARCH = 0.85  # of the budget that is left once the columns are listed; the rest is for schedules and moves


def plan_pending_jobs(context: PlanningContext) -> Plan:
    """The plan for a valid snapshot, or a subproblem of one, whose infeasible deadlines have been set aside."""
    snapshot = context.snapshot
    if not snapshot.pending:
        return _nothing_pending(context)
    parts = () if context.custom_objective else parts_planned_apart(snapshot)
    if len(parts) < 2:
        return _plan_together(context)
    return merge_plans(_plan_parts(parts, context), context)


def parts_planned_apart(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """Return the independent parts of a snapshot that have pending jobs, to be planned one by one.

    A small problem is one part.
    """
    parts = tuple(part for part in independent_parts(snapshot) if part.pending)
    if len(parts) < 2 or problem_size(snapshot, MAX_CLOSING_TIMES).cells <= CELLS_OF_ONE_PROBLEM:
        return (snapshot,)
    return parts


def _plan_parts(parts: Sequence[Snapshot], context: PlanningContext) -> list[Plan]:
    """The plans of parts that have nothing to do with one another; each gets its share of the budget."""
    sizes = [problem_size(part, MAX_CLOSING_TIMES).cells for part in parts]
    plans = []
    for k, part in enumerate(parts):
        share = context.budget.share(sizes[k] / max(1, sum(sizes[k:])))
        plans.append(_plan_together(replace(context.subproblem(part), budget=share)))
    return plans


def _plan_together(context: PlanningContext) -> Plan:
    """The plan of pending jobs as one problem."""
    queue = context.snapshot.pending
    # 1. What may start, and at which cost, and the greedy baseline; start weights only where some job waits.
    crowded = _outnumber_seats(context.snapshot)
    decision, greedy = place_greedily(decision_problem(context, by_start_weight=crowded), queue)
    if not crowded and waiting_jobs(decision, greedy):
        decision, greedy = place_greedily(decision_problem(context, by_start_weight=True), queue)
    # 2. The search from the baseline; of equals the jobs that were submitted first.
    budget = context.budget.share(SHARE_OF_SEARCH)
    solved = solve_decision(decision, greedy, budget)
    if solved.failed_checks:
        context.report_failed_checks(context.snapshot, solved.failed_checks)
    decision, placement = solved.decision, solved.placement
    placement = in_queue_order(decision, placement, queue)
    # 3. The placement as actions, with the rules behind them.
    answer = AnswerBuilder(decision, start_groups(decision, placement, queue), context)
    return _plan(replace(solved, placement=placement), greedy, answer, context)


def _outnumber_seats(snapshot: Snapshot) -> bool:
    """Whether the pending jobs ask for more seats than are free, or one for more devices, so that some have to wait
    whatever is decided.

    The seats of a device that grants memory follow from its grants: with such a device the answer is no.
    """
    if not all(math.isnan(device.granule_bytes) for device in snapshot.devices):
        return False
    free = sum([(device.seats or DEFAULT_SEATS) - len(device.residents) for device in snapshot.devices])
    if sum([job.gpus for job in snapshot.pending]) > free:
        return True
    largest = max(job.gpus for job in snapshot.pending)
    if largest == 1 or sum([not device.residents for device in snapshot.devices]) >= largest:
        return False
    return not any(job.gpus == largest for device in snapshot.devices for job in device.residents)


def _nothing_pending(context: PlanningContext) -> Plan:
    """The plan without pending jobs."""
    floor = resident_floor(context)
    value = floor if floor > -math.inf else 0.0
    return replace(all_waiting((), context), objective_value=value, lower_bound=value, greedy_cost=value)


def _plan(solved: DecisionSolution, greedy: Placement, answer: AnswerBuilder, context: PlanningContext) -> Plan:
    """Return the placement as a plan, with the proved bounds."""
    decision, placement, levels = solved.decision, solved.placement, solved.levels
    starts = decision.problem.host[placement.column] != WAITS
    kind = LevelKind.MAX_COST if decision.is_min_max else LevelKind.COST
    rounded_lengths = company_lengths(context.snapshot, context.custom_objective, context.custom_rules).is_rounded
    if context.has_rounded_windows or rounded_lengths:
        levels = tuple(_without_bound(level, decision) for level in levels)
    value = sum(level.value for level in levels if level.kind is kind)
    lower_bound = min(value, sum(level.lower_bound for level in levels if level.kind is kind))
    optimal = all_proved(levels)
    actions, (refused, refused_total) = answer.actions(), answer.refusals()
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=actions,
        pairs=pairings(actions),
        refused=refused,
        refused_total=refused_total,
        cost=float(decision.total_cost.cost[placement.column[starts]] @ placement.count[starts]),
        greedy_cost=largest_cost(decision, greedy) if decision.is_min_max else greedy.value(decision.total_cost),
        greedy_waiting=waiting_jobs(decision, greedy),
        lower_bound=value if optimal else lower_bound,
        gap=0.0 if optimal else (value - lower_bound) / max(abs(value), 1e-12),
        status=SolveStatus.OPTIMAL if optimal else SolveStatus.BOUNDED,
        objective_value=value,
        levels=levels,
    )


def _without_bound(level: PlanLevel, decision: DecisionProblem) -> PlanLevel:
    """The level of a problem that leaves some placements out, with a bound that holds for them too."""
    floors = {LevelKind.WAITING_WEIGHT: 0.0, LevelKind.MAX_COST: float(thresholds(decision)[0])}
    floor = floors.get(level.kind, min(each.floor for each in decision.cost_levels))
    return replace(level, lower_bound=min(level.value, floor))


EQUAL = 1e-12  # relative: the same sum in another order


def in_queue_order(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> Placement:
    """The placement in which no job waits that could take the place of a later one for nothing."""
    if not (decision.problem.host[placement.column] == WAITS).any():
        return placement
    exchange = _Exchange(decision, placement, queue)
    while exchange.exchange_one():
        pass
    return exchange.placement()


class _Exchange:
    """A placement in which waiting and started jobs change places; jobs are told by their class of the problem."""

    def __init__(self, decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> None:
        self._decision, self._problem = decision, decision.problem
        self._lookup = GroupLookup.of_columns(decision.problem)
        self._counts = Counter(dict(zip(placement.column.tolist(), placement.count.tolist(), strict=True)))
        self._position = {job.id: k for k, job in enumerate(queue)}
        self._members = [members for candidates in decision.candidates for members in candidates.job_classes]
        self._started = [len(members) for members in self._members]
        self._alike: dict[tuple[int, float], list[int]] = defaultdict(list)  # of one priority and start weight
        weights = [float(weight) for candidates in decision.candidates for weight in candidates.start_weight]
        for k, members in enumerate(self._members):
            self._alike[members[0].priority, weights[k]].append(k)
        self._columns_of: dict[int, set[int]] = defaultdict(set)
        for column, count in self._counts.items():
            if self._problem.host[column] == WAITS:
                self._started[int(self._problem.members[column, 0])] -= count
            else:
                self._register(column)
        self._waiting = {k for k, started in enumerate(self._started) if started < len(self._members[k])}

    def placement(self) -> Placement:
        """The placement after the exchanges so far."""
        kept = sorted((column, count) for column, count in self._counts.items() if count)
        column, count = np.array(kept, dtype=np.int64).reshape(-1, 2).T
        return Placement(column=column, count=count)

    def exchange_one(self) -> bool:
        """Let the earliest waiting job that can start in place of a later one; False where there is none."""
        for classes in self._alike.values():
            waiting = [k for k in classes if k in self._waiting]
            running = [(self._last_started(k), k) for k in classes if self._started[k]] if waiting else []
            running.sort(reverse=True)
            for first, early in sorted((self._first_waiting(k), k) for k in waiting):
                for last, late in running:
                    if last < first:
                        break
                    if late != early and self._exchange(late, early):
                        return True
        return False

    def _first_waiting(self, k: int) -> int:
        return self._position[self._members[k][self._started[k]].id]

    def _last_started(self, k: int) -> int:
        return self._position[self._members[k][self._started[k] - 1].id]

    def _register(self, column: int) -> None:
        """Remember that a column of several jobs is taken."""
        for job in self._jobs(column):
            self._columns_of[job].add(column)

    def _jobs(self, column: int) -> list[int]:
        return [job for job in self._problem.members[column].tolist() if job != NOBODY]

    def _exchange(self, late: int, early: int) -> bool:
        """Let a job of one class start in place of one of another where that costs nothing."""
        for column in sorted(self._columns_of[late]):
            new = self._replaced(column, late, early)
            if new is None:
                continue
            self._counts[column] -= 1
            self._counts[new] += 1
            self._counts[early] -= 1  # the first columns are those of waiting, in the order of the classes
            self._counts[late] += 1
            if not self._counts[column]:
                for job in self._jobs(column):
                    self._columns_of[job].discard(column)
            self._register(new)
            self._started[early] += 1
            self._started[late] -= 1
            self._waiting.add(late)
            if self._started[early] == len(self._members[early]):
                self._waiting.discard(early)
            return True
        return False

    def _replaced(self, column: int, late: int, early: int) -> int | None:
        """The column with one job of another class in it; None where that is not allowed or costs more."""
        problem, jobs = self._problem, self._jobs(column)
        jobs.remove(late)
        new = self._lookup.find_group(int(problem.host[column]), [*jobs, early])
        if new < 0 or problem.takes[new] > problem.takes[column]:
            return None
        pairs = zip(self._costs(new), self._costs(column), strict=True)
        return new if all(cost <= old + EQUAL * abs(old) for cost, old in pairs) else None

    def _costs(self, column: int) -> Iterator[float]:
        """Yield the cost of a column at each cost level, and for min-max the largest cost of a job in it."""
        for level in self._decision.cost_levels:
            yield float(level.cost[column])
        if self._decision.is_min_max:
            yield float(self._decision.largest[column])
