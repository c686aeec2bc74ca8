"""Refuses reports of memory that no device of the type can hold: one of them would block its workload for good."""

import math

from interfere.devices import find_device_type
from interfere.devices.device_type import GIB
from interfere.records import MemoryUsage

# For device types whose memory is not known: the largest accelerators have 0.3 TiB, a host of CPU cores a few TiB.
MAX_USAGE_BYTES = 8 * 1024 * GIB


def impossible_usage(usage: MemoryUsage) -> str:
    """Why the report cannot be true, with what to do; "" where it can."""
    known = find_device_type(usage.device_type).memory_bytes
    limit = MAX_USAGE_BYTES if math.isnan(known) else known
    if usage.bytes <= limit:
        return ""
    sizes = f"{usage.bytes / GIB:.0f} GiB exceed the {limit / GIB:.0f} GiB of a {usage.device_type}"
    return f"{sizes}: send bytes, of one device"
