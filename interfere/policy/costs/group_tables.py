"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A pair is a group of two, and has one rule more: how likely both fit the memory. A larger group is allowed where every
pair of it with a pending job is allowed, where its memory fits, where no member passes its caps beside all the others,
and where together its members get more done than one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_costs import GroupCostModel, costs_alone, is_timed
from interfere.policy.costs.group_slowdowns import GroupSlowdowns
from interfere.policy.costs.pair_costs import PairCosts, pair_rules, under_best_modes
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.memory import grants_exceed, memory_exceeds
from interfere.policy.rules.pair_rules import Group, PairRules
from interfere.policy.rules.predictions import does_not_pay, outlasts
from interfere.policy.rules.slowdown_caps import MemberCaps, SlowdownCaps, time_caps
from interfere.records import ActionKind, Job, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """g groups of m pending jobs beside r residents."""

    slowdown: Floats  # float64[m + r, g]: median of each member, residents last
    cost: Floats  # float64[m + r, g]: of each pending job, and what each resident costs more
    shared: Floats  # float64[g]: what the group as a whole costs beside its members: a price of its devices, or a miss
    largest: Floats  # float64[g]: the largest cost of a job, residents as a whole
    allowed: Bools  # bool[g]: no rule forbids it, joint throughput included

    def among(self, at: Bools) -> "GroupCosts":
        """Return the costs of some of the groups."""
        return GroupCosts(
            slowdown=self.slowdown[:, at],
            cost=self.cost[:, at],
            shared=self.shared[at],
            largest=self.largest[at],
            allowed=self.allowed[at],
        )


