"""Facts of one workload that need no neighbour: memory, FLOPs, bytes, operator table. Runs inside the worker.

Nothing here is on while slowdowns are measured. What the system does not tell is NaN.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """Bytes over what the process had before the workload was built."""

    peak_bytes: float = NAN
    working_set_bytes: float = NAN  # touched by one step, libraries left out


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What one step does."""

    framework: str
    flops: float
    bytes: float
    memory: MemoryFacts
    kernels: tuple[KernelStat, ...] = ()
    operator: str = ""  # declared: the solo profile turns it into a kernel row with the measured busy time
    operator_count: float = 1.0


def _status_bytes(*fields: str) -> dict[str, float]:
    """Named fields of /proc/self/status in bytes; NaN where the system has none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    table = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return {f: float(table[f].split()[0]) * 1024 if f in table else NAN for f in fields}


def resident_bytes() -> float:
    """Private memory in use now: pages of libraries do not count, they come and go with the page cache."""
    return _status_bytes("RssAnon")["RssAnon"]


def _clear(what: str) -> bool:
    """Reset the kernel's referenced bits ("1") or its high-water mark ("5") for this process."""
    try:
        Path("/proc/self/clear_refs").write_text(what)
    except OSError:
        return False
    return True


def _referenced_anonymous_bytes() -> float:
    """Anonymous pages touched since the bits were cleared."""
    total, anonymous = 0.0, False
    try:
        for line in Path("/proc/self/smaps").read_text().splitlines():
            head = line.split()
            if "-" in head[0] and not head[0].endswith(":"):
                anonymous = len(head) == 5 or head[-1] == "[heap]"
            elif anonymous and head[0] == "Referenced:":
                total += float(head[1]) * 1024
    except OSError:
        return NAN
    return total


def memory(step: Step, baseline_bytes: float) -> MemoryFacts:
    """Peak over some steps and the pages one step touches."""
    peak = NAN
    if _clear("5"):
        before = _status_bytes("VmRSS", "RssAnon")
        for _ in range(PEAK_STEPS):
            step(time.sleep)
        # The mark counts library pages too; they are resident by now, so only the growth on top of them is ours.
        peak = before["RssAnon"] + max(0.0, _status_bytes("VmHWM")["VmHWM"] - before["VmRSS"]) - baseline_bytes
    working = NAN
    if _clear("1"):
        step(time.sleep)
        working = _referenced_anonymous_bytes()
    return MemoryFacts(peak_bytes=NAN if math.isnan(peak) else max(0.0, peak), working_set_bytes=working)


def of(workload: Workload, step: Step, memory_facts: MemoryFacts) -> StepFacts:
    """All facts of one step: counted for torch, declared for the rest."""
    declared = StepFacts(
        framework=workload.framework,
        flops=workload.flops_per_step,
        bytes=workload.bytes_per_step,
        memory=memory_facts,
        operator=workload.operator,
        operator_count=workload.operator_count,
    )
    if workload.framework != "torch":
        return declared
    flops, moved = _count(step)
    return replace(declared, flops=flops, bytes=moved, kernels=_operator_table(step))


def _count(step: Step) -> tuple[float, float]:
    """FLOPs by torch's own counter; bytes as the sizes of every operator's operands and results."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    def size(tree: Any) -> int:
        return sum(t.numel() * t.element_size() for t in tree_leaves(tree) if isinstance(t, torch.Tensor))

    class ByteCounter(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if not func.is_view:  # a view moves nothing
                self.total += size((args, kwargs)) + size(result)
            return result

    with FlopCounterMode(display=False) as flops:
        step(time.sleep)
    with ByteCounter() as moved:
        step(time.sleep)
    return float(flops.get_total_flops()), float(moved.total)


def _operator_table(step: Step) -> tuple[KernelStat, ...]:
    """The operators with the most own CPU time: mean of a call, calls a step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(PROFILED_STEPS):
            step(time.sleep)
    rows = [r for r in profiler.key_averages() if r.self_cpu_time_total > 0]
    rows.sort(key=lambda row: -row.self_cpu_time_total)
    return tuple(
        KernelStat(
            name=row.key[:256],
            mean_s=row.self_cpu_time_total * 1e-6 / row.count,  # the profiler speaks in microseconds
            count=row.count / PROFILED_STEPS,
        )
        for row in rows[:TOP_KERNELS]
    )
