"""Can all these gangs be run before their deadlines? Slots of device time, laid out one job after the other.

A lane is a number of like devices over time. Each job takes g devices of one lane at its earliest end: in one piece,
or, if it can be checkpointed, in pieces wherever g devices are free, each further one a checkpoint longer. This is the
progressive filling of ElasticFlow (Gu et al., ASPLOS 2023, section 4.1) for gangs that cannot grow or shrink, at exact
times in place of slots of one length. Jobs in order of their deadlines; where that fails, few in every order, which
for one lane and jobs in one piece finds a layout whenever there is one.
Law: no lane is ever over its devices, no job late; what fits without a job more fits.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_ORDERED = 5  # jobs whose every order is tried: 120 layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One job: `gpus` devices of one lane for some seconds, until its deadline."""

    job_id: str
    gpus: int
    deadline_s: float
    lane_s: tuple[float, ...]  # seconds on each lane; inf where it may not go
    checkpoint_s: float = math.nan  # of each interruption; NaN where it must run in one piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One piece of a job."""

    job_id: str
    lane: int
    from_s: float
    until_s: float
    gpus: int


class Lane:
    """How many devices are free from each moment on."""

    def __init__(self, now_s: float, spans: Iterable[tuple[float, float]], count: int) -> None:
        """`count` devices, open in the spans (from, until)."""
        self._times, self._free = [now_s], [0]
        for from_s, until_s in spans:
            self.hold(from_s, until_s, -count)

    def copy(self) -> "Lane":
        """One that may be changed apart."""
        other = Lane(self._times[0], (), 0)
        other._times, other._free = self._times.copy(), self._free.copy()
        return other

    def hold(self, from_s: float, until_s: float, count: int) -> None:
        """Take devices for a while."""
        first, last = self._cut(from_s), self._cut(until_s)
        for k in range(first, last):
            self._free[k] -= count

    def _cut(self, at_s: float) -> int:
        """The part that begins then."""
        if at_s <= self._times[0]:
            return 0
        if at_s == math.inf:
            return len(self._times)
        k = bisect_right(self._times, at_s) - 1
        if self._times[k] == at_s:
            return k
        self._times.insert(k + 1, at_s)
        self._free.insert(k + 1, self._free[k])
        return k + 1

    def pieces(self, gpus: int, seconds: float, checkpoint_s: float) -> list[tuple[float, float]]:
        """The earliest in which a job can run; empty where it never can."""
        found: list[tuple[float, float]] = []
        left_s = seconds
        for k, free in enumerate(self._free):
            from_s = self._times[k]
            until_s = self._times[k + 1] if k + 1 < len(self._times) else math.inf
            if free < gpus:
                if math.isnan(checkpoint_s):
                    found, left_s = [], seconds
                continue
            if found and found[-1][1] < from_s:
                left_s += checkpoint_s
            if left_s <= until_s - from_s:
                return _joined([*found, (from_s, from_s + left_s)])
            found.append((from_s, until_s))
            left_s -= until_s - from_s
        return []


def _joined(pieces: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    whole: list[tuple[float, float]] = []
    for from_s, until_s in pieces:
        if whole and whole[-1][1] == from_s:
            whole[-1] = (whole[-1][0], until_s)
        else:
            whole.append((from_s, until_s))
    return whole


def lay_out(needs: Sequence[Need], lanes: Sequence[Lane]) -> tuple[Slot, ...] | None:
    """Slots for every job, or None where none were found; the lanes are left as they are."""
    by_deadline = sorted(needs, key=lambda need: (need.deadline_s, need.job_id))
    orders: Iterable[Sequence[Need]] = [by_deadline]
    if len(needs) <= MOST_ORDERED:
        orders = itertools.permutations(by_deadline)
    return next((slots for order in orders if (slots := _in_order(order, lanes)) is not None), None)


def add(need: Need, lanes: Sequence[Lane]) -> tuple[Slot, ...]:
    """The slots with which one more job ends first, if that is in time, held on the lanes; empty where it is not."""
    best: tuple[float, int, list[tuple[float, float]]] | None = None
    for k, lane in enumerate(lanes):
        if need.lane_s[k] < math.inf and (found := lane.pieces(need.gpus, need.lane_s[k], need.checkpoint_s)):
            best = min(best, (found[-1][1], k, found)) if best else (found[-1][1], k, found)
    if best is None or best[0] > need.deadline_s:
        return ()
    for from_s, until_s in best[2]:
        lanes[best[1]].hold(from_s, until_s, need.gpus)
    return tuple(
        Slot(job_id=need.job_id, lane=best[1], from_s=from_s, until_s=until_s, gpus=need.gpus)
        for from_s, until_s in best[2]
    )


def _in_order(order: Sequence[Need], lanes: Sequence[Lane]) -> tuple[Slot, ...] | None:
    trial = [lane.copy() for lane in lanes]
    slots: list[Slot] = []
    for need in order:
        found = add(need, trial)
        if not found:
            return None
        slots += found
    return tuple(slots)
