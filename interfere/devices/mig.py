"""The slices into which MIG divides an A100: a slice is a device type of its own, since slices share nothing.

NVIDIA MIG user guide, "A100 MIG profiles": a compute slice has 14 multiprocessors (98 of the GPU's 108 are in use),
and memory, its bandwidth and the L2 cache are divided into eighths.
"""

from dataclasses import replace

from interfere.devices.gpus import DATA_CENTER_GPUS, DeviceType

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
