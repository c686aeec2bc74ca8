"""Deadlines as the server decides them: the whole queue and every device go to `plan_scope`, with the replay's clock.

Jobs with deadlines weigh 1 and those without less, the shorter the more; only these may be stopped by a device that
goes. What the plan starts is started, what it declines is dropped, the ledger goes from decision to decision:
accepted deadlines are what it promised.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import decide
from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    ObjectiveKind,
    PairBatch,
    Prediction,
    ScopeLedger,
    Snapshot,
    Window,
)
from interfere.records.cluster import DEFAULT_RISK
from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.cluster import Cluster, Decision, Progress, Start
from interfere.sim.deadlines import EDGE_SPEED, HOUR_S, EdgeWorld, edge_type
from interfere.sim.schedulers.deadline_queue import hopeless, last_chance_s

ALONE = frozenset({ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.DECLINE})
MOST_FREE = 32  # jobs without a deadline that a decision looks at, the shortest


class TwoTypes:
    """What is believed of pairs on one device type, told of its slower twin at the edge too; implements `Predictor`."""

    def __init__(self, inner: MatrixPredictor, workloads: Sequence[str]) -> None:
        """`workloads`: all of the trace; of one that `inner` does not know nothing is predicted."""
        names = [*inner.place, *(name for name in dict.fromkeys(workloads) if name not in inner.place)]
        size, known = len(names), len(inner.place)
        table = np.full((size, size), np.nan)
        table[:known, :known] = inner.slowdown
        self._inner = replace(inner, place={name: k for k, name in enumerate(names)}, slowdown=table)
        self._types = {inner.device_type: 1.0, edge_type(inner.device_type): 1.0 / EDGE_SPEED}
        self.version = inner.version
        self.profiles = {
            (name, kind): JobProfile(workload=name, device_type=kind, step_time_s=step_s, source="replay")
            for name in names
            for kind, step_s in self._types.items()
        }

    def measured(self, one: str, other: str) -> bool:
        """Is anything believed of the two?"""
        i, j = self._inner.place[one], self._inner.place[other]
        return bool(np.isfinite(self._inner.slowdown[i, j] + self._inner.slowdown[j, i]))

    def knows(self, device_type: str, mode: str) -> str:
        """Both types."""
        return self._inner.knows(self._believed_type(device_type), mode)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """As on the one type."""
        return self._inner.predict_pairs(replace(batch, device_type=self._believed_type(batch.device_type)))

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """As on the one type."""
        batch = replace(batch, device_type=self._believed_type(batch.device_type))
        return self._inner.predict_matrix(batch, quantile=quantile)

    def _believed_type(self, device_type: str) -> str:
        """The device type whose slowdowns hold there: that of the matrix for both types, else the type itself."""
        return self._inner.device_type if device_type in self._types else device_type


@dataclass(slots=True, kw_only=True)
class PlannedDeadlines:
    """The policy room with deadlines, windows and promises."""

    edge: EdgeWorld
    predictor: TwoTypes
    profiles: dict[tuple[str, str], JobProfile]
    mode: str
    share: bool = True
    promise: bool = True
    risk: float = DEFAULT_RISK
    most_free: int = MOST_FREE
    objective: ObjectiveKind = ObjectiveKind.DEADLINE_MISSES
    promised: dict[str, float] = field(default_factory=dict)
    decisions: int = 0
    _ledger: ScopeLedger = field(default_factory=lambda: ScopeLedger(scope="replay"))

    def decide(self, cluster: Cluster) -> Decision:
        """One plan; nothing is asked while nobody who waits could start or has become hopeless."""
        waiting = cluster.waiting.values()
        if not any(self._may_start(one, cluster) or hopeless(one, cluster) for one in waiting):
            return Decision(wake_s=last_chance_s(waiting, cluster))
        self.decisions += 1
        limits = Limits.of(
            allowed=ALONE | {ActionKind.START_SHARED} if self.share else ALONE,
            promise_ttl_s=0.0,
            promise_deadlines=self.promise,
            risk=self.risk,
        )
        residents = {name: self._job(one, cluster) for name, one in cluster.running.items()}
        on: dict[str, list[Job]] = {}
        for name, one in cluster.running.items():
            for device_id in one.device_ids:
                on.setdefault(device_id, []).append(residents[name])
        snapshot = Snapshot(
            pending=tuple(self._job(one, cluster) for one in self._queue(cluster)),
            devices=tuple(self._device(one.device.id, cluster, on) for one in cluster.devices.values()),
            scope="replay",
            limits=limits,
            objective=self.objective,
            now_s=cluster.now_s,
            partial=False,
        )
        context = PlanningContext(
            snapshot=snapshot,
            predictor=self.predictor,
            catalogue=ProfileLookup(profiles=self._resolve),
            decision_id=f"replay-{self.decisions}",
        )
        found = decide(context, self._ledger)
        self._ledger = found.ledger
        starts = [
            Start(job_id=action.job_id, device_ids=action.places)
            for action in found.plan.actions
            if action.kind in (ActionKind.START_ALONE, ActionKind.START_SHARED)
        ]
        for action in found.plan.actions:
            if action.accepted:
                self.promised.setdefault(action.job_id, cluster.jobs[action.job_id].job.deadline_s)
        drops = [action.job_id for action in found.plan.actions if action.kind is ActionKind.DECLINE]
        return Decision(starts=starts, drops=drops, wake_s=last_chance_s(cluster.waiting.values(), cluster))

    def _may_start(self, one: Progress, cluster: Cluster) -> bool:
        """Are there as many free devices in a pool, or, where jobs share, a job of its size alone?"""
        pools = Counter(device.pool for device in cluster.free())
        if max(pools.values(), default=0) >= one.job.gpus:
            return True
        return self.share and any(
            other.partner is None
            and other.job.gpus == one.job.gpus
            and self.predictor.measured(one.job.workload, other.job.workload)
            for other in cluster.running.values()
        )

    def _queue(self, cluster: Cluster) -> list[Progress]:
        dated = [one for one in cluster.waiting.values() if math.isfinite(one.job.deadline_s)]
        free = [one for one in cluster.waiting.values() if math.isinf(one.job.deadline_s)]
        return [*dated, *sorted(free, key=lambda one: (one.left_s, one.order))[: self.most_free]]

    def _resolve(self, job: Job, device_type: str) -> JobProfile | None:
        return self.profiles.get((job.workload, device_type))

    def _job(self, one: Progress, cluster: Cluster) -> Job:
        left_s = max(0.0, one.left_s - (cluster.served_s(one) - one.served_s))
        dated = math.isfinite(one.job.deadline_s)
        return Job(
            id=one.job.id,
            workload=one.job.workload or "?",
            gpus=one.job.gpus,
            remaining_s=left_s,
            deadline_s=one.job.deadline_s if dated else NAN,
            preemptible=not dated,
            checkpoint_s=one.job.checkpoint_s,
            weight=1.0 if dated else 0.5 / (1.0 + left_s / HOUR_S) ** 0.5,
        )

    def _device(self, name: str, cluster: Cluster, on: dict[str, list[Job]]) -> Device:
        one = cluster.devices[name]
        windows = tuple(
            Window(from_s=from_s, until_s=NAN if math.isinf(until_s) else until_s)
            for from_s, until_s in self.edge.known_s(one, cluster.now_s)
        )
        return replace(one.device, mode=self.mode, residents=tuple(on.get(name, ())), windows=windows)
