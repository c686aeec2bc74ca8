"""Both sides of a job that no training row shows: its own slowdown beside known jobs, and what it does to them.

s measured slowdown, ŝ predicted; the rows of a job i on its own side are (i beside j) for its known partners j, on the
side of others (j beside i). Per side, as in `scores`:

    error     mean |y - ŷ|, y = 1/s clipped as in `speed`
    regret    100 · (Σ s(c) / Σ min s - 1), in %: for each job with at least 3 partners, c is the partner with the least
              ŝ (their mean where several share it); own: who slows the job least, others: whom the job slows least
    coverage  share of rows inside their 90 % interval
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

MIN_PARTNERS = 3  # a choice among two partners is right by chance half of the time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Side(StrEnum):
    """Whose slowdown a row measures, seen from the job that is new."""

    OWN = "own"
    OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceCosts:
    """What the choice of a partner costs each job: measured slowdowns, one entry per job and group."""

    job: Ints
    chosen: Floats  # float64[models, jobs]: of the partner that each model prefers
    best: Floats

    def regret(self, model: int = 0) -> float:
        """100 · (Σ chosen / Σ best - 1); NaN without a job that has a choice."""
        return float(100 * (self.chosen[model].sum() / self.best.sum() - 1)) if len(self.job) else float("nan")


def choice_costs(measured_log: Floats, predicted_logs: Floats, job: Ints, group: Ints) -> ChoiceCosts:
    """The costs of choosing a partner within each (group, job); `predicted_logs` is float64[models, rows]."""
    order = np.lexsort((job, group))
    keys = np.stack([group[order], job[order]])
    starts = np.flatnonzero(np.r_[True, (np.diff(keys, axis=1) != 0).any(axis=0)]) if len(order) else order
    jobs, chosen, best = [], [], []
    for rows in np.split(order, starts[1:]) if len(order) else []:
        if len(rows) < MIN_PARTNERS:
            continue
        slowdown = np.exp(measured_log[rows])
        jobs.append(job[rows[0]])
        best.append(slowdown.min())
        chosen.append([slowdown[p[rows] == p[rows].min()].mean() for p in predicted_logs])
    costs = np.array(chosen, dtype=np.float64).reshape(-1, len(predicted_logs)).T
    return ChoiceCosts(job=np.array(jobs, dtype=np.int64), chosen=costs, best=np.array(best, dtype=np.float64))


def rows_of_side(side: Side, victim: Ints, subject: Ints) -> NDArray[np.bool_]:
    """bool[t]: the tests of one side; `subject` is the job that each row tests."""
    return np.asarray(victim == subject if side is Side.OWN else victim != subject)
