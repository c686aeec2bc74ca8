"""Measures resident workloads of interfere's own kind: which ones, in which pairs and groups, and how each is profiled.

A `WorkloadConfig` says which workloads are measured and refuses broken settings. A `WorkloadProfiler` profiles them in
a `WorkerPool` on one core, or on two: alone, in pairs and in groups.

Laws of the pool: leaving it ends every worker; a worker that raises, dies or hangs becomes one UnfitError with its
name; whatever workers print goes to a log file, never to our standard output.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError, UnfitError
from interfere.profiling import affinity, workloads
from interfere.profiling.affinity import Layout, choose_layout
from interfere.profiling.campaign_table import CampaignLabels
from interfere.profiling.facts import StepFacts
from interfere.profiling.measurer import MeasuringConfig
from interfere.profiling.slices import (
    CLOCKS_KEPT,
    MIN_SLICE_STEPS,
    SLICE_S,
    CountedSlices,
    Recording,
    Slice,
    analyse_block,
    count_slices,
    side_slices,
    slice_plan,
    steal_frac,
    usual_clock_s,
)
from interfere.profiling.trace import Trace, busy_and_idle_durations
from interfere.profiling.worker import MAX_RUN_S, SharedState, WorkerCommand, WorkerHandle, WorkerSlot, run_loops
from interfere.records import BlockRequest, JobProfile, KernelStat, MeasuredBlock, SoloMeasurement, WorkloadGroup
from interfere.reports.numbers import format_gib
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE

START_TIMEOUT_S, END_TIMEOUT_S = 180.0, 5.0
WORKER_BYTES = 150 << 20  # measured: a built-in keeps 20-140 MB of its own; the imports are shared by all
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedRun:
    """The recording of each job over consecutive slices, and the usual clock of each job's core."""

    recordings: tuple[Recording, ...]
    slices: tuple[Slice, ...]
    usual_clocks_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, order=True)
class InstanceKey:
    """The key of a worker: the name of its workload, the number of the job among those of the workload, and its rank.

    Both numbers count from 0; only a gang has further ranks.
    """

    name: str
    instance: int
    rank: int = 0

    def ranks(self) -> "tuple[InstanceKey, ...]":
        """Return the keys of all ranks of the job."""
        return tuple(InstanceKey(self.name, self.instance, rank) for rank in range(workloads.ranks_of(self.name)))


