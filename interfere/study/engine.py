"""Runs independent tasks on an engine, tells progress and the time left, and keeps every result.

A task is a frozen dataclass of plain values. A function of a module makes a document (JSON values and NumPy arrays) of
the inputs, which all tasks share, and one task. Replays of traces and folds of a cross-validation are such tasks.
An engine takes function, inputs and tasks, and yields results in any order: `interfere/study/engines` has those for
several processes and for clusters.

Results are saved in a folder, from which an interrupted run goes on, one file for each process that writes there. A
file is JSON lines: the first names the format and the checksum of what results depend on, every other line is a result.

Laws: results do not depend on the engine; a result is counted and kept, or neither, also when interrupted; a process
appends to its own file and writes no other, so that two on one folder lose nothing of each other; results of other
inputs are never mixed in; a line that was not written to its end is run again.
"""

import base64
import json
import os
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import numpy as np

from interfere.errors import InvalidInputError, UnfitError
from interfere.time_left import TimeLeft

Document = dict[str, Any]
Report = Callable[[str], None]
Inputs = TypeVar("Inputs")
Task = TypeVar("Task")
Work = Callable[[Inputs, Task], Document]
"""Pure, and a function of a module, so that another process finds it by its name."""
Engine = Callable[[Work[Any, Any], Any, Sequence[Any]], Iterator[tuple[Any, Document]]]
"""(work, inputs, tasks) -> (task, document) of each, in any order."""

TELL_EVERY_S = 10.0  # within one task
FORMAT = 3
PATTERN = "*.jsonl"
ARRAY = "array"  # key of an array in a document: its data type, shape and compressed bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResults(Generic[Task]):
    """The results of tasks, in the order in which the tasks were given. An interrupted run holds the finished tasks
    only."""

    documents: dict[Task, Document]
    tasks: int  # that were asked for
    resumed: int = 0  # results that an earlier run had saved
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs tasks: with an engine, a folder for the results, and a function that is called with progress reports."""

    engine: Engine | None = None  # None: in this process
    folder: Path | None = None  # None: results are not kept
    report: Report | None = None
    clock: TimeLeft | None = None  # of a larger work, which expects these tasks as of the kind that the function names
    _used: set[Path] = field(default_factory=set)  # folders that this runner and those inside it have kept results in

    def inside(self, name: str) -> "Runner":
        """Return a runner that keeps its results in the folder of this name inside the folder of this runner."""
        return self if self.folder is None else replace(self, folder=self.folder / name)

    def say(self, text: str) -> None:
        """Report a line about the progress of all tasks."""
        if self.report is not None:
            self.report(text)

    def run(
        self,
        work: Work[Inputs, Task],
        inputs: Inputs,
        tasks: Iterable[Task],
        *,
        digest: Callable[[], str],
        describe: Callable[[Task, Document], str],
    ) -> TaskResults[Task]:
        """Run the tasks without a saved result, each once, and save every result as soon as it is computed.

        `digest`: checksum of the inputs. `describe`: returns one line about a result. An interrupt from the keyboard
        ends the run with the results so far; without any results, it is raised.
        """
        wanted = list(dict.fromkeys(tasks))
        saved = None
        if self.folder is not None:
            saved = SavedResults(self.folder, f"{work.__module__} {digest()}")
            self._used.add(self.folder)
        known = {} if saved is None else saved.documents()
        documents = {task: known[repr(task)] for task in wanted if repr(task) in known}
        resumed = len(documents)
        progress = _Progress(work.__name__, len(wanted), resumed, self)
        interrupted = False
        engine = self.engine or in_this_process
        try:
            with _telling(progress.within):
                for task, document in engine(work, inputs, [task for task in wanted if task not in documents]):
                    with _interrupt_held_back():
                        documents[task] = document
                        if saved is not None:
                            saved.add(repr(task), document)
                    progress.ended(describe(task, document))
        except KeyboardInterrupt:
            if not documents:
                raise
            interrupted = True
        in_order = {task: documents[task] for task in wanted if task in documents}
        return TaskResults(documents=in_order, tasks=len(wanted), resumed=resumed, interrupted=interrupted)

    def delete_results(self) -> None:
        """Delete the saved results of this runner, once all tasks have succeeded."""
        folders = self._used if self.folder is None else {*self._used, self.folder}
        for folder in sorted(folders, reverse=True):  # inner ones first: their parent is empty then
            delete_results(folder)
        self._used.clear()


def in_this_process(work: Work[Inputs, Task], inputs: Inputs, tasks: Sequence[Task]) -> Iterator[tuple[Task, Document]]:
    """Provide an engine that runs one task after the other in this process."""
    for task in tasks:
        yield task, work(inputs, task)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Delay an interrupt from the keyboard until the end of the block, so that a result is counted and saved, or
    neither."""
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


