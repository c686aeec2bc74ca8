"""Plans of parts as one plan: costs that add are added, of those that count as the worst the largest is taken.

Law: the bound of the whole is a bound, because each part's is one for its own jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from interfere.policy.answer.actions import MAX_REFUSALS
from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import objective_of
from interfere.records import Action, ActionKind, Job, Plan, Snapshot, SolveStatus


def merged(parts: Sequence[Plan], snapshot: Snapshot) -> Plan:
    """Parts of one decision (at least one) that share no job and no device; actions in the order of the queue."""
    told = {action.job_id: action for part in parts for action in part.actions}
    total = max if objective_of(snapshot).worst else sum

    def over(name: str) -> float:
        return float(total(getattr(part, name) for part in parts))

    value, bound = over("objective_value"), over("lower_bound")
    proved = all(part.status is SolveStatus.OPTIMAL for part in parts)
    return replace(
        parts[0],
        actions=tuple(told[job.id] for job in snapshot.pending),
        pairs=tuple(pair for part in parts for pair in part.pairs),
        refused=tuple(one for part in parts for one in part.refused)[:MAX_REFUSALS],
        refused_total=sum(part.refused_total for part in parts),
        cost=float(sum(part.cost for part in parts)),
        greedy_cost=over("greedy_cost"),
        greedy_waiting=sum(part.greedy_waiting for part in parts),
        lower_bound=min(value, bound),
        gap=(value - bound) / max(abs(value), 1e-12) if value > bound and not proved else 0.0,
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
        objective_value=value,
    )


def nothing_starts(job_ids: Iterable[str], context: PlanningContext, why: str) -> Plan:
    """Every job waits for one and the same reason."""
    actions = tuple(Action(kind=ActionKind.WAIT, job_id=name, reason=why) for name in job_ids)
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=actions,
        pairs=(),
        refused=(),
        refused_total=0,
        cost=0.0,
        greedy_cost=0.0,
        greedy_waiting=len(actions),
        lower_bound=0.0,
        gap=0.0,
        status=SolveStatus.OPTIMAL,
        objective_value=0.0,
    )


def job_cost(job: Job, slowdown: float, device_type: str, context: PlanningContext) -> float:
    """What one job costs in the objective at a slowdown on a device type; one that is left out is as good as any."""
    objective, types = context.objective, context.device_types
    times = context.relative_times([job])[0]
    stretch = slowdown * (times[types.index(device_type)] if device_type in types else 1.0)
    return float(objective.constant([job])[0] + objective.rate([job])[0] * stretch)