class WorkerPool:
    """A context manager that holds all workers of a campaign.

    `groups` are the groups to be measured. They determine the number of instances of each workload.
    """

    def __init__(
        self, names: Sequence[str], *, groups: Iterable[WorkloadGroup] = (), layout: Layout, log: Path
    ) -> None:
        instances = {InstanceKey(name, 0) for name in names}
        for members in groups:
            instances |= set(map(InstanceKey, members, layout.instances(members)))
        self.keys = sorted(rank for key in instances for rank in key.ranks())
        self.names, self.layout, self.log = tuple(names), layout, log
        self.workers: dict[InstanceKey, WorkerHandle] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._clocks_s = defaultdict[int, deque[float]](lambda: deque(maxlen=CLOCKS_KEPT))  # by core
        self._meetings = tempfile.TemporaryDirectory(prefix="interfere-gangs-")

    def __enter__(self) -> Self:
        _check_free_memory(len(self.names))
        try:
            self._start_workers()
            self._build([InstanceKey(name, 0) for name in self.names])
        except BaseException:
            self.close()
            raise
        return self

    def _build(self, keys: Iterable[InstanceKey]) -> None:
        """Make jobs resident, where they are not. The ranks of a gang find one another, so all are built at once."""
        unbuilt = [self.workers[rank] for key in keys for rank in key.ranks() if not self.workers[rank].pid]
        for worker in unbuilt:
            worker.send(WorkerCommand.BUILD)
        for worker in unbuilt:
            worker.pid = int(worker.receive(START_TIMEOUT_S))

    def _start_workers(self) -> None:
        with tempfile.TemporaryFile() as file, self.log.open("ab") as log:
            # 1. One place in the shared state and one pipe for each worker.
            file.truncate(SharedState.size_bytes(len(self.keys)))
            shared = SharedState(file.fileno(), len(self.keys))
            worker_ends: list[Connection] = []
            slots: list[WorkerSlot] = []
            for index, key in enumerate(self.keys):
                controller_end, worker_end = Pipe()
                worker_ends.append(worker_end)
                place = self.layout.placement(key.instance, key.rank)
                gang = f"{self._meetings.name}/{index - key.rank}" if len(key.ranks()) > 1 else ""
                slots.append(
                    WorkerSlot(
                        pipe_fd=worker_end.fileno(),
                        core=place.core,
                        yields=place.yields,
                        name=key.name,
                        rank=key.rank,
                        meeting=gang,
                    )
                )
                self.workers[key] = WorkerHandle(slots[-1], index, controller_end, shared, self.log)
            # 2. Start the process that forks them; it inherits the shared file and its ends of the pipes.
            fds = [file.fileno(), *(slot.pipe_fd for slot in slots)]
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "interfere.profiling.worker", str(fds[0])),
                    *(slot.to_argument() for slot in slots),
                ],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **dict.fromkeys(THREAD_COUNT_VARIABLES, "1")},
            )
            # 3. Close the workers' ends here, so that a worker that ends closes its pipe.
            for pipe in worker_ends:
                pipe.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every worker: stop its loop, close its pipe, and kill a worker that does not end in time."""
        for worker in self.workers.values():
            worker.ask_to_stop()
            worker.pipe.close()
        if self.process is None:
            self._meetings.cleanup()
            return
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            import psutil

            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self.process.kill()
            self.process.wait()
        self.process = None
        self._meetings.cleanup()

    def group_workers(self, members: Sequence[str]) -> list[tuple[WorkerHandle, ...]]:
        """Return the ranks of each job of a group: a single worker, or those of a gang.

        A job beyond the first of its workload is built when first needed.
        """
        keys = list(map(InstanceKey, members, self.layout.instances(members)))
        for key in keys:
            self._build([key])
        return [tuple(self.workers[rank] for rank in key.ranks()) for key in keys]

    def run_slices(
        self, members: Sequence[str], rounds: Sequence[Sequence[frozenset[int]]], alone_s: float, limit_s: float
    ) -> SlicedRun:
        """Run a group slice by slice, and return what was recorded.

        `rounds` holds the jobs that run in each slice; after `limit_s` no further round begins. A slice with one job
        lasts `alone_s`, longer in proportion to the jobs that share it, and until every job has made enough steps. The
        clock of every core is measured between slices.
        """
        jobs = self.group_workers(members)
        slices: list[Slice] = []
        clocks_s = self._measure_clocks(jobs)
        plan = [running for each in rounds for running in each]
        begin_s, least = time.monotonic(), len(rounds[0])
        for k, running in enumerate(plan):
            if k and k % least == 0 and time.monotonic() - begin_s > limit_s:
                break
            chosen = [jobs[k] for k in sorted(running)]
            important = chosen[:1] if self.layout.ordered else chosen  # the other may wait all the time
            seconds = alone_s * max(1.0, len(chosen) / 2)
            start_s, end_s = run_loops(chosen, important, seconds, min_steps=MIN_SLICE_STEPS)
            before_s, clocks_s = clocks_s, self._measure_clocks(jobs)
            clocks = tuple((_slowest(before_s, ranks), _slowest(clocks_s, ranks)) for ranks in jobs)
            slices.append(Slice(running=running, start_s=start_s, end_s=end_s, clocks=clocks))
        return SlicedRun(
            recordings=tuple(_recording(name, ranks) for name, ranks in zip(members, jobs, strict=True)),
            slices=tuple(slices),
            usual_clocks_s=tuple(max(usual_clock_s(self._clocks_s[rank.core]) for rank in ranks) for ranks in jobs),
        )

    def _measure_clocks(self, jobs: Sequence[Sequence[WorkerHandle]]) -> dict[int, float]:
        """Return the CPU seconds of a fixed piece of work on each core, measured on all cores at the same time."""
        one_per_core = {rank.core: rank for ranks in reversed(jobs) for rank in ranks}
        for worker in one_per_core.values():
            worker.send(WorkerCommand.SPIN)
        clocks_s = {core: float(worker.receive()) for core, worker in one_per_core.items()}
        for core, clock_s in clocks_s.items():
            self._clocks_s[core].append(clock_s)
        return clocks_s


def _slowest(clocks_s: Mapping[int, float], ranks: Sequence[WorkerHandle]) -> float:
    """Return the clock of the slowest core of a job, for which the other ranks of a gang wait."""
    return max(clocks_s[rank.core] for rank in ranks)


def _recording(name: str, ranks: Sequence[WorkerHandle]) -> Recording:
    """Return what the ranks of a job recorded since the last call."""
    first, *others = (
        Recording(name=name, trace=trace, core=rank.core, requests=requests)
        for rank in ranks
        for trace, requests in (rank.collect(),)
    )
    return replace(first, further_ranks=tuple(others))


def _check_free_memory(workloads: int) -> None:
    import psutil

    needed_bytes, free_bytes = workloads * WORKER_BYTES, psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise UnfitError(
            f"{workloads} resident workloads need about {format_gib(needed_bytes)}",
            value=f"{format_gib(free_bytes)} free",
            remedy="measure fewer workloads at a time",
        )


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
                value=f"fewer than two within {MAX_RUN_S:g} s",
                remedy="make one step smaller: a part of an epoch, a few requests",
            )
        ((first_rank, *_),) = self.pool.group_workers((workload,))
        profile = _solo_profile(workload, self.device_type, recording.trace, counted, first_rank.step_facts())
        return SoloMeasurement(profile=profile, steal_frac=steal_frac(slices))

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Measure one block in slices of random order, over several rounds where the block is long enough."""
        started_at_s, mode = time.time(), self.pool.layout.mode
        slice_s = min(SLICE_S, self.block_s / PAIR_ROUND)
        rounds = max(1, round(self.block_s / PAIR_ROUND / (SLICE_S + SLICE_OVERHEAD_S)))
        rng = np.random.default_rng((self.seed, request.pass_index, request.attempt, len(request.earlier)))
        plan = slice_plan(len(request.members), rounds, rng)
        limit_s = LONGEST_BLOCK * self.block_s * len(request.members) / 2
        run = self.pool.run_slices(request.members, plan, slice_s, limit_s)
        return analyse_block(
            request,
            run.recordings,
            run.slices,
            started_at_s=started_at_s,
            slice_s=slice_s,
            usual_clocks_s=run.usual_clocks_s,
            mode=mode,
        )


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
        workloads.check_names(self.workloads)
        self.check_settings(block_s=0.4, solo_s=0.4)
        if self.mode not in CPU_MODES:
            remedy = f"one of {', '.join(CPU_MODES)}"
            raise InvalidInputError("this mode is not measured on CPU cores", value=self.mode, remedy=remedy)
        gangs = [name for name in self.workloads if workloads.ranks_of(name) > 1]
        if gangs and not self.mode.properties.is_default:
            raise InvalidInputError(
                f"gangs are measured in mode {DEFAULT_MODE} alone", value=", ".join(gangs), remedy="leave them out"
            )
        if self.rounds > 1 and self.max_blocks > self.passes:
            raise InvalidInputError(
                "rounds have equal blocks", value=self.max_blocks, remedy=f"max_blocks {self.passes}, as passes"
            )
        if self.groups and not self.mode.properties.is_default:
            raise InvalidInputError(
                f"groups of three and more are measured in mode {DEFAULT_MODE} alone",
                value=self.mode,
                remedy="measure pairs in this mode",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workloads."""
        return self.workloads

    @property
    def labels(self) -> CampaignLabels:
        """The columns that have the same value in all rows of the table."""
        return CampaignLabels(
            device_type=self.device_type,
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
            *([f"--rounds {self.rounds}"] if self.rounds > 1 else []),
            *([f"--mode {self.mode}"] if self.mode != DEFAULT_MODE else []),
            *([f"--block-s {self.block_s:g}"] if self.block_s != BLOCK_S else []),
            *(f"--group-size {size} --group-count {count}" for size, count in sorted(sizes.items())),
        ]
        return " ".join(options)

    @contextmanager
    def open_profiler(self, raw_folder: Path) -> Iterator[WorkloadProfiler]:
        """Start a worker for each workload, and keep this thread off the measured cores until the context is left."""
        ranks = max(map(workloads.ranks_of, self.workloads))
        layout, log = choose_layout(self.mode, self.core, ranks=ranks), raw_folder / "workers.log"
        groups = self.schedule(self.workloads, self.rounds).groups
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
