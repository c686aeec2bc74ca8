"""How much memory a job holds and touches, in log MiB."""

from features.spec import log1p
from interfere.records import JobProfile

MIB = float(2**20)
COLUMNS = ("log_memory_peak_mib", "log_working_set_mib")


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Values of `COLUMNS`."""
    return (log1p(profile.memory_peak_bytes / MIB), log1p(profile.memory_working_set_bytes / MIB))
