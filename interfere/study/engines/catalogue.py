"""Where tasks run: in this process, in several of this machine, on workers of a shared folder, on Ray or on Dask.

An engine is named `NAME` or `NAME:ADDRESS`; other packages register theirs, or are named `package:function`.
Law: every engine gives equal results, since a task is a pure function of its inputs, and a task whose worker was lost
is run again.
"""

import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, UnavailableError, UnfitError
from interfere.extensions import ExtensionKind, find_extension
from interfere.installation import install_line
from interfere.study.engine import Document, Engine, Work, in_this_process
from interfere.study.engines.folder import in_folder

RETRIES = 3  # of a task whose worker was lost; a task that raises is not tried again


def engine_of(workers: int, name: str = "") -> Engine:
    """Return the engine of this name; "" is `processes`: `workers` processes of this machine, or this one for 1.

    Raises InvalidInputError for an unknown name or one that lacks its address, UnfitError for one that cannot be
    loaded.
    """
    kind, _, address = name.partition(":")
    if kind in ("", "processes"):
        return in_this_process if workers == 1 else in_processes(workers)
    if kind == "folder":
        if not address:
            raise InvalidInputError("the engine needs a folder", value=name, remedy="folder:PATH")
        return in_folder(Path(address))
    if kind in CLUSTERS:
        return CLUSTERS[kind](address, workers)
    engine: Engine = find_extension(ExtensionKind.ENGINE, name, ("processes", "folder:PATH", *CLUSTERS))
    return engine


# --- processes of this machine ----------------------------------------------------------------------------------------


def in_processes(workers: int) -> Engine:
    """Provide an engine of several new processes of this machine, which end when the context is left.

    The processes get the inputs once. They are started afresh, not forked, because numerical libraries with threads do
    not survive a fork. Where one is killed, the unfinished tasks begin again in new ones. Raises UnavailableError where
    that happens more than `RETRIES` times.
    """

    def run(work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        unfinished = dict.fromkeys(tasks)
        for _ in range(1 + RETRIES):
            try:
                for task, document in _in_pool(workers, work, inputs, tuple(unfinished)):
                    del unfinished[task]
                    yield task, document
            except BrokenProcessPool:
                continue
            return
        raise UnavailableError(
            f"{1 + RETRIES} processes were killed",
            value=f"{len(unfinished)} tasks are not done",
            remedy="look for what kills them (memory?), then run it again: finished tasks are kept",
        )

    return run


def _in_pool(workers: int, work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
    """Run the tasks in one pool of processes. Raises BrokenProcessPool where one of them is killed."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        max_workers=workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_receive,
        initargs=(work, inputs),
    )
    try:
        futures: dict[Future[Document], Any] = {pool.submit(_run_received, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    pool.shutdown()


_received: list[tuple[Work[Any, Any], Any]] = []  # in a process of a pool: the function and the inputs of all its tasks


def _receive(work: Work[Any, Any], inputs: Any) -> None:
    """Store the inputs that all tasks share. An interrupt from the keyboard is left to the parent, which ends this
    process."""
    _received[:] = [(work, inputs)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_received(task: Any) -> Document:
    work, inputs = _received[0]
    return work(inputs, task)


# --- clusters ---------------------------------------------------------------------------------------------------------


def on_ray(address: str, workers: int) -> Engine:
    """Provide an engine on the Ray cluster at an address, by default on a new local one with `workers` CPUs."""
    ray = _library("ray", "ray")

    def run(work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        mine = not ray.is_initialized()
        if mine:
            ray.init(address or "local", log_to_driver=False, **({} if address else {"num_cpus": workers}))
        try:
            shared, remote = ray.put(inputs), ray.remote(max_retries=RETRIES)(work)
            futures = {remote.remote(shared, task): task for task in tasks}
            while futures:
                (done,), _ = ray.wait(list(futures), num_returns=1)
                try:
                    yield futures.pop(done), ray.get(done)
                except ray.exceptions.RayTaskError as error:  # what the task raised, as any other engine raises it
                    raise error.cause from None
        finally:
            if mine:
                ray.shutdown()

    return _reaching(run, address, (ConnectionError, ray.exceptions.RaySystemError))


def on_dask(address: str, workers: int) -> Engine:
    """Provide an engine on the Dask scheduler at an address, by default on a new local cluster of `workers`
    processes."""
    distributed = _library("distributed", "dask")

    def run(work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        local = {} if address else {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.Client(address or None, **local) as client:
            shared = client.submit(_unchanged, inputs, pure=False)  # as a task: lost with its workers, it runs again
            futures = {client.submit(work, shared, task, pure=False): task for task in tasks}
            for future in distributed.as_completed(futures):
                yield futures[future], future.result()

    return _reaching(run, address, (OSError, TimeoutError))


def _unchanged(inputs: Any) -> Any:
    return inputs


CLUSTERS: dict[str, Callable[[str, int], Engine]] = {"ray": on_ray, "dask": on_dask}


def _library(name: str, extra: str) -> Any:
    """Return an imported library. Raises UnfitError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnfitError(f"the engine needs {name}", value=error, remedy=install_line(extra)) from None


def _reaching(engine: Engine, address: str, lost: tuple[type[Exception], ...]) -> Engine:
    """Return the engine with an UnavailableError where the cluster cannot be reached or is lost."""

    def run(work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        try:
            yield from engine(work, inputs, tasks)
        except lost as error:
            raise UnavailableError(
                f"the cluster does not answer ({type(error).__name__}: {str(error)[:200]})",
                value=address or "a local one",
                remedy="start it, correct the address, then run it again: finished tasks are kept",
            ) from None

    return run
