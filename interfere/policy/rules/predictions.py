"""The rules on pairs that rest on predictions: whether one is known, and whether two jobs that may share should.

`min_joint_throughput`: beside each other two jobs with slowdowns s and s' do 1/s + 1/s' of the work that one job does
alone in the same time. Taking turns does 1: at or below that every pair ends no sooner than one after the other would,
and the first of the two ends later. Of the 136 pairs of the shipped CPU table 21 lose so, and of Gavel's K80 pairs
42 %. The medians of the prediction decide. Law: a larger limit never allows a pair that a smaller one forbids.

`guest_ends_first`: a job may join a resident only where it is expected to end no later than it. A guest that outlasts
its host keeps the devices, the next guest keeps them after that, and a gang that waits for whole nodes may never see
them empty. How much that costs depends on the backfill. On an overloaded cluster of gangs of 128 devices (shortest job
first, run times known, mean of nine traces, gangs taken to lose what one device of each loses) sharing without the rule
takes 2.8 times as long under first fit, which reserves nothing, and 12 % longer under EASY backfill; with it 2 % and
11 % less long. With run times estimated from history, and on clusters with stable load, the rule has no clear effect:
it is off unless a request sets it. Times are expected ones, remaining · τ · median slowdown; a job that does not say
how long it will run is not judged. Pure arrays.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import Bools, PairRule, RuleGroup
from interfere.records import Job, Rule, RuleKind

Floats = NDArray[np.float64]
EQUAL = 1e-9  # relative: two that end together


def does_not_pay(slowdowns: Sequence[Floats], min_joint_throughput: float) -> Bools:
    """Return bool[...]: whether the joint throughput Σ 1/s is at or below the limit; False where it is unknown."""
    if min_joint_throughput == 0:
        return np.zeros(np.broadcast_shapes(*map(np.shape, slowdowns)), dtype=bool)
    return np.asarray(sum(1.0 / slowdown for slowdown in slowdowns) <= min_joint_throughput)


def joint_throughput_rule(
    jobs: Sequence[Job], partners: Sequence[Job], slowdowns: Sequence[Floats], min_joint_throughput: float
) -> PairRule:
    """Return the rule on each job beside each partner; `slowdowns`: float64[r, c] of the jobs and of the partners."""
    own, other = slowdowns
    return PairRule.of_kind(
        RuleKind.JOINT_THROUGHPUT,
        does_not_pay(slowdowns, min_joint_throughput),
        lambda i, j: Rule(
            kind=RuleKind.JOINT_THROUGHPUT,
            job_id=jobs[i].id,
            partner_id=partners[j].id,
            slowdown=float(own[i, j]),
            partner_slowdown=float(other[i, j]),
            min_joint_throughput=min_joint_throughput,
        ),
    )


def outlasts(guest_s: Floats | float, host_s: Floats | float) -> Bools:
    """bool[r, c]: does guest i stay after host j? False where either is NaN."""
    return np.asarray(guest_s > host_s * (1 + EQUAL))


def guest_rule(guests: Sequence[Job], hosts: Sequence[Job], guest_s: Floats, host_s: Floats) -> PairRule:
    """Return the rule that forbids each guest whose expected end is later than its host's.

    `guest_s` and `host_s` float64[r, c]: expected runtime in seconds of each guest and of each host when together.
    """
    return PairRule.of_kind(
        RuleKind.GUEST_ENDS_FIRST,
        outlasts(guest_s, host_s),
        lambda i, j: Rule(
            kind=RuleKind.GUEST_ENDS_FIRST,
            job_id=guests[i].id,
            partner_id=hosts[j].id,
            runtime_s=float(guest_s[i, j]),
            partner_runtime_s=float(host_s[i, j]),
        ),
    )


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
