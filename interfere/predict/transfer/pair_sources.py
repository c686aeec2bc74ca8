"""What a source says of every ordered pair of jobs: the table of another device type, or a published model.

Law: a job that no table measured has the mean effect of its source; its facts then say how far to trust that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.field.additive import additive_effects
from interfere.predict.transfer.excess_scale import Floats, to_excess_scale

RIDGE = 0.5  # in rows: the weight of the mean beside the rows of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSource:
    """One source on the excess scale, for `n` jobs in the order asked for."""

    title: str
    z: Floats  # float64[n, n], victim by neighbour, without gaps
    victim_effects: Floats  # float64[n], from the mean
    neighbour_effects: Floats  # float64[n]
    interaction: Floats  # float64[n, n]: what the effects do not explain; 0 where nothing was measured
    log_step_time_s: Floats  # float64[n]; NaN where unknown
    is_measured: NDArray[np.bool_]  # bool[n]: jobs with a measured pair there


def source_of_table(title: str, table: Table, jobs: Sequence[str]) -> PairSource:
    """The source of one device type's rows and profiles: measured where it was, else additive."""
    index = {name: k for k, name in enumerate(jobs)}
    # 1. Measured cells.
    z = np.full((len(jobs), len(jobs)), np.nan)
    rows = [pair for pair in table.ok_pairs if pair.victim in index and pair.neighbour in index]
    victims = np.array([index[pair.victim] for pair in rows], dtype=np.int64)
    neighbours = np.array([index[pair.neighbour] for pair in rows], dtype=np.int64)
    values = to_excess_scale(np.array([pair.slowdown for pair in rows], dtype=np.float64))
    z[victims, neighbours] = values
    # 2. Additive effects by ridge regression.
    mean = float(values.mean()) if rows else 0.0
    _, own, others = additive_effects(values, victims, neighbours, jobs=len(jobs), shrinkage=RIDGE, level=mean)
    additive = mean + own[:, None] + others[None, :]
    # 3. Step times alone.
    log_step_time_s = np.full(len(jobs), np.nan)
    for job in table.jobs:
        if job.workload in index and job.step_time_s > 0:
            log_step_time_s[index[job.workload]] = np.log(job.step_time_s)
    measured = np.isfinite(z)
    return PairSource(
        title=title,
        z=np.where(measured, z, additive),
        victim_effects=own,
        neighbour_effects=others,
        interaction=np.where(measured, z - additive, 0.0),
        log_step_time_s=log_step_time_s,
        is_measured=measured.any(axis=0) | measured.any(axis=1),
    )


def source_of_model(title: str, log_slowdown: Floats) -> PairSource:
    """The source of a model's log slowdowns, float64[n, n]: no step times, as it predicts from those of the jobs."""
    z = to_excess_scale(np.exp(log_slowdown))
    mean = z.mean()
    own, others = z.mean(axis=1) - mean, z.mean(axis=0) - mean
    return PairSource(
        title=title,
        z=z,
        victim_effects=own,
        neighbour_effects=others,
        interaction=z - mean - own[:, None] - others[None, :],
        log_step_time_s=np.full(len(z), np.nan),
        is_measured=np.zeros(len(z), dtype=bool),
    )
