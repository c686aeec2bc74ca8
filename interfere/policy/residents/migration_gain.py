"""What each single step among residents of one device class would save and pay: arrays over all movers at once.

m residents; row and column m stand for nobody, beside whom everyone runs at slowdown 1.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from interfere.records import Device, Job

Floats = NDArray[np.float64]
LEAST_NET_S = 1e-6  # weighted seconds; less is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One step, in weighted seconds."""

    net_s: float
    kind: Literal["leave", "join", "swap"]
    mover: int
    other: int  # who is joined or swapped with; m when it leaves for an empty device
    saves_s: float
    pays_s: float
    room: bool  # it leaves its device to a job that waits


@dataclass(slots=True, kw_only=True)
class Field:
    """The residents of the open devices of one class, as the steps so far left them."""

    jobs: list[Job]
    at: list[Device]  # of each job
    mate: NDArray[np.int64]  # int64[m + 1]; m where alone
    slowdown: Floats  # float64[m + 1, m + 1]: of i beside j
    allowed: NDArray[np.bool_]  # bool[m + 1, m + 1]: may a step put i beside j?
    weight: Floats  # float64[m + 1]
    left_s: Floats  # float64[m + 1]: remaining_s; NaN where unknown
    pays_s: Floats  # float64[m + 1]: weight · checkpoint_s; inf where it may not move
    empty: list[Device]

    def saved(self) -> Floats:
        """float64[m + 1, m + 1]: what i saves by ending beside j, over its time left; -inf where it may not.

        Who does not say how long it runs counts for nothing where it gains, and is never made worse. Where the slowdown
        of now is not known it counts as none: nothing is gained by ending it.
        """
        m = len(self.jobs)
        now = np.nan_to_num(self.slowdown[np.arange(m + 1), self.mate], nan=1.0)
        less = now[:, None] - self.slowdown
        unknown = np.where(less < 0, -np.inf, 0.0)
        saved = np.where(np.isnan(self.left_s)[:, None], unknown, less * (self.weight * self.left_s)[:, None])
        saved = np.where(self.allowed & ~np.isnan(less), saved, -np.inf)
        saved[m, :] = 0.0
        return saved

    def candidates(self, factor: float, room_s: float, *, leave: bool) -> list[Candidate]:
        """Of each kind the best for each mover that pays, the largest net first.

        `room_s`: what a device that is left saves; `leave`: may empty devices be taken?
        """
        m, saved, mate = len(self.jobs), self.saved(), self.mate
        movers = np.flatnonzero(np.isfinite(self.pays_s[:m]))
        apart = saved[mate[:m], m]  # what its partner saves when it goes; 0 for nobody
        found: list[Candidate] = []
        if leave and self.empty:
            saves = saved[:m, m] + apart
            found += [self._candidate("leave", i, m, saves[i], factor) for i in movers.tolist() if mate[i] < m]
        single = mate[:m] == m
        join = saved[:m, :m] + saved[:m, :m].T + apart[:, None]
        join[single, :] += room_s if room_s > 0 else -np.inf  # who is alone goes only to make room
        join[:, ~single] = -np.inf
        np.fill_diagonal(join, -np.inf)
        there = saved[:, mate] + saved[mate, :].T  # [i, k]: i and the partner of k, when they end together
        swap = (there + there.T)[:m, :m]
        swap -= factor * np.where(np.isinf(self.pays_s[:m]), np.inf, self.pays_s[:m])[None, :]
        swap[np.arange(m), np.minimum(mate[:m], m - 1)] = -np.inf  # partners are on one device
        np.fill_diagonal(swap, -np.inf)
        for i in movers.tolist():
            k = int(join[i].argmax())
            found.append(self._candidate("join", i, k, join[i, k], factor))
            k = int(swap[i].argmax())
            if np.isfinite(self.pays_s[k]):
                found.append(self._candidate("swap", i, k, swap[i, k] + factor * self.pays_s[k], factor))
        paying = [one for one in found if one.net_s > LEAST_NET_S]
        return sorted(paying, key=lambda one: (-one.net_s, self.jobs[one.mover].id, one.kind))

    def _candidate(
        self, kind: Literal["leave", "join", "swap"], i: int, k: int, saves_s: float, factor: float
    ) -> Candidate:
        pays_s = float(self.pays_s[i] + (self.pays_s[k] if kind == "swap" else 0.0))
        room = kind == "join" and int(self.mate[i]) == len(self.jobs)
        return Candidate(
            net_s=float(saves_s) - factor * pays_s,
            kind=kind,
            mover=i,
            other=k,
            saves_s=float(saves_s),
            pays_s=pays_s,
            room=room,
        )

    def take(self, step: Candidate) -> None:
        """Do it; its movers move no more."""
        i, k, m = step.mover, step.other, len(self.jobs)
        mates = int(self.mate[i]), int(self.mate[k])
        if step.kind == "swap":
            self.at[i], self.at[k] = self.at[k], self.at[i]
            self._pair(i, mates[1])
            self._pair(k, mates[0])
            self.pays_s[k] = np.inf
        else:
            self._pair(mates[0], m)
            self.at[i] = self.empty.pop(0) if k == m else self.at[k]
            self._pair(i, k)
        self.pays_s[i] = np.inf

    def _pair(self, i: int, j: int) -> None:
        m = len(self.jobs)
        if i < m:
            self.mate[i] = j
        if j < m:
            self.mate[j] = i
