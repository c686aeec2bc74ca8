"""Rules on groups of jobs that share a device: where each forbids a group as one array, and for one group its numbers.

A pair is a group of two. Law: a group is forbidden exactly where `GroupRules.blocking_rule` gives a rule; both read the
same masks. The rules of this module rest on predictions: whether one is known, and whether jobs that may share should.

`min_joint_throughput`: beside each other jobs with slowdowns s and s' do 1/s + 1/s' of the work that one job does alone
in the same time. Taking turns does 1: at or below that every pair ends no sooner than one after the other would, and
the first of the two ends later. Of the 136 pairs of the shipped CPU table 21 lose so, and of Gavel's K80 pairs 42 %.
The medians of the prediction decide. Law: a larger limit never allows a group that a smaller one forbids.

`guest_ends_first`: a job may join a resident only where it is expected to end no later than it. A guest that outlasts
its host keeps the devices, the next guest keeps them after that, and a gang that waits for whole nodes may never see
them empty. How much that costs depends on the backfill. On an overloaded cluster of gangs of 128 devices (shortest job
first, run times known, mean of nine traces, gangs taken to lose what one device of each loses) sharing without the rule
takes 2.8 times as long under first fit, which reserves nothing, and 12 % longer under EASY backfill; with it 2 % and
11 % less long. With run times estimated from history, and on clusters with stable load, the rule has no clear effect:
it is off unless a request sets it. Times are expected ones, remaining · τ · median slowdown; a job that does not say
how long it will run is not judged. Pure arrays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.records import Job
from interfere.records.rules import Rule, RuleKind
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Group = Sequence[NDArray[np.int64]]
"""Of each member of groups its place among n jobs; the arrays broadcast to the shape [...] of all groups."""
EQUAL = 1e-9  # relative: two that end together


class RuleGroup(NamedTuple):
    """The key by which refusals are counted together: the kind of rule, and the workloads or device type that the model
    lacks."""

    kind: RuleKind
    workload: str = ""
    partner_workload: str = ""
    device_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """One rule on groups of one shape [...]; pairs have the shape [r, c] of r row jobs beside c column jobs."""

    mask: Bools  # bool[...]: where the rule forbids the group
    rule: Callable[..., Rule]  # index of a group that it forbids -> the rule with its numbers
    # (row, columns) -> the key under which each forbidden pair of a row is reported.
    groups: Callable[[int, Sequence[int]], Sequence[RuleGroup]]

    @classmethod
    def of_kind(cls, kind: RuleKind, mask: Bools, rule: Callable[..., Rule]) -> "GroupRule":
        """Return a rule that reports all pairs under its kind."""
        return cls(mask=mask, rule=rule, groups=lambda _, columns: [RuleGroup(kind)] * len(columns))

    @classmethod
    def of_pairs(cls, mask: Bools, rule: Callable[..., Rule], group: Callable[[int, int], RuleGroup]) -> "GroupRule":
        """Return a rule that reports each pair under a key of its own."""
        return cls(mask=mask, rule=rule, groups=lambda row, columns: [group(row, column) for column in columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """All rules on groups of one shape, in the order in which they bind."""

    rules: tuple[GroupRule, ...] = ()

    def forbidden(self, shape: tuple[int, ...]) -> Bools:
        """bool[...]: does any rule forbid the group?"""
        forbidden = np.zeros(shape, dtype=bool)
        for rule in self.rules:
            forbidden |= rule.mask
        return forbidden

    def blocking_rule(self, *group: int) -> Rule | None:
        """The first rule that forbids a group, by its index; None where it is allowed."""
        return next((rule.rule(*group) for rule in self.rules if rule.mask[group]), None)

    def blocking_groups(self, row: int, columns: Sequence[int]) -> list[RuleGroup | None]:
        """The key of the first rule that forbids each pair of one row; no `Rule` is built."""
        groups: dict[int, RuleGroup] = {}
        for rule in self.rules:
            forbidden = [j for j in columns if j not in groups and rule.mask[row, j]]
            groups.update(zip(forbidden, rule.groups(row, forbidden), strict=True))
        return [groups.get(j) for j in columns]


def values_at(arrays: Sequence[NDArray[Any]], index: tuple[int, ...]) -> list[Any]:
    """Return the value of each array, which broadcast to one shape, at an index of that shape."""
    return [array[index] for array in np.broadcast_arrays(*arrays)]


def does_not_pay(slowdowns: Sequence[Floats], min_joint_throughput: float) -> Bools:
    """Return bool[...]: whether the joint throughput Σ 1/s is at or below the limit; False where it is unknown."""
    if min_joint_throughput == 0:
        return np.zeros(np.broadcast_shapes(*map(np.shape, slowdowns)), dtype=bool)
    return np.asarray(sum(1.0 / slowdown for slowdown in slowdowns) <= min_joint_throughput)


def joint_throughput_rule(
    jobs: Sequence[Job], group: Group, slowdowns: Sequence[Floats], min_joint_throughput: float
) -> GroupRule:
    """Return the rule on groups of these jobs; `slowdowns`: float64[...] of each member."""

    def rule(*index: int) -> Rule:
        """Name the first two members; the partner's slowdown is the joint one of all members but the first."""
        first, second = values_at(group[:2], index)
        own, *others = map(float, values_at(slowdowns, index))
        return Rule(
            kind=RuleKind.JOINT_THROUGHPUT,
            job_id=jobs[first].id,
            partner_id=jobs[second].id,
            slowdown=own,
            partner_slowdown=others[0] if len(others) == 1 else 1.0 / sum(1.0 / other for other in others),
            min_joint_throughput=min_joint_throughput,
        )

    return GroupRule.of_kind(RuleKind.JOINT_THROUGHPUT, does_not_pay(slowdowns, min_joint_throughput), rule)


