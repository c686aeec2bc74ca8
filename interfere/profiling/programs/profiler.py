"""Profiles commands alone and in pairs; every measurement starts them anew.

A block of the pair (A, B) is A · AB · B: A starts and warms up, and its window alone follows; B starts and warms up
beside it, and the shared window follows; A is ended, and B's window alone follows. So each window alone lies beside the
shared one, in the same start of the same process, and every block starts both anew: differences between starts show in
the spread between blocks. Windows are cut in slices, and the clock of the core is measured at each cut.

Why processes are not stopped by SIGSTOP instead: it would save the start-ups, but it stops the processes of a GPU job
and not the device. Kernels queued before it run on, memory stays taken, and watchdogs of collectives see a dead rank,
so the other job would not be alone. Here the neighbour of a job that runs alone does not exist.

Step times come from marks, which lie at ends of steps, so they are exact means over whole steps. CPU time and waiting
come from samples of all processes of a command, interpolated linearly.

Law: a command that does not do what a measurement needs is a ProgramRunError with its reason, never an endless wait.
"""

import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import InvalidInputError, UnfitError
from interfere.profiling import affinity
from interfere.profiling.campaign_table import CampaignLabels
from interfere.profiling.measurer import MeasuringConfig
from interfere.profiling.nvidia_smi import GpuSample, GpuSampler, memory_before, with_gpu_facts
from interfere.profiling.programs.run import ProgramRun
from interfere.profiling.programs.spec import Command
from interfere.profiling.programs.supervision import last_lines
from interfere.profiling.slices import (
    CLOCKS_KEPT,
    CPU,
    EDGE_S,
    WAIT,
    Recording,
    Slice,
    analyse_block,
    count_slices,
    failed_block,
    side_slices,
    steal_frac,
    usual_clock_s,
)
from interfere.profiling.trace import Event
from interfere.progress import Mark
from interfere.records import NAN, BlockRequest, JobProfile, MeasuredBlock, SoloMeasurement, WorkloadGroup

SOURCE = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecording(Recording):
    """The step marks and resource samples of a run of a command."""

    private_peak_bytes: float
    max_strayed: int  # largest number of processes at once that might run on other cores

    @property
    def pinning_problem(self) -> str:
        """The reason why a run left the core to which it was pinned; empty where it did not."""
        if not self.max_strayed or self.core is None:
            return ""
        return f"{self.name}: {self.max_strayed} of its processes left the core they were pinned to"


def run_recording(
    name: str,
    marks: Sequence[Mark],
    samples: Sequence[Mapping[str, Any]],
    start_s: float,
    end_s: float,
    *,
    core: int | None,
) -> RunRecording:
    """Return the step marks and samples of a run as arrays. `end_s` is when the command ended or was told to end."""
    columns = ("monotonic_s", "cpu_s", "wait_s", "core_busy_s")
    table = np.array(
        [[NAN if row[column] is None else row[column] for column in columns] for row in samples], dtype=np.float64
    ).reshape(-1, len(columns))
    # A child that ends between two looks at a sample moves its time to its parent: never let the sums go back.
    for column in (CPU, WAIT):
        table[:, column] = np.maximum.accumulate(table[:, column])
    events = [(start_s, 0.0, 0.0, float(Event.START))]
    events += [(mark.monotonic_s, NAN, mark.steps, float(Event.STEP)) for mark in marks if mark.monotonic_s <= end_s]
    events.append((end_s, NAN, events[-1][2], float(Event.STOP)))
    return RunRecording(
        name=name,
        trace=np.array(events),
        core=core,
        samples=table,
        private_peak_bytes=max((row["private_bytes"] for row in samples), default=NAN),
        max_strayed=max((row["strayed"] for row in samples), default=0),
    )


def solo_measurement(
    runs: Sequence[tuple[RunRecording, Sequence[Slice]]], device_type: str, usual_clock_s: float
) -> SoloMeasurement:
    """Return the profile of a command from its runs alone, each with the slices of its window.

    CPU time and memory are known only on a CPU core to which the command is pinned; elsewhere they are NaN.
    """
    slices = [each for run, windows in runs for each in side_slices(0, (run,), windows)]
    counted, recording = count_slices(slices, usual_clock_s), runs[0][0]
    pinned = recording.core is not None
    profile = JobProfile(
        workload=recording.name,
        device_type=device_type,
        source=SOURCE,
        step_time_s=counted.wall_s / counted.steps,
        step_time_sd_s=counted.step_time_sd_s,
        busy_frac=min(1.0, counted.cpu_s / counted.wall_s) if pinned else NAN,
        memory_peak_bytes=max(run.private_peak_bytes for run, _ in runs) if pinned else NAN,
    )
    return SoloMeasurement(profile=profile, steal_frac=steal_frac(slices) if pinned else NAN)


