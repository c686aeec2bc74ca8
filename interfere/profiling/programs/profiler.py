"""Profiles commands alone and in pairs; every measurement starts them anew.

A block of the pair (A, B) is A · AB · B: A starts and warms up, and its window alone follows; B starts and warms up
beside it, and the shared window follows; A is ended, and B's window alone follows. So each window alone lies beside the
shared one, in the same start of the same process, and every block starts both anew: differences between starts show in
the spread between blocks.

Why processes are not stopped by SIGSTOP instead: it would save the start-ups, but it stops the processes of a GPU job
and not the device. Kernels queued before it run on, memory stays taken, and watchdogs of collectives see a dead rank,
so the other job would not be alone. Here the neighbour of a job that runs alone does not exist.

Law: a command that does not do what a measurement needs is a ProgramRunError with its reason, never an endless wait.
"""

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import UnfitError
from interfere.profiling.block_analysis import EDGE_S, BlockAnalysis, MeasurementWindow, block_chunks, empty_side
from interfere.profiling.clock_probe import probe_s
from interfere.profiling.nvidia_smi import GpuSample
from interfere.profiling.programs.gpu_sampling import GpuSampler, memory_before, with_gpu_facts
from interfere.profiling.programs.output import last_lines
from interfere.profiling.programs.run import ProgramRun
from interfere.profiling.programs.run_analysis import (
    MIN_MARKS,
    MIN_STEPS,
    RunRecording,
    analyse_pair,
    analyse_solo,
    run_recording,
)
from interfere.profiling.programs.spec import Command
from interfere.profiling.quality_gates import MAX_RETRIES, MAX_STEAL
from interfere.records import NAN, BlockRequest, MeasuredBlock, SoloMeasurement, StepChunk

POLL_S = 0.05
# Readings 3 s apart on a virtual machine with busy neighbours: single ones differed by more than 2 % in three of eight
# cases, medians of five in one of eight. Nine take 0.1 s.
CLOCK_PROBES = 9
SPARE_STEPS = 2  # of a window: one is cut at either end
FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})  # who runs in a window of a block


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """How every command is run."""

    device_type: str
    core: int | None  # pin to this core; None: the environment decides on which device a command runs
    window_s: float  # shortest window; it lasts until there are enough steps
    limit_s: float  # longest start with its warm-up, and longest window
    grace_s: float  # between SIGTERM and SIGKILL
    gpu_uuid: str = ""  # sample this GPU while a command runs alone


class ProgramRunError(Exception):
    """A command did not do what a measurement needs."""

    def __init__(self, run: ProgramRun, problem: str) -> None:
        self.run, self.problem = run, problem
        super().__init__(problem)

    @property
    def reason(self) -> str:
        """One line with the last lines of the log. Ask for it once the run is closed and the log is complete."""
        printed = last_lines(self.run.log)
        return f"{self.run.name} {self.problem}; " + (f"its log ends: {printed}" if printed else "it printed nothing")


