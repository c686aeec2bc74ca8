"""Turns on one device between live processes: who may run a segment now, in memory that the processes share.

There is no coordinator whose death could block anybody. The members of a device map one file. What it holds is changed
under locks that the kernel releases when their holder dies (fcntl(2), record locks), and a member waits for its turn on
a futex (futex(2)). Laws:

1. Of members of one priority, one at a time holds a turn, as long as its lease is not over.
2. A member that died holds no turn: its own record lock is gone, which anybody who waits finds within `CHECK_S`.
3. A member that hangs or is stopped loses its turn when its lease is over. Others may then run beside it.
4. A member starts no segment while one of higher priority runs, waits, or leaves no gap for it.
5. A member that waits and is stopped holds up nobody: it is passed over until it runs again.
6. Where the scheduler preempts, a member waits for no member of lower priority, and shares no lock with it. Otherwise
   it waits for the segment that runs.

The device of live members is a core, which preempts: Linux takes it from a low job in the idle class (sched(7)) when a
high one is ready. So what a low job started by mistake costs a preemption, and it goes on in the next gap.

Every member decides for itself by the planner of `interfere.timeline`, from the gap that the members of highest
priority have published. Linux alone; one thread of a process takes turns.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from interfere.errors import InvalidInputError, UnfitError
from interfere.progress import open_regular
from interfere.timeline.priority_scheduler import FillingRule, GapState, PriorityGapFillingScheduler
from interfere.timeline.streams import MAX_PRIORITY

DEFAULT_DEVICE = "device-0"
PRIORITY_VARIABLE, DEVICE_VARIABLE = "INTERFERE_SHARING_PRIORITY", "INTERFERE_SHARING_DEVICE"
MAX_MEMBERS, MAX_GAPS = 16, 16
# The bytes of the file whose record locks are taken: the list of members, one for each place in it while its member
# lives, and turns. Members that preempt share a lock with those of their own priority alone.
MEMBERSHIP_LOCK, FIRST_PLACE_LOCK, FIRST_TURN_LOCK = 0, 1, 1 + MAX_MEMBERS
LAYOUT_VERSION = 2
CHECK_S = 0.02  # how late a death is noticed; one check costs a system call
REFUSED_S = 0.001  # a member that may not fill looks again: the budget of the high member grows with time
STALE_S = 0.25  # a member that waits looks every CHECK_S at least: one that has not looked for so long is stopped
LEASE_FACTOR, MIN_LEASE_S = 10.0, 0.05  # a segment that takes ten times its prediction, or is stopped, loses the turn
NS_PER_S = 1_000_000_000
FUTEX_WAIT, FUTEX_WAKE, ALL = 0, 1, 2**31 - 1
FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98, "ppc64le": 221, "s390x": 238, "riscv64": 98}
# An assumption: two switches of context, no bench measures them. It is so small that the budget hardly ever binds.
PREEMPTION_S = 5e-6
LIVE_SCHEDULER = PriorityGapFillingScheduler(rule=FillingRule.BUDGET, preemption_s=PREEMPTION_S)
FREE, IN_GAP, WAITING, RUNNING = range(4)  # the states of a member


class Priority(IntEnum):
    """The two usual priorities of members."""

    LOW = 0
    HIGH = 1


def find_priority(priority: str | int) -> int:
    """Return a priority by its name, `high` or `low`, or as the number that it is. Raises InvalidInputError."""
    if isinstance(priority, str) and priority.upper() in Priority.__members__:
        return Priority[priority.upper()]
    try:
        number = int(priority)
    except ValueError:
        number = -1
    if not 0 <= number <= MAX_PRIORITY:
        raise InvalidInputError("no such priority", value=priority, remedy=f"high, low, or 0 to {MAX_PRIORITY}")
    return number


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Member(ctypes.Structure):
    _fields_ = (
        ("state", ctypes.c_int32),
        ("priority", ctypes.c_int32),
        ("since_ns", ctypes.c_int64),  # of the state
        ("looked_ns", ctypes.c_int64),  # when it last looked whether it may run
        ("joined_ns", ctypes.c_int64),
        ("waited_ns", ctypes.c_int64),  # for its turns and for preemptions, so far
        ("lease_end_ns", ctypes.c_int64),  # of its turn
        ("gap_count", ctypes.c_int32),
        ("gaps_s", ctypes.c_double * MAX_GAPS),  # measured lengths of the gap that it is in
    )


class _Region(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("changes", ctypes.c_uint32),  # the futex: another value after each end of a turn
        ("members", _Member * MAX_MEMBERS),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_joined: set[Path] = set()  # by this process
os.register_at_fork(after_in_child=_joined.clear)  # a child has none of its parent's record locks


def device_file(device: str) -> Path:
    """Return the file that the members of a device share: one for each user and device."""
    folder = Path(f"/dev/shm/interfere-{os.getuid()}")  # noqa: S108
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise UnfitError("the folder of shared devices belongs to somebody else", value=folder, remedy="remove it")
    return folder / f"{device}.turns"


def environment_of(priority: str, device: str) -> dict[str, str]:
    """Return the variables with which a program's Python joins a device by itself. Raises InvalidInputError."""
    find_priority(priority)
    startup = str(Path(__file__).parent / "startup")
    paths = [startup, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {PRIORITY_VARIABLE: priority, DEVICE_VARIABLE: device, "PYTHONPATH": os.pathsep.join(paths)}


class DeviceMember:
    """A process that takes turns on a device; a context manager that leaves the device at its end.

    `path` is the file of the device, made where it is missing. Raises InvalidInputError for a priority out of range,
    and UnfitError where the device has `MAX_MEMBERS` members or the file is of another version.
    """

    def __init__(
        self,
        path: Path,
        priority: str | int,
        scheduler: PriorityGapFillingScheduler = LIVE_SCHEDULER,
    ) -> None:
        if platform.machine() not in FUTEX_SYSCALL:
            raise UnfitError("futex has no known number here", value=platform.machine(), remedy="x86_64 or aarch64")
        self.priority, self.scheduler = find_priority(priority), scheduler
        self._futex = FUTEX_SYSCALL[platform.machine()]
        self._turn_lock = FIRST_TURN_LOCK + (self.priority if scheduler.preempts else 0)
        self._path = path.resolve()
        if self._path in _joined:  # record locks belong to the process: it would take its own place for a dead one's
            raise InvalidInputError("this process takes turns on the device already", value=path, remedy="join once")
        self._file = open_regular(path, os.O_RDWR | os.O_CREAT, (os.getuid(),))
        try:
            self._memory = self._map_file()
            self._region = _Region.from_buffer(self._memory)
            self.index = self._join()
        except BaseException:
            os.close(self._file)
            raise
        _joined.add(self._path)
        self._member = self._region.members[self.index]
        self._others = [(place, each) for place, each in enumerate(self._region.members) if place != self.index]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._locked(MEMBERSHIP_LOCK):
            self._member.state = FREE
            self._announce()
        _joined.discard(self._path)
        os.close(self._file)  # which gives up all record locks

    # --- turns --------------------------------------------------------------------------------------------------------

    @property
    def holds_turn(self) -> bool:
        """Whether this member may run."""
        return bool(self._member.state == RUNNING)

    def take_turn(self, run_s: float) -> None:
        """Return when this member may run a segment that is predicted to take `run_s`."""
        asked_ns = time.monotonic_ns()
        while True:
            changes = self._region.changes  # before looking: what changes from here on ends the wait
            with self._locked(self._turn_lock):
                now_ns = self._member.looked_ns = time.monotonic_ns()
                present = [(index, member) for index, member in self._others if member.state != FREE]
                wait_s = self._refused_for_s(run_s, now_ns, present)
                if not wait_s:
                    lease_s = max(MIN_LEASE_S, LEASE_FACTOR * run_s)
                    self._member.lease_end_ns = now_ns + int(lease_s * NS_PER_S)
                    if self._member.state == WAITING:
                        self._member.waited_ns += now_ns - asked_ns
                    if self.scheduler.preempts and any(_runs(member, now_ns) for _, member in present):
                        self._member.waited_ns += int(self.scheduler.preemption_s * NS_PER_S)
                    self._enter_state(RUNNING, now_ns)
                    return
                if self._member.state != WAITING:
                    self._enter_state(WAITING, now_ns)
            self._wait(changes, wait_s)

    def end_turn(self, gaps_s: tuple[float, ...]) -> None:
        """End the segment. `gaps_s` are measured lengths of the gap that begins now; empty where none was measured."""
        with self._locked(self._turn_lock):
            self._member.gap_count = len(gaps_s[:MAX_GAPS])
            self._member.gaps_s[: self._member.gap_count] = gaps_s[:MAX_GAPS]
            self._enter_state(IN_GAP, time.monotonic_ns())
            self._announce()

    @property
    def waited_s(self) -> float:
        """How long this member has waited for its turns, and for preemptions."""
        return float(self._member.waited_ns / NS_PER_S)

    def _refused_for_s(self, run_s: float, now_ns: int, present: Sequence[tuple[int, _Member]]) -> float:
        """Return 0 where this member may run a segment, else how long to wait for a change before it asks again.

        `present`: the other members, with their places.
        """
        for index, member in present:
            gives_way = self.scheduler.preempts and member.priority < self.priority
            if not gives_way and _runs(member, now_ns) and self._is_alive(index):
                return CHECK_S
        above = [member for index, member in present if member.priority > self.priority and self._is_alive(index)]
        highest = max((member.priority for member in above), default=self.priority)
        for member in (each for each in above if each.priority == highest):
            if member.state == WAITING and now_ns - member.looked_ns < STALE_S * NS_PER_S:
                return REFUSED_S
            if member.state == IN_GAP and not self.scheduler.may_fill(_gap_state(member, now_ns), run_s):
                return REFUSED_S
        return 0.0

    def _enter_state(self, state: int, now_ns: int) -> None:
        self._member.state, self._member.since_ns = state, now_ns

    def _announce(self) -> None:
        """Wake everybody who waits for a change."""
        self._region.changes = time.monotonic_ns() % 2**32
        if all(member.state != WAITING for _, member in self._others):
            return
        _libc.syscall(self._futex, ctypes.byref(self._region, _Region.changes.offset), FUTEX_WAKE, ALL, None, None, 0)

    def _wait(self, changes: int, wait_s: float) -> None:
        """Wait until the mark of the last change is no longer `changes`, or for `wait_s`."""
        limit = _Timespec(0, int(wait_s * NS_PER_S))
        address = ctypes.byref(self._region, _Region.changes.offset)
        if _libc.syscall(self._futex, address, FUTEX_WAIT, ctypes.c_uint32(changes), ctypes.byref(limit), None, 0):
            error = ctypes.get_errno()
            if error not in (errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR):
                raise OSError(error, os.strerror(error))

    # --- membership ---------------------------------------------------------------------------------------------------

    def _map_file(self) -> mmap.mmap:
        with self._locked(MEMBERSHIP_LOCK):
            is_new = os.fstat(self._file).st_size < ctypes.sizeof(_Region)
            if is_new:
                os.ftruncate(self._file, ctypes.sizeof(_Region))
            memory = mmap.mmap(self._file, ctypes.sizeof(_Region))
            region = _Region.from_buffer(memory)
            if is_new:
                region.version = LAYOUT_VERSION
            if region.version != LAYOUT_VERSION:
                raise UnfitError(
                    "another version of interfere shares this device",
                    value=region.version,
                    remedy="end its members, then remove the file of the device",
                )
        return memory

    def _join(self) -> int:
        """Take the first place that no living member has."""
        with self._locked(MEMBERSHIP_LOCK):
            for index, member in enumerate(self._region.members):
                if not self._try_lock(FIRST_PLACE_LOCK + index):
                    continue
                now_ns = time.monotonic_ns()
                member.state, member.priority, member.since_ns = IN_GAP, self.priority, now_ns
                member.joined_ns, member.waited_ns, member.gap_count = now_ns, 0, 0
                return index
        raise UnfitError("the device has too many members", value=MAX_MEMBERS, remedy="end some first")

    def _is_alive(self, index: int) -> bool:
        """Return whether another process holds the record lock of this place."""
        if not self._try_lock(FIRST_PLACE_LOCK + index):
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, FIRST_PLACE_LOCK + index)
        return False

    def _try_lock(self, byte: int) -> bool:
        """Lock a byte of the file, and return whether no other process holds it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    @contextmanager
    def _locked(self, byte: int) -> Iterator[None]:
        """Hold the lock of a byte of the file."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, byte)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _runs(member: _Member, now_ns: int) -> bool:
    """Return whether a member holds a turn whose lease is not over; it may be dead."""
    return bool(member.state == RUNNING and now_ns < member.lease_end_ns)


def _gap_state(member: _Member, now_ns: int) -> GapState:
    """Return the gap of a member as the planner reads it. A member that has just joined is in a gap of unknown
    length."""
    waited_ns = member.waited_ns
    return GapState(
        gaps_s=tuple(member.gaps_s[: member.gap_count]),
        elapsed_s=(now_ns - member.since_ns) / NS_PER_S,
        waited_s=waited_ns / NS_PER_S,
        progress_s=(now_ns - member.joined_ns - waited_ns) / NS_PER_S,
    )
