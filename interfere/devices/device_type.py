"""The record of a device type, built from the units in which datasheets state its figures."""

from dataclasses import dataclass

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
    has_mig: bool = False  # can be divided into MIG slices: "Supported GPUs" of the NVIDIA MIG user guide
    aliases: tuple[str, ...] = ()  # product names that NVML reports, in lower case
    source: str = ""  # where the figures come from


def gpu(
    *,
    name: str,
    fp32_tflops: float,
    half_tflops: float,
    tf32_tflops: float = NAN,
    bandwidth_gb_s: float,
    memory_gib: float,
    multiprocessors: int,
    l2_mib: float,
    has_mig: bool = False,
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
        has_mig=has_mig,
        aliases=aliases,
        source=source,
    )
