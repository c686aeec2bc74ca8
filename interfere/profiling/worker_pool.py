"""The controller's side of the workers: starts them all from one process, starts and stops their loops, reads traces.

Laws: leaving the pool ends every worker; a worker that raises, dies or hangs becomes one UnfitError with its name;
whatever workers print goes to a log file, never to our standard output.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling.affinity import Layout
from interfere.profiling.facts import StepFacts
from interfere.profiling.slices import CLOCKS_KEPT, MIN_SLICE_STEPS, Recording, Slice, usual_clock_s
from interfere.profiling.trace import Trace
from interfere.profiling.worker import SharedState, WorkerCommand, WorkerSlot
from interfere.records import WorkloadGroup

START_TIMEOUT_S, ANSWER_TIMEOUT_S, END_TIMEOUT_S = 180.0, 60.0, 5.0
WORKER_BYTES = 150 << 20  # measured: a built-in keeps 20-140 MB of its own; the imports are shared by all
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


POLL_S = 0.004
MAX_SLICE_S = 10.0  # a slice in which a job made too few steps ends here


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedRun:
    """The recording of each job over consecutive slices, and the usual clock of each job's core."""

    recordings: tuple[Recording, ...]
    slices: tuple[Slice, ...]
    usual_clocks_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, order=True)
class InstanceKey:
    """The key of a worker: the name of its workload, and its number among the workers of that workload, from 0."""

    name: str
    instance: int


