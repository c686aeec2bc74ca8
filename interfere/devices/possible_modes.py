"""The sharing modes that a device can have, by what kind of device it is.

Law: a device type that is not in the catalogue may have every mode; nothing is guessed of it.
"""

from interfere.devices import CPU_CORE, KNOWN_DEVICE_TYPES, find_device_type
from interfere.records import MODES

CPU_MODES = ("timeslice", "priority", "spatial")  # of cores: what the operating system's scheduler can do
GPU_MODES = ("timeslice", "mps", "stream", "priority")  # of every GPU of the catalogue; MIG depends on the chip


def possible_modes(device_type: str) -> tuple[str, ...]:
    """The modes that a device of this type can have, in the order of `MODES`."""
    found = find_device_type(device_type)
    if found.name not in KNOWN_DEVICE_TYPES:
        return MODES
    possible = CPU_MODES if found.name == CPU_CORE.name else (*GPU_MODES, *(("mig",) if found.has_mig else ()))
    return tuple(mode for mode in MODES if mode in possible)