def outlasts(guest_s: Floats | float, host_s: Floats | float) -> Bools:
    """bool[...]: does a guest stay after its host? False where either is NaN."""
    return np.asarray(guest_s > host_s * (1 + EQUAL))


def guest_rules(jobs: Sequence[Job], group: Group, runs_s: Sequence[Floats], guests: int) -> Iterator[GroupRule]:
    """Yield the rule that forbids each guest whose expected end is later than that of a host.

    `runs_s` float64[...]: expected runtime in seconds of each member beside the others; the first `guests` members are
    guests, the others hosts.
    """
    for guest in range(guests):
        for host in range(guests, len(group)):

            def rule(*index: int, guest: int = guest, host: int = host) -> Rule:
                places, ends_s = values_at(group, index), values_at(runs_s, index)
                return Rule(
                    kind=RuleKind.GUEST_ENDS_FIRST,
                    job_id=jobs[places[guest]].id,
                    partner_id=jobs[places[host]].id,
                    runtime_s=float(ends_s[guest]),
                    partner_runtime_s=float(ends_s[host]),
                )

            yield GroupRule.of_kind(RuleKind.GUEST_ENDS_FIRST, outlasts(runs_s[guest], runs_s[host]), rule)


def predictability_rules(
    rows: Sequence[Job],
    columns: Sequence[Job],
    row_profiled: Bools,
    column_profiled: Bools,
    abstained: Bools,
    device_type: str,
    mode: SharingMode,
    unknown_domain: str,
) -> Iterator[GroupRule]:
    """The rules on pairs in the order in which they bind.

    `row_profiled` bool[r] and `column_profiled` bool[c]: has the job a profile on the device type? `abstained`
    bool[r, c]: is there no cost, for nothing is predicted? `unknown_domain`: why the model knows nothing of the device
    type and sharing mode, in the predictor's words; empty where it does, or where extrapolation is allowed.
    """

    def unprofiled(i: int, j: int) -> Job:
        return columns[j] if row_profiled[i] else rows[i]

    yield GroupRule.of_pairs(
        ~(row_profiled[:, None] & column_profiled),
        lambda i, j: unprofiled_rule(unprofiled(i, j), device_type),
        lambda i, j: RuleGroup(
            RuleKind.UNPROFILED_WORKLOAD, workload=unprofiled(i, j).workload, device_type=device_type
        ),
    )
    if unknown_domain:
        yield GroupRule.of_kind(
            RuleKind.UNKNOWN_DEVICE_TYPE,
            np.broadcast_to(np.True_, abstained.shape),
            lambda i, j: Rule(
                kind=RuleKind.UNKNOWN_DEVICE_TYPE,
                job_id=rows[i].id,
                partner_id=columns[j].id,
                device_type=device_type,
                sharing_mode=mode,
                detail=unknown_domain,
            ),
        )
    yield GroupRule.of_pairs(
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
