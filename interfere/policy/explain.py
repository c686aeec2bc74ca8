"""What else one job could have got in a decision, and what the best whole plan with each of these would have cost.

Once the job's own group is fixed, all that is left is again a snapshot: the other jobs on the other devices. So

    cost(choice) = cost of the job's group + cost of `plan` of the rest,

which is exact where `plan` is. Whoever calls solves the rests, in whatever portions others can wait for.
Law: while nothing new is known, no choice is better than what was decided, and that one costs what the plan cost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs import DeviceClass, PairCosts
from interfere.policy.options import Options
from interfere.records import NAN, Action, ActionKind, Alternative, Device, Job, Plan, Refusal, Snapshot, SolveStatus

# Cheapest partners, and device classes to be alone on, that are solved for: with waiting and what was chosen at most
# ten plans, about a second for 1,000 jobs.
PARTNERS, CLASSES = 5, 3
REFUSALS_A_RULE = 3  # examples listed of each rule that binds


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that a job could get. `excess`: what its group costs more than its members alone."""

    job: Job
    kind: ActionKind
    device: Device | None = None
    partner: Job | None = None
    slowdown: float = NAN
    partner_slowdown: float = NAN
    group_cost: float = 0.0
    excess: float = 0.0
    chosen: bool = False

    def rest(self, snapshot: Snapshot) -> Snapshot:
        """What is left to decide: without the job, its pending partner, and their device. No device may be left."""
        gone = {self.job.id, self.partner.id if self.partner else ""}
        limits = snapshot.limits
        if self.device is not None and not self.device.residents and limits.max_devices is not None:
            limits = replace(limits, max_devices=limits.max_devices - 1)
        return replace(
            snapshot,
            pending=tuple(job for job in snapshot.pending if job.id not in gone),
            devices=tuple(one for one in snapshot.devices if self.device is None or one.id != self.device.id),
            limits=limits,
            snapshot_id="",
        )

    def with_rest(self, rest: Snapshot, plan: Plan | None) -> Alternative:
        """The whole plan; None for a rest without any device, where all others wait."""
        waits = _waiting(plan) if plan else frozenset(job.id for job in rest.pending)
        waiting = [job for job in rest.pending if job.id in waits]
        if self.kind is ActionKind.WAIT:
            waiting.append(self.job)
        return Alternative(
            kind=self.kind,
            device_id=self.device.id if self.device else "",
            partner_id=self.partner.id if self.partner else "",
            partner_workload=self.partner.workload if self.partner else "",
            slowdown=self.slowdown,
            partner_slowdown=self.partner_slowdown,
            group_cost=self.group_cost,
            cost=self.group_cost + (plan.cost if plan else 0.0),
            waiting=len(waiting),
            waiting_weight=float(sum(job.weight for job in waiting)),
            chosen=self.chosen,
            proven=plan is None or plan.status is SolveStatus.OPTIMAL,
        )


def _waiting(plan: Plan) -> frozenset[str]:
    return frozenset(action.job_id for action in plan.actions if action.kind is ActionKind.WAIT)


def choices(options: Options, action: Action) -> tuple[Choice, ...]:
    """What was chosen, and the most promising of what was not: cheap partners (one of those that are alike), being
    alone on each kind of device, waiting. None for a job that was not pending."""
    place = {job.id: i for i, job in enumerate(options.pending)}
    if action.job_id not in place:
        return ()
    i = place[action.job_id]
    shared = sorted(_shared(options, i, action), key=lambda choice: choice.excess)
    alone = list(_alone(options, i, action))
    wait = Choice(job=options.pending[i], kind=ActionKind.WAIT, chosen=action.kind is ActionKind.WAIT)
    chosen = [one for one in (*shared, *alone) if one.chosen]
    partners = _distinct([one for one in shared if not one.chosen])[:PARTNERS]
    return (*chosen, *partners, *[one for one in alone if not one.chosen][:CLASSES], wait)


