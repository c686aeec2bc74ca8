"""The worker processes of a measurement, each with a workload, and the controller's handles by which it runs them.

`python -P -m interfere.profiling.worker FLAGS_FD SLOT...` starts them, each slot a JSON object. It imports the
heavy libraries once and forks a child for each workload. A child builds its workload, waits for commands on its pipe,
and runs steps while its flag in shared memory is set, counting them there. The ranks of a gang are workers that meet
after each step, and go on only while the flags of all are set. Laws: a worker that does not run uses no CPU; a worker
whose controller is gone ends by itself (its pipe closes); no code of the user's runs in the controller.
"""

import gc
import json
import math
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from interfere.errors import UnfitError
from interfere.profiling import affinity, facts, workloads
from interfere.profiling.facts import StepFacts
from interfere.profiling.trace import Event, Requests, Trace
from interfere.profiling.workloads.workload import Answered, OpenLoop

ANSWER_TIMEOUT_S = 60.0
WARM_STEPS, WARM_S = 3, 0.25
MAX_WARM_STEPS = 1_000
ORPHAN_CHECK_S = 0.25
POLL_S = 0.004
MAX_RUN_S = 10.0  # after which a job that made too few steps is stopped
WAKE_UP_S = 2e-4  # of an idle core: the timer slack of 50 us (prctl(2), PR_SET_TIMERSLACK), and the switch


class WorkerCommand(StrEnum):
    """The commands that the controller may send to a worker."""

    BUILD = "build"  # make the workload resident and warm it up; the answer is the process id
    RUN = "run"  # run steps while the flag is set; the answer is the time of the last event
    COLLECT = "collect"  # the trace, and the requests that a service answered, since the last COLLECT
    SPIN = "spin"  # CPU seconds of a short piece of fixed work
    FACTS = "facts"  # StepFacts of the workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSlot:
    """The workload, pipe and core of a worker, and whether the worker yields the core to every other process."""

    pipe_fd: int
    core: int
    yields: bool
    name: str
    rank: int = 0  # in a gang
    meeting: str = ""  # file through which the ranks of a gang find one another; "": no gang

    def to_argument(self) -> str:
        """Write the slot as a command-line argument of the process that forks the workers."""
        return json.dumps(asdict(self))


class SharedState:
    """A flag and a count of steps for each worker, in memory that the controller and the workers share."""

    def __init__(self, file: int, workers: int) -> None:
        self._cells = memoryview(mmap.mmap(file, self.size_bytes(workers))).cast("q")  # flag, steps; flag, steps; ...

    @staticmethod
    def size_bytes(workers: int) -> int:
        """Return the bytes of shared memory that a number of workers needs."""
        return 16 * workers

    def set_running(self, index: int, running: bool) -> None:
        """Let a worker's step loop go on, or make it end after its present step."""
        self._cells[2 * index] = int(running)

    def is_running(self, index: int) -> bool:
        """Return whether a worker's step loop shall go on."""
        return bool(self._cells[2 * index])

    def publish_steps(self, index: int, steps: int) -> None:
        """Tell the controller how many steps a worker has finished in all."""
        self._cells[2 * index + 1] = steps

    def steps(self, index: int) -> int:
        """Return the number of steps that a worker has finished in all."""
        return self._cells[2 * index + 1]


class WorkerHandle:
    """A worker as the controller sees it: a job, or one rank of a gang. Its loop does not run until it is started."""

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

    def let_run(self) -> None:
        """Allow the step loop to run once it is told to; of a gang, all ranks are allowed before the first is told."""
        self.shared.set_running(self.index, True)

    def ask_to_stop(self) -> None:
        """Ask the step loop to end after its present step, and return at once."""
        self.shared.set_running(self.index, False)

    @property
    def steps(self) -> int:
        """The number of steps that the loop has finished in all."""
        return self.shared.steps(self.index)

    def collect(self) -> tuple[Trace, Requests]:
        """Return the worker's trace, and the requests that it answered, since the last call."""
        trace, requests = self.ask(WorkerCommand.COLLECT)
        return np.asarray(trace), np.asarray(requests)

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