POLL_S = 0.05
SLICE_S = 0.5  # of a window: CPU time is sampled every 0.1 s, and the kernel's account of a core has ticks of 10 ms
MIN_STEPS = 20  # in every window: the mean of 20 steps that vary by 20 % each is known to 4.5 %
MIN_MARKS = 6  # in every window: five intervals between marks, so that output which comes in bursts is found out
MIN_SLICE_MARKS = 4  # of every command in a slice
SPARE_STEPS = 2  # of a window: one is cut at either end
FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})  # the jobs that run in a window of a block


class ProgramRunError(Exception):
    """The error of a command that did not do what a measurement needs."""

    def __init__(self, run: ProgramRun, problem: str) -> None:
        self.run, self.problem = run, problem
        super().__init__(problem)

    @property
    def reason(self) -> str:
        """The problem in one line, with the last lines of the log, which is complete once the run is closed."""
        printed = last_lines(self.run.log)
        return f"{self.run.name} {self.problem}; " + (f"its log ends: {printed}" if printed else "it printed nothing")


class ProgramProfiler:
    """Profiles commands by their names, all under the same conditions, in numbered folders below `folder`."""

    def __init__(self, folder: Path, config: "CommandConfig", core: int | None) -> None:
        """Keep the commands; `core` is the CPU core to which they are pinned, None where the environment decides."""
        self.folder, self.config, self.core = folder, config, core
        self.commands = {command.name: command for command in config.commands}
        self._clocks_s = deque[float](maxlen=CLOCKS_KEPT)

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """Return the profile of a command over several starts. Raises UnfitError where the command cannot be
        measured."""
        command = self.commands[workload]
        gpu_samples: list[GpuSample] = []
        before_bytes = memory_before(self.config.gpu_uuid)
        runs = [self._run_alone(command, gpu_samples) for _ in range(self.config.repeats)]
        if problem := next((run.pinning_problem for run, _ in runs if run.pinning_problem), ""):
            raise UnfitError(f"command {workload} cannot be measured", value=problem, remedy=f"see {self.folder}")
        measured = solo_measurement(runs, self.config.device_type, usual_clock_s(self._clocks_s))
        profile = with_gpu_facts(measured.profile, gpu_samples, before_bytes)
        return SoloMeasurement(profile=profile, steal_frac=measured.steal_frac)

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Return a measured block: A alone, A and B together, B alone. A rejected block holds the reason."""
        slices, started_at_s = list[Slice](), time.time()
        try:
            first, second = (self.commands[name] for name in request.members)
            runs = self._run_windows(first, second, slices)
        except ProgramRunError as failure:
            return failed_block(request, failure.reason, started_at_s=started_at_s, slice_s=SLICE_S)
        recorded = [self._recording(run) for run in runs]
        if problem := next((each.pinning_problem for each in recorded if each.pinning_problem), ""):
            return failed_block(request, problem, started_at_s=started_at_s, slice_s=SLICE_S)
        usual_s = usual_clock_s(self._clocks_s)
        return analyse_block(
            request,
            recorded,
            slices,
            started_at_s=started_at_s,
            slice_s=SLICE_S,
            usual_clocks_s=(usual_s, usual_s),
        )

    def _run_alone(self, command: Command, gpu_samples: list[GpuSample]) -> tuple[RunRecording, list[Slice]]:
        slices: list[Slice] = []
        try:
            with self._new_run(command) as run:
                self._warm_up(run)
                with GpuSampler(self.config.gpu_uuid) as sampler:
                    self._measure_window(slices, FIRST, run, may_end=True)
                gpu_samples += sampler.samples
        except ProgramRunError as failure:
            raise UnfitError(
                f"command {command.name} cannot be measured",
                value=failure.reason,
                remedy=f"run it by itself: {command.line}; all it printed is in {failure.run.log}",
            ) from None
        return self._recording(run), slices

    def _run_windows(
        self, first_command: Command, second_command: Command, slices: list[Slice]
    ) -> tuple[ProgramRun, ProgramRun]:
        """Run a block of two commands, appending its slices as they end. Return the two closed runs."""
        with ExitStack() as stack:
            # 1. The first command alone.
            first = stack.enter_context(self._new_run(first_command))
            self._warm_up(first)
            self._measure_window(slices, FIRST, first)
            # 2. Both together.
            second = stack.enter_context(self._new_run(second_command))
            self._warm_up(second, first)
            self._measure_window(slices, BOTH, first, second)
            # 3. The second command alone.
            first.close()
            self._measure_window(slices, SECOND, second)
        return first, second

    def _new_run(self, command: Command) -> ProgramRun:
        number = sum(1 for _ in self.folder.glob("*")) if self.folder.is_dir() else 0
        file_name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in command.name)[:64]
        folder = self.folder / f"{number:04d}-{file_name}"
        return ProgramRun(command, folder, core=self.core, grace_s=self.config.grace_s)

    def _warm_up(self, run: ProgramRun, *neighbours: ProgramRun) -> None:
        """Wait until the start-up and the first steps of `run` are over."""
        start_s = time.monotonic()
        while True:
            _wait_and_refresh((run, *neighbours))
            steps, _ = run.steps_since(0.0)
            since_first_mark_s = time.monotonic() - run.marks[0].monotonic_s if run.marks else -math.inf
            if steps >= run.command.warm_steps and since_first_mark_s >= run.command.warm_s:
                return
            if time.monotonic() - start_s > self.config.limit_s:
                raise ProgramRunError(run, _warm_up_problem(run, steps, self.config.limit_s))

    def _measure_window(
        self, slices: list[Slice], running: frozenset[int], *runs: ProgramRun, may_end: bool = False
    ) -> None:
        """Wait for at least `window_s`, and until all runs have made enough steps; append the slices of the window.

        With `may_end` a run may end within the window, if it succeeded and made enough steps in the window.
        """
        start_s, limit_s = time.monotonic(), max(self.config.limit_s, self.config.window_s)
        slice_start_s, clock_s = start_s, self._measure_clock()
        while True:
            ended_s = 0.0
            try:
                _wait_and_refresh(runs)
            except ProgramRunError as failure:
                ended_s = _time_of_success(failure.run) if may_end and _has_enough_steps(failure.run, start_s) else 0.0
                if not ended_s:
                    raise
            now_s = ended_s or time.monotonic()
            unfinished = [run for run in runs if not _has_enough_steps(run, start_s)]
            is_over = bool(ended_s) or (now_s - start_s >= self.config.window_s and not unfinished)
            marks = min(run.steps_since(slice_start_s)[1] for run in runs)
            if is_over or (now_s - slice_start_s >= SLICE_S and marks >= MIN_SLICE_MARKS):
                before_s, clock_s = clock_s, self._measure_clock()
                clocks = () if math.isnan(clock_s) else ((before_s, clock_s),) * 2
                slices.append(Slice(running=running, start_s=slice_start_s, end_s=now_s, clocks=clocks))
                slice_start_s = time.monotonic()
            if is_over:
                return
            if now_s - start_s > limit_s:
                steps, marks = unfinished[0].steps_since(start_s + EDGE_S)
                problem = f"made {steps:g} steps with {marks} marks in a window of {limit_s:g} s"
                raise ProgramRunError(unfinished[0], f"{problem}, {MIN_STEPS} and {MIN_MARKS} are needed")

    def _measure_clock(self) -> float:
        """Return the CPU seconds of a short piece of fixed work on the measured core; NaN without a core."""
        if self.core is None:
            return NAN
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        try:
            self._clocks_s.append(affinity.spin_s())
        finally:
            os.sched_setaffinity(0, own_cores)
        return self._clocks_s[-1]

    def _recording(self, run: ProgramRun) -> RunRecording:
        """Return the step marks and resource samples of a closed run as arrays."""
        end_s = run.exit.monotonic_s if run.exit else run.closed_s
        return run_recording(run.name, run.marks, run.samples(), run.started_s, end_s, core=self.core)


def _time_of_success(run: ProgramRun) -> float:
    """Return the monotonic time at which a run ended with exit code 0; 0 for any other run."""
    return run.exit.monotonic_s if run.exit and run.exit.exit_code == 0 else 0.0


def _warm_up_problem(run: ProgramRun, steps: float, limit_s: float) -> str:
    if run.marks:
        return f"made {steps:g} steps after its first within {limit_s:g} s (a higher --limit-s gives it more time)"
    remedy = "mark its steps with interfere.progress, or give a --step-regex that its output matches"
    return f"marked no step within {limit_s:g} s ({remedy})"


def _has_enough_steps(run: ProgramRun, start_s: float) -> bool:
    steps, marks = run.steps_since(start_s + EDGE_S)
    return steps >= MIN_STEPS + SPARE_STEPS and marks >= MIN_MARKS


def _wait_and_refresh(runs: Sequence[ProgramRun]) -> None:
    """Wait a moment and read the records of the runs. Raises ProgramRunError when a command has ended."""
    time.sleep(POLL_S)
    for run in runs:
        run.refresh()
        if run.exit:
            lifetime_s = run.exit.monotonic_s - run.started_s
            steps = run.marks[-1].steps if run.marks else 0
            raise ProgramRunError(run, f"ended by itself after {lifetime_s:.1f} s and {steps:g} steps, {run.exit}")


# --- which commands are measured ------------------------------------------------------------------------------------

WINDOW_S = 5.0  # a hundred steps of 50 ms; the samples of CPU time (0.1 s apart) are good to 2 % of it
LIMIT_S = 300.0  # imports, downloads and compilation of a large model take minutes
GRACE_S = 10.0  # what container runtimes give between SIGTERM and SIGKILL
REPEATS, MAX_BLOCKS = 2, 4  # every one starts the command: fewer than where workers stay resident
START_GUESS_S = 2.0  # of one start, for the time left


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig(MeasuringConfig):
    """The measurement of arbitrary commands, which are started anew for every block.

    On another device type than a CPU core nothing is pinned: the environment decides where commands run.
    """

    commands: tuple[Command, ...]
    max_blocks: int = MAX_BLOCKS
    device_name: str = ""  # empty on a CPU core: the processor
    gpu_uuid: str = ""  # of the GPU to which the commands are pinned: sampled while each runs alone
    window_s: float = WINDOW_S  # shortest window; it lasts until there are enough steps
    repeats: int = REPEATS  # starts of each command alone
    limit_s: float = LIMIT_S  # longest start with its warm-up, and longest window
    grace_s: float = GRACE_S  # between SIGTERM and SIGKILL

    def __post_init__(self) -> None:
        self.check_settings(window_s=0.5, repeats=1, limit_s=1.0, grace_s=0.0)
        if self.on_core and not self.mode.properties.is_default:
            raise InvalidInputError(
                "one CPU core is shared in time slices only", value=self.mode, remedy="leave --mode out"
            )
        if self.core is not None and not self.on_core:
            raise InvalidInputError(
                f"commands on {self.device_type} are not pinned", value=f"core {self.core}", remedy="leave --core out"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the commands."""
        return tuple(command.name for command in self.commands)

    @property
    def labels(self) -> CampaignLabels:
        """The columns that have the same value in all rows of the table."""
        name = self.device_name or (affinity.processor_name() if self.on_core else "")
        return CampaignLabels(
            device_type=self.device_type, device_name=name, campaign=SOURCE, source=SOURCE, mode=self.mode
        )

    @property
    def identity(self) -> dict[str, object]:
        """No settings: commands may join a table later, and windows of another length measure the same."""
        return {}

    @property
    def job_records(self) -> dict[str, dict[str, Any]]:
        """The command of each name. Of its environment only the names of variables are kept: values may be secrets."""
        return {
            command.name: {**asdict(command), "argv": list(command.argv), "env": sorted(key for key, _ in command.env)}
            for command in self.commands
        }

    @contextmanager
    def open_profiler(self, raw_folder: Path) -> Iterator[ProgramProfiler]:
        """Choose the core, and keep this thread off the core until the context is left. Commands start when they are
        measured."""
        core = affinity.pick_core(self.core) if self.on_core else None
        with nullcontext() if core is None else affinity.avoid_cores(core):
            yield ProgramProfiler(raw_folder / "runs", self, core)

    def expected_start_s(self) -> float:
        """Return 0: no command is started before it is measured."""
        return 0.0

    def expected_solo_s(self) -> float:
        """Return the expected seconds for profiling a command alone."""
        return self.repeats * (START_GUESS_S + self.window_s)

    def expected_block_s(self, members: WorkloadGroup) -> float:
        """Return the expected seconds for a block: two starts and three windows."""
        return len(members) * START_GUESS_S + 3 * self.window_s
