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
    """Seconds of one call; NaN where the device's ceilings are unknown."""
    compute_s, memory_s = compute_time_s(cost, device), memory_time_s(cost, device)
    if math.isnan(compute_s) or math.isnan(memory_s):
        return math.nan
    return max(compute_s, memory_s) + LAUNCH_S * cost.serial


def compute_time_s(cost: OpCost, device: DeviceType) -> float:
    """Seconds that arithmetic alone needs."""
    peak = device.half_flops if cost.half and cost.product else device.peak_flops
    fill = min(1.0, cost.blocks / device.multiprocessors) if not math.isnan(device.multiprocessors) else 1.0
    return cost.flops / (COMPUTE_SHARE * peak * fill)


def memory_time_s(cost: OpCost, device: DeviceType) -> float:
    """Seconds that memory traffic alone needs."""
    return cost.bytes / (BANDWIDTH_SHARE * device.memory_bandwidth_bytes_s)
