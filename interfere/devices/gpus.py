"""NVIDIA's GPUs, with the figures of their datasheets: data centre, workstation and consumer cards.

Of workstation and consumer cards, and of the smaller data centre cards of the same chips, `source` names NVIDIA's
document of each figure. The documents themselves were not at hand. In November 2026 the figures were compared with
pages that quote them, and none differed:

- rtx3080, apart from 16 bit: itcreations.com/nvidia-gpu/nvidia-geforce-rtx-3080-gpu, cputronic.com
- rtx3090: holynerdvana.blogspot.com/2022/10/nvidia-geforce-rtx-3090-specifications.html
- rtx4080: holynerdvana.com/2022/10/nvidia-geforce-rtx-4080-specifications.html
- rtx4090, apart from 16 bit: thefpsreview.com/gpu-family/nvidia-geforce-rtx-4090-gpu-family-specifications
- rtx5090: pocketmags.com/linux-format-magazine/may-2025/articles/nvidia-geforce-rtx-5090
- rtxa6000, a30, apart from tensor cores: sysrqmts.com/gpus
- a40: ecer.com (NVIDIA's data sheet as text); rtx6000-ada, apart from tensor cores: grafikkarten.com, cputronic.com

Consumer pages quote 16 bit with sparsity and 16-bit accumulate: a quarter of it is ours, dense with 32-bit accumulate.
The figures of rtx2080ti and rtx3070, and those left out above, stand as recollected. Nothing here was measured.

MIG divides an A100 into slices, each a device type of its own, since slices share nothing. NVIDIA MIG user guide, "A100
MIG profiles": a compute slice has 14 multiprocessors (98 of the GPU's 108 are in use), and memory, its bandwidth and
the L2 cache are divided into eighths.
"""

from dataclasses import dataclass, replace

from interfere.records import NAN

GB_S = 1e9
MIB, GIB = float(2**20), float(2**30)
TFLOPS = 1e12


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
    aliases: tuple[str, ...] = ()  # product names that NVML reports, in lower case, or these without "nvidia"
    source: str = ""  # where the figures come from


