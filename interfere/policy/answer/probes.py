"""Probes: starts for what they teach, of jobs that would wait because the model does not know enough of their pairs.

A pair that never shares is never observed, so it would be kept apart for ever. A probe breaks that circle: the job
starts beside the resident from which the belief about it learns most (`interfere.predict.teaching`). A pair is open
where the model abstains from it, or where it gets too little done at the medians of its slowdowns, and enough at their
lower quartiles.

Law 1: only a job that would wait becomes a probe, beside one resident with which it is an open pair. Law 2: a probe
keeps every rule but that on novel pairs and that on joint throughput; caps hold for the extrapolated slowdowns, at the
risk of probes. Law 3: at most `probe_devices` devices run probes at a time; one runs a probe while its two residents
are an open pair, or while a probe is promised to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.answer.starts import merge_plans, plan_of_starts
from interfere.policy.context import PlanningContext
from interfere.policy.rules.text import render
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.protocols import Teaches
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    Plan,
    Promise,
    Rule,
    RuleKind,
)
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

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
