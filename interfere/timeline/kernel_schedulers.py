"""Kernel schedulers, one class for each way of sharing a device.

One job after the other, time slices of a GPU, a single queue, priority with gap filling, and Linux's scheduling of
processes on a CPU core. What kernels that run at once (MPS, streams) cost each other is not modelled.

Law: none runs a kernel faster than it runs alone, and a stream without neighbours runs as if there were no sharing.

EEVDF, earliest eligible virtual deadline first: Stoica, Abdel-Wahab 1995; kernel/sched/fair.c since Linux 6.6.

Each stream has a virtual runtime v. V is the mean of v over the queued streams, and lag = V - v is the processor time
that the core owes a stream. Among the eligible streams (lag ≥ 0) the one with the earliest deadline runs. The running
stream is protected until the deadline with which it was picked, as long as it is eligible. It is replaced when its
slice is over, when another wakes up with an earlier deadline, or when it sleeps. A stream that sleeps with a negative
lag stays queued until it has paid; one that sleeps with a positive lag keeps it, at most max(2 slices, a tick). Slices
end on time (HRTICK): two processes that spin on one core alternate every 1.40 ms on Linux 6.18.

A timeline does not say what a job evicts from the caches of others: real jobs lose more than a replay predicts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError
from interfere.records.checks import check, number_violations
from interfere.timeline.priority_scheduler import (
    ROUNDING_S,
    FillingRule,
    PriorityGapFillingScheduler,
)
from interfere.timeline.streams import (
    NOBODY,
    QUEUE_LAUNCHES,
    Arbiter,
    KernelScheduler,
    StreamState,
    Turn,
)

# NVIDIA documents none for a plain GPU. 2 ms is the default slice of its vGPU scheduler for up to eight guests (vGPU
# software user guide, "scheduling policies").
GPU_SLICE_S = 0.002
FIKIT_OVERHEAD_FRAC = 0.05  # the most that FIKIT's paper measured for its interception of launches


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveScheduler(KernelScheduler):
    """Exclusive use: one stream runs after the other, by priority and then in the given order. Gaps stay empty."""

    name: str = "exclusive"

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:
        """Return the scheduler itself, because it keeps no state between decisions."""
        return self

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        """Return the stream that has begun, else the first one by priority."""
        owner = min(
            (state for state in streams if state.active),
            key=lambda state: (state.completed == 0 and not state.head_started, -state.stream.priority, state.index),
            default=None,
        )
        return Turn(owner.index if owner is not None and owner.ready else NOBODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSliceScheduler(KernelScheduler):
    """Time slicing: round robin between contexts that have work, as on a GPU without MPS.

    A context keeps the device for `slice_s`, or until it has nothing ready; a context switch costs nothing. The host of
    a context goes on launching while another context runs.
    """

    slice_s: float = GPU_SLICE_S
    name: str = "timeslice"
    launch_ahead: int = QUEUE_LAUNCHES

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:
        """Return a round robin in which no context has the device yet."""
        return _RoundRobinArbiter(self)


@dataclass(slots=True)
class _RoundRobinArbiter:
    mode: TimeSliceScheduler
    owner: int = NOBODY
    slice_end_s: float = 0.0

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        if self.owner < 0 or now_s >= self.slice_end_s or not streams[self.owner].ready:
            n = len(streams)
            next_owner = next((k % n for k in range(self.owner + 1, self.owner + n + 1) if streams[k % n].ready), -1)
            if next_owner < 0:
                return Turn(NOBODY)
            self.owner, self.slice_end_s = next_owner, now_s + self.mode.slice_s
        return Turn(self.owner, self.slice_end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleQueueScheduler(KernelScheduler):
    """Uncoordinated sharing of one device queue: kernels run whole, in the order of their launch, at any priority.

    Hosts launch up to `launch_ahead` kernels ahead, so a kernel of high priority waits behind all that other streams
    have in the queue: the baseline that FIKIT compares with (Wu 2023).
    """

    launch_ahead: int = QUEUE_LAUNCHES
    name: str = "queued"

    def __post_init__(self) -> None:
        check(number_violations(self, "launch_ahead", low=1.0, nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:
        """Return the scheduler itself, because it keeps no state between decisions."""
        return self

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        """Return the stream whose kernel has started, else that of the oldest launch; ties go by the order of the
        streams."""
        ready = [state for state in streams if state.ready]
        oldest = min(ready, key=lambda state: (not state.head_started, state.launched_s[0], state.index), default=None)
        return Turn(oldest.index if oldest is not None else NOBODY)


# --- Linux's fair scheduler of a CPU core -----------------------------------------------------------------------------


BASE_SLICE_S = 0.0014  # kernel/sched/fair.c, sysctl_sched_base_slice: 0.7 ms · (1 + log2 of the cores), two cores
TICK_S = 0.004  # CONFIG_HZ=250, the default of most distributions; it bounds the lag that is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EevdfScheduler(KernelScheduler):
    """Linux's scheduler of processes on one CPU core (EEVDF). No constant of this model is fitted to measurements."""

    slice_s: float = BASE_SLICE_S
    name: str = "fair"

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:
        """Return a run queue in which all streams sleep and have no lag."""
        return _EevdfArbiter(self, tuple(_SchedulingEntity() for _ in streams))


