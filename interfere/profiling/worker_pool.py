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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.block_analysis import MeasurementWindow, window_plan
from interfere.profiling.design.placement import Layout
from interfere.profiling.facts import StepFacts
from interfere.profiling.trace import Trace
from interfere.profiling.worker import WorkerCommand, WorkerSlot
from interfere.records import WorkloadGroup

START_TIMEOUT_S, ANSWER_TIMEOUT_S, END_TIMEOUT_S = 180.0, 60.0, 5.0
WORKER_BYTES = 150 << 20  # measured: a built-in keeps 20-140 MB of its own; the imports are shared by all
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    """The traces of one block, its windows, and the change of the core's clock over it."""

    traces: tuple[Trace, ...]
    windows: tuple[MeasurementWindow, ...]
    drift_frac: float  # of several cores that of the worst
    cores: tuple[int, ...]  # of each job


@dataclass(frozen=True, slots=True, order=True)
class InstanceKey:
    """One worker: the `instance`-th of its workload, from 0."""

    name: str
    instance: int


class WorkerHandle:
    """One worker as the controller sees it: its loop stands still until it is started."""

    def __init__(self, slot: WorkerSlot, index: int, pipe: Connection, run_flags: mmap.mmap, log: Path) -> None:
        self.name, self.core, self.index = slot.name, slot.core, index
        self.pipe, self.run_flags, self.log = pipe, run_flags, log
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

    def ask_to_stop(self) -> None:
        """Let the step loop end with its present step; returns at once."""
        self.run_flags[self.index] = 0

    def stop_loop(self) -> None:
        """Stop the step loop; returns when its last step is over."""
        self.ask_to_stop()
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
    """All workers of a campaign. A context manager.

    `groups` are those that will be measured: they say how many instances of each workload there must be.
    """

    def __init__(
        self, names: Sequence[str], *, groups: Iterable[WorkloadGroup] = (), layout: Layout, log: Path
    ) -> None:
        instances = {InstanceKey(name, 0) for name in names}
        for members in groups:
            instances |= set(map(InstanceKey, members, layout.instances(members)))
        self.keys = sorted(instances)
        self.names, self.layout, self.log = tuple(names), layout, log
        self.workers: dict[InstanceKey, WorkerHandle] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        _check_free_memory(len(self.names))
        first_instances = [InstanceKey(name, 0) for name in self.names]
        try:
            self._start_workers()
            for key in first_instances:
                self.workers[key].send(WorkerCommand.BUILD)
            for key in first_instances:
                self.workers[key].pid = int(self.workers[key].receive(START_TIMEOUT_S))
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
            slots: list[WorkerSlot] = []
            for index, key in enumerate(self.keys):
                controller_end, worker_end = Pipe()
                worker_ends.append(worker_end)
                place = self.layout.placement(key.instance)
                slots.append(
                    WorkerSlot(pipe_fd=worker_end.fileno(), core=place.core, yields=place.yields, name=key.name)
                )
                self.workers[key] = WorkerHandle(slots[-1], index, controller_end, run_flags, self.log)
            # 2. Start the process that forks them; it inherits the file of flags and its ends of the pipes.
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

    def group_workers(self, members: Sequence[str]) -> list[WorkerHandle]:
        """The workers of a group; an instance beyond the first is built when it is first needed."""
        workers = [self.workers[key] for key in map(InstanceKey, members, self.layout.instances(members))]
        for worker in workers:
            worker.build()
        return workers

    def run_alone(self, name: str, seconds: float) -> tuple[Trace, MeasurementWindow]:
        """Run one workload alone for a while; its trace, and the window in which it ran."""
        worker = self.workers[InstanceKey(name, 0)]
        start_s = time.monotonic()
        worker.start_loop()
        time.sleep(seconds)
        end_s = time.monotonic()
        worker.stop_loop()
        return worker.collect_trace(), MeasurementWindow(running=frozenset({0}), start_s=start_s, end_s=end_s)

    def run_block(self, members: Sequence[str], *, alone_s: float, shared_s: float) -> BlockRun:
        """Run one block of a group: windows of `alone_s` of each job and two of `shared_s` with all."""
        workers = self.group_workers(members)
        one_per_core = {worker.core: worker for worker in reversed(workers)}.values()
        windows: list[MeasurementWindow] = []
        clock_before_s = [worker.probe_clock_s() for worker in one_per_core]
        running: frozenset[int] = frozenset()
        for wanted in window_plan(len(workers)):
            _change_running(workers, running, wanted)
            running = wanted
            start_s = time.monotonic()
            time.sleep(alone_s if len(wanted) == 1 else shared_s)
            windows.append(MeasurementWindow(running=wanted, start_s=start_s, end_s=time.monotonic()))
        _change_running(workers, running, frozenset())
        drifts = [
            worker.probe_clock_s() / before_s - 1 for worker, before_s in zip(one_per_core, clock_before_s, strict=True)
        ]
        return BlockRun(
            traces=tuple(worker.collect_trace() for worker in workers),
            windows=tuple(windows),
            drift_frac=max(drifts, key=abs),
            cores=tuple(worker.core for worker in workers),
        )


def _change_running(workers: Sequence[WorkerHandle], running: frozenset[int], wanted: frozenset[int]) -> None:
    """Stop the loops that are not wanted any more, all at once, and start those that are wanted and do not run."""
    for k in sorted(running - wanted):
        workers[k].ask_to_stop()
    for k in sorted(running - wanted):
        workers[k].receive()
    for k in sorted(wanted - running):
        workers[k].start_loop()


def _check_free_memory(workloads: int) -> None:
    import psutil

    needed_bytes, free_bytes = workloads * WORKER_BYTES, psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise UnfitError(
            f"{workloads} resident workloads need about {needed_bytes / 2**30:.1f} GiB",
            value=f"{free_bytes / 2**30:.1f} GiB free",
            remedy="measure fewer workloads at a time",
        )
