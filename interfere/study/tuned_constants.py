"""Which constants of a policy were chosen by results on which trace: such a policy is not reported on that trace.

A trace is recognised by marks of some of its longer jobs, whatever it is called, stretched, redrawn or cut to a part of
its virtual clusters. Law: whoever chooses a constant by results on a trace records it here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from interfere.sim.schedulers.records import SchedulerRecord, Sharing
from interfere.sim.world import World

LONG_S = 3600.0  # run times of shorter jobs coincide by chance
RECOGNISED_SHARE = 0.05  # of the marks of a trace: 3 of 64


class TunedConstant(StrEnum):
    """A constant that was chosen on a trace."""

    MAX_PENDING = "the 64 waiting jobs that a decision of matching considers"
    GUESTS_MAY_STAY = "that guests may outlast their hosts"

    def acts_in(self, policy: SchedulerRecord) -> bool:
        """Return whether the constant has an effect in this policy."""
        if self is TunedConstant.MAX_PENDING:
            return policy.sharing is Sharing.MATCHING or policy.is_policy
        return bool(policy.sharing) and not policy.is_preemptive


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTrace:
    """A trace that constants were chosen on."""

    name: str
    constants: tuple[TunedConstant, ...]
    marks: frozenset[str]


def job_mark(user: str, gpus: int, duration_s: float) -> str:
    """Return eight characters that identify a job independently of its arrival time and name."""
    return hashlib.sha256(f"{user}|{gpus}|{duration_s:.0f}".encode()).hexdigest()[:8]


# The first 64 marks, in order, of the jobs of an hour and more in the given reconstruction of September 2020.
VENUS_MARKS = (
    "0005dc7f 0027ddb9 0093737a 00a3d45e 010dd5f7 010f8869 011f5bf2 015ff348 02285b4e 02491f52 "
    "026a1f9a 027be88f 02c00e9c 02e8836d 030c71fc 03304256 03640128 03957c31 0424bd93 042eaa63 "
    "0442c3e4 047896c1 047bef75 04c7c3b2 04e2c19f 04ec8c0b 04ff76f0 05bf2d20 05e3d1fc 05fcf43d "
    "065d1ac5 0661c94c 067a0b53 067e73e1 0710dc09 073e0f31 07e2e1b6 07fbee92 0812b99f 0834b0c9 "
    "0853597a 088db4ca 08bf372d 08c9ab55 09715f2e 09c284c7 09dc6e56 09f58b73 0a05426e 0aa80ec5 "
    "0aadd79b 0b0026c5 0b4d6c38 0b72d910 0bb6bf43 0bfaac61 0c53895d 0cb61857 0cee410c 0cfb3381 "
    "0d2a783c 0d3acfb2 0d3c0624 0d7504e7 "
)
TUNING_TRACES = (
    TuningTrace(
        name="SenseTime's Venus, four virtual clusters, September 2020",
        constants=(TunedConstant.MAX_PENDING, TunedConstant.GUESTS_MAY_STAY),
        marks=frozenset(VENUS_MARKS.split()),
    ),
)


def tuned_here(
    worlds: Sequence[World], policies: Sequence[SchedulerRecord], *, guest_may_stay: bool = True
) -> dict[str, str]:
    """Return, for each policy with constants chosen on this trace, a description of these constants.

    `guest_may_stay`: whether the default that guests may outlast their hosts is in force.
    """
    marks = {
        job_mark(job.user, job.gpus, job.duration_s)
        for world in worlds
        for job in world.jobs
        if job.duration_s >= LONG_S
    }
    found: dict[str, str] = {}
    for trace in TUNING_TRACES:
        if len(trace.marks & marks) < RECOGNISED_SHARE * len(trace.marks):
            continue
        for policy in policies:
            acting = [
                constant
                for constant in trace.constants
                if constant.acts_in(policy) and (guest_may_stay or constant is TunedConstant.MAX_PENDING)
            ]
            if acting:
                found[policy.label] = f"{' and '.join(acting)} ({trace.name})"
    return found


def tuned_note(tuned: dict[str, str]) -> str:
    """Return a sentence for a report; empty where no constant was chosen on the trace."""
    if not tuned:
        return ""
    by_reason: dict[str, list[str]] = {}
    for policy, reason in tuned.items():
        by_reason.setdefault(reason, []).append(policy)
    reasons = "; ".join(f"{', '.join(policies)}: {reason}" for reason, policies in by_reason.items())
    return f"chosen on this very trace, so no verdict names these policies: {reasons}"
