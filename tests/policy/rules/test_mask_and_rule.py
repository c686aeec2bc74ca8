"""The law of rules: a pair costs infinity exactly where a rule is given, and both are what one pair by itself says.

`RULE_LAW_SNAPSHOTS` sets how many random snapshots are tried; 10,000 take about a minute of one core.
"""

import math
import os
from collections import Counter

import numpy as np
import pytest

from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.rules.group_rules import RuleGroup
from interfere.policy.rules.text import render
from interfere.policy.solve.builder import decision_problem
from interfere.records import (
    ActionKind,
    Rule,
    RuleKind,
    Snapshot,
)
from tests.policy.rules.one_pair import OnePair, RandomSnapshot

SNAPSHOTS = int(os.environ.get("RULE_LAW_SNAPSHOTS", "500"))
BLOCKS = 10

# Every kind that may forbid a pair.
PAIR_KINDS = {
    RuleKind.ACTION_NOT_ALLOWED,
    RuleKind.POOL,
    RuleKind.DEVICE_CLOSED,
    RuleKind.WINDOW,
    RuleKind.DEADLINE,
    RuleKind.UNPROFILED_WORKLOAD,
    RuleKind.UNKNOWN_DEVICE_TYPE,
    RuleKind.NOVEL_PAIR,
    RuleKind.GRANT,
    RuleKind.MEMORY,
    RuleKind.WORKING_SET,
    RuleKind.MISFIT_RISK,
    RuleKind.JOB_SLOWDOWN_CAP,
    RuleKind.REQUEST_SLOWDOWN_CAP,
    RuleKind.PROTECTED_SLOWDOWN,
    RuleKind.LATENCY_TARGET,
    RuleKind.JOINT_THROUGHPUT,
    RuleKind.GUEST_ENDS_FIRST,
}


def states_a_violation(rule: Rule) -> bool:
    """Do the numbers of a rule show why it forbids?"""
    demands = [demand for demand in (rule.demand, rule.partner_demand) if demand is not None]
    needed_bytes = sum(0.0 if math.isnan(demand.needed_bytes) else demand.needed_bytes for demand in demands)
    working_set_bytes = np.nansum([demand.working_set_bytes for demand in demands])
    granules = (rule.needed_granules or 0) + (rule.partner_needed_granules or 0)
    latency_s = rule.step_time_s * float(np.nan_to_num(rule.slowdown, nan=1.0))
    exceeds_cap = rule.slowdown > rule.slowdown_cap
    closes = rule.runtime_s > rule.closes_in_s or rule.closes_in_s <= rule.checkpoint_s
    shown = {
        RuleKind.MEMORY: needed_bytes > rule.capacity_bytes,
        RuleKind.WORKING_SET: working_set_bytes > rule.capacity_bytes,
        RuleKind.GRANT: granules > (rule.capacity_granules or 0),
        RuleKind.MISFIT_RISK: rule.misfit_probability > rule.max_misfit_probability,
        RuleKind.JOB_SLOWDOWN_CAP: exceeds_cap,
        RuleKind.REQUEST_SLOWDOWN_CAP: exceeds_cap,
        RuleKind.PROTECTED_SLOWDOWN: exceeds_cap and (rule.priority or 0) > (rule.partner_priority or 0),
        RuleKind.LATENCY_TARGET: not latency_s <= rule.latency_target_s,
        RuleKind.JOINT_THROUGHPUT: 1 / rule.slowdown + 1 / rule.partner_slowdown <= rule.min_joint_throughput,
        RuleKind.GUEST_ENDS_FIRST: rule.runtime_s > rule.partner_runtime_s,
        RuleKind.DEADLINE: exceeds_cap if rule.partner_id else rule.runtime_s > rule.time_left_s,
        RuleKind.WINDOW: exceeds_cap if rule.partner_id else closes,
        RuleKind.POOL: rule.pool not in rule.pools,
    }
    return shown.get(rule.kind, True)


def check_table(drawn: RandomSnapshot, table: PairCosts, *, running: bool, counts: Counter[RuleKind]) -> None:
    """The law, for every pair of one table of costs."""
    rows, columns = table.rows, table.columns
    for i, job in enumerate(rows):
        others = [j for j, partner in enumerate(columns) if partner is not job]
        groups = table.rules.blocking_groups(i, others)
        for j, group in zip(others, groups, strict=True):
            rule = table.rules.blocking_rule(i, j)
            assert (rule is None) == bool(np.isfinite(table.total[i, j]))
            assert (group is None) == (rule is None)
            pairs = [OnePair(drawn, table.device_class, job, columns[j], running=running)]
            if not running:
                pairs.append(OnePair(drawn, table.device_class, columns[j], job, running=running))
                mirrored = table.rules.blocking_rule(j, i)
                assert (mirrored is None) == (rule is None)
            violated = set().union(*(pair.violated() for pair in pairs))
            if not any(pair.is_near for pair in pairs):
                assert bool(violated) == (rule is not None), (violated, rule)
                assert rule is None or rule.kind in violated, (violated, rule)
            if rule is not None and group is not None:
                counts[rule.kind] += 1
                assert group == RuleGroup(rule.kind, *group[1:])
                assert group.workload in ("", rule.workload)
                assert states_a_violation(rule), rule
                assert render(rule)


def check_alone(candidates: Candidates, snapshot: Snapshot) -> None:
    """A job alone costs infinity exactly where a rule forbids it to start alone."""
    allowed = ActionKind.START_ALONE in snapshot.limits.allowed
    for device_class, table in candidates.pair_tables.items():
        for i in range(len(snapshot.pending)):
            rule = table.jobs.solo_rule(i)
            assert np.isfinite(candidates.solo_cost[device_class][i]) == (allowed and rule is None)
            assert rule is None or states_a_violation(rule)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_cost_is_infinite_exactly_where_a_rule_is_given(block: int) -> None:
    counts: Counter[RuleKind] = Counter()
    size = math.ceil(SNAPSHOTS / BLOCKS)
    for seed in range(block * size, (block + 1) * size):
        drawn = RandomSnapshot(seed)
        decision = decision_problem(drawn.context(), by_start_weight=True)
        (candidates,) = decision.candidates
        for table in decision.pair_tables(candidates):
            check_table(drawn, table, running=table.running, counts=counts)
        check_alone(candidates, drawn.snapshot)
    assert set(counts) <= PAIR_KINDS
    if size >= 500:
        assert set(counts) == PAIR_KINDS, PAIR_KINDS - set(counts)