def run_loops(
    jobs: Sequence[Sequence[WorkerHandle]], counted: Sequence[Sequence[WorkerHandle]], seconds: float, *, min_steps: int
) -> tuple[float, float]:
    """Run the loops of some jobs for a while, and until each job in `counted` has made `min_steps` steps.

    A job is its ranks. Return when the loops began and ended; after `MAX_RUN_S` they end with fewer steps.
    """
    first_ranks = [ranks[0] for ranks in counted]
    workers = [rank for ranks in jobs for rank in ranks]
    steps_before = [worker.steps for worker in first_ranks]
    for worker in workers:
        worker.let_run()
    for worker in workers:
        worker.send(WorkerCommand.RUN)
    start_s = now_s = time.monotonic()
    while now_s - start_s < MAX_RUN_S:
        time.sleep(max(POLL_S, start_s + seconds - now_s))
        now_s = time.monotonic()
        steps = [worker.steps - before for worker, before in zip(first_ranks, steps_before, strict=True)]
        if now_s - start_s >= seconds and min(steps) >= min_steps:
            break
        for worker in workers:
            if worker.pipe.poll(0):  # the workload raised, or its process ended
                worker.receive()
    for worker in workers:
        worker.ask_to_stop()
    for worker in workers:
        worker.receive()
    return start_s, now_s


class Meeting:
    """The ranks of a gang, each in a worker: a process group of `torch.distributed` with the backend gloo."""

    def __init__(self, file: str, rank: int, ranks: int) -> None:
        """Find the other ranks through a file that all of them name. Blocks until they are there."""
        import torch.distributed as dist

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this machine
        timeout = timedelta(seconds=ANSWER_TIMEOUT_S)
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks, timeout=timeout)

    def agree(self, go_on: bool) -> bool:
        """Wait for all ranks, as a barrier does, and return whether all of them want to go on."""
        import torch
        import torch.distributed as dist

        votes = torch.tensor([int(go_on)])
        dist.all_reduce(votes, op=dist.ReduceOp.MIN)
        return bool(votes.item())


