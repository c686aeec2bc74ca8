"""One workload alone: step time and its spread, busy and idle stretches, memory, FLOPs, operators."""

from itertools import pairwise

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.fleet import Fleet
from interfere.profiling.protocol import EDGE_S, MAX_STEAL, MIN_STEPS, RETRIES, Window, stolen_frac
from interfere.profiling.trace import busy_and_idle, whole_steps
from interfere.records import JobProfile, KernelStat

WINDOWS = 5
SOLO_S = 2.0  # windows of 0.4 s: at 10 ms a step their means differ by 0.5-6 % on the built-in workloads
SOURCE = "cpu"
MAX_SOLO_STEP_S = 5.0  # a block of longer steps would take minutes


def measure_solo(fleet: Fleet, name: str, device_type: str, *, seconds: float = SOLO_S) -> tuple[JobProfile, float]:
    """The profile of one resident workload, and the share of the core that third processes took meanwhile.

    A run disturbed beyond the gate is repeated; the least disturbed one counts. Raises UnfitError for endless steps.
    """
    window_s, best = seconds / WINDOWS, None
    for _ in range(1 + RETRIES):
        trace, whole = fleet.run_alone(name, WINDOWS * window_s)
        edges = np.linspace(whole.start_s + EDGE_S, whole.end_s, WINDOWS + 1)
        spans = [s for a, b in pairwise(edges) if (s := whole_steps(trace, a, b))]
        if len(spans) < WINDOWS or min(span.steps for span in spans) < MIN_STEPS - 1:
            steps = max(1.0, float(trace[-1, 2] - trace[0, 2]))
            step_s = float(trace[-1, 0] - trace[0, 0]) / steps
            if step_s > MAX_SOLO_STEP_S:
                raise UnfitError(
                    f"a step of workload {name} takes {step_s:.1f} s",
                    value=f"at most {MAX_SOLO_STEP_S:g} s",
                    remedy="make one step smaller: a part of an epoch, a few requests",
                )
            window_s = max(window_s, (MIN_STEPS + 2) * step_s)
            continue
        steal = stolen_frac([trace], [Window(phase="A", start_s=whole.start_s, end_s=whole.end_s)])
        if best is None or steal < best[1]:
            best = (trace, steal, spans)
        if steal <= MAX_STEAL:
            break
    if best is None:
        raise UnfitError(
            f"the steps of workload {name} are too uneven to measure",
            value=f"windows of {window_s:.1f} s",
            remedy="make steps alike: the same work and the same pauses in each",
        )
    trace, steal, spans = best
    wall, cpu, steps = (sum(getattr(s, f) for s in spans) for f in ("wall_s", "cpu_s", "steps"))
    busy, idle = busy_and_idle(trace)
    facts = fleet.workers[name].facts()
    kernels = facts.kernels
    if facts.operator:
        kernels = (
            KernelStat(name=facts.operator, mean_s=cpu / steps / facts.operator_count, count=facts.operator_count),
        )
    profile = JobProfile(
        workload=name,
        device_type=device_type,
        step_time_s=wall / steps,
        source=SOURCE,
        step_time_sd_s=float(np.std([s.wall_s / s.steps for s in spans], ddof=1)),
        busy_frac=min(1.0, cpu / wall),
        busy_s=busy,
        idle_s=idle,
        flops_per_step=facts.flops,
        bytes_per_step=facts.bytes,
        memory_peak_bytes=facts.memory.peak_bytes,
        memory_working_set_bytes=facts.memory.working_set_bytes,
        kernels=kernels,
    )
    return profile, steal
