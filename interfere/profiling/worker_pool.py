"""The controller's side of the workers: starts them all from one process, starts and stops their loops, reads traces.

Laws: leaving the pool ends every worker; a worker that raises, dies or hangs becomes one UnfitError with its name;
whatever workers print goes to a log file, never to our standard output.
"""

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.block_analysis import MeasurementWindow, Phase
from interfere.profiling.facts import StepFacts
from interfere.profiling.trace import Trace
from interfere.profiling.worker import WorkerCommand

START_TIMEOUT_S, ANSWER_TIMEOUT_S, END_TIMEOUT_S = 180.0, 60.0, 5.0
SECOND_INSTANCE = "#2"  # ends the key of the second worker of a workload, for its self pair
WORKER_BYTES = 150 << 20  # measured: a built-in keeps 20-140 MB of its own; the imports are shared by all
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    """Both traces of one block, its windows, and the change of the core's clock over it."""

    traces: tuple[Trace, Trace]
    windows: tuple[MeasurementWindow, ...]
    drift_frac: float


class WorkerHandle:
    """One worker as the controller sees it: its loop stands still until it is started."""

    def __init__(self, name: str, index: int, pipe: Connection, run_flags: mmap.mmap, log: Path) -> None:
        self.name, self.index, self.pipe, self.run_flags, self.log = name, index, pipe, run_flags, log
        self.pid = 0  # 0: the workload is not built yet

    def send(self, command: WorkerCommand) -> None:
        """Send a command; `receive` reads the answer."""
        try:
            self.pipe.send(command.value)
        except OSError:
            raise self._ended_error() from None

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """The answer to the last command. Raises UnfitError when the workload raised, died, or took too long."""
        try:
            if not self.pipe.poll(timeout_s):
                raise UnfitError(
                    f"workload {self.name} did not answer within {timeout_s:g} s",
                    remedy="one step must be shorter than that: split it",
                )
            succeeded, answer = self.pipe.recv()
        except (EOFError, OSError):
            raise self._ended_error() from None
        if not succeeded:
            raise UnfitError(
                f"workload {self.name} failed",
                value=str(answer).splitlines()[0],
                remedy=f"run it by itself; what it printed is in {self.log}",
            )
        return answer

    def ask(self, command: WorkerCommand) -> Any:
        """Send a command and return its answer."""
        self.send(command)
        return self.receive()

    def build(self) -> None:
        """Make the workload resident; does nothing the second time."""
        if not self.pid:
            self.pid = int(self.ask(WorkerCommand.BUILD))

    def start_loop(self) -> None:
        """Start or continue the step loop; returns at once."""
        self.run_flags[self.index] = 1
        self.send(WorkerCommand.RUN)

    def stop_loop(self) -> None:
        """Stop the step loop; returns when its last step is over."""
        self.run_flags[self.index] = 0
        self.receive()

    def collect_trace(self) -> Trace:
        """The trace since the last call."""
        return np.asarray(self.ask(WorkerCommand.COLLECT))

    def probe_clock_s(self) -> float:
        """CPU seconds of the clock probe in the worker's process."""
        return float(self.ask(WorkerCommand.PROBE))

    def step_facts(self) -> StepFacts:
        """What one step of the workload does."""
        answer = self.ask(WorkerCommand.FACTS)
        assert isinstance(answer, StepFacts)
        return answer

    def _ended_error(self) -> UnfitError:
        return UnfitError(
            f"the process of workload {self.name} ended by itself",
            remedy=f"it ran out of memory or crashed: see {self.log}",
        )


