"""What became of planned starts: each is kept, fulfilled or released against what the scheduler sees now.

Law 1: after a complete snapshot nothing is kept but unexpired starts of its pending jobs, on devices it has.
Law 2: a partial snapshot releases nothing for being left out. Law 3: what is kept holds its whole place: no other job
may have it, nor a seat beside it. Pure: the clock is the snapshot's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.device_class import DeviceClass
from interfere.policy.remaining import rest_of
from interfere.policy.rules.availability import availability_rule
from interfere.policy.rules.text import render
from interfere.records import NAN, Action, ActionKind, Device, Job, Plan, Promise, Rule, RuleKind, Snapshot

PROMISED = (ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.MOVE, ActionKind.PREEMPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A promise that is over, and why."""

    promise: Promise
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Every promise, once."""

    kept: tuple[Promise, ...]
    fulfilled: tuple[Promise, ...]
    released: tuple[Release, ...]


def reconcile(promises: Sequence[Promise], snapshot: Snapshot) -> Reconciled:
    """What of the promises still holds at `snapshot.now_s`."""
    seen = _Seen.of(snapshot)
    leaving = frozenset(p.action.job_id for p in promises if p.from_device_id)
    while True:  # who was to take the place of one that does not go after all finds it taken
        found = _with_leaving(promises, snapshot, seen, leaving)
        still = frozenset(p.action.job_id for p in found.kept if p.from_device_id)
        if leaving <= still:
            return found
        leaving &= still


def _with_leaving(
    promises: Sequence[Promise], snapshot: Snapshot, seen: "_Seen", leaving: frozenset[str]
) -> Reconciled:
    """The verdicts where those that are `leaving` do not take up a place."""
    kept, fulfilled, released = [], [], []
    empty: frozenset[str] = frozenset()  # empty devices that are kept
    for promise in promises:
        action = promise.action
        if seen.done(promise):
            fulfilled.append(promise)
            continue
        reason = seen.why_over(promise, snapshot, leaving)
        if not reason:
            needed, most = empty | (seen.empty & frozenset(action.places)), snapshot.limits.max_devices
            if most is not None and len(needed) > most:
                reason = render(Rule(kind=RuleKind.MAX_DEVICES, kept_devices=len(empty), max_devices=most))
            else:
                empty = needed
        if reason:
            released.append(Release(promise=promise, reason=reason))
        else:
            kept.append(promise)
    together: list[Promise] = []
    places = {promise.action.job_id: frozenset(promise.action.places) for promise in kept}
    for promise in kept:
        company, reason = seen.with_company(promise, places, snapshot)
        if reason:
            released.append(Release(promise=promise, reason=reason))
        else:
            together.append(company)
    return Reconciled(kept=tuple(together), fulfilled=tuple(fulfilled), released=tuple(released))


def around(snapshot: Snapshot, kept: Sequence[Promise]) -> Snapshot:
    """What is left to decide: the pending jobs that nothing is promised to, and the devices that nobody is to get."""
    jobs = {promise.action.job_id for promise in kept}
    places = {name for promise in kept for name in promise.places}
    return rest_of(snapshot, jobs, places)


def renewed(kept: Sequence[Promise], plan: Plan, snapshot: Snapshot) -> tuple[Promise, ...]:
    """The ledger after a plan that repeats what is kept: that, and the starts and moves that the plan adds."""
    runs_on = {job.id: device.id for device in snapshot.devices for job in device.residents}
    old = {promise.action.job_id for promise in kept}
    return (
        *(replace(p, decision_ids=(*p.decision_ids, plan.decision_id)) for p in kept),
        *(
            Promise(
                action=action,
                decision_ids=(plan.decision_id,),
                from_device_id=runs_on.get(action.job_id, ""),
                since_s=snapshot.now_s,
            )
            for action in plan.actions
            if action.kind in PROMISED and action.job_id not in old
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A snapshot, by id."""

    pending: Mapping[str, Job]
    devices: Mapping[str, Device]
    runs_on: Mapping[str, frozenset[str]]  # resident -> its devices
    empty: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "_Seen":
        runs_on: dict[str, frozenset[str]] = {}
        for device in snapshot.devices:
            for job in device.residents:
                runs_on[job.id] = runs_on.get(job.id, frozenset()) | {device.id}
        return cls(
            pending={job.id: job for job in snapshot.pending},
            devices={device.id: device for device in snapshot.devices},
            runs_on=runs_on,
            empty=frozenset(device.id for device in snapshot.devices if not device.residents),
        )

    def done(self, promise: Promise) -> bool:
        """Does it run where it was to, or, to be stopped, run there no longer?"""
        action = promise.action
        here, seen = self.runs_on.get(action.job_id), action.job_id in self.pending
        if action.kind is ActionKind.PREEMPT:
            return seen or (here is not None and here != frozenset(action.places))
        return here == frozenset(action.places)

    def why_over(self, promise: Promise, snapshot: Snapshot, leaving: frozenset[str]) -> str:
        """Why a start that did not happen will not; empty while it may."""
        action, here = promise.action, frozenset({promise.from_device_id})
        if self.runs_on.get(action.job_id, here) != here:
            return f"it was started on {', '.join(sorted(self.runs_on[action.job_id]))} instead"
        if snapshot.now_s >= action.promised_by_s:
            return f"it was not started by {action.promised_by_s:g} s"
        job = self.pending.get(action.job_id)
        if promise.from_device_id and job is not None:
            return "it went back to the queue"
        if job is None and action.job_id not in self.runs_on and not snapshot.partial:
            return "the job is over"
        there = [self.devices[name] for name in action.places if name in self.devices]
        if len(there) < len(action.places) and not snapshot.partial:
            return "the device is gone"
        return _why_not_there(action, job, there, snapshot, leaving)

    def with_company(
        self, promise: Promise, places: Mapping[str, frozenset[str]], snapshot: Snapshot
    ) -> tuple[Promise, str]:
        """The promise, alone where its partner is gone; or why it cannot be kept alone."""
        action = promise.action
        partner = action.partner_id
        there = frozenset(action.places) in (self.runs_on.get(partner), places.get(partner))
        unseen = snapshot.partial and partner not in self.pending and partner not in self.runs_on
        if not partner or there or unseen:
            return promise, ""
        if action.kind is ActionKind.MOVE:
            alone = replace(action, partner_id="", slowdown=1.0, partner_slowdown=NAN)
            return replace(promise, action=alone), ""
        if ActionKind.START_ALONE not in snapshot.limits.allowed:
            return promise, f"its partner {partner} is gone, and start_alone is not an allowed action"
        return replace(
            promise,
            action=replace(
                action,
                kind=ActionKind.START_ALONE,
                partner_id="",
                slowdown=1.0,
                slowdown_lower=1.0,
                slowdown_upper=1.0,
                partner_slowdown=NAN,
                cost=NAN,
            ),
        ), ""


def _why_not_there(
    action: Action, job: Job | None, there: Sequence[Device], snapshot: Snapshot, leaving: frozenset[str]
) -> str:
    """Why a start is not possible, or not wanted, any more on the devices that were seen; empty where it is."""
    if action.kind not in snapshot.limits.allowed:
        return f"{action.kind} is not an allowed action"
    if job is not None and job.gpus != len(action.places):
        return f"it takes {job.gpus} devices now"
    shut = [
        render(rule)
        for device in there
        if job is not None and (rule := availability_rule(job, DeviceClass.of(device, snapshot.now_s))) is not None
    ]
    others = {one.id for device in there for one in device.residents} - leaving - {action.partner_id}
    return shut[0] if shut else f"its place was taken by {', '.join(sorted(others))}" if others else ""


def repeated(promise: Promise) -> Action:
    """The same start again."""
    return replace(promise.action, reason=f"promised by decision {promise.decision_ids[0]}")
