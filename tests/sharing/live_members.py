"""Real processes that take turns on a device: each is forked, obeys one letter at a time, and can be killed."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from interfere.sharing.device_turns import DeviceMember
from interfere.timeline.priority_scheduler import PriorityGapFillingScheduler

Spans = list[tuple[int, int]]


class ForkedMember:
    """A process that runs `body(member, report)`; what it reports can be read here. It is killed on leaving."""

    def __init__(
        self,
        path: Path,
        priority: int,
        scheduler: PriorityGapFillingScheduler,
        body: Callable[[DeviceMember, Callable[[str], None]], None],
    ) -> None:
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self._reader)
                with DeviceMember(path, priority, scheduler) as member:
                    body(member, lambda text: os.write(writer, f"{text}\n".encode()) and None)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        os.set_blocking(self._reader, False)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        os.close(self._reader)

    @property
    def reports(self) -> list[str]:
        """What it has reported so far."""
        try:
            while chunk := os.read(self._reader, 65_536):
                self._text += chunk
        except BlockingIOError:
            pass
        return self._text.decode().splitlines()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def join(self) -> int:
        """Wait for its end and return its exit status."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


def spin(seconds: float) -> None:
    """Compute for so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass
