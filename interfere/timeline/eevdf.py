"""The sharing mode of one CPU core between processes: Linux's EEVDF scheduler at equal weights.

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

from interfere.records.checks import check, number_violations
from interfere.timeline.kernel_schedulers import run_only
from interfere.timeline.replay_engine import RateAllocation, StreamState

BASE_SLICE_S = 0.0014  # kernel/sched/fair.c, sysctl_sched_base_slice: 0.7 ms · (1 + log2 of the cores), two cores
TICK_S = 0.004  # CONFIG_HZ=250, the default of most distributions; it bounds the lag that is kept
ROUNDING_S = 1e-12  # the kernel counts whole nanoseconds: times that it finds equal must be equal here


@dataclass(frozen=True, slots=True, kw_only=True)
class EevdfScheduler:
    """Linux's slices of a CPU core. None of its constants is fitted to measurements."""

    slice_s: float = BASE_SLICE_S
    name: str = "fair"
    launch_ahead: int = 1
    overhead_frac: float = 0.0

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> "_EevdfArbiter":
        """A run queue in which all streams sleep and have no lag."""
        return _EevdfArbiter(self, tuple(_SchedulingEntity() for _ in streams))


@dataclass(slots=True)
class _SchedulingEntity:
    """A stream as Linux sees it (struct sched_entity)."""

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

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
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
            return RateAllocation(run_only(streams, -1))
        return RateAllocation(run_only(streams, self.current), self.slice_end_s if self._is_contended() else math.inf)

    def _is_contended(self) -> bool:
        """hrtick_start_fair: the timer runs only while another entity is queued."""
        return sum(entity.queued for entity in self.entities) > 1

    def _charge_current(self, ran_s: float) -> None:
        """update_curr: add what it ran to the virtual runtime of the running entity."""
        if self.current < 0:
            return
        entity = self.entities[self.current]
        entity.virtual_runtime_s += ran_s
        if entity.virtual_runtime_s >= entity.deadline_s - ROUNDING_S:
            entity.deadline_s = entity.virtual_runtime_s + self.mode.slice_s

    def _mean_runtime_s(self) -> float:
        """V, the mean virtual runtime of all queued entities."""
        queued = [entity.virtual_runtime_s for entity in self.entities if entity.queued]
        return sum(queued) / len(queued)

    def _bounded_lag_s(self, entity: _SchedulingEntity) -> float:
        """update_entity_lag, with its limit."""
        limit_s = max(2 * self.mode.slice_s, TICK_S)
        return min(limit_s, max(-limit_s, self._mean_runtime_s() - entity.virtual_runtime_s))

    def _sleep(self, entity: _SchedulingEntity) -> None:
        """dequeue_entity: at once, or delayed until a negative lag is paid."""
        entity.lag_s, entity.asleep = self._bounded_lag_s(entity), True
        entity.queued = entity.lag_s < -ROUNDING_S

    def _wake(self, entity: _SchedulingEntity) -> None:
        """place_entity and requeue_delayed_entity."""
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
        """__pick_eevdf; sleeping entities that have paid leave the queue."""
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
        """set_next_entity: a newly picked entity is protected until its deadline."""
        if index >= 0 and index != self.current:
            self.entities[index].protected_until_s = self.entities[index].deadline_s
        self.slice_end_s = now_s + self.mode.slice_s
        self.current = index
