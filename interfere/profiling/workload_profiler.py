"""Measures resident workloads of interfere's own kind: which ones, in which pairs and groups, and how each is profiled.

A `WorkloadConfig` says which workloads are measured and refuses broken settings. A `WorkloadProfiler` profiles them in
a pool of workers on one core, or on two: alone, in pairs and in groups.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError, UnfitError
from interfere.profiling import affinity, workloads
from interfere.profiling.affinity import choose_layout
from interfere.profiling.campaign_table import CampaignLabels
from interfere.profiling.facts import StepFacts
from interfere.profiling.measurer import MeasuringConfig, check_distinct_pairs, check_minimums
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
from interfere.records import BlockRequest, JobProfile, KernelStat, MeasuredBlock, SoloMeasurement, WorkloadGroup
from interfere.records.checks import check
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE, set_sharing_mode

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
        """Return the profile of a workload alone: step time and spread, busy and idle times, memory, FLOPs, operators.

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
        """Measure one block in slices of random order, over several rounds where the block is long enough."""
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
    step_time_s = counted.wall_s / counted.steps
    busy_frac = min(1.0, counted.cpu_s / counted.wall_s)  # both clocks are not read at one instant
    kernels = facts.kernels
    if facts.operator:
        mean_s = busy_frac * step_time_s / facts.operator_count
        kernels = (KernelStat(name=facts.operator, mean_s=mean_s, count=facts.operator_count),)
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=step_time_s,
        source=SOURCE,
        step_time_sd_s=counted.step_time_sd_s,
        busy_frac=busy_frac,
        busy_s=busy_s,
        idle_s=idle_s,
        flops_per_step=facts.flops,
        bytes_per_step=facts.bytes,
        memory_peak_bytes=facts.memory.peak_bytes,
        memory_working_set_bytes=facts.memory.working_set_bytes,
        kernels=kernels,
        measured_at_s=time.time(),
    )


# --- which workloads are measured -----------------------------------------------------------------------------------

START_S, BUILD_S, FACTS_S = 3.0, 0.8, 0.6  # imports, once; building and facts, of each workload
BLOCK_OVERHEAD_S = 0.15  # last steps and collecting of traces; measured on the built-in workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig(MeasuringConfig):
    """The measurement of interfere's own workloads, each resident in a process of its own, on one core or two."""

    workloads: tuple[str, ...]  # built-in names or module:factory
    block_s: float = BLOCK_S
    solo_s: float = SOLO_S  # of each workload alone
    campaign: str = "campaign"

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))
        workloads.check_names(self.workloads)
        known = set(self.workloads)
        if unlisted := sorted({name for members in (*(self.pairs or ()), *self.groups) for name in members} - known):
            raise InvalidInputError("a pair names a workload that is not listed", value=unlisted, remedy="add it")
        check_distinct_pairs(self.pairs or (), self.mode)
        if self.mode not in CPU_MODES:
            remedy = f"one of {', '.join(CPU_MODES)}"
            raise InvalidInputError("this mode is not measured on CPU cores", value=self.mode, remedy=remedy)
        if self.groups and not self.mode.properties.is_default:
            raise InvalidInputError(
                f"groups of three and more are measured in mode {DEFAULT_MODE} alone",
                value=self.mode,
                remedy="measure pairs in this mode",
            )
        check_minimums(
            ("passes", self.passes, 1),
            ("max_blocks", self.max_blocks, self.passes),
            ("block_s", self.block_s, 0.4),
            ("solo_s", self.solo_s, 0.4),
            ("seed", self.seed, 0),
            ("workloads", len(self.workloads), 1),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workloads."""
        return self.workloads

    @property
    def labels(self) -> CampaignLabels:
        """The columns that have the same value in all rows of the table."""
        return CampaignLabels(
            device_type=CPU_CORE.name,
            device_name=affinity.processor_name(),
            campaign=self.campaign,
            source=SOURCE,
            mode=self.mode,
        )

    @property
    def identity(self) -> dict[str, object]:
        """The workloads, and how long and in which order they are measured."""
        return {"workloads": list(self.workloads), "block_s": self.block_s, "seed": self.seed}

    @property
    def command(self) -> str:
        """The command line that repeats the measurement."""
        sizes = Counter(map(len, self.groups))
        options = [
            f"interfere profile campaign --device-type cpu --jobs {','.join(self.workloads)} --passes {self.passes}",
            f"--max-blocks {self.max_blocks} --seed {self.seed}",
            *([f"--mode {self.mode}"] if self.mode != DEFAULT_MODE else []),
            *([f"--block-s {self.block_s:g}"] if self.block_s != BLOCK_S else []),
            *(f"--group-size {size} --group-count {count}" for size, count in sorted(sizes.items())),
        ]
        return " ".join(options)

    @contextmanager
    def open_profiler(self, raw_folder: Path) -> Iterator[WorkloadProfiler]:
        """Start a worker for each workload, and keep this thread off the measured cores until the context is left."""
        layout, log = choose_layout(self.mode, self.core), raw_folder / "workers.log"
        groups = self.schedule(self.workloads).groups
        with (
            WorkerPool(self.workloads, groups=groups, layout=layout, log=log) as pool,
            affinity.avoid_cores(*layout.cores),
        ):
            yield WorkloadProfiler(pool, CPU_CORE.name, solo_s=self.solo_s, block_s=self.block_s, seed=self.seed)

    def expected_start_s(self) -> float:
        """Return the expected seconds until all workloads are resident."""
        return START_S + BUILD_S * len(self.workloads)

    def expected_solo_s(self) -> float:
        """Return the expected seconds for profiling a workload alone."""
        return self.solo_s + FACTS_S

    def expected_block_s(self, members: WorkloadGroup) -> float:
        """Return the expected seconds for a block, which grow with the number of jobs."""
        return self.block_s * len(members) / 2 + BLOCK_OVERHEAD_S
