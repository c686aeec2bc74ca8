"""A decision in words: which group got which device, and why each job starts, shares or waits."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import gib, too_large
from interfere.policy.rules.slowdown_caps import unreachable
from interfere.records import NAN, Action, ActionKind, Device, JobProfile, PairBatch, Pairing, Refusal

MAX_REFUSALS = 100  # refused pairs listed in full; the rest are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pending jobs (indices) that start on one device, beside its resident if it has one."""

    members: tuple[int, ...]
    device: Device
    where: DeviceClass
    costs: PairCosts | None  # None when a job runs alone
    place: tuple[int, int] = (0, 0)  # row and column in `costs`


def groups_of(candidates: Candidates, starts: Sequence[Start]) -> list[Group]:
    """The starts on their devices, with the costs that they were chosen by."""
    groups = []
    for start in starts:
        i, j = start.members[0], start.members[-1]
        if start.seat >= 0:
            costs, column = candidates.seat_columns[start.seat]
            device, where, place = candidates.seats[start.seat], costs.where, (i, column)
            groups.append(Group(members=start.members, device=device, where=where, costs=costs, place=place))
        else:
            device, where = candidates.empty_devices[start.device], candidates.empty_classes[start.device]
            together = candidates.pair_tables[where] if i != j else None
            groups.append(Group(members=start.members, device=device, where=where, costs=together, place=(i, j)))
    return groups


