"""The process beside the measurement: `python -P -m interfere.profiling.worker SHARED_FD CORE SLOT...`.

One process imports the heavy libraries once and forks a child per slot; each child holds one workload, blocks on its
pipe while held, and runs while its flag in shared memory is up. Laws: a held worker uses no CPU; a worker whose
controller is gone ends by itself (its pipe closes); nothing of the user's runs in the controller.
"""

import gc
import hashlib
import mmap
import os
import signal
import statistics
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import NoReturn

import numpy as np

from interfere.profiling import affinity, facts, workloads
from interfere.profiling.trace import Event

WARM_STEPS, WARM_S = 3, 0.25
ORPHAN_CHECK_S = 0.25
# 800 × about 11 µs. Hashing a cached buffer follows the clock and nothing else: two readings 0.2 s apart differ
# by 0.6 % (median) and 3.2 % (p90) on an idle virtual machine, 0.9 % and 1.9 % on a busy one; a Python loop by 5-60 %.
PROBES, PROBE_BYTES = 800, bytes(20_000)


class Slot:
    """One worker: a workload, a pipe to the controller, a flag byte at `index` of the shared map."""

    def __init__(self, index: int, name: str, pipe: Connection, shared: mmap.mmap, core: int) -> None:
        self.index, self.name, self.pipe, self.shared, self.core = index, name, pipe, shared, core
        self.events: list[tuple[float, float, float, float]] = []
        self.steps = 0.0
        self.workload: workloads.Workload | None = None
        self.step: workloads.Step | None = None
        self.memory = facts.MemoryFacts()

    def log(self, kind: Event) -> None:
        """One row of the trace, now."""
        self.events.append((time.monotonic(), time.process_time(), self.steps, float(kind)))

    def pause(self, seconds: float) -> None:
        """The job waits by its own choice."""
        self.log(Event.PAUSE)
        time.sleep(seconds)
        self.log(Event.RESUME)

    def build(self) -> None:
        """Make the workload resident and warm; from here on the process stays on the measured core."""
        affinity.pin_process(self.core)
        if self.step is not None:
            return
        if ":" in self.name:
            sys.path.append(os.getcwd())  # the user's own module; last, so that it hides nothing of ours
        self.workload = workloads.find(self.name)
        if self.workload.framework == "torch":
            import torch

            torch.set_num_threads(1)
            torch.manual_seed(0)
        baseline = facts.resident_bytes()
        self.step = self.workload.build()
        begin = time.monotonic()
        for done in range(1_000):
            self.step(time.sleep)
            if done + 1 >= WARM_STEPS and time.monotonic() - begin > WARM_S:
                break
        self.memory = facts.memory(self.step, baseline)
        gc.collect()
        gc.freeze()

    def run(self) -> None:
        """Step until the flag goes down."""
        assert self.step is not None
        self.log(Event.START)
        checked = time.monotonic()
        while self.shared[self.index]:
            self.step(self.pause)
            self.steps += 1
            self.log(Event.STEP)
            if self.events[-1][0] - checked > ORPHAN_CHECK_S:
                checked = self.events[-1][0]
                if self.pipe.poll(0):  # nothing is ever sent to a running worker: the pipe was closed
                    sys.exit(0)
        self.log(Event.STOP)

    def answer(self, command: str) -> object:
        """What one command gives back."""
        match command:
            case "build":
                self.build()
                return os.getpid()
            case "run":
                self.run()
                return self.events[-1][0]
            case "collect":
                trace, self.events = np.array(self.events, dtype=np.float64).reshape(-1, 4), []
                return trace
            case "probe":
                return probe_s()
            case "facts":
                assert self.workload is not None
                assert self.step is not None
                return facts.of(self.workload, self.step, self.memory)
        raise ValueError(command)

    def serve(self) -> None:
        """Answer commands until the controller is gone: (True, answer) or (False, what the workload raised)."""
        while True:
            try:
                command = self.pipe.recv()
            except (EOFError, OSError):
                return
            try:
                reply: tuple[bool, object] = (True, self.answer(command))
            except Exception as error:  # the workload is the user's code: anything may come out of it
                reply = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
            try:
                self.pipe.send(reply)
            except (BrokenPipeError, ConnectionResetError):
                return


def probe_s() -> float:
    """CPU seconds of one fixed piece of work, the median of the later half: what the clock gives now."""
    taken = []
    for _ in range(PROBES):
        begin = time.process_time()
        hashlib.sha256(PROBE_BYTES).digest()
        taken.append(time.process_time() - begin)
    return statistics.median(taken[PROBES // 2 :])  # the earlier half wakes the core up


def main(arguments: list[str]) -> NoReturn:
    """`SHARED_FD CORE FD:NAME...`: fork a worker per slot, then wait for all of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's; it closes the pipes
    shared_fd, core, *slots = arguments
    pairs = [(int(fd), name) for fd, _, name in (slot.partition("=") for slot in slots)]
    if any(workloads.needs_torch(name) for _, name in pairs):
        import torch

        torch.set_num_threads(1)
    shared = mmap.mmap(int(shared_fd), len(pairs))
    gc.collect()
    gc.freeze()  # pages of the imports stay shared between the children
    for index, (fd, name) in enumerate(pairs):
        if os.fork() == 0:
            for other, _ in pairs:
                if other != fd:
                    os.close(other)
            Slot(index, name, Connection(fd), shared, int(core)).serve()
            os._exit(0)  # no exit handlers of the user's libraries: they may hang
    for fd, _ in pairs:
        os.close(fd)
    for _ in pairs:
        os.wait()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
