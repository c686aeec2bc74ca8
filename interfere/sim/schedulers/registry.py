"""Schedulers by name: `order[+backfill][+greedy or +matching]`, or `policy`.

Orders: fifo; sjf and srtf by the true duration; qssf by an estimate from history, times the devices; tiresias by
attained service. srtf and tiresias stop running jobs, the others never do. `policy` decides everything by the policy
room, its queue by sjf, on whatever devices are free; `policy-alone` is the same where nobody may share.
Law: the reference of a policy that shares has the same order, estimates and rights to stop.
"""

import math
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError
from interfere.protocols import Predictor
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Scheduler
from interfere.sim.schedulers.duration_estimates import Estimate, History, Oracle
from interfere.sim.schedulers.greedy_sharing import GreedyPacking
from interfere.sim.schedulers.orders import Fifo, LeastAttained, Order, ShortestFirst
from interfere.sim.schedulers.planner import PlannedScheduler, PlannedSharing, Planner
from interfere.sim.schedulers.preemptive import PreemptiveScheduler
from interfere.sim.schedulers.queue import QueueScheduler, Sharing

ORDERS = ("fifo", "sjf", "qssf", "tiresias", "srtf")
PREEMPTIVE = ("tiresias", "srtf")  # stop jobs that run
ORACLES = ("sjf", "srtf", "policy", "policy-alone")  # know how long jobs will run, as no scheduler does
BACKFILL, GREEDY, MATCHING = "backfill", "greedy", "matching"
POLICY, POLICY_ALONE = "policy", "policy-alone"
DEFAULT = (
    "fifo",
    "fifo+backfill",
    "qssf+backfill",
    "qssf+backfill+matching",
    "sjf+backfill",
    "sjf+backfill+greedy",
    "sjf+backfill+matching",
    "tiresias+backfill",
    "tiresias+backfill+matching",
    "srtf+backfill",
    "srtf+backfill+matching",
)
# On predicted slowdowns. Of 1.25, 1.4, 1.5, 2 and none it ends jobs soonest on Gavel's Philly traces (`make bench`); on
# Venus, not tuned to, 1.25, 1.5 and 2 lie within a point of each other.
DEFAULT_CAP = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """What sharing decides by."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = DEFAULT_CAP  # NaN: none
    most_shared_gpus: int | None = None
    guest_ends_first: bool = True  # where nobody is stopped: a scheduler that stops jobs gets its devices back anyway


def reference_of(policy: str) -> str:
    """The same policy without sharing; empty for one that shares nothing."""
    head, _, last = policy.rpartition("+")
    return head if last in (GREEDY, MATCHING) else POLICY_ALONE if policy == POLICY else ""


def first_word(policy: str) -> str:
    """The order, or `policy`."""
    return policy.partition("+")[0]


def check_policy(policy: str) -> None:
    """Raises InvalidInputError for a name that means nothing."""
    parts = policy.split("+")
    rest = parts[1:]
    if rest[:1] == [BACKFILL]:
        rest = rest[1:]
    if policy not in (POLICY, POLICY_ALONE) and (parts[0] not in ORDERS or rest not in ([], [GREEDY], [MATCHING])):
        raise InvalidInputError(
            "no such policy",
            value=policy,
            remedy=f"{POLICY}, {POLICY_ALONE}, or ORDER[+{BACKFILL}][+{GREEDY} or +{MATCHING}] with ORDER one of "
            f"{', '.join(ORDERS)}",
        )


def scheduler_of(policy: str, beliefs: Beliefs, *, whole_nodes: bool = True, slice_s: float = 0.0) -> Scheduler:
    """A fresh scheduler. Raises InvalidInputError for a name that means nothing."""
    check_policy(policy)
    name, *rest = policy.split("+")
    if policy in (POLICY, POLICY_ALONE):
        planner = _planner(beliefs, Oracle())
        return PlannedScheduler(planner=planner, order=ShortestFirst(), share=policy == POLICY)
    if name in PREEMPTIVE:
        beliefs = replace(beliefs, guest_ends_first=False)
    order, estimate = _order(name)
    sharing = _sharing(rest[-1] if rest else "", beliefs, estimate)
    if name in PREEMPTIVE:
        return PreemptiveScheduler(
            order=order, backfill=BACKFILL in rest, sharing=sharing, whole_nodes=whole_nodes, estimate=estimate
        )
    return QueueScheduler(
        order=order, backfill=BACKFILL in rest, sharing=sharing, whole_nodes=whole_nodes, slice_s=slice_s
    )


def _order(name: str) -> tuple[Order, Estimate]:
    """The order, and what it and its sharing know of durations."""
    estimate: Estimate = Oracle() if name in ORACLES else History()
    orders: dict[str, Order] = {
        "fifo": Fifo(),
        "sjf": ShortestFirst(estimate=estimate),
        "qssf": ShortestFirst(estimate=estimate, per_gpu=True),
        "tiresias": LeastAttained(),
        "srtf": ShortestFirst(estimate=estimate, remaining=True),
    }
    return orders[name], estimate


def _planner(beliefs: Beliefs, estimate: Estimate) -> Planner:
    return Planner(
        predictor=beliefs.predictor,
        profiles=beliefs.profiles,
        mode=beliefs.mode,
        estimate=estimate,
        max_slowdown=beliefs.max_slowdown,
        most_shared_gpus=beliefs.most_shared_gpus,
        guest_ends_first=beliefs.guest_ends_first,
    )


def _sharing(name: str, beliefs: Beliefs, estimate: Estimate) -> Sharing | None:
    if name == GREEDY:
        cap = math.inf if math.isnan(beliefs.max_slowdown) else beliefs.max_slowdown
        return GreedyPacking(
            predictor=beliefs.predictor,
            profiles=beliefs.profiles,
            mode=beliefs.mode,
            max_slowdown=cap,
            most_shared_gpus=beliefs.most_shared_gpus,
            guest_ends_first=beliefs.guest_ends_first,
            estimate=estimate,
        )
    return PlannedSharing(planner=_planner(beliefs, estimate)) if name == MATCHING else None
