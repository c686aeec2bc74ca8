"""The record of a device type."""

from dataclasses import dataclass

from interfere.records import NAN

GIB = float(2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """The peak rates and sizes of a device type; NaN where its vendor does not state them."""

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
