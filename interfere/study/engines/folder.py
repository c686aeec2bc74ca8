"""Runs tasks on whatever machines share a folder: `interfere work FOLDER` on each, under any batch system.

The coordinator writes one batch of tasks into a folder of its own inside the shared folder. A worker claims a task by
renaming its file, which one of several workers can do, and stores the result by renaming a finished file into place.
A worker renews its claim while it computes. The coordinator gives a claim that nobody renews back to the others.

Laws: a lost worker loses nothing, its task is run again; a task of which several workers were lost is an error rather
than an endless loop; clocks of different machines are never compared, only whether a file changed during a time on
one's own clock; work of another version of interfere is refused.

Tasks and results are pickles: whoever can write to the folder runs code as the user of the workers. A folder that
others may write to is refused.
"""

import json
import os
import pickle
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from interfere import __version__
from interfere.errors import UnavailableError, UnfitError
from interfere.study.engine import Document, Work, tell

LEASE_S = 60.0  # a claim or a coordinator that renews nothing for so long counts as lost
RENEWALS = 6  # within a lease: five may come late
POLL_S = 0.2  # between looks into the folder; a listing of a network file system takes milliseconds
MAX_LOST = 3  # workers that may be lost at one task
TODO, CLAIMED, DONE = "todo", "claimed", "done"  # folders of a batch; a task is in one of the first two
HEAD, ALIVE, SHARED = "batch.json", "alive", "shared.pickle"  # files of a batch


