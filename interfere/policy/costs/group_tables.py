"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A pair is a group of two, and has rules of its own: whether each job may start there, whether the pair is predicted, how
likely both fit the memory, and those of other packages. A larger group is allowed where every pair of it with a pending
job is allowed, and where the rules on groups of any size allow it: its memory fits, no member passes its caps beside
all the others, together its members get more done than one after the other, and where it is asked no guest outlasts a
host.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, permutations

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_costs import GroupCostModel, GroupCosts, PairCosts, under_best_modes
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.custom import custom_rules
from interfere.policy.rules.group_rules import (
    Bools,
    Floats,
    Group,
    GroupRule,
    GroupRules,
    Ints,
    guest_rules,
    joint_throughput_rule,
    predictability_rules,
)
from interfere.policy.rules.jobs_on_class import JobsOnClass, MemberCaps, SlowdownCaps, start_rules, time_caps
from interfere.policy.rules.memory import memory_rules
from interfere.policy.slowdowns import GroupSlowdowns
from interfere.records import ActionKind, Device, Job, Rule, RuleKind


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
        """Does a deadline or the closing of the device play a part?"""
        has_deadline = any(not math.isnan(job.deadline_s) for job in self.members)
        return has_deadline or math.isfinite(self.device_class.open_s)

    @cached_property
    def _caps(self) -> SlowdownCaps:
        return SlowdownCaps.of(self.members, self.jobs.profiles, self.context.limits)

    @cached_property
    def capped(self) -> bool:
        """May a cap bind?"""
        return self._timed or self._caps.any_is_set

    @cached_property
    def costs_alone(self) -> Floats:
        """float64[k]: what each pending job costs that starts alone, whether or not a rule forbids it."""
        alone = [np.arange(self._k)]
        costs = self._model.evaluate(alone, self.slowdowns.of_groups(alone), newcomers=1)
        return np.asarray(costs.cost[0] + costs.shared)

    @cached_property
    def solo_cost(self) -> Floats:
        """float64[k]: the cost of each pending job alone on an empty device; inf where a rule forbids it."""
        allowed = np.array([self.jobs.solo_rule(i) is None for i in range(self._k)], dtype=bool)
        allowed &= ActionKind.START_ALONE in self.context.limits.allowed
        return np.where(allowed, self.costs_alone, np.inf)

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
        costs = self._model.evaluate(pair, self.slowdowns.of_groups(pair), newcomers=1 if running else 2)
        total = costs.cost[0] + costs.cost[1] + costs.shared
        rows, partners = self.members[: self._k], self.members[columns.start : columns.stop]
        rules = GroupRules(
            rules=tuple(self._pair_rules(pair, rows, partners, costs.slowdown, np.isnan(total), running))
        )
        forbidden = rules.forbidden(total.shape)
        total[forbidden] = np.inf
        return PairCosts(
            slowdown=costs.slowdown,
            paged=costs.paged,
            cost=costs.cost,
            shared=costs.shared,
            largest=costs.largest,
            allowed=~forbidden,
            rules=rules,
            jobs=self.jobs,
            rows=rows,
            columns=partners,
            running=running,
            total=total,
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
        allowed[:k, :k] = pending_pairs.allowed
        if self.resident_pairs is not None:
            allowed[:k, k:] = self.resident_pairs.allowed
            allowed[k:, :k] = allowed[:k, k:].T
        return allowed

    def may_join(self, residents: Sequence[int]) -> Bools:
        """Return bool[k]: whether each pending job may share with each of these residents, checked pair by pair."""
        if not residents:
            return np.ones(self._k, dtype=bool)
        assert self.resident_pairs is not None
        return np.asarray(self.resident_pairs.allowed[:, list(residents)].all(axis=1))

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
            table = self.resident_pairs if residents else self.pending_pairs
            assert table is not None
            second = np.full(len(members), residents[0]) if residents else members[:, 1]
            return table.at((members[:, 0], second))
        group = self._group(members, residents)
        costs = self._model.evaluate(group, self.slowdowns.of_groups(group), newcomers=members.shape[1])
        rules = GroupRules(rules=tuple(self._group_rules(group, costs.slowdown, newcomers=members.shape[1])))
        allowed = costs.allowed & ~rules.forbidden((len(members),))
        if not pairs_allowed or self._chooses_mode:
            allowed &= ~self._has_forbidden_pair(group)
        return replace(costs, allowed=allowed, rules=rules)

    def is_possible(self, members: Ints) -> Bools:
        """bool[g]: does each group fit the device's memory and keep all slowdown caps?

        No group has residents, and all pairs inside the groups are allowed.
        """
        group = self._group(members, ())
        rules = list(self._memory_rules(group))
        if self.capped:
            rules += self._cap_rules(group, self.slowdowns.of_groups(group))
        forbidden = GroupRules(rules=tuple(rules)).forbidden((len(members),))
        if self._chooses_mode:
            forbidden |= self._has_forbidden_pair(group)
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

    def _pair_rules(
        self,
        pair: Group,
        rows: Sequence[Job],
        columns: Sequence[Job],
        slowdown: Sequence[Floats],
        abstained: Bools,
        running: bool,
    ) -> Iterator[GroupRule]:
        """Every rule on pairs of jobs, in the order in which they bind.

        `pair`: the places of the row jobs, int64[r, 1], and of the column jobs, int64[1, c]. `slowdown`: float64[r, c]
        of either. `abstained` bool[r, c]: is there no cost, for nothing is predicted? `running`: whether the columns
        are residents.
        """
        jobs, context, k = self.jobs, self.context, self._k
        limits, columns_from = context.limits, k if running else 0
        if ActionKind.START_SHARED not in limits.allowed:
            yield GroupRule.of_kind(
                RuleKind.ACTION_NOT_ALLOWED,
                np.broadcast_to(np.True_, abstained.shape),
                lambda i, j: Rule(
                    kind=RuleKind.ACTION_NOT_ALLOWED,
                    job_id=rows[i].id,
                    partner_id=columns[j].id,
                    action=ActionKind.START_SHARED,
                    max_shared_gpus=limits.most_shared_gpus,
                ),
            )
        starts = [jobs.start_rule(i) for i in range(k)]
        yield start_rules(starts, (None,) * len(columns) if running else starts)
        yield from predictability_rules(
            rows,
            columns,
            jobs.profiled[:k],
            jobs.profiled[columns_from : columns_from + len(columns)],
            abstained,
            self.device_class.type,
            self.device_class.mode,
            self.slowdowns.unknown_domain,
        )
        yield from self._group_rules(pair, slowdown, newcomers=1 if running else 2)
        yield from custom_rules(context.custom_rules, rows, columns, self.device_class, slowdown, running=running)

    def _group_rules(self, group: Group, slowdown: Sequence[Floats], newcomers: int) -> Iterator[GroupRule]:
        """The rules on groups of any size, in the order in which they bind; the first `newcomers` members start now."""
        limits, members = self.context.limits, self.members
        yield from self._memory_rules(group)
        yield from self._cap_rules(group, slowdown) if self.capped else ()
        yield joint_throughput_rule(members, group, slowdown, limits.slowdown.min_joint_throughput)
        if limits.guest_ends_first:
            runs_s = [self.jobs.alone_s[member] * own for member, own in zip(group, slowdown, strict=True)]
            yield from guest_rules(members, group, runs_s, newcomers)

    def _memory_rules(self, group: Group) -> Iterator[GroupRule]:
        """Do grants and peaks, or with oversubscription working sets, not fit together?"""
        ids, memory = [job.id for job in self.members], self.device_class.memory
        fits = self.slowdowns.fit_probability(*group) if len(group) == 2 else None
        return memory_rules(ids, self.jobs.demands, group, memory, self.context.limits, fits)

    def _cap_rules(self, group: Group, slowdown: Sequence[Floats]) -> Iterator[GroupRule]:
        """The caps of every member beside all others, at the quantile 1 - risk."""
        for cap in self._member_caps(group, slowdown):
            yield GroupRule(mask=cap.mask, rule=cap.rule, groups=cap.groups)

    def blocking_rule(self, members: Sequence[int], residents: Sequence[int]) -> Rule | None:
        """The rule that forbids one group of pending jobs beside residents: on a pair with a resident, else on all."""
        assert self.resident_pairs is not None
        pairs = (self.resident_pairs.rules.blocking_rule(job, place) for job in members for place in residents)
        if (rule := next(filter(None, pairs), None)) is not None:
            return rule
        return self.evaluate(np.array([members], dtype=np.int64), residents).rules.blocking_rule(0)

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


def cost_alone(job: Job, device: Device, context: PlanningContext) -> float:
    """What one job costs alone on a device of the snapshot."""
    return float(GroupTable([job], (), context.device_class(device), context).costs_alone[0])