class Decision:
    """Puts words to the groups."""

    def __init__(self, candidates: Candidates, groups: Sequence[Group], context: PlanningContext) -> None:
        self._candidates, self._groups = candidates, groups
        self._group_of = {i: group for group in groups for i in group.members}
        self._context = context
        self._interval = self._intervals()

    def action(self, i: int) -> Action:
        """What happens to pending job i."""
        job, group = self._candidates.pending[i], self._group_of.get(i)
        if group is None:
            return Action(kind=ActionKind.WAIT, job_id=job.id, reason=self._why_waiting(i))
        if group.costs is None:
            why = "a device is free"
            profile = self._context.profile(job, group.device.type)
            why = unreachable(job, profile) or why
            if profile is None:
                why = f"no profile of workload {job.workload!r} on {group.device.type}: it runs alone first"
            return Action(
                kind=ActionKind.START_ALONE,
                job_id=job.id,
                device_id=group.device.id,
                slowdown=1.0,
                slowdown_lower=1.0,
                slowdown_upper=1.0,
                cost=float(self._candidates.solo_cost[group.where][i]),
                reason=why,
            )
        row, column = group.place
        costs, flipped = group.costs, group.members[0] != i
        partner = costs.rows[row] if flipped else costs.columns[column]
        mine, theirs = float(costs.row_slowdown[row, column]), float(costs.column_slowdown[row, column])
        if flipped:
            mine, theirs = theirs, mine
        lower, upper = self._interval.get(i, (NAN, NAN))
        return Action(
            kind=ActionKind.START_SHARED,
            job_id=job.id,
            device_id=group.device.id,
            partner_id=partner.id,
            slowdown=mine,
            slowdown_lower=lower,
            slowdown_upper=upper,
            partner_slowdown=theirs,
            cost=float(costs.cost[row, column]),
            reason=f"least cost in all: {mine:.2f} × here, {theirs:.2f} × for {partner.id} ({partner.workload})",
        )

    def _intervals(self) -> dict[int, tuple[float, float]]:
        """Lower and upper slowdown of every pending job that shares; each pair of profiles is predicted once."""
        found: dict[int, tuple[float, float]] = {}
        asked: dict[DeviceClass, dict[tuple[int, int], list[int]]] = {}
        profiles: dict[int, JobProfile] = {}
        for i, group in self._group_of.items():
            if group.costs is None:
                continue
            row, column = group.place
            own, other = group.costs.row_profiles[row], group.costs.column_profiles[column]
            if own is None or other is None:
                continue
            if group.members[0] != i:
                own, other = other, own
            profiles |= {id(own): own, id(other): other}
            asked.setdefault(group.costs.where, {}).setdefault((id(own), id(other)), []).append(i)
        for where, pairs in asked.items():
            place = {key: k for k, key in enumerate(dict.fromkeys(key for pair in pairs for key in pair))}
            answer = self._context.predictor.predict_pairs(
                PairBatch(
                    jobs=tuple(profiles[key] for key in place),
                    victim=np.array([place[own] for own, _ in pairs], dtype=np.int64),
                    neighbour=np.array([place[other] for _, other in pairs], dtype=np.int64),
                    device_type=where.type,
                    mode=where.mode,
                    allow_extrapolation=self._context.limits.allow_extrapolation,
                )
            )
            for members, lower, upper in zip(pairs.values(), answer.lower.tolist(), answer.upper.tolist(), strict=True):
                found |= dict.fromkeys(members, (lower, upper))
        return found

    def pairings(self) -> tuple[Pairing, ...]:
        """The pairs that will share a device."""
        return tuple(
            Pairing(
                job_id=group.costs.rows[group.place[0]].id,
                partner_id=group.costs.columns[group.place[1]].id,
                device_id=group.device.id,
                weight=float(group.costs.cost[group.place]),
            )
            for group in self._groups
            if group.costs is not None
        )

    def _tables(self) -> list[PairCosts]:
        return [
            *self._candidates.pair_tables.values(),
            *(costs for costs, _ in self._candidates.resident_tables.values()),
        ]

    def _why_waiting(self, i: int) -> str:
        candidates = self._candidates
        classes = tuple(dict.fromkeys((*candidates.empty_classes, *candidates.seat_classes)))
        needed = {where: self._context.demand(candidates.pending[i], where) for where in classes}
        small = {where: too_large(one, where.room) for where, one in needed.items()}
        if small and all(small.values()):
            largest = max(small, key=lambda where: where.room.most_bytes)
            if largest.room.hands_out:
                return f"{small[largest]} on the largest device"
            return f"memory: needs {needed[largest]}, the largest device has {gib(largest.room.memory_bytes)}"
        if not candidates.empty_devices and not candidates.seats:
            return "no device has a free seat"
        if np.isfinite(candidates.best_solo_cost()[i]) or any(np.isfinite(t.cost[i]).any() for t in self._tables()):
            return "every seat it could take went where it costs less"
        pools = candidates.pending[i].pools
        if pools and not any(where.pool in pools for where in classes):
            return f"pool: no device with a free seat is in [{', '.join(pools)}]"
        shut = [why for table in self._tables() if (why := table.kept_out(i)) and not why.startswith("pool")]
        reasons = (
            t.reason(i, j) for t in self._tables() for j in range(len(t.columns)) if t.rows[i] is not t.columns[j]
        )
        rules = Counter(_rule(why) for why in reasons if why not in shut)
        words = [*dict.fromkeys(shut), *(f"{why} ({count} pairs)" for why, count in rules.most_common(3))]
        return "; ".join(words) or "no allowed action fits it"

    def refusals(self) -> tuple[tuple[Refusal, ...], int]:
        """Forbidden pairs, those of waiting jobs first; the list is cut at `MAX_REFUSALS`, the count is not."""
        waiting_first = sorted(range(len(self._candidates.pending)), key=lambda i: i in self._group_of)
        listed: dict[frozenset[str], Refusal] = {}
        total = 0
        for table in self._tables():
            within = table.rows == table.columns
            forbidden = np.isinf(table.cost)
            if within:
                forbidden &= ~np.eye(len(forbidden), dtype=bool)
            total += int(forbidden.sum()) // (2 if within else 1)
            for i in waiting_first:
                for j in np.flatnonzero(forbidden[i]).tolist():
                    if len(listed) >= MAX_REFUSALS:
                        break
                    job, partner = table.rows[i].id, table.columns[j].id
                    key = frozenset((job, partner))
                    listed.setdefault(key, Refusal(job_id=job, partner_id=partner, reason=table.reason(i, j)))
        return tuple(listed.values()), total


def _rule(reason: str) -> str:
    """The rule without its numbers, for counting."""
    return reason.partition(":")[0]
