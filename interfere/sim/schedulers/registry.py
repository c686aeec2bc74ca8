"""Makes every scheduler of its record and of what it is told beside it."""

import math
from dataclasses import dataclass, replace

from interfere.extensions import ExtensionKind, find_extension
from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, ObjectiveKind, Progress
from interfere.sim.cluster import Cluster, Decision, Scheduler
from interfere.sim.schedulers.estimates import Estimate, History, TimeLimits, ToldDurations
from interfere.sim.schedulers.orders import EarliestDeadline, Fifo, LeastAttained, Order, ShortestFirst
from interfere.sim.schedulers.planner import (
    DeadlinePlanner,
    PlannedScheduler,
    PlannedSharing,
    ServerPlanner,
)
from interfere.sim.schedulers.preemptive import PreemptiveScheduler, RematchingScheduler
from interfere.sim.schedulers.queue import Backfill, QueueScheduler, SlotAdmission
from interfere.sim.schedulers.records import Queue, SchedulerRecord, Sharing
from interfere.sim.schedulers.sharing import GreedySharing, GuestPlacement, SchedulerSettings
from interfere.sim.world import LATE_S

REMATCHING_SLICE_S = 300.0  # about a round of Gavel, 6 min (Narayanan et al., OSDI 2020)
MIN_SPAN_S = 60.0  # a shorter window of a job in company is mostly start-up


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundScheduler:
    """A scheduler that decides at whole multiples of `round_s` alone; between two of them everything waits.

    A real scheduler looks at its queue every few seconds, not at the moment of an event.

    Law: nothing starts, stops or is dropped between two rounds.
    """

    inner: Scheduler
    round_s: float

    def decide(self, cluster: Cluster) -> Decision:
        """Return the inner scheduler's decision where a round is due; else ask for the next round."""
        next_s = math.ceil((cluster.now_s - LATE_S) / self.round_s) * self.round_s
        return Decision(wake_s=next_s) if next_s > cluster.now_s + LATE_S else self.inner.decide(cluster)


def make_scheduler(record: SchedulerRecord, settings: SchedulerSettings) -> Scheduler:
    """Return a new scheduler for a record, in rounds where the settings say so.

    Raises UnfitError for one of another package that cannot be loaded.
    """
    made = _at_every_event(record, replace(settings, round_s=0.0))
    return RoundScheduler(inner=made, round_s=settings.round_s) if settings.round_s else made


def _at_every_event(record: SchedulerRecord, settings: SchedulerSettings) -> Scheduler:
    if record.extension:
        made: Scheduler = find_extension(ExtensionKind.SCHEDULER, record.extension)(settings)
        return made
    settings = replace(
        settings,
        seats=record.seats,
        max_shared_gpus=1 if record.one_gpu else settings.max_shared_gpus,
        guest_ends_first=settings.guest_ends_first and not (record.is_preemptive and not record.rematch),
    )
    estimate = _told(settings) if record.knows_durations else History()
    if record.is_policy:
        return _policy(record, settings, estimate)
    if record.rematch:
        return _rematching(record, settings, estimate)
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
        estimate=estimate,
    )


def _told(settings: SchedulerSettings) -> Estimate:
    """Return what a scheduler knows that is told how long jobs run."""
    if settings.limit_unit_s:
        return TimeLimits(settings.limit_unit_s)
    return ToldDurations(settings.duration_error, settings.seed)


def _rematching(record: SchedulerRecord, settings: SchedulerSettings, estimate: Estimate) -> Scheduler:
    order = _order(record.queue, estimate)
    inner: Scheduler = QueueScheduler(order=order, backfill=record.backfill, whole_nodes=settings.whole_nodes)
    if record.is_preemptive:
        inner = make_scheduler(replace(record, rematch=False, sharing=Sharing.GREEDY, one_gpu=True), settings)
    expects = record.knows_durations or record.queue is Queue.QSSF
    return RematchingScheduler(
        inner=inner,
        order=order,
        settings=settings,
        estimate=estimate if expects else None,
        slice_s=settings.slice_s or REMATCHING_SLICE_S,
    )


def _policy(record: SchedulerRecord, settings: SchedulerSettings, estimate: Estimate) -> Scheduler:
    planner, share = ServerPlanner(settings=settings, estimate=estimate), bool(record.sharing)
    if record.queue is Queue.POLICY:
        return PlannedScheduler(planner=planner, order=ShortestFirst(estimate=estimate), share=share)
    planner.objective = ObjectiveKind.AUTO
    return DeadlinePlanner(planner=planner, share=share, promise=record.queue is Queue.POLICY_DEADLINES)


def _order(queue: Queue, estimate: Estimate) -> Order:
    orders: dict[Queue, Order] = {
        Queue.FIFO: Fifo(),
        Queue.SJF: ShortestFirst(estimate=estimate),
        Queue.QSSF: ShortestFirst(estimate=estimate, per_gpu=True),
        Queue.TIRESIAS: LeastAttained(),
        Queue.SRTF: ShortestFirst(estimate=estimate, remaining=True),
        Queue.EDF: EarliestDeadline(),
    }
    return orders[queue]


def _sharing(record: SchedulerRecord, settings: SchedulerSettings, estimate: Estimate) -> GuestPlacement | None:
    if record.sharing is Sharing.GREEDY:
        return GreedySharing(settings=settings, estimate=estimate, meet_deadlines=record.drop)
    if record.sharing is not Sharing.MATCHING:
        return None
    return PlannedSharing(planner=ServerPlanner(settings=settings, estimate=estimate))


class LearningScheduler:
    """Wraps a scheduler that decides by an online model, and lets the model observe its jobs before each decision.

    Every completed span in which a job shared becomes one progress observation with its slowdown, as an agent on the
    device would report it.
    Law: only spans that have ended are reported, each once, and none in which a job loaded or ended.
    """

    def __init__(self, inner: Scheduler, online: OnlineModel, settings: SchedulerSettings) -> None:
        self._inner, self._online, self._settings = inner, online, settings
        self._spans_read = 0
        self.observations = 0

    def decide(self, cluster: Cluster) -> Decision:
        """Let the model observe the spans that ended since the last call, then return the wrapped scheduler's
        decision."""
        for k, span in enumerate(cluster.spans[self._spans_read :], self._spans_read):
            if not span.company_ids or not span.stepping or span.end_s - span.start_s < MIN_SPAN_S:
                continue
            victim = cluster.jobs[span.job_id].job
            observation = Progress(
                observation_id=f"span-{k}",
                job_id=victim.id,
                workload=victim.workload,
                company=tuple(cluster.jobs[other].job.workload for other in span.company_ids),
                device_type=cluster.devices[span.device_ids[0]].device.type,
                mode=self._settings.mode,
                start_s=span.start_s,
                end_s=span.end_s,
                slowdown=span.slowdown,
            )
            self._online.observe(observation, self._resolve)
            self.observations += 1
        self._spans_read = len(cluster.spans)
        return self._inner.decide(cluster)

    def _resolve(self, workload: str, device_type: str) -> JobProfile | None:
        return self._settings.profile(workload, device_type)