# --- progress ---------------------------------------------------------------------------------------------------------


class _Progress:
    """Counts finished tasks, and reports the remaining time after each."""

    def __init__(self, kind: str, total: int, resumed: int, runner: Runner) -> None:
        self._kind, self._total, self._done, self._runner = kind, total, resumed, runner
        self._clock = runner.clock or TimeLeft(runner.say, every_s=0.0)
        # A caller that passes a clock has already declared all tasks to it, including resumed ones.
        self._clock.expect(kind, -resumed if runner.clock else total - resumed)
        self._told_s = time.monotonic()
        if resumed:
            runner.say(f"{resumed} of {total} were done before, in {runner.folder}")

    def ended(self, description: str) -> None:
        """Count a finished task, and report the remaining time."""
        self._done += 1
        self._told_s = time.monotonic()
        self._clock.finish(self._kind, f"{self._done} of {self._total}: {description}")

    def within(self, text: str) -> None:
        """Report the progress inside a task, at most every `TELL_EVERY_S` seconds."""
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._runner.say(text)


_tell: list[Report] = []  # of the run that goes on in this process


@contextmanager
def _telling(report: Report) -> Iterator[None]:
    _tell.append(report)
    try:
        yield
    finally:
        _tell.pop()


def tell(text: str) -> None:
    """Report the progress inside the running task. Reports are thinned out, and a process of a pool makes none."""
    if _tell:
        _tell[-1](text)


# --- saved results ----------------------------------------------------------------------------------------------------


class SavedResults:
    """Reads what every process has saved in a folder, and appends to a file of this process."""

    def __init__(self, folder: Path, digest: str) -> None:
        """Read the folder. Raises InvalidInputError where it holds results of other inputs, UnfitError where it cannot
        be written."""
        self._folder, self._head = folder, json.dumps({"format": FORMAT, "digest": digest})
        self._path = folder / f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}.jsonl"  # of this process
        self._documents: dict[str, dict[str, Any]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob(PATTERN)):
                self._read(path)
        except OSError as error:
            raise _unwritable(folder, error) from None
        if not os.access(folder, os.W_OK):
            raise _unwritable(folder, "no right to write")

    def _read(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and _parsed(lines[0]) is not None and lines[0] != self._head:
            raise InvalidInputError(
                "the folder holds results of other inputs, of another seed or of another version",
                value=str(path),
                remedy="give another folder, or delete this one to begin anew",
            )
        for line in lines[1:]:
            if (entry := _parsed(line)) is not None and "task" in entry:
                self._documents[entry["task"]] = entry["document"]

    def documents(self) -> Mapping[str, dict[str, Any]]:
        """Return the saved documents by the text of their tasks, from all processes that had saved any when the folder
        was opened."""
        return self._documents

    def add(self, task: str, document: Mapping[str, Any]) -> None:
        """Append one result. Raises UnfitError where the file cannot be written."""
        line = json.dumps({"task": task, "document": document}, default=_encoded)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n" if file.tell() else f"{self._head}\n{line}\n")
        except OSError as error:
            raise _unwritable(self._folder, error) from None


def delete_results(folder: Path) -> None:
    """Delete the results that all processes have saved in a folder, and the folder where nothing else is in it."""
    for path in folder.glob(PATTERN):
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _unwritable(folder: Path, error: object) -> UnfitError:
    return UnfitError(f"results cannot be kept ({error})", value=str(folder), remedy="give another folder")


def _parsed(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line; None where the line was not written to its end."""
    try:
        entry = json.loads(line, object_hook=_decoded)
    except (ValueError, TypeError, zlib.error):
        return None
    return entry if isinstance(entry, dict) else None


def _encoded(value: object) -> Any:
    """Return the JSON form of an array (data type, shape, compressed bytes) or of a NumPy number."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} cannot be saved")
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes())).decode("ascii")
    return {ARRAY: [value.dtype.str, value.shape, packed]}


def _decoded(entry: dict[str, Any]) -> Any:
    """Return the inverse of `_encoded` for arrays, and any other object unchanged."""
    if entry.keys() != {ARRAY}:
        return entry
    dtype, shape, packed = entry[ARRAY]
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=dtype).reshape(shape).copy()
