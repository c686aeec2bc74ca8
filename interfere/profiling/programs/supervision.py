"""What the supervisor of a command works with: the processes below it, a log of bounded size, and a counter of steps.

Processes: orphans are adopted, what all processes below this one use is sampled, and every one of them is ended.
Laws: a descendant whose parent ended stays a descendant (child subreaper), whatever sessions and process groups it
makes; the CPU time of processes that ended is not lost, whoever waited for them; when `end_descendants` returns an
empty list, none is left. What the daemon of another program starts on a command's behalf (docker run, srun,
systemd-run) is no descendant: its client is, and is asked to end like every other process.

Output: what a command prints goes into a log, and steps are counted in it by a regular expression. Law: however much is
printed, the head and the tail stay, and the log says how many bytes between them were dropped; the head is on disk at
once.
"""

import contextlib
import ctypes
import os
import re
import resource
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
KILL_S = 10.0  # after SIGKILL only a process that hangs in the kernel is still there
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """The resource use of all descendants at one moment: a line of `samples.jsonl`."""

    monotonic_s: float
    cpu_s: float  # of all that ever lived
    wait_s: float | None  # for a core, of the threads that live; None where the kernel does not say
    private_bytes: int  # resident pages of no file and no shared memory; after a fork they count for both processes
    core_busy_s: float | None  # of the measured core, whoever used it
    count: int
    strayed: int  # processes that may run on other cores than the measured one


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, even if the parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """Return all processes below this one, ended but unreaped ones included."""
    return psutil.Process().children(recursive=True)


def reap_children() -> dict[int, int]:
    """Wait for every child that has ended. Return exit status by process id."""
    exit_codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_codes
        if not pid:
            return exit_codes
        exit_codes[pid] = os.waitstatus_to_exitcode(status)


def sample_tree(core: int | None) -> TreeSample:
    """Return the present resource use of the descendants. `core` is the core to which they are pinned; None: they are
    not pinned."""
    now_s = time.monotonic()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s, private_bytes, strayed = ended.ru_utime + ended.ru_stime, 0, 0
    wait_s: float | None = 0.0
    processes = descendants()
    for process in processes:
        with contextlib.suppress(psutil.Error, ProcessLookupError), process.oneshot():  # it may end meanwhile
            times, memory = process.cpu_times(), process.memory_info()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            private_bytes += max(0, memory.rss - memory.shared)
            own_wait_s = wait_for_core_s(process.pid)
            wait_s = None if wait_s is None or own_wait_s is None else wait_s + own_wait_s
            if core is not None and os.sched_getaffinity(process.pid) - {core}:
                strayed += process.status() != psutil.STATUS_ZOMBIE
    return TreeSample(
        monotonic_s=now_s,
        cpu_s=cpu_s,
        wait_s=wait_s,
        private_bytes=private_bytes,
        core_busy_s=None if core is None else core_busy_s(core),
        count=len(processes),
        strayed=strayed,
    )


def wait_for_core_s(pid: int) -> float | None:
    """Return the seconds that the threads of a process have waited for a core while they could run.

    The source is schedstat, see proc(5). None where the kernel does not provide it.
    """
    total_ns = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total_ns += int(file.read().split()[1])
    except (ProcessLookupError, FileNotFoundError):  # it ended meanwhile; what it waited before is in earlier samples
        return 0.0 if os.path.exists("/proc/self/schedstat") else None
    except (OSError, ValueError, IndexError):
        return None
    return total_ns * 1e-9


