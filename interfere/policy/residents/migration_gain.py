"""Savings and costs of every single migration among the residents of one device class, as arrays over all movers.

m residents; index m stands for no partner, with whom every job has slowdown 1.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.records import Device, Job

Floats = NDArray[np.float64]
MIN_GAIN_S = 1e-6  # weighted seconds; a smaller gain is a rounding error


class MigrationKind(StrEnum):
    """The kinds of migration; candidates of equal gain are taken in alphabetical order of kind."""

    JOIN = "join"  # the mover joins a resident that is alone
    LEAVE = "leave"  # the mover leaves its partner for an empty device
    SWAP = "swap"  # two movers change places


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationCandidate:
    """One possible migration, with gain, saving and cost in weighted seconds."""

    gain_s: float  # saved_s minus `move_factor` times cost_s
    kind: MigrationKind
    mover: int
    other: int  # job to join or swap with; m where the mover leaves for an empty device
    saved_s: float
    cost_s: float
    makes_room: bool  # whether a waiting job gets the device of the mover


@dataclass(slots=True, kw_only=True)
class ResidentPairs:
    """The residents of the open devices of one class, after all migrations carried out so far."""

    jobs: list[Job]
    device_of: list[Device]  # device of each job
    partner: NDArray[np.int64]  # int64[m + 1]: partner of each job; m where the job is alone
    slowdown: Floats  # float64[m + 1, m + 1]: slowdown of i beside j
    allowed: NDArray[np.bool_]  # bool[m + 1, m + 1]: whether a migration may put i beside j
    weight: Floats  # float64[m + 1]
    remaining_s: Floats  # float64[m + 1]; NaN where unknown
    migration_cost_s: Floats  # float64[m + 1]: weight · checkpoint_s; inf where the job may not move
    empty: list[Device]

    def saved(self) -> Floats:
        """Return float64[m + 1, m + 1]: weighted seconds saved by i beside j over its remaining time; -inf where
        forbidden.

        A job of unknown remaining time saves nothing and is never slowed down further. An unknown present slowdown
        counts as 1, so that leaving the partner saves nothing.
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
        """Return the best leave, join and swap of each mover that gains, in descending order of gain.

        `room_s`: weighted seconds saved by a device vacated for a waiting job; `may_leave`: whether empty devices may
        be used.
        """
        m, saved, partner = len(self.jobs), self.saved(), self.partner
        movers = np.flatnonzero(np.isfinite(self.migration_cost_s[:m])).tolist()
        saved_by_partner = saved[partner[:m], m]  # saving of the partner after the mover has left; 0 without a partner
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
        """Return float64[m, m]: saving when i joins k, which is alone; if i is alone too, the join must make room."""
        m = len(self.jobs)
        is_alone = self.partner[:m] == m
        join = saved[:m, :m] + saved[:m, :m].T + saved_by_partner[:, None]
        join[is_alone, :] += room_s if room_s > 0 else -np.inf
        join[:, ~is_alone] = -np.inf
        np.fill_diagonal(join, -np.inf)
        return join

    def _swap_savings(self, saved: Floats, move_factor: float) -> Floats:
        """Return float64[m, m]: saving when i and k swap places, minus `move_factor` times the migration cost of k."""
        m, partner = len(self.jobs), self.partner
        beside_partner = saved[:, partner] + saved[partner, :].T  # [i, k]: savings of i and of k's partner together
        swap = (beside_partner + beside_partner.T)[:m, :m]
        swap -= move_factor * np.where(np.isinf(self.migration_cost_s[:m]), np.inf, self.migration_cost_s[:m])[None, :]
        swap[np.arange(m), np.minimum(partner[:m], m - 1)] = -np.inf  # partners share a device: no swap
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
        """Update partners and devices for a migration, and forbid its movers to move again."""
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
        """Make jobs i and j partners; index m stands for no job."""
        m = len(self.jobs)
        if i < m:
            self.partner[i] = j
        if j < m:
            self.partner[j] = i
