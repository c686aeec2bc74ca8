"""Profiles workloads of our own kind: resident in a pool of workers on one core, alone, in pairs and in groups."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.block_analysis import (
    EDGE_S,
    MIN_CHUNKS,
    MIN_STEPS,
    analyse_block,
    block_chunks,
    core_steal_frac,
    held_too_few_steps,
)
from interfere.profiling.facts import StepFacts
from interfere.profiling.quality_gates import MAX_RETRIES, MAX_STEAL
from interfere.profiling.trace import CHUNK_S, StepSpan, Trace, busy_and_idle_durations, whole_steps
from interfere.profiling.worker_pool import WorkerPool
from interfere.records import BlockRequest, JobProfile, KernelStat, MeasuredBlock, SoloMeasurement

SOLO_WINDOWS = 5
SOLO_S = 2.0  # windows of 0.4 s: at 10 ms a step their means differ by 0.5-6 % on the built-in workloads
MIN_SOLO_STEPS = MIN_STEPS - 1  # in each window alone
# Steps of the slower job alone in one window: its shared windows then hold enough of them at a slowdown of 2.
MIN_BLOCK_STEPS = MIN_STEPS + 3
LONGER_AFTER_FEW_STEPS = 0.5  # a block that held too few steps makes the group's next one longer by this share
MAX_STEP_S = 5.0  # a block of longer steps would take minutes
SOURCE = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SoloRun:
    """One run of a workload alone, cut into windows."""

    trace: Trace
    spans: tuple[StepSpan, ...]  # the whole steps of each window that holds any
    steal_frac: float

    @property
    def holds_enough_steps(self) -> bool:
        return len(self.spans) == SOLO_WINDOWS and min(span.steps for span in self.spans) >= MIN_SOLO_STEPS

    @property
    def step_time_s(self) -> float:
        """Mean time of a step over the whole run, a rough figure where hardly a step was finished."""
        steps = max(1.0, float(self.trace[-1, 2] - self.trace[0, 2]))
        return float(self.trace[-1, 0] - self.trace[0, 0]) / steps


class WorkloadProfiler:
    """Profiles the resident workloads of a pool, and measures blocks of their pairs and groups.

    `profiles` are profiles that are known already; windows grow with the step times in them, so a group can be measured
    once all its workloads are profiled.
    """

    def __init__(
        self,
        pool: WorkerPool,
        device_type: str,
        *,
        solo_s: float,
        window_s: float,
        profiles: Mapping[str, JobProfile],
    ) -> None:
        self.pool, self.device_type, self.solo_s, self.window_s = pool, device_type, solo_s, window_s
        self._step_times_s = {name: profile.step_time_s for name, profile in profiles.items()}

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """Profile one workload alone: step time and spread, busy and idle times, memory, FLOPs, operators.

        A run disturbed by third processes is repeated; the least disturbed one counts. Raises UnfitError for a
        workload that fails, whose steps are too long, or whose steps are too unequal to fill the windows.
        """
        run = self._least_disturbed_run(workload)
        (worker,) = self.pool.group_workers((workload,))
        profile = _solo_profile(workload, self.device_type, run, worker.step_facts())
        self._step_times_s[workload] = profile.step_time_s
        return SoloMeasurement(profile=profile, steal_frac=run.steal_frac)

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Measure one block; its windows are longer for slow jobs, and after blocks that held too few steps."""
        started_at_s = time.time()
        alone_s, shared_s = self._window_lengths_s(request)
        run = self.pool.run_block(request.members, alone_s=alone_s, shared_s=shared_s)
        mode = self.pool.layout.mode
        analysis = analyse_block(request.members, run.traces, run.windows, run.drift_frac, run.cores, mode)
        return MeasuredBlock(
            pass_index=request.pass_index,
            attempt=request.attempt,
            started_at_s=started_at_s,
            window_s=alone_s,
            sides=analysis.sides,
            steal_frac=analysis.steal_frac,
            drift_frac=run.drift_frac,
            reason=analysis.reason,
            chunks=block_chunks(run.traces, run.windows),
            mode=mode,
        )

    def _window_lengths_s(self, request: BlockRequest) -> tuple[float, float]:
        """Seconds of a window alone and of a shared one."""
        missing = [name for name in request.members if name not in self._step_times_s]
        if missing:
            raise UnfitError(
                "a group needs the profiles of all its workloads", value=missing, remedy="profile them first"
            )
        step_time_s = max(self._step_times_s[name] for name in request.members)
        alone_s = max(self.window_s, EDGE_S + MIN_BLOCK_STEPS * step_time_s)
        growth = window_growth(request)
        return growth * alone_s, growth * shared_window_s(len(request.members), alone_s, step_time_s)

    def _least_disturbed_run(self, workload: str) -> _SoloRun:
        window_s = self.solo_s / SOLO_WINDOWS
        least_disturbed: _SoloRun | None = None
        for _ in range(1 + MAX_RETRIES):
            run = self._run_alone(workload, window_s)
            if not run.holds_enough_steps:
                if run.step_time_s > MAX_STEP_S:
                    raise UnfitError(
                        f"a step of workload {workload} takes {run.step_time_s:.1f} s",
                        value=f"at most {MAX_STEP_S:g} s",
                        remedy="make one step smaller: a part of an epoch, a few requests",
                    )
                window_s = max(window_s, (MIN_STEPS + 2) * run.step_time_s)
                continue
            if least_disturbed is None or run.steal_frac < least_disturbed.steal_frac:
                least_disturbed = run
            if run.steal_frac <= MAX_STEAL:
                break
        if least_disturbed is None:
            raise UnfitError(
                f"the steps of workload {workload} are too unequal to measure",
                value=f"windows of {window_s:.1f} s",
                remedy="make steps alike: the same work and the same pauses in each",
            )
        return least_disturbed

    def _run_alone(self, workload: str, window_s: float) -> _SoloRun:
        trace, window = self.pool.run_alone(workload, SOLO_WINDOWS * window_s)
        edges_s = np.linspace(window.counted_from_s, window.end_s, SOLO_WINDOWS + 1)
        spans = tuple(span for start_s, end_s in pairwise(edges_s) if (span := whole_steps(trace, start_s, end_s)))
        return _SoloRun(trace=trace, spans=spans, steal_frac=core_steal_frac([trace], [window]))


