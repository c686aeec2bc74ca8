"""The pairs of a device type from few of its own and the tables of other device types."""

from collections.abc import Iterable, Sequence

from interfere.data.quality import domain_tables
from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.transfer.pair_belief import PairBelief, measured_rows, pair_belief, space_of_profiles
from interfere.predict.transfer.pair_sources import source_of_table
from interfere.records import JobProfile, PairMeasurement

MIN_SHARED_JOBS = 3


def fit_transfer(
    sources: Iterable[Table], profiles: Sequence[JobProfile], measured: Sequence[PairMeasurement]
) -> PairBelief:
    """Fit the belief about the device type of `profiles` from other device types' tables and the pairs measured on it.

    Raises UnfitError where no table shares at least `MIN_SHARED_JOBS` jobs with the profiles.
    """
    by_name = {profile.workload: profile for profile in profiles}
    jobs = tuple(sorted(by_name))
    device_types = {profile.device_type for profile in profiles}
    # 1. The domains of other device types that know enough of the jobs.
    devices = []
    for table in sources:
        for title, domain in domain_tables(table):
            names = {name for pair in domain.ok_pairs for name in (pair.victim, pair.neighbour)}
            if len(names & set(jobs)) >= MIN_SHARED_JOBS and not {p.device_type for p in domain.pairs} & device_types:
                devices.append(source_of_table(title, domain, jobs))
    if not devices:
        raise UnfitError(
            "no table of another device type measured these jobs",
            value=", ".join(jobs[:8]),
            remedy=f"give one with at least {MIN_SHARED_JOBS} of them, under the same names: --data gavel",
        )
    # 2. The jobs' step times and facts on the new device type, and its measured pairs.
    space = space_of_profiles([by_name[name] for name in jobs], devices)
    rows = [pair for pair in measured if pair.device_type in device_types]
    return pair_belief(space, *measured_rows(rows, jobs))
