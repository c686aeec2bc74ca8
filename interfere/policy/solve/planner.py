"""One plan for the pending jobs of all sizes: every job starts alone, beside another, or waits, with a reason.

Probes are starts for what they teach, of jobs that would wait because the model does not know enough of their pairs. A
pair that never shares is never observed, so it would be kept apart for ever. A probe breaks that circle: the job starts
beside the resident from which the belief about it learns most (`interfere.predict.teaching`). A pair is open where the
model abstains from it, or where it gets too little done at the medians of its slowdowns, and enough at their lower
quartiles.

Law 1: only a job that would wait becomes a probe, beside one resident with which it is an open pair. Law 2: a probe
keeps every rule but that on novel pairs and that on joint throughput; caps hold for the extrapolated slowdowns, at the
risk of probes. Law 3: at most `probe_devices` devices run probes at a time; one runs a probe while its two residents
are an open pair, or while a probe is promised to it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.matching.problem import WAITS, Placement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.answer.starts import all_waiting, merge_plans, pairings, plan_of_starts
from interfere.policy.context import MAX_CLOSING_TIMES, PlanningContext
from interfere.policy.costs.candidates import company_lengths, resident_floor
from interfere.policy.rules.text import render
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem, in_queue_order, start_groups
from interfere.policy.solve.search import (
    DecisionSolution,
    all_proved,
    largest_cost,
    place_greedily,
    solve_decision,
    thresholds,
    waiting_jobs,
)
from interfere.policy.subproblems import independent_parts, problem_size
from interfere.protocols import Teaches
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    JobProfile,
    LevelKind,
    MatrixBatch,
    MatrixPrediction,
    Plan,
    PlanLevel,
    Promise,
    Rule,
    RuleKind,
    Snapshot,
    SolveStatus,
)
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

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


OPEN_QUANTILE = 0.25  # of the slowdowns of a pair, at which it may be worth more than at their medians
MAX_TRIES = 4  # residents that are tried for one job, the most telling first
PROBE_ACTIONS = frozenset({ActionKind.START_SHARED, ActionKind.WAIT})


def with_probes(plan: Plan, context: PlanningContext, promises: Sequence[Promise] = ()) -> Plan:
    """Return the plan with probes among the jobs that wait in it. `promises`: starts that are promised already."""
    limits, teacher = context.limits, context.predictor
    if not limits.probe.probe_devices or ActionKind.START_SHARED not in limits.allowed:
        return plan
    if not isinstance(teacher, Teaches):  # a predictor that does not learn
        return plan
    promised = sum(
        promise.action.rule is not None and promise.action.rule.kind is RuleKind.PROBE for promise in promises
    )
    left = limits.probe.probe_devices - promised - _running_probes(context)
    waiting = {action.job_id for action in plan.actions if action.kind is ActionKind.WAIT}
    taken = {name for action in plan.actions for name in action.places}
    hosts = {
        device.id: device
        for device in context.snapshot.devices
        if len(device.residents) == 1 and device.residents[0].gpus == 1 and device.id not in taken
    }
    probes: list[Action] = []
    for job in context.snapshot.pending:
        if len(probes) >= left:
            break
        if job.id not in waiting or job.gpus != 1:
            continue
        for device, taught_share in _most_telling(job, hosts, context, teacher):
            if (probe := _probe(job, device, taught_share, context)) is not None:
                probes.append(probe)
                del hosts[device.id]
                break
    return merge_plans([plan, plan_of_starts(probes, context)], context) if probes else plan


def _most_telling(
    job: Job, hosts: Mapping[str, Device], context: PlanningContext, teacher: Teaches
) -> Iterator[tuple[Device, float]]:
    """Yield devices where the job and the resident are an open pair, with what a run there teaches, most first."""
    found: list[tuple[float, Device]] = []
    for (device_type, mode), devices in _by_domain(hosts.values()).items():
        profile = context.profile(job, device_type)
        profiles = {device.id: context.profile(device.residents[0], device_type) for device in devices}
        known = list({id(each): each for each in profiles.values() if each is not None}.values())
        if profile is None or not known:
            continue  # a job without a profile runs alone first
        is_open = _open([profile], known, device_type, mode, context)[0]
        open_residents = [each for each, may_teach in zip(known, is_open.tolist(), strict=True) if may_teach]
        if not open_residents:
            continue
        shares = teacher.teaches(profile, open_residents, device_type, mode).tolist()
        share_of = {id(each): share for each, share in zip(open_residents, shares, strict=True)}
        found += [(share_of[id(p)], device) for device in devices if id(p := profiles[device.id]) in share_of]
    found.sort(key=lambda each: -each[0])  # stable: of equal devices the first in the snapshot
    yield from ((device, share) for share, device in found[:MAX_TRIES])


def _probe(job: Job, device: Device, taught_share: float, context: PlanningContext) -> Action | None:
    """Return the start of a job beside the resident of a device under the limits of probes; None where a rule forbids
    it."""
    limits, probe = context.limits, context.limits.probe
    slowdown = replace(
        limits.slowdown,
        max_slowdown=float(np.fmin(limits.slowdown.max_slowdown, probe.probe_cap)),
        risk=probe.probe_risk,
        min_joint_throughput=0.0,
    )
    limits = replace(limits, allowed=PROBE_ACTIONS, allow_extrapolation=True, slowdown=slowdown)
    snapshot = replace(context.snapshot, pending=(job,), devices=(device,), limits=limits)
    (action,) = plan_pending_jobs(context.subproblem(snapshot)).actions
    if action.kind is not ActionKind.START_SHARED:
        return None
    rule = Rule(
        kind=RuleKind.PROBE,
        job_id=job.id,
        partner_id=device.residents[0].id,
        workload=job.workload,
        partner_workload=device.residents[0].workload,
        slowdown=action.slowdown,
        partner_slowdown=action.partner_slowdown,
        taught_share=taught_share,
    )
    return replace(action, rule=rule, reason=render(rule))


def _running_probes(context: PlanningContext) -> int:
    """Return the number of devices whose two residents are an open pair."""
    shared = [device for device in context.snapshot.devices if len(device.residents) == 2]
    count = 0
    for (device_type, mode), devices in _by_domain(shared).items():
        for device in devices:
            one, other = (context.profile(job, device_type) for job in device.residents)
            if one is not None and other is not None:
                count += bool(_open([one], [other], device_type, mode, context)[0, 0])
    return count


def _open(
    jobs: Sequence[JobProfile],
    neighbours: Sequence[JobProfile],
    device_type: str,
    mode: SharingMode,
    context: PlanningContext,
) -> NDArray[np.bool_]:
    """Return bool[j, n]: whether a pair is open, that is, whether a run would decide if it may share."""
    if context.predictor.knows(device_type, mode):
        return np.ones((len(jobs), len(neighbours)), dtype=bool)
    batch = MatrixBatch(victims=tuple(jobs), neighbours=tuple(neighbours), device_type=device_type, mode=mode)
    at_median, at_quartile = (_joint_throughput(context.predict_matrix(batch, q)) for q in (0.5, OPEN_QUANTILE))
    least = context.limits.slowdown.min_joint_throughput
    return np.asarray(np.isnan(at_median) | ((at_median <= least) & (at_quartile > least)))


def _joint_throughput(answer: MatrixPrediction) -> NDArray[np.float64]:
    """float64[j, n]: what two jobs get done together, in what one does alone; NaN where the model abstains."""
    return np.asarray(1.0 / answer.victim_slowdown + 1.0 / answer.neighbour_slowdown, dtype=np.float64)


def _by_domain(devices: Iterable[Device]) -> dict[tuple[str, SharingMode], list[Device]]:
    domains: dict[tuple[str, SharingMode], list[Device]] = {}
    for device in devices:
        domains.setdefault((device.type, device.mode or DEFAULT_MODE), []).append(device)
    return domains
