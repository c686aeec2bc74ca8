"""Deadlines that were accepted: whom they are promised to, and which starts would break them.

A deadline is accepted once its job can be laid out (`admission`) in device time that nobody holds, beside all that were
accepted before it and those of higher priority; at the quantile 1 - risk of what remains, alone. It is kept in the
ledger as a promise to wait, until the job is over. Law 1: no job of equal or lower priority starts on a device that an
accepted one needs. Law 2: a promise ends kept, broken or withdrawn (an earlier deadline is another one), once.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.admission import Lane, Need, add, lay_out
from interfere.policy.clock import Slowdowns
from interfere.policy.costs import Resolve, times_on
from interfere.policy.hopeless import kinds_of
from interfere.policy.memory import demand, too_large
from interfere.policy.stay import TICK_S, remaining_s, start_weights
from interfere.records import NAN, Action, ActionKind, Device, Job, Plan, Promise, Snapshot
from interfere.records.windows import spans

HELD_BACK = "accepted deadline"  # how the reason of a job begins that waits for one
MOST_LAID_ANEW = 100  # jobs that are laid out anew for one more: 10 ms; with more it must fit what they leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The accepted deadlines of a scope against what is seen now."""

    standing: tuple[Promise, ...]
    kept: tuple[Promise, ...]  # its job is over in time
    broken: tuple[Promise, ...]  # its job still waits or runs, and cannot end in time any more


def is_deadline(promise: Promise) -> bool:
    """Does it promise a deadline, not a place?"""
    return promise.action.kind is ActionKind.WAIT


def review(promises: Sequence[Promise], snapshot: Snapshot) -> Deadlines:
    """What of the accepted deadlines still stands; the snapshot is settled (`hopeless`)."""
    jobs = {job.id: job for job in (*snapshot.pending, *(r for d in snapshot.devices for r in d.residents))}
    standing, kept, broken = list[Promise](), list[Promise](), list[Promise]()
    for promise in promises:
        job, by_s = jobs.get(promise.action.job_id), promise.action.promised_by_s
        if job is None:
            (standing if snapshot.partial and snapshot.now_s <= by_s else kept).append(promise)
        elif math.isnan(job.deadline_s):  # given up, or taken back by the caller, which looks the same once it is over
            broken.append(promise)
        elif job.deadline_s >= by_s - TICK_S:
            standing.append(promise)
    return Deadlines(standing=tuple(standing), kept=tuple(kept), broken=tuple(broken))


def breaking(
    fresh: Plan, whole: Snapshot, standing: Collection[str], others: Sequence[Action], resolve: Resolve
) -> dict[str, str]:
    """Jobs whose start would break an accepted deadline, and which; `others` start too (promised before)."""
    jobs, gone = {job.id: job for job in whole.pending}, {action.job_id for action in others}
    waiting = [job for job in whole.pending if job.id in standing and job.id not in gone]
    if not waiting:
        return {}
    empty = {device.id for device in whole.devices if not device.residents}
    starts = [action for action in fresh.actions if action.places]
    held = [*others, *(one for one in starts if one.places[0] not in empty)]
    gone |= {one.job_id for one in held}
    alike = _Lanes(whole, resolve)
    waiting = _laid([job for job in waiting if job.id not in gone], alike.lanes(held, {}), alike)
    weight = dict(zip(jobs, start_weights(whole.pending, whole.now_s).tolist(), strict=True))
    found: dict[str, str] = {}
    for start in sorted(starts, key=lambda one: (one.job_id not in standing, -weight[one.job_id])):
        if start.job_id in gone:
            continue
        lanes = alike.lanes([*held, start], {})
        rest = [job for job in waiting if job.id != start.job_id]
        above = [job for job in rest if job.priority >= jobs[start.job_id].priority]
        laid = _laid(above, lanes, alike)
        late = [job.id for job in above if job not in laid]
        if late:
            found[start.job_id] = f"{HELD_BACK}: {late[0]} would miss the one it was promised"
        else:
            held.append(start)
            waiting = rest
    return found


def newly_accepted(
    snapshot: Snapshot, actions: Sequence[Action], standing: Sequence[Promise], slowdowns: Slowdowns, resolve: Resolve,
    decision_id: str,
) -> tuple[Promise, ...]:  # fmt: skip
    """Deadlines of pending jobs that this decision can accept."""
    old = {promise.action.job_id for promise in standing}
    new = [job for job in snapshot.pending if not math.isnan(job.deadline_s) and job.id not in old]
    if not new:
        return ()
    starts = {action.job_id: action for action in actions if action.places}
    alike = _Lanes(snapshot, resolve)
    lanes = alike.lanes(list(starts.values()), slowdowns)
    waiting = [job for job in snapshot.pending if not math.isnan(job.deadline_s) and job.id not in starts]
    waiting.sort(key=lambda job: (-job.priority, job.id not in old))
    laid = {job.id for job in _laid(waiting, lanes, alike)}
    laid |= {name for name, action in starts.items() if alike.in_time(name, action)}
    return tuple(
        Promise(
            action=Action(
                kind=ActionKind.WAIT, job_id=job.id, promised_by_s=job.deadline_s, reason="deadline", accepted=True
            ),
            decision_ids=(decision_id,),
        )
        for job in new
        if job.id in laid
    )