def in_folder(
    folder: Path, *, lease_s: float = LEASE_S
) -> Callable[[Work[Any, Any], Any, Sequence[Any]], Iterator[tuple[Any, Document]]]:
    """Provide an engine whose tasks are run by the workers of a folder. It waits for them as long as it takes.

    Raises UnfitError for a folder that others may write to, UnavailableError for a task at which `MAX_LOST` workers
    were lost, and what a task raises.
    """

    def run(work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        if not tasks:
            return
        batch = _written_batch(folder, work, inputs, tasks)
        try:
            with _renewed([batch / ALIVE], lease_s):
                yield from _results(batch, tasks, lease_s)
        finally:
            shutil.rmtree(batch, ignore_errors=True)

    return run


def require_private(folder: Path) -> None:
    """Make the folder, for its user alone, where there is none. Raises UnfitError where others may write to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = folder.stat().st_mode
    except OSError as error:
        raise UnfitError(
            f"the folder of tasks cannot be used ({error.strerror or error})", value=folder, remedy="give another one"
        ) from None
    if mode & 0o022:
        raise UnfitError(
            "others may write to the folder of tasks, whose content workers execute",
            value=folder,
            remedy=f"chmod go-w {folder}, or give a new folder inside it",
        )


def _written_batch(folder: Path, work: Work[Any, Any], inputs: Any, tasks: Sequence[Any]) -> Path:
    """Write a batch and return its folder. Workers see it once it is whole."""
    require_private(folder)
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    scratch, batch = folder / f".{name}", folder / name
    for part in (TODO, CLAIMED, DONE):
        (scratch / part).mkdir(parents=True)
    (scratch / SHARED).write_bytes(pickle.dumps((work, inputs, tuple(tasks))))
    (scratch / HEAD).write_text(json.dumps({"version": __version__, "work": f"{work.__module__}.{work.__qualname__}"}))
    (scratch / ALIVE).touch()
    for k in range(len(tasks)):
        (scratch / TODO / f"{k:06d}.0").touch()
    scratch.rename(batch)
    return batch


def _results(batch: Path, tasks: Sequence[Any], lease_s: float) -> Iterator[tuple[Any, Document]]:
    """Yield every task with its result as workers finish them; give lost claims back meanwhile."""
    missing, watch = set(range(len(tasks))), _Watch()
    while missing:
        finished = [
            int(path.name) for path in _listed(batch / DONE) if path.name.isdigit() and int(path.name) in missing
        ]
        for k in sorted(finished):
            failure, document = pickle.loads((batch / DONE / f"{k:06d}").read_bytes())  # noqa: S301 - see the module
            if failure is not None:
                raise failure
            missing.discard(k)
            yield tasks[k], document
        _return_lost_claims(batch, missing, watch, lease_s)
        if not finished:
            claimed = len(_listed(batch / CLAIMED))
            tell(
                f"{claimed} tasks at work, {len(missing)} to do"
                + ("" if claimed else f": interfere work {batch.parent}")
            )
            time.sleep(POLL_S)


def _return_lost_claims(batch: Path, missing: set[int], watch: "_Watch", lease_s: float) -> None:
    for claim in _listed(batch / CLAIMED):
        if watch.unchanged_s(claim) <= lease_s:
            continue
        task, lost = claim.name.split(".")[:2]
        if int(task) in missing and int(lost) + 1 >= MAX_LOST:
            raise UnavailableError(
                f"{MAX_LOST} workers were lost at one task",
                value=f"task {int(task)} of {batch}, the last: {claim.name.split('.', 2)[2]}",
                remedy="look into the logs of the workers (memory?), then run it again: finished tasks are kept",
            )
        with suppress(FileNotFoundError):  # its worker came back and finished
            claim.rename(batch / TODO / f"{task}.{int(lost) + 1}")


def _listed(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their names; none where the folder is gone."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


@dataclass(frozen=True, slots=True)
class _Watch:
    """Knows for how long files have not changed, by the clock of this process alone."""

    _seen: dict[Path, tuple[int, float]] = field(default_factory=dict)  # modification time, when that was first seen

    def unchanged_s(self, path: Path) -> float:
        try:
            changed = path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0.0
        now_s = time.monotonic()
        if self._seen.get(path, (None, 0.0))[0] != changed:
            self._seen[path] = changed, now_s
        return now_s - self._seen[path][1]


@contextmanager
def _renewed(paths: Sequence[Path], lease_s: float) -> Iterator[None]:
    """Renew files from a thread for the duration of the block."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(lease_s / RENEWALS):
            for path in paths:
                with suppress(OSError):
                    os.utime(path)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- workers ----------------------------------------------------------------------------------------------------------


def work_in_folder(
    folder: Path,
    *,
    idle_s: float,
    report: Callable[[str], None] = lambda _: None,
    lease_s: float = LEASE_S,
) -> int:
    """Run tasks of all batches in a folder until there have been none for `idle_s`; return how many were run.

    SIGTERM, as batch systems send it before they kill, gives the task at hand back. Raises UnfitError as `in_folder`.
    """
    require_private(folder)
    watch, refused, run = _Watch(), set[Path](), 0
    shared: tuple[Path, Any] | None = None  # the batch at hand with its function, inputs and tasks
    idle_since_s = time.monotonic()
    with _ended_by_sigterm():
        while time.monotonic() - idle_since_s < idle_s:
            claim = _claimed(folder, watch, refused, report, lease_s)
            if claim is None:
                time.sleep(min(POLL_S, idle_s))
                continue
            batch = claim.parent.parent
            if shared is None or shared[0] != batch:
                shared = batch, pickle.loads((batch / SHARED).read_bytes())  # noqa: S301 - see the module
            _run_claim(claim, shared[1], lease_s)
            run += 1
            report(f"task {int(claim.name.split('.')[0])} of {batch.name} is done")
            idle_since_s = time.monotonic()
    return run


def _claimed(
    folder: Path, watch: _Watch, refused: set[Path], report: Callable[[str], None], lease_s: float
) -> Path | None:
    """Claim a task of the oldest batch with open tasks and a living coordinator; None where there is no such task."""
    for batch in _listed(folder):
        if batch.name.startswith(".") or batch in refused or watch.unchanged_s(batch / ALIVE) > lease_s:
            continue
        waiting = _listed(batch / TODO)
        if waiting and (version := json.loads((batch / HEAD).read_text())["version"]) != __version__:
            report(f"{batch.name} is left out: it is of interfere {version}, and this is {__version__}")
            refused.add(batch)
            continue
        for task in waiting:
            claim = batch / CLAIMED / f"{task.name}.{socket.gethostname()}-{os.getpid()}"
            try:
                task.rename(claim)
                os.utime(claim)
            except FileNotFoundError:  # another worker was first
                continue
            return claim
    return None


def _run_claim(claim: Path, shared: tuple[Work[Any, Any], Any, Sequence[Any]], lease_s: float) -> None:
    """Run a claimed task and store its result, or the error that it raised."""
    (work, inputs, tasks), batch, name = shared, claim.parent.parent, claim.name.split(".")[0]
    try:
        with _renewed([claim], lease_s):
            try:
                outcome = pickle.dumps((None, work(inputs, tasks[int(name)])))
            except Exception as error:
                outcome = _pickled_failure(error)
    except BaseException:  # SIGTERM, Ctrl-C: somebody else may run it
        with suppress(OSError):
            claim.rename(batch / TODO / ".".join(claim.name.split(".")[:2]))
        raise
    scratch = batch / DONE / f"{claim.name}.part"
    with suppress(FileNotFoundError):  # the coordinator is gone, or did without this worker
        scratch.write_bytes(outcome)
        scratch.rename(batch / DONE / name)
        claim.unlink()


def _pickled_failure(error: Exception) -> bytes:
    """Return an error as the outcome of a task; one that cannot be sent is sent as text."""
    try:
        sent = pickle.dumps((error, None))
        pickle.loads(sent)  # noqa: S301 - our own bytes
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None))
    return sent


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
