"""Collects facts of one workload inside its worker: memory, FLOPs, bytes and operator table of a step.

No counter or profiler of this module runs while slowdowns are measured. A fact that the system does not offer is NaN.
"""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interfere.profiling.workloads.workload import Step, Workload
from interfere.records import NAN, KernelStat

TOP_KERNELS = 30
PROFILED_STEPS = 4
PEAK_STEPS = 3
REFERENCED_BITS, HIGH_WATER_MARK = "1", "5"  # codes of /proc/self/clear_refs (man 5 proc)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The private memory of a workload in bytes, beyond the memory of its process before the workload was built."""

    peak_bytes: float = NAN
    working_set_bytes: float = NAN  # private pages that one step touches, without those of libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The cost of one step of a workload: arithmetic, memory traffic, memory, and operators."""

    flops: float
    bytes: float
    memory: MemoryFacts
    kernels: tuple[KernelStat, ...] = ()
    operator: str = ""  # declared, not counted: the solo profile adds the measured busy time to it
    operator_count: float = 1.0


def _status_bytes(*fields: str) -> dict[str, float]:
    """Return named fields of /proc/self/status in bytes; NaN where the system has none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    values = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return {field: float(values[field].split()[0]) * 1024 if field in values else NAN for field in fields}


def resident_bytes() -> float:
    """Return the private memory in use now, in bytes. Pages of libraries do not count."""
    return _status_bytes("RssAnon")["RssAnon"]


def _reset_counter(code: str) -> bool:
    """Reset a memory counter that the kernel keeps for this process. Return False where the system refuses."""
    try:
        Path("/proc/self/clear_refs").write_text(code)
    except OSError:
        return False
    return True


def _referenced_anonymous_bytes() -> float:
    """Return the bytes of the anonymous pages that were touched since the kernel's marks were reset."""
    total, anonymous = 0.0, False
    try:
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                anonymous = len(words) == 5 or words[-1] == "[heap]"
            elif anonymous and words[0] == "Referenced:":
                total += float(words[1]) * 1024
    except OSError:
        return NAN
    return total


def memory_facts(step: Step, baseline_bytes: float) -> MemoryFacts:
    """Return the peak memory over some steps beyond `baseline_bytes`, and the memory that a step touches."""
    peak_bytes = NAN
    if _reset_counter(HIGH_WATER_MARK):
        before = _status_bytes("VmRSS", "RssAnon")
        for _ in range(PEAK_STEPS):
            step(time.sleep)
        # The mark counts library pages too. They are resident by now, so only the growth beyond them is the workload's.
        growth_bytes = max(0.0, _status_bytes("VmHWM")["VmHWM"] - before["VmRSS"])
        peak_bytes = before["RssAnon"] + growth_bytes - baseline_bytes
    working_set_bytes = NAN
    if _reset_counter(REFERENCED_BITS):
        step(time.sleep)
        working_set_bytes = _referenced_anonymous_bytes()
    return MemoryFacts(
        peak_bytes=NAN if math.isnan(peak_bytes) else max(0.0, peak_bytes), working_set_bytes=working_set_bytes
    )


def step_facts(workload: Workload, step: Step, memory: MemoryFacts) -> StepFacts:
    """Return the cost of a step: counted for torch workloads, declared by the workload for all others."""
    declared = StepFacts(
        flops=workload.flops_per_step,
        bytes=workload.bytes_per_step,
        memory=memory,
        operator=workload.operator,
        operator_count=workload.operator_count,
    )
    if workload.framework != "torch":
        return declared
    flops, traffic_bytes = _count_flops_and_bytes(step)
    return replace(declared, flops=flops, bytes=traffic_bytes, kernels=_operator_table(step))


def _count_flops_and_bytes(step: Step) -> tuple[float, float]:
    """Return the FLOPs of one step by torch's counter, and the bytes of all operands and results of its operators."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    def tensor_bytes(tree: Any) -> int:
        return sum(t.numel() * t.element_size() for t in tree_leaves(tree) if isinstance(t, torch.Tensor))

    class ByteCounter(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if not func.is_view:  # a view moves nothing
                self.total += tensor_bytes((args, kwargs)) + tensor_bytes(result)
            return result

    with FlopCounterMode(display=False) as flop_counter:
        step(time.sleep)
    with ByteCounter() as byte_counter:
        step(time.sleep)
    return float(flop_counter.get_total_flops()), float(byte_counter.total)


def _operator_table(step: Step) -> tuple[KernelStat, ...]:
    """Return the operators with the most CPU time of their own, with the mean time of a call and the calls in a
    step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(PROFILED_STEPS):
            step(time.sleep)
    operators = [operator for operator in profiler.key_averages() if operator.self_cpu_time_total > 0]
    operators.sort(key=lambda operator: -operator.self_cpu_time_total)
    return tuple(
        KernelStat(
            name=operator.key[:256],
            mean_s=operator.self_cpu_time_total * 1e-6 / operator.count,  # the profiler speaks in microseconds
            count=operator.count / PROFILED_STEPS,
        )
        for operator in operators[:TOP_KERNELS]
    )