# Peak rates are dense, in TFLOP/s: float32 without tensor cores; 16-bit matrix products, on tensor cores where there
# are some; float32 products on tensor cores in TF32. SMs are multiprocessors; MIG: the GPU can be divided.
_DATA_CENTER_GPUS = (
    #name                FP32  16 bit   TF32   GB/s  GiB  SMs  L2 MiB    MIG
    ("k80",             4.37,   4.37,   NAN,   240,  12,  13,    1.5,  False),
    ("p100",            10.6,   21.2,   NAN,   732,  16,  56,      4,  False),
    ("p100-pcie",        9.3,   18.7,   NAN,   732,  16,  56,      4,  False),
    ("v100",            15.7,    125,   NAN,   900,  16,  80,      6,  False),
    ("v100-32gb",       15.7,    125,   NAN,   900,  32,  80,      6,  False),
    ("v100-pcie",       14.0,    112,   NAN,   900,  16,  80,      6,  False),
    ("v100-pcie-32gb",  14.0,    112,   NAN,   900,  32,  80,      6,  False),
    ("t4",               8.1,     65,   NAN,   320,  16,  40,      4,  False),
    ("rtx3090",         35.6,     71,  35.6,   936,  24,  82,      6,  False),
    ("a10",             31.2,    125,  62.5,   600,  24,  72,      6,  False),
    ("a100",            19.5,    312,   156,  1555,  40, 108,     40,   True),
    ("a100-80gb",       19.5,    312,   156,  2039,  80, 108,     40,   True),
    ("a100-80gb-pcie",  19.5,    312,   156,  1935,  80, 108,     40,   True),
    ("l4",              30.3,    121,  60.5,   300,  24,  58,     48,  False),
    ("l40s",            91.6,    362,   183,   864,  48, 142,     96,  False),
    ("h100",              67,    989, 494.5,  3350,  80, 132,     50,   True),
    ("h100-pcie",         51,    756,   378,  2000,  80, 114,     50,   True),
    ("h200",              67,    989, 494.5,  4800, 141, 132,     50,   True),
    ("b200",              75,   2250,  1125,  7700, 180, 148,    126,   True),
)  # fmt: skip
_WORKSTATION_GPUS = (
    #name                FP32  16 bit   TF32   GB/s  GiB  SMs  L2 MiB    MIG
    ("rtx2080ti",       13.4,   53.8,   NAN,   616,  11,  68,    5.5,  False),
    ("rtx3070",         20.3,   40.6,  20.3,   448,   8,  46,      4,  False),
    ("rtx3080",         29.8,   59.5,  29.8,   760,  10,  68,      5,  False),
    ("rtx4080",         48.7,   97.5,  48.7, 716.8,  16,  76,     64,  False),
    ("rtx4090",         82.6,  165.2,  82.6,  1008,  24, 128,     72,  False),
    ("rtx5090",        104.8,  209.5, 104.8,  1792,  32, 170,     96,  False),
    ("a30",             10.3,    165,    82,   933,  24,  56,     24,   True),
    ("a40",             37.4,  149.7,  74.8,   696,  48,  84,      6,  False),
    ("rtxa6000",        38.7,  154.8,  77.4,   768,  48,  84,      6,  False),
    ("rtx6000-ada",     91.1,  364.2, 182.1,   960,  48, 142,     96,  False),
)  # fmt: skip
# Product names that NVML reports, in lower case, and where the figures come from.
_SOURCES = {
    "k80": (
        ("tesla k80",),
        "NVIDIA Tesla K80 datasheet, one of its two GK210: half of 8.74 TFLOPS, 480 GB/s, 24 GB; 16 bit is no faster",
    ),
    "p100": (("tesla p100-sxm2-16gb",), "NVIDIA Tesla P100 datasheet, SXM2 16 GB"),
    "p100-pcie": (("tesla p100-pcie-16gb",), "NVIDIA Tesla P100 datasheet, PCIe 16 GB"),
    "v100": (("tesla v100-sxm2-16gb",), "NVIDIA V100 datasheet, SXM2 16 GB"),
    "v100-32gb": (("tesla v100-sxm2-32gb",), "NVIDIA V100 datasheet, SXM2 32 GB"),
    "v100-pcie": (("tesla v100-pcie-16gb",), "NVIDIA V100 datasheet, PCIe 16 GB"),
    "v100-pcie-32gb": (("tesla v100-pcie-32gb",), "NVIDIA V100 datasheet, PCIe 32 GB"),
    "t4": (("tesla t4",), "NVIDIA T4 datasheet (320+ GB/s)"),
    "rtx3090": (("geforce rtx 3090",), "NVIDIA Ampere GA102 whitepaper, appendix A: 16-bit with 32-bit accumulate"),
    "a10": (("nvidia a10",), "NVIDIA A10 datasheet"),
    "a100": (("a100-sxm4-40gb", "a100-pcie-40gb"), "NVIDIA A100 datasheet, 40 GB"),
    "a100-80gb": (("a100-sxm4-80gb",), "NVIDIA A100 datasheet, SXM 80 GB"),
    "a100-80gb-pcie": (("a100 80gb pcie",), "NVIDIA A100 datasheet, PCIe 80 GB"),
    "l4": (("nvidia l4",), "NVIDIA L4 datasheet (dense: half of the sparse figure)"),
    "l40s": (("nvidia l40s",), "NVIDIA L40S datasheet (dense)"),
    "h100": (("nvidia h100 80gb hbm3",), "NVIDIA H100 datasheet, SXM (dense)"),
    "h100-pcie": (("nvidia h100 pcie",), "NVIDIA H100 datasheet, PCIe (dense)"),
    "h200": (("nvidia h200",), "NVIDIA H200 datasheet, SXM (dense)"),
    "b200": (("nvidia b200",), "NVIDIA DGX B200 datasheet, one of eight (dense)"),
    "rtx2080ti": (
        ("geforce rtx 2080 ti",),
        "NVIDIA Turing architecture whitepaper, table 1: reference clocks, 16-bit with 32-bit accumulate",
    ),
    "rtx3070": (("geforce rtx 3070",), "NVIDIA Ampere GA102 whitepaper, appendix A: 16-bit with 32-bit accumulate"),
    "rtx3080": (("geforce rtx 3080",), "NVIDIA Ampere GA102 whitepaper, table 9: 16-bit with 32-bit accumulate"),
    "rtx4080": (("geforce rtx 4080",), "NVIDIA Ada whitepaper, appendix A: 16-bit with 32-bit accumulate"),
    "rtx4090": (("geforce rtx 4090",), "NVIDIA Ada whitepaper, appendix A: 16-bit with 32-bit accumulate"),
    "rtx5090": (("geforce rtx 5090",), "NVIDIA RTX Blackwell whitepaper, appendix A: 16-bit with 32-bit accumulate"),
    "a30": (("nvidia a30",), "NVIDIA A30 datasheet"),
    "a40": (("nvidia a40",), "NVIDIA A40 datasheet"),
    "rtxa6000": (
        ("nvidia rtx a6000",),
        "NVIDIA RTX A6000 datasheet and GA102 whitepaper (dense: half of the sparse figure)",
    ),
    "rtx6000-ada": (("nvidia rtx 6000 ada generation",), "NVIDIA Ada professional whitepaper, appendix A (dense)"),
}


