"""Whether a job may start on a device class at all: its pools, the windows of the devices, and its run time there."""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import Bools, RuleGroup
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


class AvailabilityRule:
    """The pairs of which one job may not start on the device class; residents run there already."""

    def __init__(self, row_rules: Sequence[Rule | None], column_rules: Sequence[Rule | None]) -> None:
        """`row_rules`, `column_rules`: the `start_rule` of each job of the rows and of the columns; None for
        residents.
        """
        self._row_rules, self._column_rules = row_rules, column_rules
        rows, columns = (
            np.array([rule is not None for rule in rules], dtype=bool) for rules in (row_rules, column_rules)
        )
        self.mask: Bools = rows[:, None] | columns

    def rule(self, row: int, column: int) -> Rule:
        """The row job's rule before that of the column job."""
        rule = self._row_rules[row] or self._column_rules[column]
        assert rule is not None
        return rule

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        """The kinds of these rules."""
        return [RuleGroup(self.rule(row, column).kind) for column in columns]