class WorkerPool:
    """All workers of a campaign, with a second one for each of `self_paired`. A context manager."""

    def __init__(self, names: Sequence[str], *, self_paired: Sequence[str], core: int, log: Path) -> None:
        self.keys = [*names, *(name + SECOND_INSTANCE for name in self_paired)]
        self.names, self.core, self.log = tuple(names), core, log
        self.workers: dict[str, WorkerHandle] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        _check_free_memory(len(self.names))
        try:
            self._start_workers()
            for name in self.names:
                self.workers[name].send(WorkerCommand.BUILD)
            for name in self.names:
                self.workers[name].pid = int(self.workers[name].receive(START_TIMEOUT_S))
        except BaseException:
            self.close()
            raise
        return self

    def _start_workers(self) -> None:
        with tempfile.TemporaryFile() as file, self.log.open("ab") as log:
            # 1. One flag byte and one pipe for each worker.
            file.truncate(len(self.keys))
            run_flags = mmap.mmap(file.fileno(), len(self.keys))
            worker_ends: list[Connection] = []
            for index, key in enumerate(self.keys):
                controller_end, worker_end = Pipe()
                worker_ends.append(worker_end)
                name = key.removesuffix(SECOND_INSTANCE)
                self.workers[key] = WorkerHandle(name, index, controller_end, run_flags, self.log)
            # 2. Start the process that forks them; it inherits the file of flags and its ends of the pipes.
            slots = [
                f"{pipe.fileno()}={key.removesuffix(SECOND_INSTANCE)}"
                for pipe, key in zip(worker_ends, self.keys, strict=True)
            ]
            fds = [file.fileno(), *(pipe.fileno() for pipe in worker_ends)]
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "interfere.profiling.worker", str(fds[0]), str(self.core), *slots],
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
        """End every worker: stop its loop, close its pipe, and kill those that are still there after a while."""
        for worker in self.workers.values():
            worker.run_flags[worker.index] = 0
            worker.pipe.close()
        if self.process is None:
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

    def worker_pair(self, first: str, second: str) -> tuple[WorkerHandle, WorkerHandle]:
        """Two workers; the second of a self pair is the second instance, built when it is first needed."""
        second_key = second + SECOND_INSTANCE if first == second else second
        second_worker = self.workers[second_key]
        second_worker.build()
        return self.workers[first], second_worker

    def run_alone(self, name: str, seconds: float) -> tuple[Trace, MeasurementWindow]:
        """Run one workload alone for a while; its trace, and the window in which it ran."""
        worker = self.workers[name]
        start_s = time.monotonic()
        worker.start_loop()
        time.sleep(seconds)
        end_s = time.monotonic()
        worker.stop_loop()
        return worker.collect_trace(), MeasurementWindow(phase=Phase.FIRST_ALONE, start_s=start_s, end_s=end_s)

    def run_block(self, first_name: str, second_name: str, window_s: float) -> BlockRun:
        """Run one block A · AB · B · AB of windows of `window_s` seconds each."""
        first, second = self.worker_pair(first_name, second_name)
        windows = []

        def wait_for_window(phase: Phase) -> None:
            start_s = time.monotonic()
            time.sleep(window_s)
            windows.append(MeasurementWindow(phase=phase, start_s=start_s, end_s=time.monotonic()))

        clock_before_s = first.probe_clock_s()
        first.start_loop()
        wait_for_window(Phase.FIRST_ALONE)
        second.start_loop()
        wait_for_window(Phase.SHARED)
        first.stop_loop()
        wait_for_window(Phase.SECOND_ALONE)
        first.start_loop()
        wait_for_window(Phase.SHARED)
        first.stop_loop()
        second.stop_loop()
        drift_frac = first.probe_clock_s() / clock_before_s - 1
        traces = (first.collect_trace(), second.collect_trace())
        return BlockRun(traces=traces, windows=tuple(windows), drift_frac=drift_frac)


def _check_free_memory(workloads: int) -> None:
    import psutil

    needed_bytes, free_bytes = workloads * WORKER_BYTES, psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise UnfitError(
            f"{workloads} resident workloads need about {needed_bytes / 2**30:.1f} GiB",
            value=f"{free_bytes / 2**30:.1f} GiB free",
            remedy="measure fewer workloads at a time",
        )
