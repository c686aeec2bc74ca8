"""Memory and time spans as people read them."""

import math

from interfere.records.rules import MemoryBasis, MemoryDemand

GIB = float(2**30)
HOUR_S, MINUTE_S = 3600.0, 60.0


def format_bytes(size_bytes: float) -> str:
    """Memory as people read it, in GiB."""
    return f"{size_bytes / GIB:.3g} GiB"


def format_duration(seconds: float) -> str:
    """A time span as people read it, in seconds, minutes or hours."""
    if abs(seconds) >= HOUR_S:
        return f"{seconds / HOUR_S:.3g} h"
    return f"{seconds / MINUTE_S:.3g} min" if abs(seconds) >= MINUTE_S else f"{seconds:.3g} s"


def format_demand(demand: MemoryDemand) -> str:
    """The memory that a job needs, and where that is known from unless it is a measured peak."""
    if math.isnan(demand.needed_bytes):
        return "unknown"
    notes = _BASES[demand.basis]
    if not math.isnan(demand.known_bytes):
        known = _BASES[demand.known_basis]
        notes += f", more than the {format_bytes(demand.known_bytes)}{f' ({known})' if known else ''} known"
    return format_bytes(demand.needed_bytes) + (f" ({notes})" if notes else "")


_BASES = {
    MemoryBasis.PEAK: "",
    MemoryBasis.GRANT: "grant",
    MemoryBasis.WORKING_SET: "working set",
    MemoryBasis.STATIC_TRACE: "static trace",
    MemoryBasis.MEASURED_USE: "measured use",
}