def shared_window_s(size: int, alone_s: float, step_time_s: float) -> float:
    """Seconds of each of the two shared windows of a group of `size` jobs, of which the slowest takes `step_time_s`.

    As long as a window alone for a pair. A larger group slows its jobs in proportion to its size, so its windows grow
    with it, and hold MIN_CHUNKS chunks of the slowest job at a fair share of the core.
    """
    if size == 2:
        return alone_s
    chunk_s = max(CHUNK_S, size * step_time_s)
    return max(alone_s * size / 2, EDGE_S + (MIN_CHUNKS / 2 + 1) * chunk_s)


def window_growth(request: BlockRequest) -> float:
    """Factor of the window length: 1, and half as much again for each earlier block that held too few steps."""
    return 1.0 + LONGER_AFTER_FEW_STEPS * sum(map(held_too_few_steps, request.earlier))


def _solo_profile(workload: str, device_type: str, run: _SoloRun, facts: StepFacts) -> JobProfile:
    wall_s = sum(span.wall_s for span in run.spans)
    cpu_s = sum(span.cpu_s for span in run.spans)
    steps = sum(span.steps for span in run.spans)
    busy_s, idle_s = busy_and_idle_durations(run.trace)
    kernels = facts.kernels
    if facts.operator:
        mean_s = cpu_s / steps / facts.operator_count
        kernels = (KernelStat(name=facts.operator, mean_s=mean_s, count=facts.operator_count),)
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=wall_s / steps,
        source=SOURCE,
        step_time_sd_s=float(np.std([span.step_time_s for span in run.spans], ddof=1)),
        busy_frac=min(1.0, cpu_s / wall_s),
        busy_s=busy_s,
        idle_s=idle_s,
        flops_per_step=facts.flops,
        bytes_per_step=facts.bytes,
        memory_peak_bytes=facts.memory.peak_bytes,
        memory_working_set_bytes=facts.memory.working_set_bytes,
        kernels=kernels,
        measured_at_s=time.time(),
    )