def _gpu(
    name: str,
    fp32_tflops: float,
    half_tflops: float,
    tf32_tflops: float,
    bandwidth_gb_s: float,
    memory_gib: float,
    multiprocessors: int,
    l2_mib: float,
    has_mig: bool,
) -> DeviceType:
    """Return the device type of a GPU from a row of figures in the units of datasheets."""
    aliases, source = _SOURCES[name]
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


DATA_CENTER_GPUS = tuple(_gpu(*row) for row in _DATA_CENTER_GPUS)
WORKSTATION_GPUS = tuple(_gpu(*row) for row in _WORKSTATION_GPUS)


# --- MIG slices of an A100 --------------------------------------------------------------------------------------------

SLICE_MULTIPROCESSORS = 14
A100_MULTIPROCESSORS = 108
_MEMORY_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}  # by number of compute slices
_MEMORY_OF_EIGHTH_GB = {"a100": 5, "a100-80gb": 10}  # in the name of a profile, such as 3g.20gb


MIG_COMPUTE_SLICES = tuple(_MEMORY_EIGHTHS)


def mig_memory_eighths(compute_slices: int) -> int:
    """Return the eighths of a GPU's memory that a MIG slice takes. Raises KeyError for a size that MIG has not."""
    return _MEMORY_EIGHTHS[compute_slices]


def mig_slice_name(gpu: str, compute_slices: int) -> str:
    """Return the device type of a MIG slice, such as a100-80gb-3g.40gb. Raises KeyError for an unknown GPU or size."""
    memory_gb = _MEMORY_OF_EIGHTH_GB[gpu] * _MEMORY_EIGHTHS[compute_slices]
    return f"{gpu}-{compute_slices}g.{memory_gb}gb"


def _slice(gpu: DeviceType, compute_slices: int) -> DeviceType:
    multiprocessors = SLICE_MULTIPROCESSORS * compute_slices
    compute = multiprocessors / A100_MULTIPROCESSORS
    memory = _MEMORY_EIGHTHS[compute_slices] / 8
    return replace(
        gpu,
        name=mig_slice_name(gpu.name, compute_slices),
        peak_flops=gpu.peak_flops * compute,
        half_flops=gpu.half_flops * compute,
        tf32_flops=gpu.tf32_flops * compute,
        memory_bandwidth_bytes_s=gpu.memory_bandwidth_bytes_s * memory,
        memory_bytes=gpu.memory_bytes * memory,
        multiprocessors=float(multiprocessors),
        l2_bytes=gpu.l2_bytes * memory,
        has_mig=False,
        aliases=(),
        source=f"{gpu.source}; its share of compute and memory by the NVIDIA MIG user guide, A100 MIG profiles",
    )


MIG_SLICES = tuple(
    _slice(gpu, compute_slices)
    for gpu in DATA_CENTER_GPUS
    if gpu.name in _MEMORY_OF_EIGHTH_GB
    for compute_slices in _MEMORY_EIGHTHS
)


def slices_within(device_type: str) -> tuple[tuple[str, float], ...]:
    """Return every smaller MIG slice of the same GPU, with its share of the compute of `device_type`.

    `device_type` is a MIG slice or a whole GPU. The result is empty for a device type of another kind.
    """
    for gpu in (gpu for gpu in DATA_CENTER_GPUS if gpu.name in _MEMORY_OF_EIGHTH_GB):
        multiprocessors = {
            mig_slice_name(gpu.name, size): float(SLICE_MULTIPROCESSORS * size) for size in _MEMORY_EIGHTHS
        }
        of_this = multiprocessors.get(device_type, A100_MULTIPROCESSORS if device_type == gpu.name else None)
        if of_this is not None:
            return tuple((name, count / of_this) for name, count in multiprocessors.items() if count < of_this)
    return ()
