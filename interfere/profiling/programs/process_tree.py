"""Processes as /proc describes them: parents, owners, start times, memory. Standard library only.

A process that ends while it is looked at has no owner, no start time and no memory; nothing here raises for it.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


class ProcessTable:
    """The parents of all processes at one moment."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._children: dict[int, list[int]] = {}
        for name in os.listdir(proc):
            if name.isdecimal() and (fields := _stat_fields(int(name), proc)):
                self._children.setdefault(int(fields[1]), []).append(int(name))

    def descendants(self, pid: int) -> tuple[int, ...]:
        """Return the ids of all processes below one, which is not counted itself."""
        found: list[int] = []
        ahead = [pid]
        while ahead:
            children = self._children.get(ahead.pop(), [])
            found += children
            ahead += children
        return tuple(found)

    def private_bytes(self, pids: Iterable[int]) -> float:
        """Return the resident bytes of no file and no shared memory of some processes. One that has ended holds
        none."""
        pages = 0
        for pid in pids:
            try:
                _, resident, shared, *_ = map(int, (self._proc / str(pid) / "statm").read_text().split())
            except (OSError, ValueError):
                continue
            pages += max(0, resident - shared)
        return float(pages * PAGE_BYTES)


def _stat_fields(pid: int, proc: Path = PROC) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, see proc(5): 1 is the parent, 19 the start time in ticks.

    Empty where the process has ended. The name before them may hold spaces and parentheses.
    """
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> str:
    """Return the start time of a process in ticks since boot; empty where it has ended.

    With the process id it names one process for ever.
    """
    fields = _stat_fields(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def owner(pid: int) -> int:
    """Return the id of the user of a process; -1 where it has ended."""
    try:
        return os.stat(PROC / str(pid)).st_uid
    except OSError:
        return -1


def all_pids() -> Iterator[int]:
    """Return the ids of all processes."""
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())
