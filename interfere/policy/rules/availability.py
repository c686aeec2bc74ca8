"""Whether a job may start on a device class at all: its pools, the windows of the devices, and its run time there."""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import PairRule, RuleGroup
from interfere.policy.rules.runtime import Runtime
from interfere.records import NAN, Job, Rule, RuleKind


def availability_rule(job: Job, device_class: DeviceClass) -> Rule | None:
    """Return the rule that forbids a job to start there now, however long it runs; None where it may start."""
    if job.pools and device_class.pool not in job.pools:
        return Rule(
            kind=RuleKind.POOL,
            job_id=job.id,
            pools=job.pools,
            pool=device_class.pool,
            device_type=device_class.type,
        )
    if device_class.open_s > 0:
        return None
    return Rule(
        kind=RuleKind.DEVICE_CLOSED,
        job_id=job.id,
        pool=device_class.pool,
        device_type=device_class.type,
        opens_in_s=device_class.opens_s if math.isfinite(device_class.opens_s) else NAN,
    )


def start_rule(job: Job, runtime: Runtime, device_class: DeviceClass) -> Rule | None:
    """Return the rule, memory aside, that forbids a job to start there with or without co-located jobs; None where it
    may start."""
    return availability_rule(job, device_class) or runtime.blocking_rule(
        job.id, pool=device_class.pool, device_type=device_class.type
    )


def start_rules(rows: Sequence[Rule | None], columns: Sequence[Rule | None]) -> PairRule:
    """Return the rule on the pairs of which one job may not start on the device class.

    `rows`, `columns`: the `start_rule` of each job; None for residents, which run there already.
    """
    forbidden = (np.array([rule is not None for rule in rules], dtype=bool) for rules in (rows, columns))
    row_forbidden, column_forbidden = forbidden

    def rule(row: int, column: int) -> Rule:
        """Return the row job's rule before that of the column job."""
        found = rows[row] or columns[column]
        assert found is not None
        return found

    mask = row_forbidden[:, None] | column_forbidden
    return PairRule.of_pairs(mask, rule, lambda row, column: RuleGroup(rule(row, column).kind))
