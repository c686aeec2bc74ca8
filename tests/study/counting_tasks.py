"""Tasks that new processes can import: what each comes to is an array and a few numbers."""

import math
import os
import time
from dataclasses import dataclass

import numpy as np

from interfere.study.engine import Document


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
