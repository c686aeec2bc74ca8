"""Processor time of work in this process, for laws that compare two pieces of work in one run."""

import time
from collections.abc import Callable


def cpu_s(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the processor time of the quickest of some calls, in seconds."""
    taken_s = []
    for _ in range(repeats):
        begin_s = time.process_time()
        work()
        taken_s.append(time.process_time() - begin_s)
    return min(taken_s)
