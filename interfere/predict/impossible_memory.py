"""Rejects reports of memory use above a device's capacity, which would keep the workload from being placed."""

import math

from interfere.devices import find_device_type
from interfere.devices.gpus import GIB
from interfere.records import MemoryUsage

# For device types whose memory is not known: the largest accelerators have 0.3 TiB, a host of CPU cores a few TiB.
MAX_USAGE_BYTES = 8 * 1024 * GIB


def impossible_usage(usage: MemoryUsage) -> str:
    """Return why a memory report cannot be true and what to do about it; "" for a plausible report."""
    known = find_device_type(usage.device_type).memory_bytes
    limit = MAX_USAGE_BYTES if math.isnan(known) else known
    if usage.bytes <= limit:
        return ""
    sizes = f"{usage.bytes / GIB:.0f} GiB exceed the {limit / GIB:.0f} GiB of a {usage.device_type}"
    return f"{sizes}: send bytes, of one device"
