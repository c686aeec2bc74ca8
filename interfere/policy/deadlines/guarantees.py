"""Deadlines that were accepted: whom they are promised to, and which starts would break them.

A deadline is accepted once its job can be laid out (`admission`) in device time that nobody holds, beside all that were
accepted before it and those of higher priority; at the quantile 1 - risk of what remains, alone. It is kept in the
ledger as a promise to wait, until the job is over; others wait for it (`Limits.promise_deadlines` turns that off, and
tests/bench/test_deadlines.py measures what it costs). Law 1: no job of equal or lower priority starts on a device that
an accepted one needs. Law 2: a promise ends kept, broken or withdrawn (an earlier deadline is another one), once.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.admission import Lane, Need, add, lay_out
from interfere.policy.deadlines.infeasible import kinds_of
from interfere.policy.device_class import DeviceClass
from interfere.policy.next_decision import Slowdowns
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import TICK_S, remaining_quantile_s, start_weights
from interfere.records import NAN, Action, ActionKind, Device, Job, Plan, Promise, Rule, RuleKind, Snapshot
from interfere.records.windows import spans

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
    fresh: Plan, context: PlanningContext, standing: Collection[str], others: Sequence[Action]
) -> dict[str, Rule]:
    """Jobs whose start would break an accepted deadline, and which; `others` start too (promised before)."""
    whole = context.snapshot
    jobs, gone = {job.id: job for job in whole.pending}, {action.job_id for action in others}
    waiting = [job for job in whole.pending if job.id in standing and job.id not in gone]
    if not waiting:
        return {}
    empty = {device.id for device in whole.devices if not device.residents}
    starts = [action for action in fresh.actions if action.places]
    held = [*others, *(one for one in starts if one.places[0] not in empty)]
    gone |= {one.job_id for one in held}
    needs = _Needs(context)
    taken = _Taken.of(needs, {}).after(held)
    waiting = _laid([job for job in waiting if job.id not in gone], taken.lanes, needs)
    weight = dict(zip(jobs, start_weights(whole.pending, whole.now_s).tolist(), strict=True))
    found: dict[str, Rule] = {}
    for start in sorted(starts, key=lambda one: (one.job_id not in standing, -weight[one.job_id])):
        if start.job_id in gone:
            continue
        trial = taken.after([start])
        rest = [job for job in waiting if job.id != start.job_id]
        above = [job for job in rest if job.priority >= jobs[start.job_id].priority]
        laid = {job.id for job in _laid(above, trial.lanes, needs)}
        late = [job.id for job in above if job.id not in laid]
        if late:
            found[start.job_id] = Rule(kind=RuleKind.ACCEPTED_DEADLINE, job_id=start.job_id, partner_id=late[0])
        else:
            taken, waiting = trial, rest
    return found


def newly_accepted(
    context: PlanningContext, actions: Sequence[Action], standing: Sequence[Promise], slowdowns: Slowdowns
) -> tuple[Promise, ...]:
    """Deadlines of pending jobs that this decision can accept."""
    snapshot = context.snapshot
    old = {promise.action.job_id for promise in standing}
    new = [job for job in snapshot.pending if not math.isnan(job.deadline_s) and job.id not in old]
    if not new or not snapshot.limits.promise_deadlines:
        return ()
    starts = {action.job_id: action for action in actions if action.places}
    needs = _Needs(context)
    taken = _Taken.of(needs, slowdowns).after(list(starts.values()))
    waiting = [job for job in snapshot.pending if not math.isnan(job.deadline_s) and job.id not in starts]
    waiting.sort(key=lambda job: (-job.priority, job.id not in old))
    laid = {job.id for job in _laid(waiting, taken.lanes, needs)}
    laid |= {name for name, action in starts.items() if needs.in_time(name, action)}
    return tuple(
        Promise(
            action=Action(
                kind=ActionKind.WAIT, job_id=job.id, promised_by_s=job.deadline_s, reason="deadline", accepted=True
            ),
            decision_ids=(context.decision_id,),
        )
        for job in new
        if job.id in laid
    )


def marked(actions: Sequence[Action], standing: Sequence[Promise]) -> tuple[Action, ...]:
    """The actions, telling which deadlines are accepted."""
    names = {promise.action.job_id for promise in standing}
    return tuple(replace(one, accepted=True) if one.job_id in names else one for one in actions)


def _laid(jobs: Sequence[Job], lanes: Sequence[Lane], needs: "_Needs") -> list[Job]:
    """Those that can be laid out together, each beside those before it."""
    held, done = [lane.copy() for lane in lanes], list[Job]()
    for job in jobs:
        if add(needs.of(job), held):
            done.append(job)
        elif len(done) < MOST_LAID_ANEW:
            slots = lay_out([*map(needs.of, done), needs.of(job)], lanes)
            if slots is not None:
                held = [lane.copy() for lane in lanes]
                for slot in slots:
                    held[slot.lane].hold(slot.from_s, slot.until_s, slot.gpus)
                done.append(job)
    return done


class _Needs:
    """How long jobs run on the devices of a snapshot, at the quantile 1 - risk; devices that are alike are one lane."""

    def __init__(self, context: PlanningContext) -> None:
        snapshot = context.snapshot
        self.snapshot, self._context = snapshot, context
        self.kinds = kinds_of(snapshot)
        self.lane_of = {name: k for k, (*_, names) in enumerate(self.kinds) for name in names}
        self.pending = {job.id: job for job in snapshot.pending}
        self._found: dict[str, Need] = {}

    def until_s(self, job: Job, kind: str, slowdown: float) -> float:
        """When it ends if it starts now on a device type; inf where nobody knows."""
        tau = float(self._context.relative_times_on(kind, [job])[0])
        needs_s = remaining_quantile_s(job, 1 - self.snapshot.limits.slowdown.risk) * tau * max(1.0, slowdown)
        return math.inf if math.isnan(needs_s) else self.snapshot.now_s + needs_s

    def in_time(self, name: str, start: Action) -> bool:
        """Does a start end before its deadline?"""
        slowdown = start.slowdown_upper if start.slowdown_upper > 0 else 1.0
        job, lane = self.pending.get(name), self.lane_of.get(start.places[0])
        if job is None or lane is None:
            return False
        return self.until_s(job, self.kinds[lane][0].type, slowdown) <= job.deadline_s + TICK_S

    def of(self, job: Job) -> Need:
        """What a waiting job needs on each lane."""
        if job.id not in self._found:
            self._found[job.id] = Need(
                job_id=job.id,
                gpus=job.gpus,
                deadline_s=job.deadline_s + TICK_S,
                lane_s=tuple(self._alone_s(job, kind) for kind, *_ in self.kinds),
                checkpoint_s=job.checkpoint_s if job.preemptible else NAN,
            )
        return self._found[job.id]

    def _alone_s(self, job: Job, kind: DeviceClass) -> float:
        shut = job.pools and kind.pool not in job.pools
        if shut or solo_memory_rule(job.id, self._context.demand(job, kind), kind.memory):
            return math.inf
        return self.until_s(job, kind.type, 1.0) - self.snapshot.now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What residents, and starts so far, leave of each lane, and until when each device is held."""

    needs: _Needs
    lanes: list[Lane]
    until_s: Mapping[str, float]

    @classmethod
    def of(cls, needs: _Needs, slowdowns: Slowdowns) -> "_Taken":
        """By residents alone."""
        snapshot = needs.snapshot
        lanes = [Lane(snapshot.now_s, spans(device.windows), len(names)) for _, device, names in needs.kinds]
        until_s: dict[str, float] = {}
        for device in snapshot.devices:
            ends = [needs.until_s(job, device.type, slowdowns.get(job.id, 1.0)) for job in device.residents]
            until_s[device.id] = max([snapshot.now_s, *ends])
            _hold(lanes[needs.lane_of[device.id]], device, snapshot.now_s, until_s[device.id])
        return cls(needs=needs, lanes=lanes, until_s=until_s)

    def after(self, starts: Sequence[Action]) -> "_Taken":
        """With these starts too."""
        lanes, until_s = [lane.copy() for lane in self.lanes], dict(self.until_s)
        for start in starts:
            for name in start.places:
                lane = self.needs.lane_of.get(name)
                if lane is None:
                    continue
                job, device = self.needs.pending.get(start.job_id), self.needs.kinds[lane][1]
                end_s = self.needs.until_s(job, device.type, start.slowdown) if job else math.inf
                _hold(lanes[lane], device, until_s[name], end_s)
                until_s[name] = max(until_s[name], end_s)
        return _Taken(needs=self.needs, lanes=lanes, until_s=until_s)


def _hold(lane: Lane, device: Device, from_s: float, until_s: float) -> None:
    """One device, while it is open."""
    for open_s, close_s in spans(device.windows):
        if max(open_s, from_s) < min(close_s, until_s):
            lane.hold(max(open_s, from_s), min(close_s, until_s), 1)
