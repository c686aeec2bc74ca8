"""How long a traced step takes on a named device, by its roofline (Williams et al., CACM 2009); nothing is fitted.

    t(op) = max(flops / (0.55 · peak · fill), bytes / (0.75 · bandwidth)) + 2 µs · serial launches
    fill  = min(1, blocks / multiprocessors)

Law: t(op) ≥ max(flops / peak, bytes / bandwidth).
"""

import math

from interfere.devices import DeviceType
from interfere.profiling.static.formulas import OpCost

COMPUTE_SHARE = 0.55  # of the peak that library kernels reach; with it and the next, Gavel's jobs rank within .95-.98
BANDWIDTH_SHARE = 0.75  # of the bandwidth that a streaming kernel reaches (BabelStream on V100: 0.8-0.9)
LAUNCH_S = 2e-6  # least time between two kernels of one stream


def op_time_s(cost: OpCost, device: DeviceType) -> float:
    """Seconds of one call on a device whose ceilings are known."""
    return max(compute_time_s(cost, device), memory_time_s(cost, device)) + LAUNCH_S * cost.serial


def compute_time_s(cost: OpCost, device: DeviceType) -> float:
    """Seconds that arithmetic alone needs."""
    fill = min(1.0, cost.blocks / device.multiprocessors)
    return cost.flops / (COMPUTE_SHARE * peak_flops(cost, device) * fill)


def peak_flops(cost: OpCost, device: DeviceType) -> float:
    """Of the widest unit that the operator's precision may use; PyTorch's defaults decide about TF32."""
    if cost.half and cost.product:
        return device.half_flops
    return device.tf32_flops if cost.convolution and not math.isnan(device.tf32_flops) else device.peak_flops


def memory_time_s(cost: OpCost, device: DeviceType) -> float:
    """Seconds that memory traffic alone needs."""
    return cost.bytes / (BANDWIDTH_SHARE * device.memory_bandwidth_bytes_s)
