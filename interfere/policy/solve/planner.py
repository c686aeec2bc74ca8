"""One decision: every pending job starts alone, starts beside somebody, or waits, and says why.

First the most weight is started, then at the least cost of the objective: `place` where costs add, `worst` where the
largest counts; `decision` puts it into words.
"""

import math
from dataclasses import replace

from interfere.errors import InvalidInputError
from interfere.policy.answer.actions import Decision, groups_of
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Options, survey
from interfere.policy.deadlines.infeasible import find_infeasible_deadlines
from interfere.policy.solve.greedy import Greedy, greedy
from interfere.policy.solve.min_max import least_worst
from interfere.policy.solve.min_sum import EQUAL, Floats, Placement, least_cost, place, placement_of, waiting_price
from interfere.policy.validate import validate_snapshot
from interfere.records import Plan, SolveStatus
from interfere.time_budget import TimeBudget


def plan(context: PlanningContext) -> Plan:
    """The decision for one snapshot. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(context.snapshot)
    if violations:
        raise InvalidInputError.from_violations(violations)
    infeasible = find_infeasible_deadlines(context)
    found = plan_valid(context.with_snapshot(infeasible.snapshot))
    return replace(found, actions=infeasible.annotate(found.actions, ()))


def plan_valid(context: PlanningContext) -> Plan:
    """The same for a snapshot, or a part of one, that does not and has no infeasible deadline."""
    budget = TimeBudget(context.limits.timing.time_budget_s)
    options = survey(context)
    in_order = greedy(options)
    placement, value, bound = _solved(options, waiting_price(options), in_order, budget)
    decided = Decision(options, groups_of(options, placement.starts), context)
    actions = tuple(decided.action(i) for i in range(len(options.pending)))
    refused, total = decided.refusals()
    proved = value - bound <= EQUAL * max(abs(value), placement.total)
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=actions,
        pairs=decided.pairings(),
        refused=refused,
        refused_total=total,
        cost=placement.cost,
        greedy_cost=in_order.worst if options.worst else in_order.cost,
        greedy_waiting=in_order.waiting,
        lower_bound=value if proved else bound,
        gap=0.0 if proved else (value - bound) / max(abs(value), 1e-12),
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
        objective_value=value,
    )


def _solved(options: Options, price: Floats, in_order: Greedy, budget: TimeBudget) -> tuple[Placement, float, float]:
    """The placement, what the objective says of it, and the least it could say when as much weight starts.

    Where time ran out before the search came as far as greedy, greedy's.
    """
    simple = placement_of(options, price, in_order.starts, bound=-math.inf)
    if options.worst:
        answer = least_worst(options, price, budget)
        found, value, bound = answer.placement, answer.worst, answer.bound
        more = simple.waiting < found.waiting * (1 - EQUAL)
        if more or (simple.waiting <= found.waiting * (1 + EQUAL) and in_order.worst < value):
            found, value, bound = simple, in_order.worst, min(bound, options.floor)
        return (found, value, bound) if value > -math.inf else (found, 0.0, 0.0)
    found = place(options, price, budget)
    if found.exact:
        return found, found.cost, found.cost
    if simple.total < found.total:
        found = replace(simple, bound=found.bound)
    bound = found.bound - found.waiting
    if not found.waiting:
        bound = max(bound, least_cost(options))
    return found, found.cost, min(found.cost, bound)