@dataclass(slots=True)
class _SchedulingEntity:
    """The state of a stream in Linux's scheduler (struct sched_entity)."""

    virtual_runtime_s: float = 0.0
    deadline_s: float = 0.0
    protected_until_s: float = 0.0  # in virtual time
    lag_s: float = 0.0  # kept while it is not queued
    queued: bool = False
    asleep: bool = True  # queued and asleep: it pays its negative lag


@dataclass(slots=True)
class _EevdfArbiter:
    mode: EevdfScheduler
    entities: tuple[_SchedulingEntity, ...]
    current: int = -1
    last_decision_s: float = 0.0
    slice_end_s: float = math.inf  # of the running entity

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        # 1. Charge the running entity, and put it to sleep when its stream has nothing ready.
        self._charge_current(now_s - self.last_decision_s)
        self.last_decision_s = now_s
        if self.current >= 0 and not streams[self.current].ready:
            self._sleep(self.entities[self.current])
            self.current = -1
        # 2. Wake up the entities whose streams have a kernel ready.
        woken = [k for k, state in enumerate(streams) if state.ready and self.entities[k].asleep]
        for k in woken:
            self._wake(self.entities[k])
        # 3. Pick the next entity at the end of a slice, or when a woken one has an earlier deadline.
        if self.current < 0 or (self._is_contended() and now_s >= self.slice_end_s - ROUNDING_S):
            self._set_current(self._pick(), now_s)
        elif woken and (best := self._pick()) in woken:
            self._set_current(best, now_s)
        if self.current < 0:
            return Turn(NOBODY)
        return Turn(self.current, self.slice_end_s if self._is_contended() else math.inf)

    def _is_contended(self) -> bool:
        """Return whether another entity is queued; only then does the timer run (Linux's hrtick_start_fair)."""
        return sum(entity.queued for entity in self.entities) > 1

    def _charge_current(self, ran_s: float) -> None:
        """Add the time that the running entity ran to its virtual runtime (Linux's update_curr)."""
        if self.current < 0:
            return
        entity = self.entities[self.current]
        entity.virtual_runtime_s += ran_s
        if entity.virtual_runtime_s >= entity.deadline_s - ROUNDING_S:
            entity.deadline_s = entity.virtual_runtime_s + self.mode.slice_s

    def _mean_runtime_s(self) -> float:
        """Return V, the mean virtual runtime of all queued entities."""
        queued = [entity.virtual_runtime_s for entity in self.entities if entity.queued]
        return sum(queued) / len(queued)

    def _bounded_lag_s(self, entity: _SchedulingEntity) -> float:
        """Return the lag of an entity, within its limits (Linux's update_entity_lag)."""
        limit_s = max(2 * self.mode.slice_s, TICK_S)
        return min(limit_s, max(-limit_s, self._mean_runtime_s() - entity.virtual_runtime_s))

    def _sleep(self, entity: _SchedulingEntity) -> None:
        """Remove an entity from the queue, at once or after it has paid a negative lag (Linux's dequeue_entity)."""
        entity.lag_s, entity.asleep = self._bounded_lag_s(entity), True
        entity.queued = entity.lag_s < -ROUNDING_S

    def _wake(self, entity: _SchedulingEntity) -> None:
        """Put an entity back into the queue (Linux's place_entity and requeue_delayed_entity)."""
        entity.asleep = False
        if entity.queued:
            entity.lag_s = self._bounded_lag_s(entity)
            if entity.lag_s <= ROUNDING_S:
                return  # its lag is still negative: it continues where it is
            entity.queued, entity.lag_s = False, 0.0
        queued_count = sum(other.queued for other in self.entities)
        if queued_count:
            # Its own arrival moves V: the lag is scaled up so that it is the same afterwards.
            entity.virtual_runtime_s = self._mean_runtime_s() - entity.lag_s * (queued_count + 1) / queued_count
        entity.deadline_s, entity.queued = entity.virtual_runtime_s + self.mode.slice_s, True

    def _pick(self) -> int:
        """Return the entity to run, and remove sleeping entities that have paid their lag (Linux's __pick_eevdf)."""
        while any(entity.queued for entity in self.entities):
            mean_s = self._mean_runtime_s()
            eligible = [
                k
                for k, entity in enumerate(self.entities)
                if entity.queued and entity.virtual_runtime_s <= mean_s + ROUNDING_S
            ]
            current = self.current
            if current in eligible:
                entity = self.entities[current]
                if entity.virtual_runtime_s < entity.protected_until_s - ROUNDING_S:
                    return current
            # Of equal deadlines the running entity comes last.
            best = min(eligible, key=lambda k: (round(self.entities[k].deadline_s / ROUNDING_S), k == current, k))
            if not self.entities[best].asleep:
                return best
            self.entities[best].queued, self.entities[best].lag_s = False, 0.0
        return -1

    def _set_current(self, index: int, now_s: float) -> None:
        """Run an entity; a newly picked entity is protected until its deadline (Linux's set_next_entity)."""
        if index >= 0 and index != self.current:
            self.entities[index].protected_until_s = self.entities[index].deadline_s
        self.slice_end_s = now_s + self.mode.slice_s
        self.current = index


