"""The actions, pairs and refusals of a plan: which job got which device, and the rule why it starts or waits."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.pair_rules import RuleGroup
from interfere.policy.rules.predictability import unprofiled_rule
from interfere.policy.rules.slowdown_caps import latency_rule
from interfere.policy.rules.text import render, summary_rule
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    JobProfile,
    PairBatch,
    Pairing,
    Refusal,
    Rule,
    RuleKind,
)

MAX_REFUSALS = 100  # refused pairs listed in full; the rest are counted
MAX_WAIT_RULES = 3  # rules on pairs that the reason of a waiting job names


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGroup:
    """Pending jobs (indices) that start on one device, beside its resident if it has one."""

    members: tuple[int, ...]
    device: Device
    device_class: DeviceClass
    table: PairCosts | None  # None where the job starts alone
    pair: tuple[int, int] = (0, 0)  # row and column in the table


def refuse(job_id: str, partner_id: str, rule: Rule) -> Refusal:
    """A refused pair, or with an empty partner a job that may not even start alone, and the rule in words."""
    return Refusal(job_id=job_id, partner_id=partner_id, reason=render(rule), rule=rule)


def start_groups(candidates: Candidates, starts: Sequence[Start]) -> list[StartGroup]:
    """The starts on their devices, with the costs that they were chosen by."""
    groups = []
    for start in starts:
        i, j = start.members[0], start.members[-1]
        table: PairCosts | None
        if start.seat >= 0:
            table, column = candidates.seat_columns[start.seat]
            device, device_class = candidates.seats[start.seat], candidates.seat_classes[start.seat]
            pair = (i, column)
        else:
            device, device_class, pair = (
                candidates.empty_devices[start.device],
                candidates.empty_classes[start.device],
                (i, j),
            )
            table = candidates.pair_tables[device_class] if i != j else None
        groups.append(
            StartGroup(members=start.members, device=device, device_class=device_class, table=table, pair=pair)
        )
    return groups


class AnswerBuilder:
    """Turns the groups that were chosen among the candidates into actions, pairs and refusals."""

    def __init__(self, candidates: Candidates, groups: Sequence[StartGroup], context: PlanningContext) -> None:
        self._candidates, self._groups, self._context = candidates, groups, context
        self._group_of = {i: group for group in groups for i in group.members}
        self._interval_of = self._slowdown_intervals()

    # --- actions ----------------------------------------------------------------------------------------------------

    def action(self, i: int) -> Action:
        """What happens to pending job i, and why."""
        group = self._group_of.get(i)
        if group is None:
            return self._wait(i)
        return self._start_alone(i, group) if group.table is None else self._start_shared(i, group, group.table)

    def _start_alone(self, i: int, group: StartGroup) -> Action:
        job, device = self._candidates.pending[i], group.device
        profile = self._context.profile(job, device.type)
        rule = latency_rule(job, profile) or Rule(kind=RuleKind.DEVICE_FREE, job_id=job.id)
        if profile is None:
            rule = unprofiled_rule(job, device.type)
        return Action(
            kind=ActionKind.START_ALONE,
            job_id=job.id,
            device_id=device.id,
            slowdown=1.0,
            slowdown_lower=1.0,
            slowdown_upper=1.0,
            cost=float(self._candidates.solo_cost[group.device_class][i]),
            reason=render(rule),
            rule=rule,
        )

    def _start_shared(self, i: int, group: StartGroup, table: PairCosts) -> Action:
        row, column = group.pair
        job_slowdown = float(table.predictions.row_slowdown[row, column])
        partner_slowdown = float(table.predictions.column_slowdown[row, column])
        partner = table.columns.jobs[column]
        if group.members[0] != i:  # the job is the column of the pair
            job_slowdown, partner_slowdown = partner_slowdown, job_slowdown
            partner = table.rows.jobs[row]
        job_id = self._candidates.pending[i].id
        lower, upper = self._interval_of.get(i, (NAN, NAN))
        rule = Rule(
            kind=RuleKind.LEAST_COST,
            job_id=job_id,
            partner_id=partner.id,
            partner_workload=partner.workload,
            slowdown=job_slowdown,
            partner_slowdown=partner_slowdown,
        )
        return Action(
            kind=ActionKind.START_SHARED,
            job_id=job_id,
            device_id=group.device.id,
            partner_id=partner.id,
            slowdown=job_slowdown,
            slowdown_lower=lower,
            slowdown_upper=upper,
            partner_slowdown=partner_slowdown,
            cost=float(table.cost[row, column]),
            reason=render(rule),
            rule=rule,
        )

    def _slowdown_intervals(self) -> dict[int, tuple[float, float]]:
        """Lower and upper slowdown of every pending job that shares; each pair of profiles is predicted once."""
        asked: dict[DeviceClass, dict[tuple[int, int], list[int]]] = {}
        profiles: dict[int, JobProfile] = {}
        for i, group in self._group_of.items():
            if group.table is None:
                continue
            row, column = group.pair
            own, partner = group.table.rows.profiles[row], group.table.columns.profiles[column]
            if own is None or partner is None:
                continue
            if group.members[0] != i:
                own, partner = partner, own
            profiles |= {id(own): own, id(partner): partner}
            asked.setdefault(group.device_class, {}).setdefault((id(own), id(partner)), []).append(i)
        interval_of: dict[int, tuple[float, float]] = {}
        for device_class, pairs in asked.items():
            place = {key: k for k, key in enumerate(dict.fromkeys(key for pair in pairs for key in pair))}
            answer = self._context.predictor.predict_pairs(
                PairBatch(
                    jobs=tuple(profiles[key] for key in place),
                    victim=np.array([place[own] for own, _ in pairs], dtype=np.int64),
                    neighbour=np.array([place[partner] for _, partner in pairs], dtype=np.int64),
                    device_type=device_class.type,
                    mode=device_class.mode,
                    allow_extrapolation=self._context.limits.allow_extrapolation,
                )
            )
            for members, lower, upper in zip(pairs.values(), answer.lower.tolist(), answer.upper.tolist(), strict=True):
                interval_of |= dict.fromkeys(members, (lower, upper))
        return interval_of

    # --- waiting jobs -----------------------------------------------------------------------------------------------

    def _wait(self, i: int) -> Action:
        """Wait; the action's rule is the first of those that hold the job back, its reason names them all."""
        job_id = self._candidates.pending[i].id
        memory_rule = self._largest_device_rule(i)
        if memory_rule is not None:
            reason = f"{render(memory_rule)} on the largest device"
            return Action(kind=ActionKind.WAIT, job_id=job_id, reason=reason, rule=memory_rule)
        rules = self._waiting_rules(i)
        reason = "; ".join(dict.fromkeys(map(render, rules)))
        return Action(kind=ActionKind.WAIT, job_id=job_id, reason=reason, rule=rules[0])

    def _largest_device_rule(self, i: int) -> Rule | None:
        """Why job i does not fit the device class of the most memory; None where it fits any class."""
        job = self._candidates.pending[i]
        too_small: dict[DeviceClass, Rule] = {}
        for device_class in self._device_classes():
            rule = solo_memory_rule(job.id, self._context.demand(job, device_class), device_class.memory)
            if rule is None:
                return None
            too_small[device_class] = rule
        if not too_small:
            return None
        return too_small[max(too_small, key=lambda device_class: device_class.memory.allocatable_bytes)]

    def _waiting_rules(self, i: int) -> list[Rule]:
        """Why job i, which fits some device, waits: at least one rule, the most telling first."""
        candidates, job = self._candidates, self._candidates.pending[i]
        if not candidates.empty_devices and not candidates.seats:
            return [Rule(kind=RuleKind.NO_FREE_SEAT, job_id=job.id)]
        if np.isfinite(candidates.best_solo_cost()[i]) or any(
            np.isfinite(table.cost[i]).any() for table in self._tables()
        ):
            return [Rule(kind=RuleKind.LOWER_COST_ELSEWHERE, job_id=job.id)]
        if job.pools and not any(device_class.pool in job.pools for device_class in self._device_classes()):
            return [Rule(kind=RuleKind.POOL, job_id=job.id, pools=job.pools)]
        start_rules = [rule for table in self._tables() if (rule := self._job_rule(table, i)) is not None]
        sharing = ActionKind.START_SHARED in self._context.limits.allowed
        groups = Counter(
            group
            for table in self._tables()
            if not sharing or self._job_rule(table, i) is None  # else that rule says it for every pair
            for group in table.rules.blocking_groups(i, self._partners(table, i))
            if group is not None
        )
        pair_rules = [self._summary(job.id, group, count) for group, count in groups.most_common(MAX_WAIT_RULES)]
        return [*start_rules, *pair_rules] or [Rule(kind=RuleKind.NO_ALLOWED_ACTION, job_id=job.id)]

    def _job_rule(self, table: PairCosts, i: int) -> Rule | None:
        """Why job i may not start on the devices of a table, pools aside: of several pools most do not take it."""
        rule = table.rows.start_rules[i]
        return rule if rule is not None and rule.kind is not RuleKind.POOL else None

    def _partners(self, table: PairCosts, i: int) -> list[int]:
        """Columns of the other jobs."""
        return [j for j, partner in enumerate(table.columns.jobs) if partner is not table.rows.jobs[i]]

    def _summary(self, job_id: str, group: RuleGroup, count: int) -> Rule:
        if group.kind is not RuleKind.ACTION_NOT_ALLOWED:
            return summary_rule(job_id, group, count)
        size = self._context.limits.most_shared_gpus
        return replace(summary_rule(job_id, group, count), action=ActionKind.START_SHARED, max_shared_gpus=size)

    def _device_classes(self) -> tuple[DeviceClass, ...]:
        """The classes of empty devices and of seats."""
        return tuple(dict.fromkeys((*self._candidates.empty_classes, *self._candidates.seat_classes)))

    def _tables(self) -> list[PairCosts]:
        return [
            *self._candidates.pair_tables.values(),
            *(table for table, _ in self._candidates.resident_tables.values()),
        ]

    # --- pairs and refusals -----------------------------------------------------------------------------------------

    def pairings(self) -> tuple[Pairing, ...]:
        """The pairs that will share a device."""
        return tuple(
            Pairing(
                job_id=group.table.rows.jobs[group.pair[0]].id,
                partner_id=group.table.columns.jobs[group.pair[1]].id,
                device_id=group.device.id,
                weight=float(group.table.cost[group.pair]),
            )
            for group in self._groups
            if group.table is not None
        )

    def refusals(self) -> tuple[tuple[Refusal, ...], int]:
        """Forbidden pairs, those of waiting jobs first; the list is cut at `MAX_REFUSALS`, the count is not."""
        waiting_first = sorted(range(len(self._candidates.pending)), key=lambda i: i in self._group_of)
        listed: dict[frozenset[str], Refusal] = {}
        total = 0
        for table in self._tables():
            forbidden = np.isinf(table.cost)
            if table.rules.symmetric:
                forbidden &= ~np.eye(len(forbidden), dtype=bool)
            total += int(forbidden.sum()) // (2 if table.rules.symmetric else 1)
            for i in waiting_first:
                for j in np.flatnonzero(forbidden[i]).tolist():
                    if len(listed) >= MAX_REFUSALS:
                        break
                    job_id, partner_id = table.rows.jobs[i].id, table.columns.jobs[j].id
                    pair = frozenset((job_id, partner_id))
                    if pair not in listed and (rule := table.blocking_rule(i, j)) is not None:
                        listed[pair] = refuse(job_id, partner_id, rule)
        return tuple(listed.values()), total
