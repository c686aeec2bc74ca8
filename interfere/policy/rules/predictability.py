"""Pairs that the model cannot answer for: unprofiled workloads, unknown device types, pairs unlike all others."""

from collections.abc import Iterator, Sequence

import numpy as np

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import Bools, PairRule, RuleGroup, UniformRule
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
    yield _UnprofiledRule(rows, columns, row_profiled, column_profiled, device_class.type)
    if unknown_domain:
        yield UniformRule(
            kind=RuleKind.UNKNOWN_DEVICE_TYPE,
            mask=np.broadcast_to(np.True_, abstained.shape),
            rule_of=lambda i, j: Rule(
                kind=RuleKind.UNKNOWN_DEVICE_TYPE,
                job_id=rows[i].id,
                partner_id=columns[j].id,
                device_type=device_class.type,
                sharing_mode=device_class.mode,
                detail=unknown_domain,
            ),
        )
    yield _NovelPairRule(rows, columns, abstained)


def unprofiled_rule(job: Job, device_type: str) -> Rule:
    """The rule on a job whose workload has no profile on a device type."""
    return Rule(kind=RuleKind.UNPROFILED_WORKLOAD, job_id=job.id, workload=job.workload, device_type=device_type)


class _UnprofiledRule:
    def __init__(
        self,
        rows: Sequence[Job],
        columns: Sequence[Job],
        row_profiled: Bools,
        column_profiled: Bools,
        device_type: str,
    ) -> None:
        self.mask = ~(row_profiled[:, None] & column_profiled)
        self._rows, self._columns, self._row_profiled = rows, columns, row_profiled
        self._device_type = device_type

    def rule(self, row: int, column: int) -> Rule:
        return unprofiled_rule(self._unprofiled(row, column), self._device_type)

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        workloads = (self._unprofiled(row, column).workload for column in columns)
        return [
            RuleGroup(RuleKind.UNPROFILED_WORKLOAD, workload=name, device_type=self._device_type) for name in workloads
        ]

    def _unprofiled(self, row: int, column: int) -> Job:
        return self._columns[column] if self._row_profiled[row] else self._rows[row]


class _NovelPairRule:
    def __init__(self, rows: Sequence[Job], columns: Sequence[Job], abstained: Bools) -> None:
        self.mask = abstained
        self._rows, self._columns = rows, columns

    def rule(self, row: int, column: int) -> Rule:
        job, partner = self._rows[row], self._columns[column]
        return Rule(
            kind=RuleKind.NOVEL_PAIR,
            job_id=job.id,
            partner_id=partner.id,
            workload=job.workload,
            partner_workload=partner.workload,
        )

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        name = self._rows[row].workload
        return [
            RuleGroup(RuleKind.NOVEL_PAIR, workload=name, partner_workload=self._columns[column].workload)
            for column in columns
        ]
