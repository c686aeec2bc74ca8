"""The device types this project knows, with the ceilings a roofline needs.

Law: a name that is not listed is still a device type; all its ceilings are NaN, never a guess and never an error.
Peaks are dense (no structured sparsity), at boost clock, as the vendor's datasheet states them.
"""

import re
from dataclasses import dataclass

from interfere.errors import NotFoundError
from interfere.records import NAN

GB_S = 1e9
GIB = float(2**30)
MIB = float(2**20)
TFLOPS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """Ceilings of one kind of device; NaN where nobody stated them."""

    name: str
    peak_flops: float = NAN  # FLOP/s in float32, without tensor cores
    half_flops: float = NAN  # FLOP/s of 16-bit matrix products, on tensor cores where it has some
    tf32_flops: float = NAN  # FLOP/s of float32 products on tensor cores in TF32, where it has such
    memory_bandwidth_bytes_s: float = NAN
    memory_bytes: float = NAN
    multiprocessors: float = NAN
    l2_bytes: float = NAN
    aliases: tuple[str, ...] = ()  # what NVML calls the product, lower case
    source: str = ""  # where the ceilings come from


CPU_CORE = DeviceType(
    name="cpu-core",
    source="none: cores differ from machine to machine; a table's `device_name` says which processor it was",
)


def _gpu(
    name: str,
    fp32: float,
    half: float,
    bandwidth: float,
    gib: float,
    sms: int,
    l2_mib: float,
    source: str,
    *aliases: str,
    tf32: float = NAN,
) -> DeviceType:
    return DeviceType(
        name=name,
        peak_flops=fp32 * TFLOPS,
        half_flops=half * TFLOPS,
        tf32_flops=tf32 * TFLOPS,
        memory_bandwidth_bytes_s=bandwidth * GB_S,
        memory_bytes=gib * GIB,
        multiprocessors=float(sms),
        l2_bytes=l2_mib * MIB,
        aliases=aliases,
        source=source,
    )


_GPUS = (
    _gpu(
        "k80",
        4.37,
        4.37,
        240,
        12,
        13,
        1.5,
        "NVIDIA Tesla K80 datasheet, one of its two GK210: half of 8.74 TFLOPS, "
        "480 GB/s, 24 GB; no faster 16-bit arithmetic",
        "tesla k80",
    ),
    _gpu("p100", 10.6, 21.2, 732, 16, 56, 4, "NVIDIA Tesla P100 datasheet, SXM2 16 GB", "tesla p100-sxm2-16gb"),
    _gpu("p100-pcie", 9.3, 18.7, 732, 16, 56, 4, "NVIDIA Tesla P100 datasheet, PCIe 16 GB", "tesla p100-pcie-16gb"),
    _gpu("v100", 15.7, 125, 900, 16, 80, 6, "NVIDIA V100 datasheet, SXM2 16 GB", "tesla v100-sxm2-16gb"),
    _gpu("v100-32gb", 15.7, 125, 900, 32, 80, 6, "NVIDIA V100 datasheet, SXM2 32 GB", "tesla v100-sxm2-32gb"),
    _gpu("v100-pcie", 14.0, 112, 900, 16, 80, 6, "NVIDIA V100 datasheet, PCIe 16 GB", "tesla v100-pcie-16gb"),
    _gpu("v100-pcie-32gb", 14.0, 112, 900, 32, 80, 6, "NVIDIA V100 datasheet, PCIe 32 GB", "tesla v100-pcie-32gb"),
    _gpu("t4", 8.1, 65, 320, 16, 40, 4, "NVIDIA T4 datasheet (320+ GB/s)", "tesla t4"),
    _gpu(
        "rtx3090",
        35.6,
        71,
        936,
        24,
        82,
        6,
        "NVIDIA Ampere GA102 whitepaper, table 9: 16-bit with 32-bit accumulate",
        "nvidia geforce rtx 3090",
        "geforce rtx 3090",
        tf32=35.6,
    ),
    _gpu("a10", 31.2, 125, 600, 24, 72, 6, "NVIDIA A10 datasheet", "nvidia a10", tf32=62.5),
    _gpu(
        "a100",
        19.5,
        312,
        1555,
        40,
        108,
        40,
        "NVIDIA A100 datasheet, 40 GB",
        "nvidia a100-sxm4-40gb",
        "nvidia a100-pcie-40gb",
        "a100-sxm4-40gb",
        "a100-pcie-40gb",
        tf32=156,
    ),
    _gpu(
        "a100-80gb",
        19.5,
        312,
        2039,
        80,
        108,
        40,
        "NVIDIA A100 datasheet, SXM 80 GB",
        "nvidia a100-sxm4-80gb",
        "a100-sxm4-80gb",
        tf32=156,
    ),
    _gpu(
        "a100-80gb-pcie",
        19.5,
        312,
        1935,
        80,
        108,
        40,
        "NVIDIA A100 datasheet, PCIe 80 GB",
        "nvidia a100 80gb pcie",
        "a100 80gb pcie",
        tf32=156,
    ),
    _gpu(
        "l4",
        30.3,
        121,
        300,
        24,
        58,
        48,
        "NVIDIA L4 datasheet (dense: half of the sparse figure)",
        "nvidia l4",
        tf32=60.5,
    ),
    _gpu("l40s", 91.6, 362, 864, 48, 142, 96, "NVIDIA L40S datasheet (dense)", "nvidia l40s", tf32=183),
    _gpu("h100", 67, 989, 3350, 80, 132, 50, "NVIDIA H100 datasheet, SXM (dense)", "nvidia h100 80gb hbm3", tf32=494.5),
    _gpu("h100-pcie", 51, 756, 2000, 80, 114, 50, "NVIDIA H100 datasheet, PCIe (dense)", "nvidia h100 pcie", tf32=378),
    _gpu("h200", 67, 989, 4800, 141, 132, 50, "NVIDIA H200 datasheet, SXM (dense)", "nvidia h200", tf32=494.5),
    _gpu(
        "b200",
        75,
        2250,
        7700,
        180,
        148,
        126,
        "NVIDIA DGX B200 datasheet, one of eight (dense)",
        "nvidia b200",
        tf32=1125,
    ),
)
GPUS = tuple(device.name for device in _GPUS)
KNOWN = {device.name: device for device in (CPU_CORE, *_GPUS)}
_ALIASES = {alias: device for device in KNOWN.values() for alias in device.aliases}


def device_type(name: str) -> DeviceType:
    """The named device type, or one with NaN ceilings. Case does not matter; NVML's product names are understood."""
    lower = re.sub(r"[\s_]+", " ", name.strip().lower())
    return KNOWN.get(lower) or _ALIASES.get(lower) or DeviceType(name=name, source="unknown")


def has_ceilings(device: DeviceType) -> bool:
    """Whether a roofline can be drawn for it."""
    return device.peak_flops > 0 and device.memory_bandwidth_bytes_s > 0 and device.multiprocessors > 0


def device_with_ceilings(name: str) -> DeviceType:
    """The named device type. Raises NotFoundError where nobody stated its ceilings."""
    device = device_type(name)
    if not has_ceilings(device):
        raise NotFoundError("no ceilings are known of this device type", value=name, remedy=f"one of {', '.join(GPUS)}")
    return device
