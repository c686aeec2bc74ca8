"""The rule `min_joint_throughput`: two jobs share only where together they get more done than one after the other.

Beside each other two jobs with slowdowns s and s' do 1/s + 1/s' of the work that one job does alone in the same time.
Taking turns does 1: at or below that every pair ends no sooner than one after the other would, and the first of the two
ends later. Of the 136 pairs of the shipped CPU table 21 lose so, and of Gavel's K80 pairs 42 %. The medians of the
prediction decide. Law: a larger limit never allows a pair that a smaller one forbids. Pure arrays.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.pair_rules import Bools, UniformRule
from interfere.records import Job, Rule, RuleKind

Floats = NDArray[np.float64]


def joint_throughput(*slowdowns: Floats) -> Floats:
    """float64[...]: Σ 1/s over the slowdowns of jobs beside each other; NaN where one is not known."""
    return np.asarray(sum(1.0 / slowdown for slowdown in slowdowns))


def does_not_pay(slowdowns: Sequence[Floats], min_joint_throughput: float) -> Bools:
    """Return bool[...]: whether the joint throughput is at or below the limit; False where it is unknown."""
    if min_joint_throughput == 0:
        return np.zeros(np.broadcast_shapes(*map(np.shape, slowdowns)), dtype=bool)
    return np.asarray(joint_throughput(*slowdowns) <= min_joint_throughput)


def joint_throughput_rule(
    jobs: Sequence[Job],
    partners: Sequence[Job],
    slowdown: Floats,
    partner_slowdown: Floats,
    min_joint_throughput: float,
) -> UniformRule:
    """The rule on each job beside each partner; `slowdown` of the jobs and `partner_slowdown`, float64[r, c] each."""
    return UniformRule(
        kind=RuleKind.JOINT_THROUGHPUT,
        mask=does_not_pay((slowdown, partner_slowdown), min_joint_throughput),
        rule_of=lambda i, j: Rule(
            kind=RuleKind.JOINT_THROUGHPUT,
            job_id=jobs[i].id,
            partner_id=partners[j].id,
            slowdown=float(slowdown[i, j]),
            partner_slowdown=float(partner_slowdown[i, j]),
            min_joint_throughput=min_joint_throughput,
        ),
    )