def core_busy_s(core: int) -> float | None:
    """Return the seconds since boot in which one core was not idle, by the kernel's accounting; None where it is
    unknown."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith(f"cpu{core} "):
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
                return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
    return None


def end_descendants(grace_s: float, meanwhile: Callable[[], None]) -> list[int]:
    """End every descendant: SIGTERM, a wait of `grace_s` seconds, SIGKILL. Returns the ids of processes that still
    exist.

    `meanwhile` is called repeatedly, so that the caller can read the output of the processes while they end.
    """
    # 1. Ask each process once, and wait for all.
    asked: set[psutil.Process] = set()
    deadline_s = time.monotonic() + grace_s
    while (processes := descendants()) and time.monotonic() < deadline_s:
        for process in set(processes) - asked:
            with contextlib.suppress(psutil.Error):
                process.terminate()
                process.resume()  # a stopped process does not receive SIGTERM
        asked.update(processes)
        meanwhile()
        reap_children()
        time.sleep(POLL_S)
    # 2. Kill until none is left.
    deadline_s = time.monotonic() + KILL_S
    while processes := descendants():
        if time.monotonic() > deadline_s:
            return [process.pid for process in processes]
        for process in processes:
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                group = os.getpgid(process.pid)
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)  # the group at once: no fork escapes between two kills
                process.kill()
        meanwhile()
        reap_children()
    return []


# --- output ----------------------------------------------------------------------------------------------------------

HEAD_BYTES = TAIL_BYTES = 256 << 10  # each about 3,000 lines: start-up and its warnings, and what went wrong at the end
LINE_BYTES = 4 << 10  # of a line that is searched: a step's line is shorter, and the time of a pattern stays bounded
LAST_LINES = 5


class BoundedLog:
    """Writes the head and the tail of an endless stream of bytes into one file."""

    def __init__(self, path: Path) -> None:
        self.file: BinaryIO = path.open("wb", buffering=0)
        self.head_room_bytes = HEAD_BYTES
        self.tail: deque[bytes] = deque()
        self.tail_bytes = self.dropped_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Append a chunk; beyond the head, the oldest bytes of the tail are dropped."""
        head, tail = chunk[: self.head_room_bytes], chunk[self.head_room_bytes :]
        if head:
            self.file.write(head)
            self.head_room_bytes -= len(head)
        if not tail:
            return
        self.tail.append(tail)
        self.tail_bytes += len(tail)
        while self.tail_bytes - len(self.tail[0]) >= TAIL_BYTES:
            dropped = len(self.tail.popleft())
            self.tail_bytes -= dropped
            self.dropped_bytes += dropped

    def close(self) -> None:
        """Write the tail, after a line that says how much is missing before it."""
        tail = b"".join(self.tail)
        self.dropped_bytes += max(0, len(tail) - TAIL_BYTES)
        if self.dropped_bytes:
            self.file.write(f"\n[interfere dropped {self.dropped_bytes} bytes of output here]\n".encode())
        self.file.write(tail[-TAIL_BYTES:])
        self.file.close()


class StepScanner:
    """Counts steps in the output of a command: one for each match of a pattern, or the advance of a captured counter.

    A counter that goes back began anew (another epoch); one that repeats (another rank) adds no step.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern.encode())
        self.open_line = b""
        self.counter: int | None = None

    def count_steps(self, chunk: bytes) -> int:
        """Return the number of steps in the lines that `chunk` completes. A carriage return ends a line too."""
        *lines, open_line = re.split(rb"[\r\n]", self.open_line + chunk)
        self.open_line = open_line[:LINE_BYTES]
        return sum(self._steps_of(match) for line in lines for match in self.pattern.finditer(line[:LINE_BYTES]))

    def _steps_of(self, match: re.Match[bytes]) -> int:
        if not self.pattern.groups:
            return 1
        text = match[1] or b""
        if not text.isdigit():
            return 0
        counter, previous = int(text), self.counter
        self.counter = counter
        if previous is None:
            return 1
        return counter - previous if counter >= previous else counter


def last_lines(path: Path) -> str:
    """Return the last few lines of a log that are not empty, joined to one printable line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * LINE_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip()[:200] for line in re.split(r"[\r\n]", text) if line.strip()]
    joined = " | ".join(lines[-LAST_LINES:])
    return "".join(character if character.isprintable() else "?" for character in joined)
