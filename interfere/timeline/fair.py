"""One CPU core between processes: Linux's EEVDF at equal weights (kernel/sched/fair.c since 6.6).

Earliest Eligible Virtual Deadline First: Stoica, Abdel-Wahab 1995.

Each stream has a virtual runtime v; V is their mean over those queued; lag = V - v is what the core owes it. Among the
eligible (lag ≥ 0) the earliest deadline runs. What runs is protected up to the deadline it was picked with, as long as
it is eligible; it is changed at ticks, when another wakes up with an earlier deadline, and when it sleeps. Who sleeps
with a debt stays queued until the debt is paid; who sleeps with a claim keeps it, at most max(2 slices, a tick).

A process that runs after another one finds its data gone from the caches and reads them again. One visit to the core
pushes out as much of what others hold as it has time to read at the bandwidth of the memory, at most its own working
set; reading back takes as long, at most as long as the stretch itself. Without a bandwidth this costs nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.errors import Violation
from interfere.records.checks import check, number_violations
from interfere.timeline.engine import Decision, Lane
from interfere.timeline.policies import only

BASE_SLICE_S = 0.0014  # kernel/sched/fair.c, sysctl_sched_base_slice: 0.7 ms · (1 + log2 of the cores), two cores
TICK_S = 0.004  # CONFIG_HZ=250, the default of most distributions
ROUNDING_S = 1e-12  # the kernel counts whole nanoseconds: what it finds equal must be equal here


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSlices:
    """Linux's slices of a CPU core, nothing in it fitted to measurements."""

    slice_s: float = BASE_SLICE_S
    tick_s: float = TICK_S
    bandwidth_bytes_s: float = math.inf
    name: str = "fair"
    launch_ahead: int = 1

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", "tick_s", low=1e-6, nan=False))
        if not self.bandwidth_bytes_s > 0:
            wrong = repr(self.bandwidth_bytes_s)
            check([Violation(field="bandwidth_bytes_s", what="must be > 0", value=wrong, remedy="leave it out")])

    def arbiter(self, lanes: Sequence[Lane]) -> "_Eevdf":
        """All asleep, nothing owed."""
        held_s = (lane.stream.timeline.working_set_bytes / self.bandwidth_bytes_s for lane in lanes)
        return _Eevdf(self, tuple(_Entity(holds_s=one) for one in held_s))


@dataclass(slots=True)
class _Entity:
    v_s: float = 0.0
    deadline_s: float = 0.0
    protected_s: float = 0.0
    lag_s: float = 0.0  # kept while it is not queued
    queued: bool = False
    asleep: bool = True  # queued and asleep: its debt is being paid
    holds_s: float = 0.0  # what reading its whole working set takes
    cold_s: float = 0.0  # what reading back takes of it that others pushed out


@dataclass(slots=True)
class _Eevdf:
    policy: FairSlices
    entities: tuple[_Entity, ...]
    current: int = -1
    then_s: float = 0.0
    ticks: int = 0
    visit_s: float = 0.0  # how long the running one has had the core
    warm_s: float = 0.0  # when its data are back

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        ticks = math.floor(now_s / self.policy.tick_s + 1e-9)
        ticked, self.ticks = ticks > self.ticks, ticks
        again = self._charge(now_s - self.then_s, ticked)
        self.then_s = now_s
        if self.current >= 0 and not lanes[self.current].ready:
            self._sleep(self.entities[self.current])
            self.current, again = -1, True
        woken = [k for k, lane in enumerate(lanes) if lane.ready and self.entities[k].asleep]
        for k in woken:
            self._wake(self.entities[k])
        if self.current < 0 or again:
            self._take(self._pick())
        elif woken and (best := self._pick()) in woken:
            self._take(best)
        if self.current < 0:
            return Decision(only(lanes, -1))
        if self.visit_s == 0:
            self.warm_s = now_s + min(self.entities[self.current].cold_s, lanes[self.current].left_s)
        tick_s = (ticks + 1) * self.policy.tick_s
        if now_s < self.warm_s:
            return Decision(only(lanes, -1), min(tick_s, self.warm_s))
        return Decision(only(lanes, self.current), tick_s)

    def _displace(self, ran_s: float) -> None:
        """The running one reads its data and pushes out those of the others."""
        mine = self.entities[self.current]
        pushed_s = max(0.0, min(mine.holds_s, self.visit_s + ran_s) - self.visit_s)
        for one in self.entities:
            one.cold_s = max(0.0, one.cold_s - ran_s) if one is mine else min(one.holds_s, one.cold_s + pushed_s)
        self.visit_s += ran_s

    def _charge(self, ran_s: float, ticked: bool) -> bool:
        """update_curr: the running one pays; whether a tick now asks for another choice."""
        if self.current < 0:
            return False
        entity = self.entities[self.current]
        entity.v_s += ran_s
        self._displace(ran_s)
        over = entity.v_s >= entity.deadline_s - ROUNDING_S
        if over:
            entity.deadline_s = entity.v_s + self.policy.slice_s
        return ticked and (over or entity.v_s >= entity.protected_s - ROUNDING_S)

    def _mean_s(self) -> float:
        """V, over all that are queued."""
        queued = [entity.v_s for entity in self.entities if entity.queued]
        return sum(queued) / len(queued)

    def _lag_s(self, entity: _Entity) -> float:
        """update_entity_lag, with its limit."""
        limit_s = max(2 * self.policy.slice_s, self.policy.tick_s)
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

    def _take(self, index: int) -> None:
        """set_next_entity: protected up to its deadline, from the moment it was not the running one."""
        if index >= 0 and index != self.current:
            self.entities[index].protected_s = self.entities[index].deadline_s
        self.visit_s = self.visit_s if index == self.current else 0.0
        self.current = index
