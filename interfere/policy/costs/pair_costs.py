"""The costs of pairs on one device class as one table, and which rule forbids each: a pair is a group of two.

Law: a cost is infinite exactly where a rule forbids the pair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_slowdowns import GroupSlowdowns
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.custom import custom_rules
from interfere.policy.rules.jobs_on_class import JobsOnClass, start_rules
from interfere.policy.rules.memory import pair_memory_rules
from interfere.policy.rules.pair_rules import Group, PairRule, PairRules
from interfere.policy.rules.predictions import guest_rule, joint_throughput_rule, predictability_rules
from interfere.policy.rules.slowdown_caps import MemberCaps
from interfere.records import ActionKind, Rule, RuleKind
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts:
    """The pairs of r row jobs and c column jobs on one device class: predictions, costs, and the rules that forbid
    pairs."""

    rows: JobsOnClass
    columns: JobsOnClass
    running: bool  # are the columns residents? else they are the row jobs
    row_slowdown: Floats  # float64[r, c]: median, of the row job; NaN where nothing is predicted
    column_slowdown: Floats
    cost: Floats  # float64[r, c], of the pair, beside a resident what is added; inf where a rule forbids it
    row_cost: Floats  # float64[r, c], what the row job costs of it; NaN or inf where the pair is forbidden
    column_cost: Floats  # float64[r, c], what the column job costs of it; the rest belongs to the pair
    max_job_cost: Floats  # float64[r, c], the larger cost of the two jobs, that of a resident as a whole
    rules: PairRules
    modes: tuple[SharingMode, ...] = ()  # among which the plan chose; empty where the devices keep theirs
    mode_index: NDArray[np.int64] | None = None  # int64[r, c], of the chosen one

    def mode(self, row: int, column: int) -> SharingMode:
        """The sharing mode under which the pair is predicted."""
        return self.device_class.mode if self.mode_index is None else self.modes[int(self.mode_index[row, column])]

    @property
    def device_class(self) -> DeviceClass:
        """The class of the devices."""
        return self.rows.device_class

    def blocking_rule(self, row: int, column: int) -> Rule | None:
        """The rule that forbids a pair; None where it is allowed."""
        return self.rules.blocking_rule(row, column)


def under_best_modes(tables: Sequence[PairCosts]) -> PairCosts:
    """Return a table that holds each pair under its cheapest sharing mode.

    `tables` has a table for each mode; the present mode of the devices comes first.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    best = np.argmin(np.stack([table.cost for table in tables]), axis=0)

    def chosen(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.asarray(np.take_along_axis(np.stack(arrays), best[None], axis=0)[0])

    cost = chosen([table.cost for table in tables])
    forbidden = ~np.isfinite(cost)
    return replace(
        first,
        row_slowdown=chosen([table.row_slowdown for table in tables]),
        column_slowdown=chosen([table.column_slowdown for table in tables]),
        cost=cost,
        row_cost=chosen([table.row_cost for table in tables]),
        column_cost=chosen([table.column_cost for table in tables]),
        max_job_cost=chosen([table.max_job_cost for table in tables]),
        rules=PairRules(rules=tuple(replace(rule, mask=rule.mask & forbidden) for rule in first.rules.rules)),
        modes=tuple(table.device_class.mode for table in tables),
        mode_index=best,
    )


def pair_rules(
    pair: Group,
    rows: JobsOnClass,
    columns: JobsOnClass,
    slowdowns: GroupSlowdowns,
    slowdown: Sequence[Floats],
    caps: Sequence[MemberCaps],
    abstained: NDArray[np.bool_],
    context: PlanningContext,
    *,
    running: bool,
) -> Iterator[PairRule]:
    """Every rule on pairs of jobs, in the order in which they bind.

    `pair`: the places of the row jobs, int64[r, 1], and of the column jobs, int64[1, c]. `slowdown`: float64[r, c] of
    either. `caps`: those of the row jobs and of the column jobs, where any may bind. `abstained` bool[r, c]: is there
    no cost, for nothing is predicted? `running`: whether the columns are residents.
    """
    jobs, limits = slowdowns.jobs, context.limits
    if ActionKind.START_SHARED not in limits.allowed:
        yield PairRule.of_kind(
            RuleKind.ACTION_NOT_ALLOWED,
            np.broadcast_to(np.True_, abstained.shape),
            lambda i, j: Rule(
                kind=RuleKind.ACTION_NOT_ALLOWED,
                job_id=rows.jobs[i].id,
                partner_id=columns.jobs[j].id,
                action=ActionKind.START_SHARED,
                max_shared_gpus=limits.most_shared_gpus,
            ),
        )
    yield start_rules(rows.start_rules, (None,) * len(columns.jobs) if running else columns.start_rules)
    yield from predictability_rules(
        rows.jobs,
        columns.jobs,
        rows.profiled,
        columns.profiled,
        abstained,
        jobs.device_class,
        slowdowns.unknown_domain,
    )
    yield from pair_memory_rules(
        [job.id for job in jobs.jobs],
        jobs.demands,
        pair,
        slowdowns.fit_probability(*pair),
        jobs.device_class.memory,
        limits,
    )
    for cap in caps:
        yield PairRule(mask=cap.mask, rule=cap.rule, groups=cap.groups)
    yield joint_throughput_rule(rows.jobs, columns.jobs, slowdown, limits.slowdown.min_joint_throughput)
    if running and limits.guest_ends_first:
        guest_s, host_s = (jobs.alone_s[member] * own for member, own in zip(pair, slowdown, strict=True))
        yield guest_rule(rows.jobs, columns.jobs, guest_s, host_s)
    yield from custom_rules(context.custom_rules, rows.jobs, columns.jobs, jobs.device_class, slowdown, running=running)
