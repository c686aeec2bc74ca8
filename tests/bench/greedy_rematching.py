"""A rival of re-pairing: the single change that gains most is carried out, again and again."""

from dataclasses import dataclass

import numpy as np

from interfere.matching.problem import WAITS
from interfere.matching.rematching import ELSEWHERE, Arrangement, Floats, Rematching, RematchingProblem, value_of

MIN_GREEDY_GAIN = 1e-9  # of weighted speed: a smaller gain of one change is rounding


def rematch_greedily(problem: RematchingProblem) -> Rematching:
    """Return the arrangement that greedy changes of the present arrangement lead to, without an upper bound.

    The single change that gains most is carried out, again and again, until no change gains. A waiting job starts on a
    free device, beside a job that runs alone, or in the place of a running job, which stops. A running job joins a job
    that runs alone, leaves its partner for a free device, or changes places with another job. Where a job leaves a
    device empty, the gain includes the value of the best waiting job there. No job changes twice.
    """
    search = _GreedySearch(problem)
    while search.take_best_change():
        pass
    arrangement = search.arrangement()
    return Rematching(arrangement=arrangement, value=value_of(problem, arrangement), upper_bound=np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gains:
    """The gain of every single change of an arrangement; -inf where the change is not possible."""

    start: Floats  # float64[n]: i starts on a free device, or leaves its partner for one
    join: Floats  # float64[n, n]: i joins k, which is alone
    swap: Floats  # float64[n, n]: i and k, both running, change places


class _GreedySearch:
    """An arrangement to which greedy changes are applied one by one."""

    def __init__(self, problem: RematchingProblem) -> None:
        present = problem.current()
        self.mate, self.place = present.mate, present.place
        self._problem, self._jobs = problem, np.arange(problem.n)
        self._changed = np.zeros(problem.n, dtype=bool)

    def take_best_change(self) -> bool:
        """Carry out the change that gains most; return False where no change gains."""
        gains = self._gains()
        start = int(gains.start.argmax()) if self._problem.n else 0
        best = [("start", float(gains.start[start]), start, start)] if self._problem.n else []
        for kind in ("join", "swap"):
            table = getattr(gains, kind)
            if table.size:
                i, k = divmod(int(table.argmax()), self._problem.n)
                best.append((kind, float(table[i, k]), i, k))
        kind, gain, i, k = max(best, key=lambda change: change[1], default=("", -np.inf, 0, 0))
        if not gain > MIN_GREEDY_GAIN:
            return False
        self._carry_out(kind, i, k)
        return True

    def arrangement(self) -> Arrangement:
        """Return the present arrangement. A device from which no job of its group comes is equivalent to any other
        device."""
        home, partner = self._problem.home, np.where(self.mate == WAITS, self._jobs, self.mate)
        is_home = (self.place == home) | (self.place == home[partner])
        return Arrangement(mate=self.mate, place=np.where(is_home, self.place, ELSEWHERE))

    def _gains(self) -> _Gains:
        problem, mate, jobs = self._problem, self.mate, self._jobs
        runs, may_change = mate != WAITS, ~self._changed
        is_alone, shares = mate == jobs, runs & (mate != jobs)
        partner = np.where(shares, mate, jobs)
        shift = problem.relocation
        own_shift = np.diagonal(shift)
        away = runs & ((self.place != problem.home) | (self.place == ELSEWHERE))
        beside = problem.pair - shift - np.where(away[:, None], shift, 0.0).T  # i comes to k
        alone_here = problem.alone - np.where(away, own_shift, 0.0)
        group = np.where(is_alone, alone_here, 0.0)
        paid = np.where(away, shift[jobs, partner], 0.0)
        group[shares] = (problem.pair[jobs, partner] - paid - paid[partner])[shares]
        free = problem.devices - int(is_alone.sum() + shares.sum() // 2)
        waits = ~runs & may_change
        # 1. What is lost where a job leaves, and what a waiting job is worth on a device that becomes free.
        leave = np.where(shares, alone_here[partner] - group, np.where(is_alone, -group, 0.0))
        room = float(problem.alone[waits].max(initial=0.0)) if free == 0 else 0.0
        leave = leave + np.where(is_alone, room, 0.0)
        # 2. Starts and joins.
        start = np.full(problem.n, -np.inf)
        if free > 0:
            start = np.where(waits, problem.alone, np.where(shares, leave + problem.alone - own_shift, -np.inf))
        join = beside - np.where(is_alone, group, np.inf)[None, :] + leave[:, None]
        # 3. Changes of places: what a job is worth in the place of another.
        in_place = np.where(shares[None, :], beside[:, partner], (problem.alone - own_shift)[:, None])
        swap = in_place + in_place.T - group[:, None] - group[None, :]
        swap[~runs, :] = swap[:, ~runs] = -np.inf
        swap[jobs, partner] = -np.inf
        for table in (join, swap):
            np.fill_diagonal(table, -np.inf)
            table[~may_change, :] = -np.inf
        swap[:, ~may_change] = -np.inf
        return _Gains(
            start=np.where(may_change, start, -np.inf),
            join=np.nan_to_num(join, nan=-np.inf, neginf=-np.inf),
            swap=np.nan_to_num(swap, nan=-np.inf, neginf=-np.inf),
        )

    def _carry_out(self, kind: str, i: int, k: int) -> None:
        old_partner, old_place, k_partner, k_place = self.mate[i], self.place[i], self.mate[k], self.place[k]
        self._changed[i] = True
        if kind in ("start", "join"):
            if old_partner not in (WAITS, i):
                self.mate[old_partner] = old_partner
            self.place[i] = ELSEWHERE if kind == "start" else k_place
            self.mate[i], self.mate[k] = k, i
            return
        self._changed[k] = True
        self._seat(i, k, int(k_partner), int(k_place))
        self._seat(k, i, int(old_partner), int(old_place))

    def _seat(self, i: int, instead_of: int, partner: int, place: int) -> None:
        """Put job i in the place of another job, beside the partner of that job if there is one."""
        self.place[i] = place
        self.mate[i] = i if partner == instead_of else partner
        if partner != instead_of:
            self.mate[partner] = i