class ProgramProfiler:
    """Profiles commands by their names, all under the same conditions, in numbered folders below `folder`."""

    def __init__(
        self, folder: Path, conditions: RunConditions, commands: Mapping[str, Command], *, solo_repeats: int
    ) -> None:
        self.folder, self.conditions, self.commands = folder, conditions, commands
        self.solo_repeats = solo_repeats  # starts of a command alone

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """The profile of one command over `solo_repeats` starts.

        A start disturbed by third processes is repeated; the least disturbed one counts. Raises UnfitError for a
        command that cannot be measured.
        """
        command = self.commands[workload]
        gpu_samples: list[GpuSample] = []
        before_bytes = memory_before(self.conditions.gpu_uuid)
        runs = [self._least_disturbed_run(command, gpu_samples) for _ in range(self.solo_repeats)]
        analysis = analyse_solo(runs, self.conditions.device_type, pinned=self._pinned)
        assert analysis.profile is not None, analysis.reason
        profile = with_gpu_facts(analysis.profile, gpu_samples, before_bytes)
        return SoloMeasurement(profile=profile, steal_frac=analysis.steal_frac)

    def measure_block(self, request: BlockRequest) -> MeasuredBlock:
        """Measure one block A · AB · B. A rejected block says why, and holds what was measured until then."""
        started_at_s, clock_before_s = time.time(), self._probe_clock_s()
        first_name, second_name = request.members
        windows: list[MeasurementWindow] = []
        drift_frac = NAN
        chunks: tuple[tuple[StepChunk, ...], ...] = ((), ())
        try:
            runs = self._run_windows(self.commands[first_name], self.commands[second_name], windows)
        except ProgramRunError as failure:
            sides = (empty_side(first_name), empty_side(second_name))
            analysis = BlockAnalysis(sides=sides, steal_frac=NAN, reason=failure.reason)
        else:
            drift_frac = self._probe_clock_s() / clock_before_s - 1
            first, second = (_recording(run) for run in runs)
            analysis = analyse_pair((first, second), windows, drift_frac, pinned=self._pinned)
            chunks = block_chunks((first.trace, second.trace), windows)
        return MeasuredBlock(
            pass_index=request.pass_index,
            attempt=request.attempt,
            started_at_s=started_at_s,
            window_s=max((window.end_s - window.start_s for window in windows), default=self.conditions.window_s),
            sides=analysis.sides,
            steal_frac=analysis.steal_frac,
            drift_frac=drift_frac,
            reason=analysis.reason,
            chunks=chunks,
        )

    @property
    def _pinned(self) -> bool:
        return self.conditions.core is not None

    def _least_disturbed_run(
        self, command: Command, gpu_samples: list[GpuSample]
    ) -> tuple[RunRecording, MeasurementWindow]:
        least_disturbed: tuple[float, RunRecording, MeasurementWindow] | None = None
        for _ in range(1 + MAX_RETRIES):
            recording, window = self._run_alone(command, gpu_samples)
            analysis = analyse_solo([(recording, window)], self.conditions.device_type, pinned=self._pinned)
            if analysis.reason:
                raise UnfitError(
                    f"command {command.name} cannot be measured", value=analysis.reason, remedy=f"see {self.folder}"
                )
            if least_disturbed is None or analysis.steal_frac < least_disturbed[0]:
                least_disturbed = (analysis.steal_frac, recording, window)
            if not analysis.steal_frac > MAX_STEAL:  # NaN: unknown, nothing to repeat for
                break
        assert least_disturbed is not None
        return least_disturbed[1:]

    def _run_alone(self, command: Command, gpu_samples: list[GpuSample]) -> tuple[RunRecording, MeasurementWindow]:
        try:
            with self._new_run(command) as run:
                self._warm_up(run)
                with GpuSampler(self.conditions.gpu_uuid) as sampler:
                    window = self._measure_window(FIRST, run, may_end=True)
                gpu_samples += sampler.samples
        except ProgramRunError as failure:
            raise UnfitError(
                f"command {command.name} cannot be measured",
                value=failure.reason,
                remedy=f"run it by itself: {command.line}; all it printed is in {failure.run.log}",
            ) from None
        return _recording(run), window

    def _run_windows(
        self, first_command: Command, second_command: Command, windows: list[MeasurementWindow]
    ) -> tuple[ProgramRun, ProgramRun]:
        """Run the block and append its windows as they end; the two closed runs."""
        with ExitStack() as stack:
            # 1. The first command alone.
            first = stack.enter_context(self._new_run(first_command))
            self._warm_up(first)
            windows.append(self._measure_window(FIRST, first))
            # 2. Both together.
            second = stack.enter_context(self._new_run(second_command))
            self._warm_up(second, first)
            windows.append(self._measure_window(BOTH, first, second))
            # 3. The second command alone.
            first.close()
            windows.append(self._measure_window(SECOND, second))
        return first, second

    def _new_run(self, command: Command) -> ProgramRun:
        number = sum(1 for _ in self.folder.glob("*")) if self.folder.is_dir() else 0
        file_name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in command.name)[:64]
        folder = self.folder / f"{number:04d}-{file_name}"
        return ProgramRun(command, folder, core=self.conditions.core, grace_s=self.conditions.grace_s)

    def _warm_up(self, run: ProgramRun, *neighbours: ProgramRun) -> None:
        """Wait until the start-up and the first steps of `run` are over."""
        start_s = time.monotonic()
        while True:
            _wait_and_refresh((run, *neighbours))
            steps, _ = run.steps_since(0.0)
            since_first_mark_s = time.monotonic() - run.marks[0].monotonic_s if run.marks else -math.inf
            if steps >= run.command.warm_steps and since_first_mark_s >= run.command.warm_s:
                return
            if time.monotonic() - start_s > self.conditions.limit_s:
                raise ProgramRunError(run, _warm_up_problem(run, steps, self.conditions.limit_s))

    def _measure_window(self, running: frozenset[int], *runs: ProgramRun, may_end: bool = False) -> MeasurementWindow:
        """Wait for at least `window_s`, and until each run has made enough steps.

        With `may_end` a run may end within the window, when it did its work and made enough steps in it.
        """
        start_s, limit_s = time.monotonic(), max(self.conditions.limit_s, self.conditions.window_s)
        while True:
            try:
                _wait_and_refresh(runs)
            except ProgramRunError as failure:
                program_exit = failure.run.exit
                succeeded = program_exit is not None and program_exit.exit_code == 0
                if may_end and program_exit and succeeded and _has_enough_steps(failure.run, start_s):
                    return MeasurementWindow(running=running, start_s=start_s, end_s=program_exit.monotonic_s)
                raise
            now_s = time.monotonic()
            unfinished = [run for run in runs if not _has_enough_steps(run, start_s)]
            if now_s - start_s >= self.conditions.window_s and not unfinished:
                return MeasurementWindow(running=running, start_s=start_s, end_s=now_s)
            if now_s - start_s > limit_s:
                steps, marks = unfinished[0].steps_since(start_s + EDGE_S)
                problem = f"made {steps:g} steps with {marks} marks in a window of {limit_s:g} s"
                raise ProgramRunError(unfinished[0], f"{problem}, {MIN_STEPS} and {MIN_MARKS} are needed")

    def _probe_clock_s(self) -> float:
        """CPU seconds of the clock probe on the measured core, while no command runs there; NaN without a core."""
        if self.conditions.core is None:
            return NAN
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.conditions.core})
        try:
            return statistics.median(probe_s() for _ in range(CLOCK_PROBES))
        finally:
            os.sched_setaffinity(0, own_cores)