def best_first(alternatives: list[Alternative]) -> tuple[Alternative, ...]:
    """By the weight that waits, by cost then; what was chosen before its equals."""
    return tuple(sorted(alternatives, key=lambda a: (round(a.waiting_weight, 9), round(a.cost, 9), not a.chosen)))


def refusals(options: Options, job_id: str) -> tuple[tuple[Refusal, ...], int]:
    """A few refused partners of a pending job for each rule that binds, and how many (partner, kind of device) in
    all."""
    place = {job.id: i for i, job in enumerate(options.pending)}
    if job_id not in place:
        return (), 0
    i, total = place[job_id], 0
    listed: dict[str, dict[str, Refusal]] = {}
    for table, columns in _tables(options):
        for j in columns:
            if table.columns[j].id == job_id or np.isfinite(table.cost[i, j]):
                continue
            total += 1
            reason, partner = table.reason(i, j), table.columns[j].id
            examples = listed.setdefault(reason.partition(":")[0], {})
            if len(examples) < REFUSALS_A_RULE:
                examples.setdefault(partner, Refusal(job_id=job_id, partner_id=partner, reason=reason))
    return tuple(refusal for examples in listed.values() for refusal in examples.values()), total


def _tables(options: Options) -> Iterator[tuple[PairCosts, range]]:
    for table in (*options.together.values(), *(costs for costs, _ in options.beside.values())):
        yield table, range(len(table.columns))


def _alone(options: Options, i: int, action: Action) -> Iterator[Choice]:
    """Alone on one device of each class."""
    job = options.pending[i]
    for where, device in _first_of_class(options, action.device_id).items():
        if options.take and np.isfinite(options.alone[where][i]):
            yield Choice(
                job=job, kind=ActionKind.START_ALONE, device=device, slowdown=1.0,
                group_cost=float(options.alone[where][i]),
                chosen=action.kind is ActionKind.START_ALONE and device.id == action.device_id,
            )  # fmt: skip


def _shared(options: Options, i: int, action: Action) -> Iterator[Choice]:
    """Beside every pending partner on one device of each class, and beside every resident with a free seat."""
    apart = options.alone_best()
    apart = np.where(np.isfinite(apart), apart, 0.0)  # who may not be alone is compared by what sharing costs
    for where, device in _first_of_class(options, action.device_id).items():
        if options.take:
            table = options.together[where]
            for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
                if j != i:
                    started = float(apart[i] + apart[j])
                    yield _beside(table, (i, j), device, started, action)
    for device, (table, column) in zip(options.seats, options.seat_place, strict=True):
        if np.isfinite(table.cost[i, column]):
            yield _beside(table, (i, column), device, float(apart[i]), action)


def _beside(table: PairCosts, place: tuple[int, int], device: Device, started: float, action: Action) -> Choice:
    job, partner, cost = table.rows[place[0]], table.columns[place[1]], float(table.cost[place])
    return Choice(
        job=job, kind=ActionKind.START_SHARED, device=device, partner=partner,
        slowdown=float(table.row_slowdown[place]), partner_slowdown=float(table.column_slowdown[place]),
        group_cost=cost, excess=cost - started,
        chosen=(action.partner_id, action.device_id) == (partner.id, device.id),
    )  # fmt: skip


def _first_of_class(options: Options, preferred: str) -> Mapping[DeviceClass, Device]:
    """One empty device of each class: the preferred one in its class."""
    first: dict[DeviceClass, Device] = {}
    for device, where in zip(options.empty, options.empty_class, strict=True):
        if where not in first or device.id == preferred:
            first[where] = device
    return first


def _distinct(shared: list[Choice]) -> list[Choice]:
    """One of those whose partners are alike: same workload, same cost, same kind of device, both pending or running."""
    seen: dict[tuple[object, ...], Choice] = {}
    for choice in shared:
        assert choice.device is not None
        assert choice.partner is not None
        where = DeviceClass.of(choice.device)
        key = (choice.partner.workload, round(choice.group_cost, 9), where, bool(choice.device.residents))
        seen.setdefault(key, choice)
    return list(seen.values())
