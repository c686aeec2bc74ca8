"""Rollout of a plan for completion times: where the order of submission (FIFO) lets jobs end sooner, it decides.

A plan minimises the completion times of what it starts and prices the wait of the others; what it gains now it may
lose later. So it is followed to the end: where its starts, and then the rest one after the other in order of
submission, project a later mean completion time than that order alone, the order decides. Else what the plan leaves
waiting starts now where that order would start it now, or a decision repeated at every event would not come to what
was projected.
Law: where predictions are true, the mean completion time that follows from repeated decisions is never above that of
one job after the other in order of submission on the same devices (`costs.completion_projection`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from interfere.matching.problem import is_proved
from interfere.policy.context import PlanningContext
from interfere.policy.costs.cluster_projection import project_cluster, projected_mean_completion_s, starts_in_order
from interfere.policy.costs.completion_projection import ProjectedCluster
from interfere.policy.rules.text import render
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Action, ActionKind, Job, LevelKind, Plan, Rule, RuleKind, SolveStatus

ROUNDING = 1e-12  # relative: the same times added in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedMeans:
    """Mean seconds until all jobs end: after the starts of a plan, and in order of submission alone."""

    plan_s: float
    submission_order_s: float

    @property
    def plan_is_later(self) -> bool:
        """Does the plan let jobs end later on average?"""
        return self.plan_s > self.submission_order_s * (1 + ROUNDING)


def in_order_of_submission(plan: Plan, decision: DecisionProblem, context: PlanningContext) -> Plan:
    """The plan and what the order of submission starts beside it; that order alone where the plan would end later."""
    cluster = project_cluster(context)
    means = projected_means(context, plan.actions, cluster)
    if means.plan_is_later:
        return _with_actions(plan, submission_order_actions(context, means, cluster), decision, context)
    starts = starts_in_order(context, cluster, plan.actions)
    if not starts:
        return plan
    jobs = context.pending
    actions = [
        _start_in_order(jobs[action.job_id], starts[action.job_id], means) if action.job_id in starts else action
        for action in plan.actions
    ]
    return _with_actions(plan, actions, decision, context)


def projected_means(
    context: PlanningContext, actions: Sequence[Action], cluster: ProjectedCluster | None = None
) -> ProjectedMeans:
    """The means of a plan's actions on pending jobs and of the order of submission; every job has remaining_s."""
    cluster = project_cluster(context) if cluster is None else cluster
    return ProjectedMeans(
        plan_s=projected_mean_completion_s(context, cluster, actions),
        submission_order_s=cluster.mean_completion_s(),
    )


def submission_order_actions(
    context: PlanningContext, means: ProjectedMeans, cluster: ProjectedCluster
) -> tuple[Action, ...]:
    """One action a pending job: it starts alone where the order of submission starts it now, and waits otherwise.

    Costs are left to the caller. Where `max_devices` lets fewer start, the first in order do.
    """
    pending, devices = context.snapshot.pending, context.snapshot.devices
    places = {i: tuple(devices[k].id for k in taken) for i, taken in cluster.fifo_starts()}
    left = context.limits.max_devices
    actions = []
    for i, job in enumerate(pending):
        taken = places.get(i, ())
        if taken and (left is None or job.gpus <= left):
            left = left if left is None else left - job.gpus
            actions.append(_start_in_order(job, taken, means))
        else:
            actions.append(_wait(job, means))
    return tuple(actions)


def _rule(job: Job, means: ProjectedMeans) -> Rule:
    return Rule(
        kind=RuleKind.SUBMISSION_ORDER,
        job_id=job.id,
        mean_completion_s=means.submission_order_s,
        other_mean_completion_s=means.plan_s,
    )


def _start_in_order(job: Job, device_ids: tuple[str, ...], means: ProjectedMeans) -> Action:
    """The start of a job alone, as the order of submission makes it; its cost is left to the caller."""
    rule = _rule(job, means)
    return Action(
        kind=ActionKind.START_ALONE,
        job_id=job.id,
        device_id=device_ids[0],
        device_ids=device_ids if job.gpus > 1 else (),
        slowdown=1.0,
        slowdown_lower=1.0,
        slowdown_upper=1.0,
        reason=render(rule),
        rule=rule,
    )


def _wait(job: Job, means: ProjectedMeans) -> Action:
    rule = _rule(job, means)
    return Action(kind=ActionKind.WAIT, job_id=job.id, reason=render(rule), rule=rule)


def _with_actions(plan: Plan, actions: Sequence[Action], decision: DecisionProblem, context: PlanningContext) -> Plan:
    """The plan with other actions of the pending jobs: its pairs remain, other starts are alone."""
    places = {
        job.id: (candidates, i)
        for candidates in decision.candidates
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    priced: list[Action] = []
    waiting = dict.fromkeys((level.priority for level in plan.levels if level.kind is LevelKind.WAITING_WEIGHT), 0.0)
    kept = {action.job_id for action in actions if action.partner_id}
    pairs = tuple(pair for pair in plan.pairs if pair.job_id in kept)
    cost = sum(pair.weight for pair in pairs)
    start_cost = cost
    for action in actions:
        candidates, i = places[action.job_id]
        if not action.places:
            cost += float(candidates.wait_cost[i])
            waiting[candidates.pending[i].priority] += float(candidates.start_weight[i])
        elif not action.partner_id:
            device_class = context.device_class(context.devices[action.device_id])
            alone = float(candidates.solo_cost[device_class][i])
            cost, start_cost = cost + alone, start_cost + alone
            priced.append(replace(action, cost=alone))
            continue
        priced.append(action)
    levels = tuple(
        replace(level, value=cost, lower_bound=min(level.lower_bound, cost))
        if level.kind is LevelKind.COST
        else replace(level, value=waiting[level.priority], lower_bound=min(level.lower_bound, waiting[level.priority]))
        for level in plan.levels
    )
    lower_bound = min(plan.lower_bound, cost)
    proved = is_proved(cost, lower_bound) and plan.status is SolveStatus.OPTIMAL
    return replace(
        plan,
        actions=tuple(priced),
        pairs=pairs,
        cost=start_cost,
        objective_value=cost,
        lower_bound=cost if proved else lower_bound,
        gap=0.0 if proved else (cost - lower_bound) / max(abs(cost), 1e-12),
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
        levels=levels,
    )
