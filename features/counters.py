"""Monitoring counters of a job that runs solo: utilisation shares and power."""

from interfere.features.numeric import log1p
from interfere.records import COUNTERS, JobProfile

COLUMNS = (*COUNTERS, "log_power_w")


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Return the monitoring counters of a job, in the order of `COLUMNS`; NaN for counters that it lacks."""
    return (*(getattr(profile, name) for name in COUNTERS), log1p(profile.power_w))
