"""All processes below this one: take in orphans, sample what they use, end every one of them.

Laws: a descendant that was orphaned stays a descendant (child subreaper), whatever sessions and groups it made; CPU
time of those that ended is not lost, whoever waited for them; after `end` returns an empty list there is none left.
What another program's daemon starts on a command's behalf (docker run, srun, systemd-run) is no descendant: its client
is, and is asked to end like everyone.
"""

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
KILL_S = 10.0  # after SIGKILL only a process stuck in the kernel is still there
LISTED = 32  # processes that a sample describes one by one: the ones with the most CPU time
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process at one moment."""

    pid: int
    name: str
    cpu_s: float
    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """All descendants at one moment."""

    monotonic_s: float
    cpu_s: float  # of all that ever lived
    private_bytes: int  # resident pages that are no file's and no shared memory; after a fork they count for both
    core_busy_s: float | None  # of the measured core, whoever used it
    count: int
    strayed: int  # processes that may run on other cores than the measured one
    processes: tuple[ProcessSample, ...]


def take_in_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is killed: for the case that nobody is left to do it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """All processes below this one, those that ended and were not waited for included."""
    return psutil.Process().children(recursive=True)


def reap() -> dict[int, int]:
    """Exit status by process id of every child that has ended, waited for now."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def sample(core: int | None, *, listed: bool) -> TreeSample:
    """What the tree uses now; each process by itself where `listed`."""
    now = time.monotonic()
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s, private, strayed = waited.ru_utime + waited.ru_stime, 0, 0
    rows, below = [], descendants()
    for process in below:
        with contextlib.suppress(psutil.Error, ProcessLookupError), process.oneshot():  # it may end meanwhile
            times, memory = process.cpu_times(), process.memory_info()
            own_s = times.user + times.system
            cpu_s += own_s + times.children_user + times.children_system
            private += max(0, memory.rss - memory.shared)
            if core is not None and os.sched_getaffinity(process.pid) - {core}:
                strayed += process.status() != psutil.STATUS_ZOMBIE
            if listed:
                row = ProcessSample(
                    pid=process.pid,
                    name=process.name(),
                    cpu_s=round(own_s, 2),
                    rss_bytes=memory.rss,
                    threads=process.num_threads(),
                )
                rows.append(row)
    rows.sort(key=lambda row: -row.cpu_s)
    return TreeSample(
        monotonic_s=now,
        cpu_s=cpu_s,
        private_bytes=private,
        core_busy_s=None if core is None else core_busy_s(core),
        count=len(below),
        strayed=strayed,
        processes=tuple(rows[:LISTED]),
    )


def core_busy_s(core: int) -> float | None:
    """Seconds since boot in which one core was not idle, as the kernel accounts it; None where it does not say."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith(f"cpu{core} "):
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
                return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
    return None


def end(grace_s: float, meanwhile: Callable[[], None]) -> list[int]:
    """End every descendant: SIGTERM, `grace_s`, SIGKILL. The process ids of those that are still there."""
    asked: set[psutil.Process] = set()
    until = time.monotonic() + grace_s
    while (below := descendants()) and time.monotonic() < until:
        for process in set(below) - asked:
            with contextlib.suppress(psutil.Error):
                process.terminate()
                process.resume()  # a stopped process hears no SIGTERM
        asked.update(below)
        meanwhile()
        reap()
        time.sleep(0.01)
    until = time.monotonic() + KILL_S
    while below := descendants():
        if time.monotonic() > until:
            return [process.pid for process in below]
        for process in below:
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                group = os.getpgid(process.pid)
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)  # at one stroke: no fork slips away between two kills
                process.kill()
        meanwhile()
        reap()
    return []
