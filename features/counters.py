"""What a monitoring system sees of a job alone: utilisation shares and power."""

from features.spec import log1p
from interfere.records import COUNTERS, JobProfile

COLUMNS = (*COUNTERS, "log_power_w")


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Values of `COLUMNS`."""
    return (*(getattr(profile, name) for name in COUNTERS), log1p(profile.power_w))
