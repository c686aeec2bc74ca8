"""Starts in order of submission, instead of a plan that would let jobs end later on average.

A plan minimises the completion times of what it starts and prices the wait of the others; what it gains now it may
lose later. So it is followed to the end: where its starts, and then the rest one after the other in order of
submission, project a later mean completion time than that order alone, the order decides.
Law: where predictions are true, the mean completion time that follows from repeated decisions is never above that of
one job after the other in order of submission on the same devices (`costs.completion_projection`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interfere.policy.context import PlanningContext
from interfere.policy.costs.cluster_projection import project_cluster, projected_mean_completion_s
from interfere.policy.costs.completion_projection import ProjectedCluster
from interfere.policy.rules.text import render
from interfere.records import Action, ActionKind, Job, Rule, RuleKind

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
            actions.append(start_in_order(job, taken, means))
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


def start_in_order(job: Job, device_ids: tuple[str, ...], means: ProjectedMeans) -> Action:
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
