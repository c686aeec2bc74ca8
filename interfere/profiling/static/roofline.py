"""Predicts the time of a traced operator on a device by its roofline (Williams et al., CACM 2009); nothing is fitted.

    t(op) = max(flops / (0.55 · peak · fill), bytes / (0.75 · bandwidth)) + 2 µs · serial launches
    fill  = min(1, blocks / multiprocessors)

Law: t(op) ≥ max(flops / peak, bytes / bandwidth).
"""

import math

from interfere.devices import DeviceType
from interfere.profiling.static.operator_costs import OperatorCost

COMPUTE_SHARE = 0.55  # of the peak that library kernels reach; with it and the next, Gavel's jobs rank within .95-.98
BANDWIDTH_SHARE = 0.75  # of the bandwidth that a streaming kernel reaches (BabelStream on V100: 0.8-0.9)
LAUNCH_S = 2e-6  # shortest time between two kernels of one stream


def operator_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Seconds of one call on a device whose ceilings are known."""
    return max(compute_time_s(cost, device), memory_time_s(cost, device)) + LAUNCH_S * cost.serial


def compute_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Seconds that the arithmetic takes when memory is infinitely fast."""
    fill_frac = min(1.0, cost.blocks / device.multiprocessors)
    return cost.flops / (COMPUTE_SHARE * peak_flops(cost, device) * fill_frac)


def peak_flops(cost: OperatorCost, device: DeviceType) -> float:
    """Peak FLOP/s of the widest unit that the operator's precision may use; TF32 as PyTorch's defaults have it."""
    if cost.half and cost.product:
        return device.half_flops
    return device.tf32_flops if cost.convolution and not math.isnan(device.tf32_flops) else device.peak_flops


def memory_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Seconds that the memory traffic takes when arithmetic is infinitely fast."""
    return cost.bytes / (BANDWIDTH_SHARE * device.memory_bandwidth_bytes_s)
