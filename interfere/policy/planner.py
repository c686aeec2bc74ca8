"""One decision: every pending job starts alone, starts beside somebody, or waits, and says why.

First the most weight is started, then at the least cost of the objective: `place` where costs add, `worst` where the
largest counts; `decision` puts it into words.
"""

from interfere.errors import InvalidInputError
from interfere.policy.costs import Resolve
from interfere.policy.decision import Decision, groups_of
from interfere.policy.greedy import greedy
from interfere.policy.options import Options, survey
from interfere.policy.place import EQUAL, Floats, Placement, place, waiting_price
from interfere.policy.validate import validate_snapshot
from interfere.policy.worst import least_worst
from interfere.protocols import Predictor
from interfere.records import Plan, Snapshot, SolveStatus


def plan(snapshot: Snapshot, predictor: Predictor, resolve: Resolve, decision_id: str) -> Plan:
    """The decision for one snapshot. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(snapshot)
    if violations:
        raise InvalidInputError.from_violations(violations)
    return plan_valid(snapshot, predictor, resolve, decision_id)


def plan_valid(snapshot: Snapshot, predictor: Predictor, resolve: Resolve, decision_id: str) -> Plan:
    """The same for a snapshot, or a part of one, that does not."""
    options = survey(snapshot, predictor, resolve)
    placement, value, bound = _solved(options, waiting_price(options))
    decided = Decision(
        options, groups_of(options, placement.starts), predictor, resolve, snapshot.limits.allow_extrapolation
    )
    actions = tuple(decided.action(i) for i in range(len(options.pending)))
    in_order = greedy(options)
    refused, total = decided.refusals()
    proved = value - bound <= EQUAL * max(abs(value), placement.total)
    return Plan(
        decision_id=decision_id,
        model_version=predictor.version,
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


def _solved(options: Options, price: Floats) -> tuple[Placement, float, float]:
    """The placement, what the objective says of it, and the least it could say when as much weight starts."""
    if not options.worst:
        found = place(options, price)
        return found, found.cost, found.cost if found.exact else min(found.cost, found.bound - found.waiting)
    answer = least_worst(options, price)
    floored = answer.worst if answer.worst > float("-inf") else 0.0  # nobody starts, nobody runs
    return answer.placement, floored, min(floored, answer.bound) if floored else floored
