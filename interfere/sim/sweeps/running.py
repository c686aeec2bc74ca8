"""Runs the tasks of a sweep on an engine, tells progress and the time left, and keeps what is done when interrupted.

An engine takes the inputs and tasks and yields results in any order: one process, several of this machine, or, by the
same signature, an engine of a cluster.
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from interfere.sim.study_runs import format_time_left
from interfere.sim.sweeps.saved_results import SavedResults
from interfere.sim.sweeps.tasks import SweepInputs, SweepResult, SweepTask, run_task

Engine = Callable[[SweepInputs, Sequence[SweepTask]], Iterator[SweepResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """The results in the order of the tasks; of an interrupted sweep those that were done."""

    results: tuple[SweepResult, ...]
    tasks: int  # that were asked for
    resumed: int = 0  # results that an earlier run had saved
    interrupted: bool = False


def in_this_process(inputs: SweepInputs, tasks: Sequence[SweepTask]) -> Iterator[SweepResult]:
    """One task after the other."""
    for task in tasks:
        yield run_task(inputs, task)


def in_processes(workers: int) -> Engine:
    """An engine of several processes of this machine; leaving it early ends them."""

    def run(inputs: SweepInputs, tasks: Sequence[SweepTask]) -> Iterator[SweepResult]:
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(max_workers=workers, initializer=_receive, initargs=(inputs,))
        try:
            for future in as_completed([pool.submit(_run_received, task) for task in tasks]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise
        pool.shutdown()

    return run


_received: list[SweepInputs] = []  # in a process of the pool: the inputs of all its tasks


def _receive(inputs: SweepInputs) -> None:
    """Keep the inputs of all tasks; an interrupt from the keyboard is left to the parent, which ends this process."""
    _received[:] = [inputs]
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_received(task: SweepTask) -> SweepResult:
    return run_task(_received[0], task)


def run_sweep(
    inputs: SweepInputs,
    tasks: Iterable[SweepTask],
    *,
    engine: Engine = in_this_process,
    folder: Path | None = None,
    report: Callable[[str], None] | None = None,
) -> SweepRun:
    """Run the tasks that `folder` does not hold yet, each once, and keep every result there as soon as it is known.

    An interrupt from the keyboard ends the sweep with the results so far; it is raised where there are none.
    """
    wanted = list(dict.fromkeys(tasks))
    saved = SavedResults(folder, inputs.digest()) if folder is not None else None
    results = {result.task: result for result in (saved.of(wanted) if saved is not None else ())}
    resumed = len(results)
    left = [task for task in wanted if task not in results]
    if report is not None and resumed:
        report(f"{resumed} of {len(wanted)} replays were done before, in {folder}")
    started_s, interrupted = time.perf_counter(), False
    try:
        for result in engine(inputs, left):
            with _interrupt_held_back():
                results[result.task] = result
                if saved is not None:
                    saved.add(result)
            if report is not None:
                each_s = (time.perf_counter() - started_s) / (len(results) - resumed)
                report(_progress(result, len(results), len(wanted), each_s))
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    done = tuple(results[task] for task in wanted if task in results)
    return SweepRun(results=done, tasks=len(wanted), resumed=resumed, interrupted=interrupted)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Let an interrupt from the keyboard wait until the block is over: a result is counted and kept, or neither."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no interrupt is raised here
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        handler(*came[0])


def _progress(result: SweepResult, done: int, total: int, each_s: float) -> str:
    left = f", {format_time_left(each_s * (total - done))}" if done < total else ""
    return (
        f"{done} of {total}: {result.world} load {result.load:.2f} {result.task.policy}: mean completion "
        f"{result.mean_completion_s:,.0f} s, {result.cpu_s:.1f} s of CPU{left}"
    )