def marked(actions: Sequence[Action], standing: Sequence[Promise]) -> tuple[Action, ...]:
    """The actions, telling which deadlines are accepted."""
    names = {promise.action.job_id for promise in standing}
    return tuple(replace(one, accepted=True) if one.job_id in names else one for one in actions)


def _laid(jobs: Sequence[Job], lanes: Sequence[Lane], alike: "_Lanes") -> list[Job]:
    """Those that can be laid out together, each beside those before it."""
    held, done = [lane.copy() for lane in lanes], list[Job]()
    for job in jobs:
        need = alike.need(job)
        if add(need, held):
            done.append(job)
        elif len(done) < MOST_LAID_ANEW:
            slots = lay_out([*map(alike.need, done), need], lanes)
            if slots is not None:
                held = [lane.copy() for lane in lanes]
                for slot in slots:
                    held[slot.lane].hold(slot.from_s, slot.until_s, slot.gpus)
                done.append(job)
    return done


class _Lanes:
    """The devices of a snapshot as lanes."""

    def __init__(self, snapshot: Snapshot, resolve: Resolve) -> None:
        self._snapshot, self._resolve = snapshot, resolve
        self._kinds = kinds_of(snapshot)
        self._lane_of = {name: k for k, (*_, names) in enumerate(self._kinds) for name in names}
        self._jobs = {job.id: job for job in snapshot.pending}
        self._needs: dict[str, Need] = {}

    def lanes(self, starts: Sequence[Action], slowdowns: Slowdowns) -> list[Lane]:
        """What residents and starts leave, as long as they may run."""
        until = {device.id: self._until_s(device.residents, device, slowdowns) for device in self._snapshot.devices}
        devices = {device.id: device for device in self._snapshot.devices}
        for start in starts:
            for name in start.places:
                if name in devices:
                    one = replace(self._jobs[start.job_id], deadline_s=NAN) if start.job_id in self._jobs else None
                    slow = slowdowns or {start.job_id: start.slowdown}
                    until_s = self._until_s([one], devices[name], slow) if one else math.inf
                    until[name] = max(until[name], until_s)
        now_s = self._snapshot.now_s
        lanes = [Lane(now_s, spans(device.windows), len(names)) for _, device, names in self._kinds]
        for name, until_s in until.items():
            lane = lanes[self._lane_of[name]]
            for from_s, end_s in spans(devices[name].windows):
                if from_s < until_s:
                    lane.hold(max(now_s, from_s), min(end_s, until_s), 1)
        return lanes

    def _until_s(self, jobs: Sequence[Job], device: Device, slowdowns: Mapping[str, float]) -> float:
        ends = [self._most_s(job, device.type) * max(1.0, slowdowns.get(job.id, 1.0)) for job in jobs]
        return self._snapshot.now_s + max((math.inf if math.isnan(end) else end for end in ends), default=0.0)

    def _most_s(self, job: Job, kind: str) -> float:
        tau = float(times_on(kind, [job], self._snapshot, self._resolve)[0])
        return remaining_s(job, 1 - self._snapshot.limits.risk) * tau

    def in_time(self, name: str, start: Action) -> bool:
        """Does a start end before its deadline, at 1 - risk?"""
        job, kind = self._jobs.get(name), next((d.type for d in self._snapshot.devices if d.id in start.places), "")
        if job is None or not kind:
            return False
        slowdown = max(1.0, start.slowdown_upper) if start.slowdown_upper > 0 else 1.0
        return self._snapshot.now_s + self._most_s(job, kind) * slowdown <= job.deadline_s + TICK_S

    def need(self, job: Job) -> Need:
        """What a waiting job needs on each lane."""
        if job.id not in self._needs:
            seconds = [
                math.inf
                if (job.pools and kind.pool not in job.pools)
                or too_large(demand(job, self._resolve(job, device.type)), kind.memory_bytes)
                else self._most_s(job, device.type)
                for kind, device, _ in self._kinds
            ]
            self._needs[job.id] = Need(
                job_id=job.id, gpus=job.gpus, deadline_s=job.deadline_s + TICK_S, lane_s=tuple(seconds),
                checkpoint_s=job.checkpoint_s if job.preemptible else NAN,
            )  # fmt: skip
        return self._needs[job.id]
