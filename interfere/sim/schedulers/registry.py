"""Makes every scheduler of its record and what it is told beside it."""

import math
from dataclasses import dataclass, replace

from interfere.matching.rematching.exact import rematch
from interfere.matching.rematching.greedy import rematch_greedily
from interfere.protocols import Predictor
from interfere.records import ObjectiveKind
from interfere.records.cluster import DEFAULT_SEATS
from interfere.records.limits import DEFAULT_MIN_JOINT_THROUGHPUT, DEFAULT_RISK
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Scheduler
from interfere.sim.schedulers.deadline_planner import DeadlinePlanner
from interfere.sim.schedulers.duration_estimates import Estimate, History, NoisyDurations, Oracle
from interfere.sim.schedulers.greedy_sharing import GreedySharing
from interfere.sim.schedulers.orders import EarliestDeadline, Fifo, LeastAttained, LeastLaxity, Order, ShortestFirst
from interfere.sim.schedulers.placement import GuestPlacement
from interfere.sim.schedulers.planner import (
    MAX_PENDING,
    MAX_PENDING_GROUPS,
    PlannedGroups,
    PlannedScheduler,
    PlannedSharing,
    ServerPlanner,
)
from interfere.sim.schedulers.preemptive import PreemptiveScheduler
from interfere.sim.schedulers.queue import Backfill, QueueScheduler
from interfere.sim.schedulers.records import Queue, SchedulerRecord, Sharing
from interfere.sim.schedulers.rematching.expectations import Expectations
from interfere.sim.schedulers.rematching.scheduler import RematchingScheduler
from interfere.sim.schedulers.slot_admission import SlotAdmission

REMATCHING_SLICE_S = 300.0  # about a round of Gavel, 6 min (Narayanan et al., OSDI 2020)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options that all schedulers of a replay share, whatever they believe about slowdowns."""

    max_shared_gpus: int | None = None  # larger jobs never share
    guest_ends_first: bool = False  # only where no job is preempted: a preemptive scheduler gets devices back anyway
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any free devices
    slice_s: float = 0.0  # a queue decides about sharing at most this often; 0: at every event, re-pairing every 300 s
    duration_error: float = 0.0  # standard error of log run time, of schedulers that are told run times
    seed: int = 0  # of these errors
    risk: float = DEFAULT_RISK  # of the server: probability with which a slowdown may pass its cap


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings(SchedulerOptions):
    """The predictor, the profiles and the limits that a scheduler gets in addition to its record."""

    predictor: Predictor
    profiles: Profiles
    mode: SharingMode
    max_slowdown: float = math.nan  # on predicted slowdowns; NaN: none, as the server has it by default
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT  # a pair shares only above it
    seats: int = DEFAULT_SEATS  # jobs that may share a device


def make_scheduler(record: SchedulerRecord, settings: SchedulerSettings) -> Scheduler:
    """Return a new scheduler for a record."""
    if record.one_gpu:
        settings = replace(settings, max_shared_gpus=1)
    settings = replace(settings, seats=record.seats)
    if record.is_policy:
        return _policy(record, settings)
    if record.rematch:
        return _rematching(record, settings)
    if record.is_preemptive:
        settings = replace(settings, guest_ends_first=False)
    estimate = _told_durations(settings) if record.knows_durations else History()
    sharing = _sharing(record, settings, estimate)
    if record.queue is Queue.SLOTS:
        return SlotAdmission(sharing=sharing, whole_nodes=settings.whole_nodes, estimate=estimate)
    order = _order(record.queue, estimate)
    if record.is_preemptive:
        return PreemptiveScheduler(
            order=order,
            backfill=record.backfill is not Backfill.NONE,
            sharing=sharing,
            whole_nodes=settings.whole_nodes,
            estimate=estimate,
        )
    return QueueScheduler(
        order=order,
        backfill=record.backfill,
        drop=record.drop,
        sharing=sharing,
        whole_nodes=settings.whole_nodes,
        slice_s=settings.slice_s,
        estimate=estimate,
    )


def _told_durations(settings: SchedulerSettings) -> Estimate:
    """Return the run times that a scheduler is given: exact, or with an error."""
    return NoisyDurations(settings.duration_error, settings.seed) if settings.duration_error else Oracle()


def _rematching(record: SchedulerRecord, settings: SchedulerSettings) -> Scheduler:
    knows_durations = record.knows_durations or record.queue is Queue.QSSF
    estimate = _told_durations(settings) if record.knows_durations else History()
    order = _order(record.queue, estimate)
    slice_s = settings.slice_s or REMATCHING_SLICE_S
    inner: Scheduler = QueueScheduler(order=order, backfill=record.backfill, whole_nodes=settings.whole_nodes)
    if record.is_preemptive:
        inner = make_scheduler(replace(record, rematch=False, sharing=Sharing.GREEDY, one_gpu=True), settings)
    return RematchingScheduler(
        inner=inner,
        order=order,
        solve=rematch if record.sharing is Sharing.MATCHING else rematch_greedily,
        predictor=settings.predictor,
        profiles=settings.profiles,
        mode=settings.mode,
        expectations=Expectations(estimate=estimate if knows_durations else None, least_s=slice_s),
        slice_s=slice_s,
        max_slowdown=math.inf if math.isnan(settings.max_slowdown) else settings.max_slowdown,
        min_joint_throughput=settings.min_joint_throughput,
    )


def _policy(record: SchedulerRecord, settings: SchedulerSettings) -> Scheduler:
    planner = _server_planner(settings, _told_durations(settings))
    share = bool(record.sharing)
    if record.queue is Queue.POLICY:
        return PlannedScheduler(planner=planner, order=ShortestFirst(estimate=planner.estimate), share=share)
    planner.objective = ObjectiveKind.DEADLINE_MISSES
    return DeadlinePlanner(planner=planner, share=share, promise=record.queue is Queue.POLICY_DEADLINES)


def _order(queue: Queue, estimate: Estimate) -> Order:
    orders: dict[Queue, Order] = {
        Queue.FIFO: Fifo(),
        Queue.SJF: ShortestFirst(estimate=estimate),
        Queue.QSSF: ShortestFirst(estimate=estimate, per_gpu=True),
        Queue.TIRESIAS: LeastAttained(),
        Queue.SRTF: ShortestFirst(estimate=estimate, remaining=True),
        Queue.EDF: EarliestDeadline(),
        Queue.LAXITY: LeastLaxity(estimate=estimate),
    }
    return orders[queue]


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
        seats=settings.seats,
        max_pending=MAX_PENDING if settings.seats == DEFAULT_SEATS else MAX_PENDING_GROUPS,
    )


def _sharing(record: SchedulerRecord, settings: SchedulerSettings, estimate: Estimate) -> GuestPlacement | None:
    if record.sharing is Sharing.GREEDY:
        return GreedySharing(
            predictor=settings.predictor,
            profiles=settings.profiles,
            mode=settings.mode,
            max_slowdown=math.inf if math.isnan(settings.max_slowdown) else settings.max_slowdown,
            min_joint_throughput=settings.min_joint_throughput,
            max_shared_gpus=settings.max_shared_gpus,
            guest_ends_first=settings.guest_ends_first,
            meet_deadlines=record.drop,
            estimate=estimate,
        )
    if record.sharing is not Sharing.MATCHING:
        return None
    planner = _server_planner(settings, estimate)
    return PlannedSharing(planner=planner) if settings.seats == DEFAULT_SEATS else PlannedGroups(planner=planner)
