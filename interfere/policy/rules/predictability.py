"""Pairs that the model cannot answer for: unprofiled workloads, unknown device types, pairs unlike all others."""

from collections.abc import Iterator, Sequence

import numpy as np

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import Bools, PairRule, RuleGroup
from interfere.records import Job, Rule, RuleKind


def predictability_rules(
    rows: Sequence[Job],
    columns: Sequence[Job],
    row_profiled: Bools,
    column_profiled: Bools,
    abstained: Bools,
    device_class: DeviceClass,
    unknown_domain: str,
) -> Iterator[PairRule]:
    """The rules in the order in which they bind.

    `row_profiled` bool[r] and `column_profiled` bool[c]: has the job a profile on the device type? `abstained`
    bool[r, c]: is there no cost, for nothing is predicted? `unknown_domain`: why the model knows nothing of the device
    type and sharing mode, in the predictor's words; empty where it does, or where extrapolation is allowed.
    """
    kind = device_class.type

    def unprofiled(i: int, j: int) -> Job:
        return columns[j] if row_profiled[i] else rows[i]

    yield PairRule.of_pairs(
        ~(row_profiled[:, None] & column_profiled),
        lambda i, j: unprofiled_rule(unprofiled(i, j), kind),
        lambda i, j: RuleGroup(RuleKind.UNPROFILED_WORKLOAD, workload=unprofiled(i, j).workload, device_type=kind),
    )
    if unknown_domain:
        yield PairRule.of_kind(
            RuleKind.UNKNOWN_DEVICE_TYPE,
            np.broadcast_to(np.True_, abstained.shape),
            lambda i, j: Rule(
                kind=RuleKind.UNKNOWN_DEVICE_TYPE,
                job_id=rows[i].id,
                partner_id=columns[j].id,
                device_type=kind,
                sharing_mode=device_class.mode,
                detail=unknown_domain,
            ),
        )
    yield PairRule.of_pairs(
        abstained,
        lambda i, j: Rule(
            kind=RuleKind.NOVEL_PAIR,
            job_id=rows[i].id,
            partner_id=columns[j].id,
            workload=rows[i].workload,
            partner_workload=columns[j].workload,
        ),
        lambda i, j: RuleGroup(RuleKind.NOVEL_PAIR, workload=rows[i].workload, partner_workload=columns[j].workload),
    )


def unprofiled_rule(job: Job, device_type: str) -> Rule:
    """The rule on a job whose workload has no profile on a device type."""
    return Rule(kind=RuleKind.UNPROFILED_WORKLOAD, job_id=job.id, workload=job.workload, device_type=device_type)
