"""Memory that a job holds and touches, by purpose (log MiB), and its peak as a share of the device's memory."""

from interfere.devices import find_device_type
from interfere.features.numeric import log1p, ratio
from interfere.records import JobProfile

MIB = float(2**20)
COLUMNS = (
    "log_memory_peak_mib",
    "log_working_set_mib",
    "log_memory_model_mib",
    "log_memory_gradient_mib",
    "log_memory_optimizer_mib",
    "log_memory_activation_mib",
    "memory_peak_device_frac",
)


def encode(profile: JobProfile, device_name: str) -> tuple[float, ...]:
    """Return the memory that a job holds, in the order of `COLUMNS`; NaN for sizes that its profile lacks."""
    peak_bytes = profile.expected_peak_bytes
    sizes_bytes = (
        peak_bytes,
        profile.memory_working_set_bytes,
        profile.memory_model_bytes,
        profile.memory_gradient_bytes,
        profile.memory_optimizer_bytes,
        profile.memory_activation_bytes,
    )
    return (
        *(log1p(size_bytes / MIB) for size_bytes in sizes_bytes),
        ratio(peak_bytes, find_device_type(device_name).memory_bytes),
    )
