"""The pairs of a site's own jobs from few measured ones and a published model's predictions."""

from collections.abc import Sequence

import numpy as np

from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnfitError
from interfere.predict.transfer.excess_scale import Floats
from interfere.predict.transfer.pair_belief import PairBelief, measured_rows, pair_belief, space_of_profiles
from interfere.predict.transfer.pair_sources import source_of_model
from interfere.predict.transfer.process import all_pairs
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch

MAX_JOBS = 48  # 2,304 ordered pairs: a covariance of 42 MB


def site_belief(table: Table, model: Predictor, *, device_type: str, mode: str, jobs: Sequence[str] = ()) -> PairBelief:
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
    profiles.sort(key=lambda profile: profile.workload)
    predicted = source_of_model(model.version, log_predictions(model, profiles, device_type, mode))
    space = space_of_profiles(profiles, [predicted])
    rows = [pair for pair in table.pairs if pair.device_type == device_type and pair.mode == mode]
    return pair_belief(space, *measured_rows(rows, space.jobs))


def log_predictions(model: Predictor, jobs: Sequence[JobProfile], device_type: str, mode: str) -> Floats:
    """float64[n, n]: the model's log slowdown of the row's job beside the column's, however far it extrapolates."""
    n = len(jobs)
    victims, neighbours = all_pairs(n)
    batch = PairBatch(
        jobs=tuple(jobs),
        victim=victims,
        neighbour=neighbours,
        device_type=device_type,
        mode=mode,
        allow_extrapolation=True,
    )
    return np.log(model.predict_pairs(batch).median).reshape(n, n)
