"""Looking at worker processes from outside."""

import time
from collections.abc import Sequence

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    return psutil.Process(pid).children(recursive=True)


def all_gone(processes: Sequence[psutil.Process], within_s: float = 60.0) -> bool:
    """Whether all have ended before the time is up; one that nobody has waited for has ended too."""

    def alive(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    until = time.monotonic() + within_s
    while any(map(alive, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