class WorkerHandle:
    """A worker as the controller sees it. The worker's loop does not run until it is started."""

    def __init__(self, slot: WorkerSlot, index: int, pipe: Connection, shared: SharedState, log: Path) -> None:
        self.name, self.core, self.index = slot.name, slot.core, index
        self.pipe, self.shared, self.log = pipe, shared, log
        self.pid = 0  # 0: the workload is not built yet

    def send(self, command: WorkerCommand) -> None:
        """Send a command to the worker; `receive` reads the answer."""
        try:
            self.pipe.send(command.value)
        except OSError:
            raise self._ended_error() from None

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer to the last command. Raises UnfitError when the workload raised, died, or took too long."""
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
        """Send a command to the worker and return the answer."""
        self.send(command)
        return self.receive()

    def build(self) -> None:
        """Make the workload resident in the worker. A second call does nothing."""
        if not self.pid:
            self.pid = int(self.ask(WorkerCommand.BUILD))

    def start_loop(self) -> None:
        """Start or continue the step loop, and return at once."""
        self.shared.set_running(self.index, True)
        self.send(WorkerCommand.RUN)

    def ask_to_stop(self) -> None:
        """Ask the step loop to end after its present step, and return at once."""
        self.shared.set_running(self.index, False)

    @property
    def steps(self) -> int:
        """The number of steps that the loop has finished in all."""
        return self.shared.steps(self.index)

    def collect_trace(self) -> Trace:
        """Return the worker's trace since the last call."""
        return np.asarray(self.ask(WorkerCommand.COLLECT))

    def step_facts(self) -> StepFacts:
        """Return the cost of a step of the workload: FLOPs, bytes, memory and operators."""
        answer = self.ask(WorkerCommand.FACTS)
        assert isinstance(answer, StepFacts)
        return answer

    def _ended_error(self) -> UnfitError:
        return UnfitError(
            f"the process of workload {self.name} ended by itself",
            remedy=f"it ran out of memory or crashed: see {self.log}",
        )


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
        self.keys = sorted(instances)
        self.names, self.layout, self.log = tuple(names), layout, log
        self.workers: dict[InstanceKey, WorkerHandle] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._clocks_s = {core: deque[float](maxlen=CLOCKS_KEPT) for core in layout.cores}

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
            # 1. One place in the shared state and one pipe for each worker.
            file.truncate(SharedState.size_bytes(len(self.keys)))
            shared = SharedState(file.fileno(), len(self.keys))
            worker_ends: list[Connection] = []
            slots: list[WorkerSlot] = []
            for index, key in enumerate(self.keys):
                controller_end, worker_end = Pipe()
                worker_ends.append(worker_end)
                place = self.layout.placement(key.instance)
                slots.append(
                    WorkerSlot(pipe_fd=worker_end.fileno(), core=place.core, yields=place.yields, name=key.name)
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
        """Return the workers of a group. An instance beyond the first of its workload is built when first needed."""
        workers = [self.workers[key] for key in map(InstanceKey, members, self.layout.instances(members))]
        for worker in workers:
            worker.build()
        return workers

    def run_slices(
        self, members: Sequence[str], rounds: Sequence[Sequence[frozenset[int]]], alone_s: float, limit_s: float
    ) -> SlicedRun:
        """Run a group slice by slice, and return what was recorded.

        `rounds` holds the jobs that run in each slice; after `limit_s` no further round begins. A slice with one job
        lasts `alone_s`, longer in proportion to the jobs that share it, and until every job has made enough steps. The
        clock of every core is measured between slices.
        """
        workers = self.group_workers(members)
        slices: list[Slice] = []
        clocks_s = self._measure_clocks(workers)
        plan = [running for each in rounds for running in each]
        begin_s, least = time.monotonic(), len(rounds[0])
        for k, running in enumerate(plan):
            if k and k % least == 0 and time.monotonic() - begin_s > limit_s:
                break
            chosen = [workers[k] for k in sorted(running)]
            important = chosen[:1] if self.layout.ordered else chosen  # the other may wait all the time
            start_s, end_s = _run_slice(chosen, important, alone_s * max(1.0, len(chosen) / 2))
            before_s, clocks_s = clocks_s, self._measure_clocks(workers)
            clocks = tuple((before_s[worker.core], clocks_s[worker.core]) for worker in workers)
            slices.append(Slice(running=running, start_s=start_s, end_s=end_s, clocks=clocks))
        return SlicedRun(
            recordings=tuple(
                Recording(name=name, trace=worker.collect_trace(), core=worker.core)
                for name, worker in zip(members, workers, strict=True)
            ),
            slices=tuple(slices),
            usual_clocks_s=tuple(usual_clock_s(self._clocks_s[worker.core]) for worker in workers),
        )

    def _measure_clocks(self, workers: Sequence[WorkerHandle]) -> dict[int, float]:
        """Return the CPU seconds of a fixed piece of work on each core, measured on all cores at the same time."""
        one_per_core = {worker.core: worker for worker in reversed(workers)}
        for worker in one_per_core.values():
            worker.send(WorkerCommand.SPIN)
        clocks_s = {core: float(worker.receive()) for core, worker in one_per_core.items()}
        for core, clock_s in clocks_s.items():
            self._clocks_s[core].append(clock_s)
        return clocks_s


def _run_slice(workers: Sequence[WorkerHandle], counted: Sequence[WorkerHandle], seconds: float) -> tuple[float, float]:
    """Run the loops of some workers for a while, and until all workers in `counted` have made enough steps.

    Return when the slice began and ended.
    """
    steps_before = [worker.steps for worker in counted]
    for worker in workers:
        worker.start_loop()
    start_s = now_s = time.monotonic()
    while now_s - start_s < MAX_SLICE_S:
        time.sleep(max(POLL_S, start_s + seconds - now_s))
        now_s = time.monotonic()
        steps = [worker.steps - before for worker, before in zip(counted, steps_before, strict=True)]
        if now_s - start_s >= seconds and min(steps) >= MIN_SLICE_STEPS:
            break
        for worker in workers:
            if worker.pipe.poll(0):  # the workload raised, or its process ended
                worker.receive()
    for worker in workers:
        worker.ask_to_stop()
    for worker in workers:
        worker.receive()
    return start_s, now_s


def _check_free_memory(workloads: int) -> None:
    import psutil

    needed_bytes, free_bytes = workloads * WORKER_BYTES, psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise UnfitError(
            f"{workloads} resident workloads need about {needed_bytes / 2**30:.1f} GiB",
            value=f"{free_bytes / 2**30:.1f} GiB free",
            remedy="measure fewer workloads at a time",
        )