# --- by name ----------------------------------------------------------------------------------------------------------


KERNEL_SCHEDULERS: dict[str, KernelScheduler] = {
    mode.name: mode
    for mode in (
        ExclusiveScheduler(),
        TimeSliceScheduler(),
        EevdfScheduler(),
        SingleQueueScheduler(),
        PriorityGapFillingScheduler(rule=FillingRule.ANY, overhead_frac=FIKIT_OVERHEAD_FRAC, name="unpredicted"),
        PriorityGapFillingScheduler(overhead_frac=FIKIT_OVERHEAD_FRAC),
        PriorityGapFillingScheduler(rule=FillingRule.BUDGET, overhead_frac=FIKIT_OVERHEAD_FRAC, name="filling"),
    )
}


def select_kernel_schedulers(names: Sequence[str], device_type: str) -> tuple[KernelScheduler, ...]:
    """Return the schedulers of these names, by default all of the device type. Raises InvalidInputError for another
    name."""
    for name in names:
        if name not in KERNEL_SCHEDULERS:
            raise InvalidInputError("no such sharing mode", value=name, remedy=f"one of {', '.join(KERNEL_SCHEDULERS)}")
    on_core = device_type == CPU_CORE.name
    by_default = [name for name in KERNEL_SCHEDULERS if on_core or name != "fair"]  # Linux schedules no GPU
    return tuple(KERNEL_SCHEDULERS[name] for name in names or by_default)
