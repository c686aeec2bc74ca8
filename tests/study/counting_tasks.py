"""Tasks that new processes can import: what each comes to is an array and a few numbers."""

import math
import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import UnfitError
from interfere.study.engine import Document, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A task."""

    up_to: int
    cap: float = math.inf


def count(inputs: int, task: Count) -> Document:
    """The numbers up to `up_to` from `inputs` on, and what JSON alone does not hold."""
    return {"numbers": np.arange(inputs, task.up_to, dtype=np.int32), "cap": task.cap, "mean": np.float64(task.up_to)}


def count_slowly(inputs: int, task: Count) -> Document:
    """The same after a while, and the process that it was done in."""
    time.sleep(0.02)
    return count(inputs, task) | {"process": os.getpid()}


def count_after_kills(marks: Path, task: Count) -> Document:
    """The same, but the first process that gets the third task is killed in it, as for want of memory."""
    if task.up_to == 3 and not (mark := marks / "killed").exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return count(0, task)


def work_after_a_kill(inputs: tuple[Work[Any, Any], Any, Path], task: Any) -> Document:
    """Any other work on its inputs, but the process that begins the fourth task is killed in it."""
    work, its_inputs, marks = inputs
    (marks / f"begun-{secrets.token_hex(8)}").touch()
    if len([*marks.glob("begun-*")]) >= 4:
        with suppress(FileExistsError):
            (marks / "killed").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return work(its_inputs, task)


def count_never(_: int, task: Count) -> Document:
    """Kills whatever runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def refuse(_: int, task: Count) -> Document:
    """Raises what a task may raise."""
    raise UnfitError("too few rows", value=task.up_to, remedy="measure more")


def count_until_told(marks: Path, task: Count) -> Document:
    """Waits for a file; says by another one that it is at work."""
    (marks / f"at-work-{task.up_to}").touch()
    while not (marks / "go").exists():
        time.sleep(0.01)
    return count(0, task)