class Worker:
    """A workload in a process of its own, with a pipe to the controller and a place in the shared state."""

    def __init__(self, index: int, slot: "WorkerSlot", shared: SharedState) -> None:
        self.index, self.name, self.pipe, self.shared = index, slot.name, Connection(slot.pipe_fd), shared
        self.core, self.yields, self.slot = slot.core, slot.yields, slot
        self.events: list[tuple[float, float, float, float]] = []
        self.steps = 0
        self.workload: workloads.Workload | None = None
        self.step: workloads.Step | None = None
        self.memory = facts.MemoryFacts()
        self.meeting: Meeting | None = None

    def record(self, event: Event, latest_s: float = math.inf) -> None:
        """Append an event to the trace with the present time, or with `latest_s` if that was earlier."""
        now_s = min(time.monotonic(), latest_s)
        self.events.append((now_s, time.process_time(), float(self.steps), float(event)))

    def pause(self, seconds: float) -> None:
        """Wait for the seconds that the job itself requests, and record the wait.

        The rest of a longer wait counts as waiting for the core, caused by other processes.
        """
        self.record(Event.PAUSE)
        time.sleep(seconds)
        self.record(Event.RESUME, self.events[-1][0] + seconds + WAKE_UP_S)

    def build(self) -> None:
        """Make the workload resident, warm it up, and pin the process to the measured core."""
        affinity.pin_process(self.core, yields=self.yields)
        if self.step is not None:
            return
        # 1. Find and build the workload.
        if ":" in self.name:
            sys.path.append(os.getcwd())  # the user's own module; last, so that it hides nothing of ours
        self.workload = workloads.find_workload(self.name)
        if self.workload.framework == "torch":
            import torch

            torch.set_num_threads(1)
            torch.manual_seed(0)
        baseline_bytes = facts.resident_bytes()
        self.step = self.workload.build()
        # 2. Warm it up.
        start_s = time.monotonic()
        for k in range(MAX_WARM_STEPS):
            self.step(time.sleep)
            if k + 1 >= WARM_STEPS and time.monotonic() - start_s > WARM_S:
                break
        # 3. Measure its memory, and keep the garbage collector away from what stays.
        self.memory = facts.memory_facts(self.step, baseline_bytes)
        gc.collect()
        gc.freeze()
        # 4. Find the other ranks of a gang.
        if self.slot.meeting:
            self.meeting = Meeting(self.slot.meeting, self.slot.rank, self.workload.ranks)
            affinity.pin_process(self.core, yields=self.yields)  # the threads of its connections

    def goes_on(self) -> bool:
        """Return whether the controller lets the step loop go on. A rank of a gang first waits for the other ranks.

        The wait is a pause: what the rank waits for is not its own core.
        """
        running = self.shared.is_running(self.index)
        if self.meeting is None:
            return running
        self.record(Event.PAUSE)
        running = self.meeting.agree(running)
        self.record(Event.RESUME)
        return running

    def run(self) -> None:
        """Run steps of the workload until the controller clears the worker's flag, or that of another rank."""
        assert self.step is not None
        self.record(Event.START)
        orphan_checked_s = time.monotonic()
        running = self.goes_on()
        if isinstance(self.step, OpenLoop):
            self.step.restart()
        while running:
            self.step(self.pause)
            running = self.goes_on()
            self.steps += 1
            self.record(Event.STEP)
            self.shared.publish_steps(self.index, self.steps)
            now_s = self.events[-1][0]
            if now_s - orphan_checked_s > ORPHAN_CHECK_S:
                orphan_checked_s = now_s
                if self.pipe.poll(0):  # nothing is ever sent to a running worker: the pipe was closed
                    sys.exit(0)
        self.record(Event.STOP)

    def answer(self, command: WorkerCommand) -> object:
        """Execute a command of the controller and return the answer."""
        match command:
            case WorkerCommand.BUILD:
                self.build()
                return os.getpid()
            case WorkerCommand.RUN:
                self.run()
                return self.events[-1][0]
            case WorkerCommand.COLLECT:
                trace, self.events = np.array(self.events, dtype=np.float64).reshape(-1, 4), []
                answered = self.step.take_answered() if isinstance(self.step, OpenLoop) else []
                return trace, np.array(answered, dtype=np.float64).reshape(-1, len(Answered._fields))
            case WorkerCommand.SPIN:
                return affinity.spin_s()
            case WorkerCommand.FACTS:
                assert self.workload is not None
                assert self.step is not None
                return facts.step_facts(self.workload, self.step, self.memory)

    def serve(self) -> None:
        """Answer commands until the controller is gone.

        An answer is (True, result), or (False, the error that the workload raised).
        """
        while True:
            try:
                command = self.pipe.recv()
            except (EOFError, OSError):
                return
            try:
                reply: tuple[bool, object] = (True, self.answer(WorkerCommand(command)))
            except Exception as error:  # the workload is the user's code: anything may come out of it
                reply = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
            try:
                self.pipe.send(reply)
            except (BrokenPipeError, ConnectionResetError):
                return


def main(arguments: list[str]) -> NoReturn:
    """Fork a worker for each argument after the first, which describes a `WorkerSlot`, and wait for all of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's; it closes the pipes
    flags_fd, *texts = arguments
    slots = [WorkerSlot(**json.loads(text)) for text in texts]
    # 1. Import what all workers share.
    if any(workloads.needs_torch(name) for name in {slot.name for slot in slots}):
        import torch

        torch.set_num_threads(1)
    shared = SharedState(int(flags_fd), len(slots))
    gc.collect()
    gc.freeze()  # pages of the imports stay shared between the children
    # 2. Fork the workers; each keeps its own pipe alone.
    for index, slot in enumerate(slots):
        if os.fork() == 0:
            for other in slots:
                if other is not slot:
                    os.close(other.pipe_fd)
            Worker(index, slot, shared).serve()
            os._exit(0)  # no exit handlers of the user's libraries: they may hang
    # 3. Close the pipes here, so that the workers alone hold them, and wait.
    for slot in slots:
        os.close(slot.pipe_fd)
    for _ in slots:
        os.wait()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
