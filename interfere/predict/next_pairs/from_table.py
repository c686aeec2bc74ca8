"""The belief about the pairs of a table's jobs: what a model predicts, then what the table measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.rows.roles import merge_roles
from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnfitError
from interfere.predict.next_pairs.belief import MAX_JOBS, OrderedPair, PairBelief, fitted_belief
from interfere.predict.online.prior import Floats, ResidualPrior
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch, PairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBelief:
    """What is believed of all pairs of the jobs of one device type, and what it rests on."""

    belief: PairBelief  # after the measurements
    prior: PairBelief  # before them, with the size of errors that they suggest
    measured: dict[OrderedPair, float]  # log slowdowns
    tried: frozenset[frozenset[str]]  # unordered pairs with a row, unstable ones included

    def left_out_error(self) -> float:
        """Mean absolute error of the speed of each measured pair, predicted from the others; NaN below two pairs."""
        if len({frozenset(pair) for pair in self.measured}) < 2:
            return math.nan
        answers = self.prior.left_out(self.measured)
        errors = [abs(math.exp(-answers[pair][0]) - math.exp(-value)) for pair, value in self.measured.items()]
        return math.fsum(errors) / len(errors)


def table_belief(
    table: Table, model: Predictor, prior: ResidualPrior, *, device_type: str, mode: str, jobs: Sequence[str] = ()
) -> TableBelief:
    """The belief about the table's jobs on a device type; `jobs`: only these.

    Raises UnfitError where fewer than two jobs are profiled there, InvalidInputError for more than `MAX_JOBS`.
    """
    profiles = [job for job in table.jobs if job.device_type == device_type and (not jobs or job.workload in jobs)]
    if len(profiles) < 2:
        known = sorted({job.device_type for job in table.jobs})
        raise UnfitError(
            f"fewer than two jobs are profiled on {device_type}",
            value=f"{table.name} has {', '.join(known) or 'no jobs'}",
            remedy="profile the jobs alone first, or choose another --device",
        )
    if len(profiles) > MAX_JOBS:
        raise InvalidInputError(
            f"pairs are suggested among at most {MAX_JOBS} jobs", value=len(profiles), remedy="name some with --job"
        )
    names = [profile.workload for profile in profiles]
    rows = [
        pair
        for pair in merge_roles(table.pairs)
        if pair.device_type == device_type and pair.mode == mode and {pair.victim, pair.neighbour} <= set(names)
    ]
    measured = {(row.victim, row.neighbour): math.log(row.slowdown) for row in rows if row.status is PairStatus.OK}
    before = fitted_belief(names, log_predictions(model, profiles, device_type, mode), prior, measured)
    return TableBelief(
        belief=before.given(measured),
        prior=before,
        measured=measured,
        tried=frozenset(frozenset((row.victim, row.neighbour)) for row in rows),
    )


def log_predictions(model: Predictor, jobs: Sequence[JobProfile], device_type: str, mode: str) -> Floats:
    """float64[n, n]: the model's log slowdown of the row's job beside the column's, however far it extrapolates."""
    n = len(jobs)
    batch = PairBatch(
        jobs=tuple(jobs),
        victim=np.repeat(np.arange(n), n),
        neighbour=np.tile(np.arange(n), n),
        device_type=device_type,
        mode=mode,
        allow_extrapolation=True,
    )
    return np.log(model.predict_pairs(batch).median).reshape(n, n)
