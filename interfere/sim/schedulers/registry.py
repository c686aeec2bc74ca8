"""Makes every scheduler by its name (see `names`) and what it is told beside it."""

import math
from dataclasses import dataclass, replace

from interfere.matching.repairing.exact import repair
from interfere.matching.repairing.greedy import repair_greedily
from interfere.protocols import Predictor
from interfere.records import ObjectiveKind
from interfere.records.cluster import DEFAULT_MIN_JOINT_THROUGHPUT, DEFAULT_RISK
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Scheduler
from interfere.sim.schedulers.deadline_planner import DeadlinePlanner
from interfere.sim.schedulers.duration_estimates import Estimate, History, Oracle
from interfere.sim.schedulers.greedy_sharing import GreedySharing
from interfere.sim.schedulers.names import (
    GREEDY,
    MATCHING,
    ONE_GPU,
    POLICY,
    POLICY_DEADLINES,
    SLOTS,
    ParsedName,
    parse_name,
)
from interfere.sim.schedulers.orders import EarliestDeadline, Fifo, LeastAttained, LeastLaxity, Order, ShortestFirst
from interfere.sim.schedulers.placement import Sharing
from interfere.sim.schedulers.planner import PlannedScheduler, PlannedSharing, ServerPlanner
from interfere.sim.schedulers.preemptive import PreemptiveScheduler
from interfere.sim.schedulers.queue import Backfill, QueueScheduler
from interfere.sim.schedulers.repairing.expectations import Expectations
from interfere.sim.schedulers.repairing.scheduler import RepairingScheduler
from interfere.sim.schedulers.slot_admission import SlotAdmission

REPAIRING_SLICE_S = 300.0  # about a round of Gavel, 6 min (Narayanan et al., OSDI 2020)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What a scheduler is told beside its name."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.nan  # on predicted slowdowns; NaN: none, as the server has it by default
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT  # a pair shares only above it
    max_shared_gpus: int | None = None  # larger jobs never share
    guest_ends_first: bool = False  # only where no job is preempted: a preemptive scheduler gets devices back anyway
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any free devices
    slice_s: float = 0.0  # a queue decides about sharing at most this often; 0: at every event, re-pairing every 300 s
    risk: float = DEFAULT_RISK  # of the server: probability with which a slowdown may pass its cap


def make_scheduler(name: str, settings: SchedulerSettings) -> Scheduler:
    """A new scheduler. Raises InvalidInputError for a name that is not in the registry."""
    parsed = parse_name(name)
    if parsed.one_gpu:
        settings = replace(settings, max_shared_gpus=1)
    if parsed.is_policy:
        return _policy(parsed, settings)
    if parsed.repair:
        return _repairing(parsed, settings)
    if parsed.is_preemptive:
        settings = replace(settings, guest_ends_first=False)
    estimate: Estimate = Oracle() if parsed.is_oracle else History()
    sharing = _sharing(parsed, settings, estimate)
    if parsed.head == SLOTS:
        return SlotAdmission(sharing=sharing, whole_nodes=settings.whole_nodes)
    order = _order(parsed.head, estimate)
    if parsed.is_preemptive:
        return PreemptiveScheduler(
            order=order,
            backfill=parsed.backfill is not Backfill.NONE,
            sharing=sharing,
            whole_nodes=settings.whole_nodes,
            estimate=estimate,
        )
    return QueueScheduler(
        order=order,
        backfill=parsed.backfill,
        drop=parsed.drop,
        sharing=sharing,
        whole_nodes=settings.whole_nodes,
        slice_s=settings.slice_s,
        estimate=estimate,
    )


def _repairing(parsed: ParsedName, settings: SchedulerSettings) -> Scheduler:
    knows_durations = parsed.is_oracle or parsed.head == "qssf"
    estimate: Estimate = Oracle() if parsed.is_oracle else History()
    order = _order(parsed.head, estimate)
    slice_s = settings.slice_s or REPAIRING_SLICE_S
    inner: Scheduler = QueueScheduler(order=order, backfill=parsed.backfill, whole_nodes=settings.whole_nodes)
    if parsed.is_preemptive:
        inner = make_scheduler(f"{parsed.head}+{Backfill.FIRST_FIT}+{GREEDY}+{ONE_GPU}", settings)
    return RepairingScheduler(
        inner=inner,
        order=order,
        solve=repair if parsed.sharing == MATCHING else repair_greedily,
        predictor=settings.predictor,
        profiles=settings.profiles,
        mode=settings.mode,
        expectations=Expectations(estimate=estimate if knows_durations else None, least_s=slice_s),
        slice_s=slice_s,
        max_slowdown=math.inf if math.isnan(settings.max_slowdown) else settings.max_slowdown,
        min_joint_throughput=settings.min_joint_throughput,
    )


def _policy(parsed: ParsedName, settings: SchedulerSettings) -> Scheduler:
    planner = _server_planner(settings, Oracle())
    share = bool(parsed.sharing)
    if parsed.head == POLICY:
        return PlannedScheduler(planner=planner, order=ShortestFirst(), share=share)
    planner.objective = ObjectiveKind.DEADLINE_MISSES
    return DeadlinePlanner(planner=planner, share=share, promise=parsed.head == POLICY_DEADLINES)


def _order(name: str, estimate: Estimate) -> Order:
    orders: dict[str, Order] = {
        "fifo": Fifo(),
        "sjf": ShortestFirst(estimate=estimate),
        "qssf": ShortestFirst(estimate=estimate, per_gpu=True),
        "tiresias": LeastAttained(),
        "srtf": ShortestFirst(estimate=estimate, remaining=True),
        "edf": EarliestDeadline(),
        "laxity": LeastLaxity(estimate=estimate),
    }
    return orders[name]


def _server_planner(settings: SchedulerSettings, estimate: Estimate) -> ServerPlanner:
    return ServerPlanner(
        predictor=settings.predictor,
        profiles=settings.profiles,
        mode=settings.mode,
        estimate=estimate,
        max_slowdown=settings.max_slowdown,
        min_joint_throughput=settings.min_joint_throughput,
        max_shared_gpus=settings.max_shared_gpus,
        guest_ends_first=settings.guest_ends_first,
        risk=settings.risk,
    )


def _sharing(parsed: ParsedName, settings: SchedulerSettings, estimate: Estimate) -> Sharing | None:
    if parsed.sharing == GREEDY:
        return GreedySharing(
            predictor=settings.predictor,
            profiles=settings.profiles,
            mode=settings.mode,
            max_slowdown=math.inf if math.isnan(settings.max_slowdown) else settings.max_slowdown,
            min_joint_throughput=settings.min_joint_throughput,
            max_shared_gpus=settings.max_shared_gpus,
            guest_ends_first=settings.guest_ends_first,
            meet_deadlines=parsed.drop,
            estimate=estimate,
        )
    return PlannedSharing(planner=_server_planner(settings, estimate)) if parsed.sharing == MATCHING else None
