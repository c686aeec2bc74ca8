"""The controller's side of the workers: starts them all from one process, flips them, reads their traces.

Laws: leaving the fleet ends every worker; a worker that raises, dies or hangs becomes one UnfitError with its name;
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
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from interfere.profiling.facts import StepFacts
from interfere.profiling.protocol import Window

START_TIMEOUT_S, ANSWER_TIMEOUT_S, END_TIMEOUT_S = 180.0, 60.0, 5.0
TWIN = "#2"  # the second instance of a workload, for its self pair
WORKER_BYTES = 150 << 20  # measured: a built-in keeps 20-140 MB of its own; the imports are shared by all
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Worker:
    """One workload in its process: held until flipped."""

    def __init__(self, name: str, index: int, pipe: Connection, shared: mmap.mmap, log: Path) -> None:
        self.name, self.index, self.pipe, self.shared, self.log = name, index, pipe, shared, log
        self.pid = 0

    def send(self, command: str) -> None:
        """Ask; the answer is read by `receive`."""
        try:
            self.pipe.send(command)
        except OSError:
            raise self._gone() from None

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """The answer. Raises UnfitError when the workload raised, died, or took too long."""
        try:
            if not self.pipe.poll(timeout_s):
                raise UnfitError(
                    f"workload {self.name} did not answer within {timeout_s:g} s",
                    remedy="one step must be shorter than that: split it",
                )
            done, answer = self.pipe.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if not done:
            raise UnfitError(
                f"workload {self.name} failed",
                value=str(answer).splitlines()[0],
                remedy=f"run it by itself; what it printed is in {self.log}",
            )
        return answer

    def ask(self, command: str) -> Any:
        """Send and receive."""
        self.send(command)
        return self.receive()

    def build(self) -> None:
        """Make the workload resident; nothing to do the second time."""
        if not self.pid:
            self.pid = int(self.ask("build"))

    def start(self) -> None:
        """Let the loop go."""
        self.shared[self.index] = 1
        self.send("run")

    def stop(self) -> None:
        """Hold the loop; back when its last step is over."""
        self.shared[self.index] = 0
        self.receive()

    def collect(self) -> NDArray[np.float64]:
        """float64[e, 4]: the trace since the last call."""
        return np.asarray(self.ask("collect"))

    def facts(self) -> StepFacts:
        """What one step does."""
        answer = self.ask("facts")
        assert isinstance(answer, StepFacts)
        return answer

    def _gone(self) -> UnfitError:
        return UnfitError(
            f"the process of workload {self.name} ended by itself",
            remedy=f"out of memory, or a crash of its own: see {self.log}",
        )


class Fleet:
    """All workers of a campaign, with a twin for each workload of `twins`. A context manager."""

    def __init__(self, names: Sequence[str], *, twins: Sequence[str], core: int, log: Path) -> None:
        self.slots = [*names, *(name + TWIN for name in twins)]
        self.names, self.core, self.log = tuple(names), core, log
        self.workers: dict[str, Worker] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        _check_memory(len(self.names))
        try:
            self._start()
            for name in self.names:
                self.workers[name].send("build")
            for name in self.names:
                self.workers[name].pid = int(self.workers[name].receive(START_TIMEOUT_S))
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        with tempfile.TemporaryFile() as file, self.log.open("ab") as log:
            file.truncate(len(self.slots))
            shared = mmap.mmap(file.fileno(), len(self.slots))
            theirs: list[Connection] = []
            for index, slot in enumerate(self.slots):
                ours, other = Pipe()
                theirs.append(other)
                self.workers[slot] = Worker(slot.removesuffix(TWIN), index, ours, shared, self.log)
            arguments = [
                f"{pipe.fileno()}={slot.removesuffix(TWIN)}" for pipe, slot in zip(theirs, self.slots, strict=True)
            ]
            fds = [file.fileno(), *(pipe.fileno() for pipe in theirs)]
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "interfere.profiling.worker", str(fds[0]), str(self.core), *arguments],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **dict.fromkeys(THREADS, "1")},
            )
            for pipe in theirs:
                pipe.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every worker: hold it, close its pipe, and kill what is still there after a while."""
        for worker in self.workers.values():
            worker.shared[worker.index] = 0
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

    def pair(self, first: str, second: str) -> tuple[Worker, Worker]:
        """Two workers; the second of a self pair is the twin, built when first needed."""
        one, other = self.workers[first], self.workers[second + TWIN if first == second else second]
        other.build()
        return one, other

    def run_alone(self, name: str, seconds: float) -> tuple[NDArray[np.float64], Window]:
        """The trace of one workload running alone, and the window it had."""
        worker = self.workers[name]
        begin = time.monotonic()
        worker.start()
        time.sleep(seconds)
        end = time.monotonic()
        worker.stop()
        return worker.collect(), Window(phase="A", start_s=begin, end_s=end)

    def run_block(
        self, first: str, second: str, window_s: float
    ) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], tuple[Window, ...], float]:
        """Both traces of one block A · AB · B · AB, its windows, and the drift of the clock over it."""
        one, other = self.pair(first, second)
        before = float(one.ask("probe"))
        windows = []

        def window(phase: str) -> None:
            begin = time.monotonic()
            time.sleep(window_s)
            windows.append(Window(phase=phase, start_s=begin, end_s=time.monotonic()))

        one.start()
        window("A")
        other.start()
        window("AB")
        one.stop()
        window("B")
        one.start()
        window("AB")
        one.stop()
        other.stop()
        drift = float(one.ask("probe")) / before - 1
        return (one.collect(), other.collect()), tuple(windows), drift


def _check_memory(workers: int) -> None:
    import psutil

    need, free = workers * WORKER_BYTES, psutil.virtual_memory().available
    if need > free:
        raise UnfitError(
            f"{workers} resident workloads need about {need / 2**30:.1f} GiB",
            value=f"{free / 2**30:.1f} GiB free",
            remedy="measure fewer workloads at a time",
        )
