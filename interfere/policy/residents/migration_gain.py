"""What each single migration among residents of one device class would save and cost: arrays over all movers at once.

m residents; index m stands for no job, beside whom every job runs at slowdown 1.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.records import Device, Job

Floats = NDArray[np.float64]
MIN_GAIN_S = 1e-6  # weighted seconds; a smaller gain is rounding


class MigrationKind(StrEnum):
    """How residents change devices; candidates of equal gain are taken in the order of these names."""

    JOIN = "join"  # the mover joins a resident that is alone
    LEAVE = "leave"  # the mover leaves its partner for an empty device
    SWAP = "swap"  # two movers change places


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationCandidate:
    """One possible migration, in weighted seconds."""

    gain_s: float  # what it saves, less `move_factor` times what it costs
    kind: MigrationKind
    mover: int
    other: int  # the job that is joined or swapped with; m where the mover leaves for an empty device
    saved_s: float
    cost_s: float
    makes_room: bool  # the mover leaves its device to a job that waits


@dataclass(slots=True, kw_only=True)
class ResidentPairs:
    """The residents of the open devices of one class, after the migrations taken so far."""

    jobs: list[Job]
    device_of: list[Device]  # of each job
    partner: NDArray[np.int64]  # int64[m + 1]; m where a job is alone
    slowdown: Floats  # float64[m + 1, m + 1]: of i beside j
    allowed: NDArray[np.bool_]  # bool[m + 1, m + 1]: whether a migration may put i beside j
    weight: Floats  # float64[m + 1]
    remaining_s: Floats  # float64[m + 1]; NaN where unknown
    migration_cost_s: Floats  # float64[m + 1]: weight · checkpoint_s; inf where the job may not move
    empty: list[Device]

    def saved(self) -> Floats:
        """float64[m + 1, m + 1]: weighted seconds that i saves beside j over its remaining time; -inf where forbidden.

        A job whose remaining time is unknown saves nothing and is never slowed down further. Where the present slowdown
        is unknown it counts as 1: ending it gains nothing.
        """
        m = len(self.jobs)
        present = np.nan_to_num(self.slowdown[np.arange(m + 1), self.partner], nan=1.0)
        reduction = present[:, None] - self.slowdown
        of_unknown_length = np.where(reduction < 0, -np.inf, 0.0)
        of_known_length = reduction * (self.weight * self.remaining_s)[:, None]
        saved = np.where(np.isnan(self.remaining_s)[:, None], of_unknown_length, of_known_length)
        saved = np.where(self.allowed & ~np.isnan(reduction), saved, -np.inf)
        saved[m, :] = 0.0
        return saved

    def candidates(self, move_factor: float, room_s: float, *, may_leave: bool) -> list[MigrationCandidate]:
        """Return the best leave, join and swap of each mover, where it gains; the largest gain first.

        `room_s`: weighted seconds that a device saves which is left to a waiting job; `may_leave`: whether empty
        devices may be taken.
        """
        m, saved, partner = len(self.jobs), self.saved(), self.partner
        movers = np.flatnonzero(np.isfinite(self.migration_cost_s[:m])).tolist()
        saved_by_partner = saved[partner[:m], m]  # once the mover has gone; 0 without a partner
        candidates: list[MigrationCandidate] = []
        if may_leave and self.empty:
            leave = saved[:m, m] + saved_by_partner
            candidates += [
                self._candidate(MigrationKind.LEAVE, i, m, leave[i], move_factor) for i in movers if partner[i] < m
            ]
        join, swap = self._join_savings(saved, saved_by_partner, room_s), self._swap_savings(saved, move_factor)
        for i in movers:
            k = int(join[i].argmax())
            candidates.append(self._candidate(MigrationKind.JOIN, i, k, join[i, k], move_factor))
            k = int(swap[i].argmax())
            if np.isfinite(self.migration_cost_s[k]):
                saved_s = swap[i, k] + move_factor * self.migration_cost_s[k]
                candidates.append(self._candidate(MigrationKind.SWAP, i, k, saved_s, move_factor))
        gaining = [candidate for candidate in candidates if candidate.gain_s > MIN_GAIN_S]
        return sorted(gaining, key=lambda c: (-c.gain_s, self.jobs[c.mover].id, c.kind))

    def _join_savings(self, saved: Floats, saved_by_partner: Floats, room_s: float) -> Floats:
        """float64[m, m]: what is saved when i joins k, which is alone; a job alone moves only to make room."""
        m = len(self.jobs)
        is_alone = self.partner[:m] == m
        join = saved[:m, :m] + saved[:m, :m].T + saved_by_partner[:, None]
        join[is_alone, :] += room_s if room_s > 0 else -np.inf
        join[:, ~is_alone] = -np.inf
        np.fill_diagonal(join, -np.inf)
        return join

    def _swap_savings(self, saved: Floats, move_factor: float) -> Floats:
        """float64[m, m]: what is saved when i and k change places, less `move_factor` times what moving k costs."""
        m, partner = len(self.jobs), self.partner
        beside_partner = saved[:, partner] + saved[partner, :].T  # [i, k]: i and the partner of k, once together
        swap = (beside_partner + beside_partner.T)[:m, :m]
        swap -= move_factor * np.where(np.isinf(self.migration_cost_s[:m]), np.inf, self.migration_cost_s[:m])[None, :]
        swap[np.arange(m), np.minimum(partner[:m], m - 1)] = -np.inf  # partners are on one device
        np.fill_diagonal(swap, -np.inf)
        return swap

    def _candidate(self, kind: MigrationKind, i: int, k: int, saved_s: float, move_factor: float) -> MigrationCandidate:
        is_swap = kind is MigrationKind.SWAP
        cost_s = float(self.migration_cost_s[i] + (self.migration_cost_s[k] if is_swap else 0.0))
        return MigrationCandidate(
            gain_s=float(saved_s) - move_factor * cost_s,
            kind=kind,
            mover=i,
            other=k,
            saved_s=float(saved_s),
            cost_s=cost_s,
            makes_room=kind is MigrationKind.JOIN and int(self.partner[i]) == len(self.jobs),
        )

    def carry_out(self, candidate: MigrationCandidate) -> None:
        """Change partners and devices as the candidate says; its movers may not move again."""
        i, k, m = candidate.mover, candidate.other, len(self.jobs)
        partner_of_i, partner_of_k = int(self.partner[i]), int(self.partner[k])
        if candidate.kind is MigrationKind.SWAP:
            self.device_of[i], self.device_of[k] = self.device_of[k], self.device_of[i]
            self._pair(i, partner_of_k)
            self._pair(k, partner_of_i)
            self.migration_cost_s[k] = np.inf
        else:
            self._pair(partner_of_i, m)
            self.device_of[i] = self.empty.pop(0) if k == m else self.device_of[k]
            self._pair(i, k)
        self.migration_cost_s[i] = np.inf

    def _pair(self, i: int, j: int) -> None:
        """Make i and j partners; either may be m, no job."""
        m = len(self.jobs)
        if i < m:
            self.partner[i] = j
        if j < m:
            self.partner[j] = i
