"""One CPU core between processes: Linux's EEVDF at equal weights (kernel/sched/fair.c since 6.6).

Earliest Eligible Virtual Deadline First: Stoica, Abdel-Wahab 1995.

Each stream has a virtual runtime v; V is their mean over those queued; lag = V - v is what the core owes it. Among the
eligible (lag ≥ 0) the earliest deadline runs. What runs is protected up to the deadline it was picked with, as long as
it is eligible; it is changed when its slice is over, when another wakes up with an earlier deadline, and when it
sleeps. Who sleeps with a debt stays queued until the debt is paid; who sleeps with a claim keeps it, at most max(2
slices, a tick). Slices end on time (HRTICK): two processes that spin on one core change every 1.40 ms on Linux 6.18.

What others push out of the caches is not in a timeline: jobs lose more than a replay says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.records.checks import check, number_violations
from interfere.timeline.replay_engine import Decision, Lane
from interfere.timeline.sharing_modes import only

BASE_SLICE_S = 0.0014  # kernel/sched/fair.c, sysctl_sched_base_slice: 0.7 ms · (1 + log2 of the cores), two cores
TICK_S = 0.004  # CONFIG_HZ=250, the default of most distributions; it bounds a claim
ROUNDING_S = 1e-12  # the kernel counts whole nanoseconds: what it finds equal must be equal here


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSlices:
    """Linux's slices of a CPU core, nothing in it fitted to measurements."""

    slice_s: float = BASE_SLICE_S
    name: str = "fair"
    launch_ahead: int = 1

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False))

    def arbiter(self, lanes: Sequence[Lane]) -> "_Eevdf":
        """All asleep, nothing owed."""
        return _Eevdf(self, tuple(_Entity() for _ in lanes))


@dataclass(slots=True)
class _Entity:
    v_s: float = 0.0
    deadline_s: float = 0.0
    protected_s: float = 0.0
    lag_s: float = 0.0  # kept while it is not queued
    queued: bool = False
    asleep: bool = True  # queued and asleep: its debt is being paid


@dataclass(slots=True)
class _Eevdf:
    policy: FairSlices
    entities: tuple[_Entity, ...]
    current: int = -1
    then_s: float = 0.0
    timer_s: float = math.inf  # the slice of the running one is over

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        self._charge(now_s - self.then_s)
        self.then_s = now_s
        if self.current >= 0 and not lanes[self.current].ready:
            self._sleep(self.entities[self.current])
            self.current = -1
        woken = [k for k, lane in enumerate(lanes) if lane.ready and self.entities[k].asleep]
        for k in woken:
            self._wake(self.entities[k])
        if self.current < 0 or (self._crowded() and now_s >= self.timer_s - ROUNDING_S):
            self._take(self._pick(), now_s)
        elif woken and (best := self._pick()) in woken:
            self._take(best, now_s)
        if self.current < 0:
            return Decision(only(lanes, -1))
        return Decision(only(lanes, self.current), self.timer_s if self._crowded() else math.inf)

    def _crowded(self) -> bool:
        """Somebody else is queued: the timer runs (hrtick_start_fair)."""
        return sum(entity.queued for entity in self.entities) > 1

    def _charge(self, ran_s: float) -> None:
        """update_curr: the running one pays."""
        if self.current < 0:
            return
        entity = self.entities[self.current]
        entity.v_s += ran_s
        if entity.v_s >= entity.deadline_s - ROUNDING_S:
            entity.deadline_s = entity.v_s + self.policy.slice_s

    def _mean_s(self) -> float:
        """V, over all that are queued."""
        queued = [entity.v_s for entity in self.entities if entity.queued]
        return sum(queued) / len(queued)

    def _lag_s(self, entity: _Entity) -> float:
        """update_entity_lag, with its limit."""
        limit_s = max(2 * self.policy.slice_s, TICK_S)
        return min(limit_s, max(-limit_s, self._mean_s() - entity.v_s))

    def _sleep(self, entity: _Entity) -> None:
        """dequeue_entity: at once without debt, else when it is paid."""
        entity.lag_s, entity.asleep = self._lag_s(entity), True
        entity.queued = entity.lag_s < -ROUNDING_S

    def _wake(self, entity: _Entity) -> None:
        """place_entity and requeue_delayed_entity."""
        entity.asleep = False
        if entity.queued:
            entity.lag_s = self._lag_s(entity)
            if entity.lag_s <= ROUNDING_S:
                return  # still in debt: it goes on where it is
            entity.queued, entity.lag_s = False, 0.0
        others = sum(one.queued for one in self.entities)
        if others:
            # Its own arrival moves V: the claim is enlarged so that it is the same afterwards.
            entity.v_s = self._mean_s() - entity.lag_s * (others + 1) / others
        entity.deadline_s, entity.queued = entity.v_s + self.policy.slice_s, True

    def _pick(self) -> int:
        """__pick_eevdf; sleepers whose debt is paid leave the queue."""
        while any(entity.queued for entity in self.entities):
            mean_s = self._mean_s()
            eligible = [k for k, one in enumerate(self.entities) if one.queued and one.v_s <= mean_s + ROUNDING_S]
            now = self.current
            if now in eligible and self.entities[now].v_s < self.entities[now].protected_s - ROUNDING_S:
                return now
            # Of equal deadlines the running one is last.
            best = min(eligible, key=lambda k: (round(self.entities[k].deadline_s / ROUNDING_S), k == now, k))
            if not self.entities[best].asleep:
                return best
            self.entities[best].queued, self.entities[best].lag_s = False, 0.0
        return -1

    def _take(self, index: int, now_s: float) -> None:
        """set_next_entity: protected up to its deadline, from the moment it was not the running one."""
        if index >= 0 and index != self.current:
            self.entities[index].protected_s = self.entities[index].deadline_s
        self.timer_s = now_s + self.policy.slice_s
        self.current = index
