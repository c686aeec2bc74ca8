"""A job under its device's roofline (Williams et al., CACM 2009): rates, arithmetic intensity, shares of the peaks."""

import math

from interfere.devices import find_device_type
from interfere.features.numeric import log1p, log_s, ratio
from interfere.records import JobProfile

GIGA = 1e9
COLUMNS = (
    "log_gflop_per_s",
    "log_gbyte_per_s",
    "log_flop_per_byte",
    "peak_flops_frac",
    "peak_bandwidth_frac",
    "device_log_peak_gflop_per_s",
    "device_log_bandwidth_gbyte_per_s",
    "log_static_step_time_s",
    "log_step_over_static",  # measured step time ÷ the time that the operators need by the roofline
    "static_busy_frac",  # its reciprocal as a share, at most 1
)


def encode(profile: JobProfile, device_name: str) -> tuple[float, ...]:
    """Return a job's rates and its shares of a device's peaks, in the order of `COLUMNS`.

    Rates are over the whole step, pauses included.
    """
    device = find_device_type(device_name)
    flops_per_s = ratio(profile.flops_per_step, profile.step_time_s)
    bytes_per_s = ratio(profile.bytes_per_step, profile.step_time_s)
    return (
        log1p(flops_per_s / GIGA),
        log1p(bytes_per_s / GIGA),
        log1p(ratio(profile.flops_per_step, profile.bytes_per_step)),
        ratio(flops_per_s, device.peak_flops),
        ratio(bytes_per_s, device.memory_bandwidth_bytes_s),
        log1p(device.peak_flops / GIGA),
        log1p(device.memory_bandwidth_bytes_s / GIGA),
        log_s(profile.static_step_time_s),
        log_s(profile.step_time_s) - log_s(profile.static_step_time_s),
        min(1.0, busy) if (busy := ratio(profile.static_step_time_s, profile.step_time_s)) >= 0 else math.nan,
    )
