"""How much memory a job holds, for what, and touches: log MiB, and its share of the device."""

from features.spec import log1p, ratio
from interfere.devices import find_device_type
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
    """Values of `COLUMNS`."""
    peak = profile.expected_peak_bytes
    parts = (
        peak,
        profile.memory_working_set_bytes,
        profile.memory_model_bytes,
        profile.memory_gradient_bytes,
        profile.memory_optimizer_bytes,
        profile.memory_activation_bytes,
    )
    return (*(log1p(part / MIB) for part in parts), ratio(peak, find_device_type(device_name).memory_bytes))
