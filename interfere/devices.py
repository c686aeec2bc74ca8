"""The device types this project knows, with the ceilings a roofline needs.

Law: a name that is not listed is still a device type; all its ceilings are NaN, never a guess and never an error.
"""

from dataclasses import dataclass

from interfere.records import NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """Ceilings of one kind of device; NaN where nobody stated them."""

    name: str
    peak_flops: float = NAN  # FLOP/s of the widest unit
    memory_bandwidth_bytes_s: float = NAN
    memory_bytes: float = NAN
    source: str = ""  # where the ceilings come from


CPU_CORE = DeviceType(
    name="cpu-core",
    source="none: cores differ from machine to machine; a table's `device_name` says which processor it was",
)
KNOWN = {device.name: device for device in (CPU_CORE,)}


def device_type(name: str) -> DeviceType:
    """The named device type, or one with NaN ceilings."""
    return KNOWN.get(name, DeviceType(name=name, source="unknown"))
