"""Profiles workloads of our own kind: resident in a pool of workers on one core, alone, in pairs and in groups."""

import time

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.facts import StepFacts
from interfere.profiling.slices import (
    SLICE_S,
    CountedSlices,
    analyse_block,
    count_slices,
    side_slices,
    slice_plan,
)
from interfere.profiling.trace import Trace, busy_and_idle_durations
from interfere.profiling.worker_pool import MAX_SLICE_S, WorkerPool
from interfere.records import BlockRequest, JobProfile, KernelStat, MeasuredBlock, SoloMeasurement

SOLO_SLICES = 8
PAIR_ROUND = 4  # slices of a round of a pair: A · AB · B · AB in random order
SOLO_S = 2.0
BLOCK_S = 2.2  # four rounds
LONGEST_BLOCK = 2.0  # times its intended length: on a crowded core slices last long, and no further round begins
SLICE_OVERHEAD_S = 0.02  # the clock measured, loops started, last steps finished
SOURCE = "cpu"


class WorkloadProfiler:
    """Profiles the resident workloads of a pool, and measures blocks of their pairs and groups."""

    def __init__(self, pool: WorkerPool, device_type: str, *, solo_s: float, block_s: float, seed: int = 0) -> None:
        self.pool, self.device_type, self.solo_s, self.block_s, self.seed = pool, device_type, solo_s, block_s, seed

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """Profile one workload alone: step time and spread, busy and idle times, memory, FLOPs, operators.

        Raises UnfitError for a workload that fails or whose steps are too long.
        """
        slice_s, limit_s = self.solo_s / SOLO_SLICES, LONGEST_BLOCK * self.solo_s
        run = self.pool.run_slices((workload,), [[frozenset({0})]] * SOLO_SLICES, slice_s, limit_s)
        (recording,) = run.recordings
        slices = side_slices(0, run.recordings, run.slices)
        counted = count_slices(slices, run.usual_clocks_s[0])
        if not counted.steps:
            raise UnfitError(
                f"a step of workload {workload} takes too long",
                value=f"fewer than two within {MAX_SLICE_S:g} s",
                remedy="make one step smaller: a part of an epoch, a few requests",
            )
        (worker,) = self.pool.group_workers((workload,))
        profile = _solo_profile(workload, self.device_type, recording.trace, counted, worker.step_facts())
        taken_s, wall_s = sum(each.taken_s for each in slices), sum(each.wall_s for each in slices)
        return SoloMeasurement(profile=profile, steal_frac=min(1.0, taken_s / wall_s))

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Measure one block in slices of random order, more than one round of them where the block is long enough."""
        started_at_s = time.time()
        slice_s = min(SLICE_S, self.block_s / PAIR_ROUND)
        rounds = max(1, round(self.block_s / PAIR_ROUND / (SLICE_S + SLICE_OVERHEAD_S)))
        rng = np.random.default_rng((self.seed, request.pass_index, request.attempt, len(request.earlier)))
        plan = slice_plan(len(request.members), rounds, rng)
        limit_s = LONGEST_BLOCK * self.block_s * len(request.members) / 2
        run = self.pool.run_slices(request.members, plan, slice_s, limit_s)
        mode = self.pool.layout.mode
        analysis = analyse_block(run.recordings, run.slices, usual_clocks_s=run.usual_clocks_s, mode=mode)
        return analysis.block(request, started_at_s=started_at_s, slice_s=slice_s, mode=mode)


def _solo_profile(
    workload: str, device_type: str, trace: Trace, counted: CountedSlices, facts: StepFacts
) -> JobProfile:
    busy_s, idle_s = busy_and_idle_durations(trace)
    kernels = facts.kernels
    if facts.operator:
        mean_s = counted.cpu_s / counted.steps / facts.operator_count
        kernels = (KernelStat(name=facts.operator, mean_s=mean_s, count=facts.operator_count),)
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=counted.wall_s / counted.steps,
        source=SOURCE,
        step_time_sd_s=counted.step_time_sd_s,
        busy_frac=min(1.0, counted.cpu_s / counted.wall_s),
        busy_s=busy_s,
        idle_s=idle_s,
        flops_per_step=facts.flops,
        bytes_per_step=facts.bytes,
        memory_peak_bytes=facts.memory.peak_bytes,
        memory_working_set_bytes=facts.memory.working_set_bytes,
        kernels=kernels,
        measured_at_s=time.time(),
    )
