"""The rule `guest_ends_first`: a job may join a resident only where it is expected to end no later than it.

A guest that outlasts its host keeps the devices, the next guest keeps them after that, and a gang that waits for whole
nodes may never see them empty. How much that costs depends on the backfill. On an overloaded cluster of gangs of 128
devices (shortest job first, run times known, mean of nine traces, gangs taken to lose what one device of each loses)
sharing without the rule takes 2.8 times as long under first fit, which reserves nothing, and 12 % longer under EASY
backfill; with it 2 % and 11 % less long. With run times estimated from history, and on clusters with stable load, the
rule has no clear effect: it is off unless a request sets it. Times are expected ones, remaining · τ · median slowdown;
a job that does not say how long it will run is not judged. Pure arrays.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.pair_rules import Bools, UniformRule
from interfere.records import Job, Rule, RuleKind

Floats = NDArray[np.float64]
EQUAL = 1e-9  # relative: two that end together


def outlasts(guest_s: Floats | float, host_s: Floats | float) -> Bools:
    """bool[r, c]: does guest i stay after host j? False where either is NaN."""
    return np.asarray(guest_s > host_s * (1 + EQUAL))


def guest_rule(guests: Sequence[Job], hosts: Sequence[Job], guest_s: Floats, host_s: Floats) -> UniformRule:
    """Return the rule that forbids each guest whose expected end is later than its host's.

    `guest_s` and `host_s` float64[r, c]: expected runtime in seconds of each guest and of each host when together.
    """
    return UniformRule(
        kind=RuleKind.GUEST_ENDS_FIRST,
        mask=outlasts(guest_s, host_s),
        rule_of=lambda i, j: Rule(
            kind=RuleKind.GUEST_ENDS_FIRST,
            job_id=guests[i].id,
            partner_id=hosts[j].id,
            runtime_s=float(guest_s[i, j]),
            partner_runtime_s=float(host_s[i, j]),
        ),
    )
