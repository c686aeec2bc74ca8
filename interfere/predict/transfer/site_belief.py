"""The pairs of a site's own jobs from few measured ones and a published model's predictions."""

from collections.abc import Sequence

from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnfitError
from interfere.predict.transfer.first_predictions import FirstPredictions, predict_first
from interfere.predict.transfer.pair_belief import PairBelief, measured_rows, pair_belief, space_of_profiles
from interfere.predict.transfer.process import PairSpace
from interfere.protocols import Predictor
from interfere.records import JobProfile
from interfere.records.checks import METRICS
from interfere.sharing_modes import SharingMode

MAX_JOBS = 48  # 2,304 ordered pairs: a covariance of 42 MB


def site_belief(
    table: Table,
    model: Predictor,
    *,
    device_type: str,
    mode: SharingMode,
    jobs: Sequence[str] = (),
    first: FirstPredictions | None = None,
) -> PairBelief:
    """The belief about the table's jobs on a device type; `jobs`: only these.

    `first`: what was predicted of them before they were measured; the model predicts what is not among it.
    Raises UnfitError where fewer than two jobs are profiled there, InvalidInputError for more than `MAX_JOBS`.
    """
    profiles = site_profiles(table, device_type, jobs)
    first = predict_first(first, model, profiles, device_type, mode)
    space = site_space(profiles, first)
    key = (device_type, mode, METRICS[0])
    rows = [pair for pair in table.pairs if (pair.device_type, pair.mode, pair.metric) == key]
    return pair_belief(space, *measured_rows(rows, space.jobs))


def site_space(profiles: Sequence[JobProfile], first: FirstPredictions) -> PairSpace:
    """The space of a site's jobs. Raises KeyError for a job without first predictions."""
    return space_of_profiles(profiles, [first.source([profile.workload for profile in profiles])])


def site_profiles(table: Table, device_type: str, jobs: Sequence[str] = ()) -> list[JobProfile]:
    """The profiles of the table's jobs on a device type, by name; `jobs`: only these. Raises as `site_belief`."""
    profiles = [job for job in table.jobs if job.device_type == device_type and (not jobs or job.workload in jobs)]
    if len(profiles) < 2:
        known = sorted({job.device_type for job in table.jobs})
        raise UnfitError(
            f"fewer than two jobs are profiled on {device_type}",
            value=f"{table.name} has {', '.join(known) or 'no jobs'}",
            remedy="profile the jobs alone first, or choose another --device-type",
        )
    if len(profiles) > MAX_JOBS:
        raise InvalidInputError(
            f"pairs are suggested among at most {MAX_JOBS} jobs", value=len(profiles), remedy="name some with --job"
        )
    return sorted(profiles, key=lambda profile: profile.workload)
