"""The decision problem of one scope, and the parts that every port needs to build one. Pure functions.

Law: a seat is offered once. A job that was placed counts as a resident of its device until it runs or has lost the
place.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from interfere.errors import InvalidInputError
from interfere.records import NAN, ActionKind, Device, Job, Plan, Snapshot
from interfere.records.cluster import DEFAULT_SEATS, HIGHEST_PRIORITY
from interfere.serving.adapters.settings import GIB, AdapterSettings
from interfere.serving.adapters.windows import J

STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)
STOPS = (ActionKind.END, ActionKind.PREEMPT)
TAKES_PLACE = (*STARTS, ActionKind.MOVE)
MAX_PAIRS = 900_000  # possible pairs in one request: the server accepts a million


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Generic[J]):
    """The decision problem of one scope at one moment."""

    snapshot: Snapshot | None  # None when nothing can be decided
    candidates: tuple[J, ...]  # pending in the snapshot
    behind: tuple[J, ...] = ()  # advised jobs too far behind in the queue for the free seats
    left_out: Counter[str]  # number of jobs that asked for advice and get none, by reason

    @property
    def candidates_by_id(self) -> dict[str, J]:
        """The candidates by their job ids."""
        return {job.id: job for job in self.candidates}


def first_reason(checks: Mapping[str, bool]) -> str:
    """Return the first reason whose check is true; empty where none is."""
    return next((reason for reason, holds in checks.items() if holds), "")


def positions_decided(
    queue: Sequence[Job], devices: Sequence[Device], settings: AdapterSettings, most: float = math.inf
) -> list[int]:
    """Return the places in the queue of the jobs that are decided in one request; none where no seat is free.

    They are the first `lookahead` jobs for every free seat, and all later jobs that say how long they take: those are
    planned over time, with ends promised by their order. At most `most`, and as many as have pairs for one request: n
    jobs and the residents of m half-full devices make n²/2 + n m pairs.
    """
    free_seats = sum((device.seats or DEFAULT_SEATS) - len(device.residents) for device in devices)
    singles = sum(len(device.residents) == 1 for device in devices)
    head = max(0, free_seats * settings.lookahead)
    most = min(most, int(math.sqrt(singles**2 + 2 * MAX_PAIRS)) - singles)
    decided = [k for k, job in enumerate(queue) if k < head or (head and not math.isnan(job.remaining_s))]
    return decided[: max(0, int(most))]


def job_record(
    job: J,
    settings: AdapterSettings,
    now_s: float,
    *,
    priority: float,
    submitted_s: float,
    memory_bytes: float,
    max_slowdown: str,
    grant_bytes: float = NAN,
    remaining_s: float = NAN,
    checkpoint_s: float = NAN,
    since_s: float = NAN,
) -> Job | None:
    """Return the scheduler's job as a job of a decision problem; None where its workload or its slowdown cap is
    invalid.

    Schedulers compute priorities as sums of age, size, fair share and the like, which differ between any two jobs. Used
    directly, every job would go strictly before the next. So whole multiples of `priority_unit` become the priority
    levels. A job with remaining and checkpoint times may be stopped while it runs.
    """
    level = int(priority // settings.priority_unit) if settings.priority_unit else 0
    try:
        return Job(
            id=job.id,
            workload=job.workload,
            memory_peak_bytes=memory_bytes,
            grant_bytes=grant_bytes,
            max_slowdown=float(max_slowdown) if max_slowdown else NAN,
            priority=max(0, min(HIGHEST_PRIORITY, level)),
            elapsed_s=max(0.0, now_s - submitted_s) if submitted_s else NAN,
            remaining_s=remaining_s,
            checkpoint_s=checkpoint_s,
            since_s=since_s,
            preemptible=not math.isnan(remaining_s + checkpoint_s),
        )
    except (InvalidInputError, ValueError):
        return None


def remaining_s_of(alone_s: float, ran_s: float, lost_s: float) -> float:
    """Return how long a job still takes, alone: at least a second, NaN where `alone_s` is.

    `alone_s`: what it takes alone from its start; `ran_s`: how long it has run; `lost_s`: what it lost of that time to
    the jobs beside it.
    """
    return alone_s if math.isnan(alone_s) else max(1.0, alone_s - ran_s + lost_s)


def host_reserves(devices: Sequence[Device], host_bytes: float) -> tuple[Device, ...]:
    """Return the devices of one node, with `host_bytes` of its memory divided among them to back what they grant.

    Each gets what its ratio needs, (ratio - 1) * memory; where that is more than there is, all get the same share of
    it. NaN: the host backs everything.
    """
    needs = [max(0.0, (each.oversubscription_ratio - 1.0) * each.memory_bytes) for each in devices]
    total = sum(need for need in needs if not math.isnan(need))
    if math.isnan(host_bytes) or not total:
        return tuple(devices)
    share = min(1.0, host_bytes / total)
    return tuple(
        replace(each, host_reserve_bytes=need * share) if need > 0 else each
        for each, need in zip(devices, needs, strict=True)
    )


def memory_of(text: str, default_bytes: float = NAN) -> float:
    """Return the bytes of a number of GiB that a user wrote; the default where the text is empty. Raises ValueError."""
    return float(text) * GIB if text else default_bytes


def check_plan_subjects(plan: Plan, snapshot: Snapshot) -> None:
    """Raise InvalidInputError for a plan about jobs or devices outside the snapshot: it must not reach a scheduler."""
    pending, devices = {job.id for job in snapshot.pending}, {device.id for device in snapshot.devices}
    running = {job.id for device in snapshot.devices for job in device.residents}
    for action in plan.actions:
        jobs = running if action.kind in (*STOPS, ActionKind.KEEP, ActionKind.MOVE) else pending
        if action.job_id not in jobs or (action.kind in TAKES_PLACE and action.device_id not in devices):
            raise InvalidInputError(
                "the server's plan is about jobs or devices that were not in the request",
                value=f"{action.job_id!r} on {action.device_id!r}",
                remedy="check what answers at `server`",
            )