def _warm_up_problem(run: ProgramRun, steps: float, limit_s: float) -> str:
    if run.marks:
        return f"made {steps:g} steps after its first within {limit_s:g} s (a higher --limit-s gives it more time)"
    remedy = "mark its steps with interfere.progress, or give a --step-regex that its output matches"
    return f"marked no step within {limit_s:g} s ({remedy})"


def _has_enough_steps(run: ProgramRun, start_s: float) -> bool:
    steps, marks = run.steps_since(start_s + EDGE_S)
    return steps >= MIN_STEPS + SPARE_STEPS and marks >= MIN_MARKS


def _wait_and_refresh(runs: Sequence[ProgramRun]) -> None:
    """Wait a moment and read what the runs did. Raises ProgramRunError when one has ended."""
    time.sleep(POLL_S)
    for run in runs:
        run.refresh()
        if run.exit:
            lifetime_s = run.exit.monotonic_s - run.started_s
            steps = run.marks[-1].steps if run.marks else 0
            raise ProgramRunError(run, f"ended by itself after {lifetime_s:.1f} s and {steps:g} steps, {run.exit}")


def _recording(run: ProgramRun) -> RunRecording:
    """The arrays of a closed run."""
    end_s = run.exit.monotonic_s if run.exit else run.closed_s
    return run_recording(run.name, run.marks, run.samples(), run.started_s, end_s)
