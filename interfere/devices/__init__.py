"""The catalogue of known device types, with the peak rates and sizes that a roofline model needs.

Law: a name that is not listed is still a device type; all its figures are NaN, never a guess and never an error.
Peak rates are dense (no structured sparsity), at boost clock, as stated in the vendor's datasheet.
"""

import re

from interfere.devices.gpus import DATA_CENTER_GPUS, MIG_SLICES, WORKSTATION_GPUS, DeviceType
from interfere.errors import NotFoundError
from interfere.sharing_modes import CPU_MODES, SharingMode

__all__ = [
    "CPU_CORE",
    "GPU_NAMES",
    "KNOWN_DEVICE_TYPES",
    "DeviceType",
    "device_type_of_product",
    "find_device_type",
    "has_peak_rates",
    "possible_modes",
    "require_peak_rates",
]

CPU_CORE = DeviceType(
    name="cpu-core",
    source="none: cores differ from machine to machine; a table's `device_name` says which processor it was",
)

BRANDS = ("nvidia", "tesla", "geforce", "quadro")
_GPUS = (*DATA_CENTER_GPUS, *WORKSTATION_GPUS)
GPU_NAMES = tuple(device.name for device in _GPUS)
KNOWN_DEVICE_TYPES = {device.name: device for device in (CPU_CORE, *_GPUS, *MIG_SLICES)}
_DEVICE_TYPES_BY_ALIAS = {alias: device for device in KNOWN_DEVICE_TYPES.values() for alias in device.aliases}


def find_device_type(name: str) -> DeviceType:
    """Return the device type with this name or NVML product name, in any case.

    An unknown name gives a type with NaN values.
    """
    normalized = re.sub(r"[\s_]+", " ", name.strip().lower())
    return (
        KNOWN_DEVICE_TYPES.get(normalized)
        or _DEVICE_TYPES_BY_ALIAS.get(normalized)
        or _DEVICE_TYPES_BY_ALIAS.get(normalized.removeprefix("nvidia "))
        or DeviceType(name=name, source="unknown")
    )


def device_type_of_product(product: str) -> str:
    """Return the device type of a product name, such as a100-80gb for "NVIDIA A100-SXM4-80GB".

    An unknown product gives its own words in lower case without the brand: form factor and memory size stay, so that it
    never gets the peak rates of a related product. An empty name gives "".
    """
    device_type = find_device_type(product)
    if device_type.name in KNOWN_DEVICE_TYPES:
        return device_type.name
    words = re.split(r"[\s\-_/]+", product.lower())
    return "-".join(word for word in words if word and word not in BRANDS)


def has_peak_rates(device_type: DeviceType) -> bool:
    """Return whether all the figures of a roofline model are known."""
    return device_type.peak_flops > 0 and device_type.memory_bandwidth_bytes_s > 0 and device_type.multiprocessors > 0


def require_peak_rates(name: str) -> DeviceType:
    """Return the device type of that name. Raises NotFoundError where the figures of a roofline model are unknown."""
    device_type = find_device_type(name)
    if not has_peak_rates(device_type):
        raise NotFoundError(
            "no peak rates are known of this device type", value=name, remedy=f"one of {', '.join(GPU_NAMES)}"
        )
    return device_type


def possible_modes(device_type: str) -> tuple[SharingMode, ...]:
    """Return the sharing modes that a device of this type can have; all modes for a device type outside the
    catalogue."""
    found = find_device_type(device_type)
    if found.name not in KNOWN_DEVICE_TYPES:
        return tuple(SharingMode)
    if found.name == CPU_CORE.name:
        return CPU_MODES
    return tuple(
        mode
        for mode in SharingMode
        if mode.properties.on_every_gpu or (mode.properties.partitions_device and found.has_mig)
    )
