"""Fallback answers while the server is unavailable: the same records, so that a scheduler has one code path.

Law: nothing here predicts. Jobs start alone on empty devices, in queue order; all others wait, predictions abstain.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from interfere.errors import UnavailableError
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    Observation,
    ObservationAnswer,
    ObservationResult,
    PairAnswer,
    PairQuery,
    Plan,
    Prediction,
    RankAnswer,
    Ranking,
    RankQuery,
    Snapshot,
    SolveStatus,
)


class Fallback(Protocol):
    """Answers that a client gives by itself while the server is unavailable."""

    def predict(self, query: PairQuery, error: UnavailableError) -> PairAnswer:
        """Answer in place of PredictSlowdowns while the server is away."""

    def match(self, snapshot: Snapshot, error: UnavailableError) -> Plan:
        """Answer in place of Match while the server is away."""

    def rank(self, query: RankQuery, error: UnavailableError) -> RankAnswer:
        """Answer in place of RankPlacements while the server is away."""

    def observe(self, windows: Sequence[Observation], error: UnavailableError) -> tuple[ObservationAnswer, ...]:
        """Return the answer to each observation while the server is away, for example that it has to be sent again."""


class AloneFallback:
    """A fallback under which no jobs share a device and no job on several devices starts. Reasons say that the
    server is away."""

    def predict(self, query: PairQuery, error: UnavailableError) -> PairAnswer:
        """Abstain for every pair."""
        n = len(query.jobs)
        pairs = query.pairs or tuple((i, j) for i in range(n) for j in range(n) if i != j)
        indices = np.array([pair[:2] for pair in pairs], dtype=np.int64).reshape(-1, 2)
        return PairAnswer(
            victim=indices[:, 0],
            neighbour=indices[:, 1],
            further=tuple(pair[2:] for pair in pairs) if any(len(pair) > 2 for pair in pairs) else (),
            prediction=Prediction.abstaining([_reason(error)] * len(pairs)),
            model_version="",
            device_type=query.device_type,
        )

    def match(self, snapshot: Snapshot, error: UnavailableError) -> Plan:
        """Start jobs alone on empty devices that have enough memory, in the order of the queue; all other jobs wait."""
        free_devices = [device for device in snapshot.devices if not device.residents]
        remaining = len(free_devices) if snapshot.limits.max_devices is None else snapshot.limits.max_devices
        actions = []
        for job in snapshot.pending:
            device = (
                next((d for d in free_devices if _may_start(job, d, snapshot.limits)), None) if remaining > 0 else None
            )
            if device is None:
                actions.append(Action(kind=ActionKind.WAIT, job_id=job.id, reason=_reason(error)))
                continue
            free_devices.remove(device)
            remaining -= 1
            actions.append(
                Action(
                    kind=ActionKind.START_ALONE,
                    job_id=job.id,
                    device_id=device.id,
                    slowdown=1.0,
                    slowdown_lower=1.0,
                    slowdown_upper=1.0,
                    cost=0.0,
                    reason=f"{_reason(error)}; a device is free",
                )
            )
        waiting = sum(action.kind is ActionKind.WAIT for action in actions)
        return Plan(
            decision_id="",
            model_version="",
            actions=tuple(actions),
            pairs=(),
            refused=(),
            refused_total=0,
            cost=0.0,
            greedy_cost=0.0,
            greedy_waiting=waiting,
            lower_bound=NAN,
            gap=NAN,
            status=SolveStatus.HEURISTIC,
        )

    def rank(self, query: RankQuery, error: UnavailableError) -> RankAnswer:
        """Rank empty devices first. Devices with residents are not feasible."""
        ranked = []
        for device in query.devices:
            fits = not device.residents and _may_start(query.job, device, query.limits)
            ranked.append(
                Ranking(
                    device_id=device.id,
                    feasible=fits,
                    slowdown=1.0 if fits else NAN,
                    worst_resident_slowdown=NAN,
                    cost=0.0 if fits else float("inf"),
                    reason=_reason(error),
                )
            )
        return RankAnswer(rankings=tuple(sorted(ranked, key=lambda r: not r.feasible)), model_version="")

    def observe(self, windows: Sequence[Observation], error: UnavailableError) -> tuple[ObservationAnswer, ...]:
        """Reject all observations as not delivered: the caller keeps them and sends them again, which is safe."""
        return tuple(
            ObservationAnswer(
                observation_id=window.observation_id,
                result=ObservationResult.REJECTED,
                reason=f"{_reason(error)}; not delivered: send it again",
            )
            for window in windows
        )


def _may_start(job: Job, device: Device, limits: Limits) -> bool:
    """Return whether the job may start alone on the device.

    It must need one device only, and the device must be in its pool and not known to be too small.
    """
    capacity_bytes = device.oversubscription_ratio * device.memory_bytes
    fits = job.gpus == 1 and not (job.memory_peak_bytes > capacity_bytes or job.grant_bytes > capacity_bytes)
    fits = fits and (not job.pools or device.pool in job.pools)
    return ActionKind.START_ALONE in limits.allowed and fits


def _reason(error: UnavailableError) -> str:
    """Return why the caller answers for the server, without the details of the connection: they are in the error."""
    return f"policy server unavailable: {error.what.partition(' (')[0]}"
