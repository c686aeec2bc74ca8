"""The catalogue of known device types, with the peak rates and sizes that a roofline model needs.

Law: a name that is not listed is still a device type; all its figures are NaN, never a guess and never an error.
Peak rates are dense (no structured sparsity), at boost clock, as stated in the vendor's datasheet.
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
    """Peak rates and sizes of one device type; NaN where its vendor does not state them."""

    name: str
    peak_flops: float = NAN  # FLOP/s in float32, without tensor cores
    half_flops: float = NAN  # FLOP/s of 16-bit matrix products, on tensor cores where there are some
    tf32_flops: float = NAN  # FLOP/s of float32 products on tensor cores in TF32; NaN where there are none
    memory_bandwidth_bytes_s: float = NAN
    memory_bytes: float = NAN
    multiprocessors: float = NAN
    l2_bytes: float = NAN
    aliases: tuple[str, ...] = ()  # product names that NVML reports, in lower case
    source: str = ""  # where the figures come from


CPU_CORE = DeviceType(
    name="cpu-core",
    source="none: cores differ from machine to machine; a table's `device_name` says which processor it was",
)


def _gpu(
    *,
    name: str,
    fp32_tflops: float,
    half_tflops: float,
    tf32_tflops: float = NAN,
    bandwidth_gb_s: float,
    memory_gib: float,
    multiprocessors: int,
    l2_mib: float,
    aliases: tuple[str, ...],
    source: str,
) -> DeviceType:
    """A GPU from the units in which datasheets state its figures."""
    return DeviceType(
        name=name,
        peak_flops=fp32_tflops * TFLOPS,
        half_flops=half_tflops * TFLOPS,
        tf32_flops=tf32_tflops * TFLOPS,
        memory_bandwidth_bytes_s=bandwidth_gb_s * GB_S,
        memory_bytes=memory_gib * GIB,
        multiprocessors=float(multiprocessors),
        l2_bytes=l2_mib * MIB,
        aliases=aliases,
        source=source,
    )


_GPUS = (
    _gpu(
        name="k80",
        fp32_tflops=4.37,
        half_tflops=4.37,
        bandwidth_gb_s=240,
        memory_gib=12,
        multiprocessors=13,
        l2_mib=1.5,
        aliases=("tesla k80",),
        source="NVIDIA Tesla K80 datasheet, one of its two GK210: half of 8.74 TFLOPS, "
        "480 GB/s, 24 GB; no faster 16-bit arithmetic",
    ),
    _gpu(
        name="p100",
        fp32_tflops=10.6,
        half_tflops=21.2,
        bandwidth_gb_s=732,
        memory_gib=16,
        multiprocessors=56,
        l2_mib=4,
        aliases=("tesla p100-sxm2-16gb",),
        source="NVIDIA Tesla P100 datasheet, SXM2 16 GB",
    ),
    _gpu(
        name="p100-pcie",
        fp32_tflops=9.3,
        half_tflops=18.7,
        bandwidth_gb_s=732,
        memory_gib=16,
        multiprocessors=56,
        l2_mib=4,
        aliases=("tesla p100-pcie-16gb",),
        source="NVIDIA Tesla P100 datasheet, PCIe 16 GB",
    ),
    _gpu(
        name="v100",
        fp32_tflops=15.7,
        half_tflops=125,
        bandwidth_gb_s=900,
        memory_gib=16,
        multiprocessors=80,
        l2_mib=6,
        aliases=("tesla v100-sxm2-16gb",),
        source="NVIDIA V100 datasheet, SXM2 16 GB",
    ),
    _gpu(
        name="v100-32gb",
        fp32_tflops=15.7,
        half_tflops=125,
        bandwidth_gb_s=900,
        memory_gib=32,
        multiprocessors=80,
        l2_mib=6,
        aliases=("tesla v100-sxm2-32gb",),
        source="NVIDIA V100 datasheet, SXM2 32 GB",
    ),
    _gpu(
        name="v100-pcie",
        fp32_tflops=14.0,
        half_tflops=112,
        bandwidth_gb_s=900,
        memory_gib=16,
        multiprocessors=80,
        l2_mib=6,
        aliases=("tesla v100-pcie-16gb",),
        source="NVIDIA V100 datasheet, PCIe 16 GB",
    ),
    _gpu(
        name="v100-pcie-32gb",
        fp32_tflops=14.0,
        half_tflops=112,
        bandwidth_gb_s=900,
        memory_gib=32,
        multiprocessors=80,
        l2_mib=6,
        aliases=("tesla v100-pcie-32gb",),
        source="NVIDIA V100 datasheet, PCIe 32 GB",
    ),
    _gpu(
        name="t4",
        fp32_tflops=8.1,
        half_tflops=65,
        bandwidth_gb_s=320,
        memory_gib=16,
        multiprocessors=40,
        l2_mib=4,
        aliases=("tesla t4",),
        source="NVIDIA T4 datasheet (320+ GB/s)",
    ),
    _gpu(
        name="rtx3090",
        fp32_tflops=35.6,
        half_tflops=71,
        tf32_tflops=35.6,
        bandwidth_gb_s=936,
        memory_gib=24,
        multiprocessors=82,
        l2_mib=6,
        aliases=(
            "nvidia geforce rtx 3090",
            "geforce rtx 3090",
        ),
        source="NVIDIA Ampere GA102 whitepaper, table 9: 16-bit with 32-bit accumulate",
    ),
    _gpu(
        name="a10",
        fp32_tflops=31.2,
        half_tflops=125,
        tf32_tflops=62.5,
        bandwidth_gb_s=600,
        memory_gib=24,
        multiprocessors=72,
        l2_mib=6,
        aliases=("nvidia a10",),
        source="NVIDIA A10 datasheet",
    ),
    _gpu(
        name="a100",
        fp32_tflops=19.5,
        half_tflops=312,
        tf32_tflops=156,
        bandwidth_gb_s=1555,
        memory_gib=40,
        multiprocessors=108,
        l2_mib=40,
        aliases=(
            "nvidia a100-sxm4-40gb",
            "nvidia a100-pcie-40gb",
            "a100-sxm4-40gb",
            "a100-pcie-40gb",
        ),
        source="NVIDIA A100 datasheet, 40 GB",
    ),
    _gpu(
        name="a100-80gb",
        fp32_tflops=19.5,
        half_tflops=312,
        tf32_tflops=156,
        bandwidth_gb_s=2039,
        memory_gib=80,
        multiprocessors=108,
        l2_mib=40,
        aliases=(
            "nvidia a100-sxm4-80gb",
            "a100-sxm4-80gb",
        ),
        source="NVIDIA A100 datasheet, SXM 80 GB",
    ),
    _gpu(
        name="a100-80gb-pcie",
        fp32_tflops=19.5,
        half_tflops=312,
        tf32_tflops=156,
        bandwidth_gb_s=1935,
        memory_gib=80,
        multiprocessors=108,
        l2_mib=40,
        aliases=(
            "nvidia a100 80gb pcie",
            "a100 80gb pcie",
        ),
        source="NVIDIA A100 datasheet, PCIe 80 GB",
    ),
    _gpu(
        name="l4",
        fp32_tflops=30.3,
        half_tflops=121,
        tf32_tflops=60.5,
        bandwidth_gb_s=300,
        memory_gib=24,
        multiprocessors=58,
        l2_mib=48,
        aliases=("nvidia l4",),
        source="NVIDIA L4 datasheet (dense: half of the sparse figure)",
    ),
    _gpu(
        name="l40s",
        fp32_tflops=91.6,
        half_tflops=362,
        tf32_tflops=183,
        bandwidth_gb_s=864,
        memory_gib=48,
        multiprocessors=142,
        l2_mib=96,
        aliases=("nvidia l40s",),
        source="NVIDIA L40S datasheet (dense)",
    ),
    _gpu(
        name="h100",
        fp32_tflops=67,
        half_tflops=989,
        tf32_tflops=494.5,
        bandwidth_gb_s=3350,
        memory_gib=80,
        multiprocessors=132,
        l2_mib=50,
        aliases=("nvidia h100 80gb hbm3",),
        source="NVIDIA H100 datasheet, SXM (dense)",
    ),
    _gpu(
        name="h100-pcie",
        fp32_tflops=51,
        half_tflops=756,
        tf32_tflops=378,
        bandwidth_gb_s=2000,
        memory_gib=80,
        multiprocessors=114,
        l2_mib=50,
        aliases=("nvidia h100 pcie",),
        source="NVIDIA H100 datasheet, PCIe (dense)",
    ),
    _gpu(
        name="h200",
        fp32_tflops=67,
        half_tflops=989,
        tf32_tflops=494.5,
        bandwidth_gb_s=4800,
        memory_gib=141,
        multiprocessors=132,
        l2_mib=50,
        aliases=("nvidia h200",),
        source="NVIDIA H200 datasheet, SXM (dense)",
    ),
    _gpu(
        name="b200",
        fp32_tflops=75,
        half_tflops=2250,
        tf32_tflops=1125,
        bandwidth_gb_s=7700,
        memory_gib=180,
        multiprocessors=148,
        l2_mib=126,
        aliases=("nvidia b200",),
        source="NVIDIA DGX B200 datasheet, one of eight (dense)",
    ),
)
GPU_NAMES = tuple(device.name for device in _GPUS)
KNOWN_DEVICE_TYPES = {device.name: device for device in (CPU_CORE, *_GPUS)}
_DEVICE_TYPES_BY_ALIAS = {alias: device for device in KNOWN_DEVICE_TYPES.values() for alias in device.aliases}


def find_device_type(name: str) -> DeviceType:
    """The device type of that name, or of the product that NVML calls so, in any case; else one that is all NaN."""
    normalized = re.sub(r"[\s_]+", " ", name.strip().lower())
    return (
        KNOWN_DEVICE_TYPES.get(normalized)
        or _DEVICE_TYPES_BY_ALIAS.get(normalized)
        or DeviceType(name=name, source="unknown")
    )


def has_peak_rates(device_type: DeviceType) -> bool:
    """Whether all the figures of a roofline model are known."""
    return device_type.peak_flops > 0 and device_type.memory_bandwidth_bytes_s > 0 and device_type.multiprocessors > 0


def require_peak_rates(name: str) -> DeviceType:
    """The device type of that name. Raises NotFoundError where the figures of a roofline model are not known."""
    device_type = find_device_type(name)
    if not has_peak_rates(device_type):
        raise NotFoundError(
            "no peak rates are known of this device type", value=name, remedy=f"one of {', '.join(GPU_NAMES)}"
        )
    return device_type