class GroupTable:
    """The pending jobs of one size, a class each, and the residents of one device class."""

    def __init__(
        self,
        pending: Sequence[Job],
        residents: Sequence[Job],
        device_class: DeviceClass,
        context: PlanningContext,
    ) -> None:
        """`residents`: one job for each class of residents."""
        self.device_class, self.context = device_class, context
        self._k, self._n = len(pending), len(pending) + len(residents)
        self.members = (*pending, *residents)
        self._least_of_pairs: dict[int | None, Floats] = {}  # by priority

    # --- what is known of single jobs -------------------------------------------------------------------------------

    @cached_property
    def jobs(self) -> JobsOnClass:
        """The demands of all jobs on the device class: the pending jobs first, then the residents."""
        times = self.context.relative_times_on(self.device_class.type, self.members)
        return JobsOnClass.of(self.members, self.device_class, self.context, times, timed=self._timed)

    @cached_property
    def slowdowns(self) -> GroupSlowdowns:
        """The slowdowns of members of groups."""
        return GroupSlowdowns(self.jobs, self._k, self.context)

    @cached_property
    def _model(self) -> GroupCostModel:
        return GroupCostModel(self.slowdowns, self.context)

    @cached_property
    def _timed(self) -> bool:
        return is_timed(self.members, self.device_class.open_s)

    @cached_property
    def _caps(self) -> SlowdownCaps:
        return SlowdownCaps.of(self.members, self.jobs.profiles, self.context.limits)

    @cached_property
    def capped(self) -> bool:
        """May a cap bind?"""
        return self._timed or self._caps.any_is_set

    @cached_property
    def solo_cost(self) -> Floats:
        """float64[k]: the cost of each pending job alone on an empty device; inf where a rule forbids it."""
        rows = self.pairs_in_own_mode.rows
        allowed = np.array([rows.solo_rule(i) is None for i in range(self._k)], dtype=bool)
        allowed &= ActionKind.START_ALONE in self.context.limits.allowed
        return np.where(allowed, costs_alone(rows, self.context), np.inf)

    @property
    def residents(self) -> tuple[Job, ...]:
        """One job for each class of residents."""
        return self.members[self._k :]

    # --- pairs ------------------------------------------------------------------------------------------------------

    @cached_property
    def pending_pairs(self) -> PairCosts:
        """The costs of the pending jobs among themselves, of each pair under the best sharing mode of the plan.

        The plan may choose the mode of empty devices among those that the limits name and the model knows.
        """
        limits, own = self.context.limits, self.device_class
        others = [
            GroupTable(self.members[: self._k], (), replace(own, mode=mode), self.context).pairs_in_own_mode
            for mode in sorted(limits.choosable_modes - {own.mode})
            if limits.allow_extrapolation or not self.context.predictor.knows(own.type, mode)
        ]
        return under_best_modes([self.pairs_in_own_mode, *others])

    @cached_property
    def pairs_in_own_mode(self) -> PairCosts:
        """The costs of the pending jobs among themselves under the sharing mode of the device class."""
        return self._pairs(range(self._k), running=False)

    @cached_property
    def resident_pairs(self) -> PairCosts | None:
        """The costs of each pending job beside each resident; None without residents."""
        return self._pairs(range(self._k, self._n), running=True) if self._k < self._n else None

    def _pairs(self, columns: range, *, running: bool) -> PairCosts:
        """The table of the pending jobs beside the members at some places."""
        pair = (np.arange(self._k)[:, None], np.array(columns, dtype=np.int64)[None, :])
        slowdown = self.slowdowns.of_groups(pair)
        value = self._model.evaluate(pair, slowdown, newcomers=1 if running else 2)
        row_cost, column_cost = value.added
        cost = row_cost + column_cost + value.shared
        caps = self._member_caps(pair, slowdown) if self.capped else ()
        rows, partners = self.jobs.subset(range(self._k)), self.jobs.subset(columns)
        found = pair_rules(
            pair, rows, partners, self.slowdowns, slowdown, caps, np.isnan(cost), self.context, running=running
        )
        rules = PairRules(rules=tuple(found))
        cost[rules.forbidden(cost.shape)] = np.inf
        return PairCosts(
            rows=rows,
            columns=partners,
            running=running,
            row_slowdown=slowdown[0],
            column_slowdown=slowdown[1],
            cost=cost,
            row_cost=row_cost,
            column_cost=column_cost,
            max_job_cost=value.largest,
            rules=rules,
        )

    def resident_upper(self) -> Floats:
        """float64[k, r]: the quantile 1 - risk of the slowdown of each resident beside each pending job."""
        pair = (np.arange(self._k)[:, None], np.arange(self._k, self._n)[None, :])
        return self.slowdowns.upper(pair, self.slowdowns.of_groups(pair))[1]

    @cached_property
    def pair_allowed(self) -> Bools:
        """bool[n, n]: may two jobs of these classes share? Residents do already."""
        return self._allowed(self.pending_pairs)

    @cached_property
    def _pair_allowed_in_own_mode(self) -> Bools:
        """bool[n, n]: may two jobs of these classes share under the sharing mode of the device class?"""
        return self._allowed(self.pairs_in_own_mode)

    def _allowed(self, pending_pairs: PairCosts) -> Bools:
        allowed, k = np.ones((self._n, self._n), dtype=bool), self._k
        allowed[:k, :k] = np.isfinite(pending_pairs.cost)
        if self.resident_pairs is not None:
            allowed[:k, k:] = np.isfinite(self.resident_pairs.cost)
            allowed[k:, :k] = allowed[:k, k:].T
        return allowed

    def may_join(self, residents: Sequence[int]) -> Bools:
        """Return bool[k]: whether each pending job may share with each of these residents, checked pair by pair."""
        if not residents:
            return np.ones(self._k, dtype=bool)
        assert self.resident_pairs is not None
        return np.asarray(np.isfinite(self.resident_pairs.cost[:, list(residents)]).all(axis=1))

    @property
    def _chooses_mode(self) -> bool:
        """Does the plan choose the sharing mode of pairs on empty devices?"""
        return bool(self.pending_pairs.modes)

    # --- groups -----------------------------------------------------------------------------------------------------

    def evaluate(self, members: Ints, residents: Sequence[int] = (), *, pairs_allowed: bool = False) -> GroupCosts:
        """`members` int64[g, m]: classes of pending jobs; `residents`: places among the residents.

        Every group has two members at least, its residents counted. `pairs_allowed`: no rule forbids any pair of them.
        """
        if members.shape[1] + len(residents) == 2:
            return self._of_pairs(members, residents)
        group = self._group(members, residents)
        slowdown = self.slowdowns.of_groups(group)
        value = self._model.evaluate(group, slowdown, newcomers=members.shape[1])
        forbidden = self._exceeds_memory(group) | self._past_caps(group, slowdown) | np.isnan(value.largest)
        forbidden |= does_not_pay(slowdown, self.context.limits.slowdown.min_joint_throughput)
        if self.context.limits.guest_ends_first:
            runs_s = [self.jobs.alone_s[member] * own for member, own in zip(group, slowdown, strict=True)]
            for guest_s in runs_s[: members.shape[1]]:
                for host_s in runs_s[members.shape[1] :]:
                    forbidden |= outlasts(guest_s, host_s)
        if not pairs_allowed or self._chooses_mode:
            forbidden |= self._has_forbidden_pair(group)
        shape = (len(members),)
        return GroupCosts(
            slowdown=_stacked(slowdown, shape),
            cost=_stacked(value.added, shape),
            shared=np.broadcast_to(np.asarray(value.shared), shape),
            largest=value.largest,
            allowed=~forbidden,
        )

    def _of_pairs(self, members: Ints, residents: Sequence[int]) -> GroupCosts:
        """Groups of two, under the sharing mode that the plan chose for each; a group of one joins one resident."""
        table = self.resident_pairs if residents else self.pending_pairs
        assert table is not None
        at = members[:, 0], np.full(len(members), residents[0]) if residents else members[:, 1]
        cost, total = np.stack([table.row_cost[at], table.column_cost[at]]), table.cost[at]
        return GroupCosts(
            slowdown=np.stack([table.row_slowdown[at], table.column_slowdown[at]]),
            cost=cost,
            shared=total - cost.sum(axis=0),
            largest=table.max_job_cost[at],
            allowed=np.isfinite(total),
        )

    def is_possible(self, members: Ints) -> Bools:
        """bool[g]: does each group fit the device's memory and keep all slowdown caps?

        No group has residents, and all pairs inside the groups are allowed.
        """
        group = self._group(members, ())
        forbidden = self._exceeds_memory(group)
        if self._chooses_mode:
            forbidden |= self._has_forbidden_pair(group)
        if self.capped:
            forbidden |= self._past_caps(group, self.slowdowns.of_groups(group))
        return ~forbidden

    def costs_by_excess(self) -> tuple[Floats, Floats]:
        """float64[k] each: what each class of pending jobs costs at a slowdown of 1, and one unit of slowdown more."""
        k, model, slope = self._k, self._model, self._model.rate * self.jobs.relative_times
        return (model.constant + slope + model.rate * model.losses)[:k], slope[:k]

    def least_costs(self, residents: Sequence[int], priority: int | None) -> tuple[Floats, Floats]:
        """float64[k] and float64[k, k]: what pending jobs of a priority cost at least beside residents, and each pair.

        Slowdowns of a group are never less than the sum of its pairs. A pair that may not share costs inf.
        """
        k, everybody, (base, slope) = self._k, np.arange(self._k), self.costs_by_excess()
        counts = np.array([priority in (None, job.priority) for job in self.members[:k]], dtype=np.float64)
        beside = np.zeros(k)
        for resident in residents:
            beside += np.nan_to_num(self.slowdowns.excess(everybody, np.array([k + resident])))
        if priority not in self._least_of_pairs:
            excess = np.nan_to_num(self.slowdowns.excess(everybody[:, None], everybody[None, :]))
            pair = (counts * slope)[:, None] * excess
            self._least_of_pairs[priority] = np.where(self.pair_allowed[:k, :k], pair + pair.T, np.inf)
        return counts * (base + slope * beside), self._least_of_pairs[priority]

    def interval(self, members: Sequence[int], residents: Sequence[int], place: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a group, in the order of `evaluate`."""
        group = self._group(np.array([members], dtype=np.int64), residents)
        lower, upper = self.slowdowns.intervals(group)[place]
        return float(lower[0]), float(upper[0])

    def _group(self, members: Ints, residents: Sequence[int]) -> Group:
        """The places of all members of each group: its m jobs, then its r residents."""
        return (*members.T, *(np.array([self._k + resident]) for resident in residents))

    # --- rules ------------------------------------------------------------------------------------------------------

    def _has_forbidden_pair(self, group: Group) -> Bools:
        """bool[...]: may some pair of each group of three or more not share? Such groups keep the devices' mode."""
        allowed = self._pair_allowed_in_own_mode
        pairs = np.broadcast_arrays(*(allowed[member, other] for member, other in combinations(group, 2)))
        return np.asarray(~np.logical_and.reduce(pairs))

    def _exceeds_memory(self, group: Group) -> Bools:
        """bool[...]: do grants and peaks, or with oversubscription working sets, not fit together?"""
        memory, demands = self.device_class.memory, self.jobs.demands
        if memory.memory_bytes < 0:
            return np.zeros(np.broadcast_shapes(*(member.shape for member in group)), dtype=bool)
        exceeds = memory_exceeds(demands, group, memory, self.context.limits)
        return exceeds | grants_exceed(demands, group, memory) if memory.grants_memory else exceeds

    def fits(self, members: Sequence[int], residents: Sequence[int]) -> bool:
        """Do the jobs of one group fit into the memory together?"""
        return not self._exceeds_memory(self._group(np.array([members], dtype=np.int64), residents))[0]

    def _member_caps(self, group: Group, slowdown: Sequence[Floats]) -> tuple[MemberCaps, ...]:
        """The caps of every member against every other, at the quantile 1 - risk beside the whole group."""
        upper = self.slowdowns.upper(group, slowdown)
        limits = time_caps(self.jobs, group, upper) if self._timed else [np.array(np.nan)] * len(group)
        unasked = [(np.array(np.nan), np.array(False))] * len(group)
        latencies = self.slowdowns.latency_upper_s(group, upper) if self._caps.has_targets else unasked
        return tuple(
            MemberCaps(
                jobs=self.jobs,
                caps=self._caps,
                members=group[a],
                partners=group[b],
                time_cap=limits[a],
                upper=upper[a],
                latency_s=latencies[a][0],
                is_p99=latencies[a][1],
                risk=self.context.limits.slowdown.risk,
            )
            for a, b in permutations(range(len(group)), 2)
        )

    def _past_caps(self, group: Group, slowdown: Sequence[Floats]) -> Bools:
        """Return bool[...]: whether any member exceeds a slowdown cap beside all others, at the quantile 1 - risk."""
        past = np.zeros(np.broadcast_shapes(*(member.shape for member in group)), dtype=bool)
        for caps in self._member_caps(group, slowdown) if self.capped else ():
            past |= caps.mask
        return past

    def cap_rule(self, members: Sequence[int], residents: Sequence[int]) -> Rule | None:
        """The cap that somebody of one group would pass, with its numbers; None where nobody would."""
        if not self.capped:
            return None
        group = self._group(np.array([members], dtype=np.int64), residents)
        caps = self._member_caps(group, self.slowdowns.of_groups(group))
        return next((each.rule(0) for each in caps if each.mask[0]), None)


def _stacked(values: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
    """The values of all members as one array."""
    return np.stack([np.broadcast_to(value, shape) for value in values])
