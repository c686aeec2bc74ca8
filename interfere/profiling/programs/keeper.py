"""The process beside a command: `python -P -m interfere.profiling.programs.keeper FOLDER`, its order on standard input.

It starts the command in a session of its own, keeps its output bounded, turns matches of a regular expression into
step marks, samples what the tree uses, and ends the whole tree: when the first process of the command has ended, and
when its own standard input closes, be it that the profiler is done, was interrupted or was killed.

Laws: it outlives every process it started; each line of `events.jsonl` and `samples.jsonl` is written whole; nothing of
the order's environment is written to disk.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from interfere import progress
from interfere.profiling.programs import tree
from interfere.profiling.programs.output import BoundedLog, StepScanner

POLL_S = 0.05  # how late the end of a command may be noticed
SAMPLE_S, LIST_S = 0.1, 1.0  # totals ten times a second, single processes once
SAMPLE_COST = 50  # a sample waits this many times what the last one took: 2 % of the keeper's core at most
MARK_EVERY_S = 0.02  # the chunk of every other profiler here; a record costs 10 µs (measured)
READ_BYTES = 1 << 16
RUN = "INTERFERE_PROGRESS_RUN"  # in the environment of every process of a run: its folder
LOG, SPOOL, EVENTS, SAMPLES = "log.txt", "spool.jsonl", "events.jsonl", "samples.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the keeper is told: one line of JSON."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]  # on top of the keeper's own
    core: int | None
    step_regex: str
    grace_s: float

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Inverse of `to_json`."""
        return cls(**json.loads(line))

    def to_json(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Keeper:
    """One command, from its start until nothing is left of it."""

    def __init__(self, folder: Path, order: Order) -> None:
        self.folder, self.order = folder, order
        self.events, self.samples = (folder / EVENTS).open("a"), (folder / SAMPLES).open("a")
        self.log, self.spool = BoundedLog(folder / LOG), folder / SPOOL
        self.scanner = StepScanner(order.step_regex) if order.step_regex else None
        self.marks = progress.Writer(str(self.spool), MARK_EVERY_S)
        self.output, self.pid = -1, 0
        self.sample_due = self.list_due = 0.0

    def run(self) -> None:
        """Start, watch, end."""
        left: list[int] = []
        try:
            if self._start():
                self._watch()
        finally:
            left = tree.end(self.order.grace_s, self._drain)
            self._drain()
            self.marks.flush()
            self.log.close()
            self._event("gone", left=left, dropped_bytes=self.log.dropped_bytes)

    def _start(self) -> bool:
        environment = {**os.environ, **self.order.env, RUN: str(self.folder)}
        if self.scanner:
            # Python holds back what it prints into a pipe: the lines would come in bursts, long after their steps.
            environment |= {"PYTHONUNBUFFERED": "1"}
            environment.pop(progress.SPOOL_VARIABLE, None)
        else:
            environment |= {progress.SPOOL_VARIABLE: str(self.spool), progress.INTERVAL_VARIABLE: str(MARK_EVERY_S)}
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        at_home = os.sched_getaffinity(0)
        if self.order.core is not None:
            os.sched_setaffinity(0, {self.order.core})  # the command inherits it
        try:
            process = subprocess.Popen(
                self.order.argv,
                cwd=self.order.cwd or None,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=tree.die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            self._event("failed", error=error.strerror or str(error))
            return False
        finally:
            os.close(theirs)
            os.sched_setaffinity(0, at_home)
        self.pid, process.returncode = process.pid, 0  # waited for here, with all the others
        self._event("started", pid=process.pid)
        return True

    def _watch(self) -> None:
        """Until the first process has ended or the profiler wants no more."""
        with selectors.DefaultSelector() as ready:
            ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
            ready.register(self.output, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select(POLL_S):
                    if key.fd != self.output:  # nothing more is ever sent: it was closed
                        self._sample(last=True)
                        return
                    if not self._take():
                        ready.unregister(self.output)
                code = tree.reap().get(self.pid)
                if code is not None:
                    self._sample(last=True)
                    self._event("ended", exit_code=code, left=[p.pid for p in tree.descendants()])
                    return
                self._sample()

    def _take(self) -> bool:
        """Read some output; False when there will be no more."""
        try:
            chunk = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return True
        self.log.add(chunk)
        if self.scanner and (steps := self.scanner.steps(chunk)):
            self.marks.step(steps)
        return bool(chunk)

    def _drain(self) -> None:
        """Read what is there, so that a command which prints its last words can end."""
        if self.output < 0:
            return
        until = time.monotonic() + POLL_S
        while time.monotonic() < until:
            try:
                chunk = os.read(self.output, READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self.log.add(chunk)

    def _sample(self, *, last: bool = False) -> None:
        begin = time.monotonic()
        if begin < self.sample_due and not last:
            return
        listed = last or begin >= self.list_due
        row = asdict(tree.sample(self.order.core, listed=listed))
        self.samples.write(json.dumps(row, separators=(",", ":")) + "\n")
        self.samples.flush()
        if listed:
            self.list_due = begin + LIST_S
        self.sample_due = begin + max(SAMPLE_S, SAMPLE_COST * (time.monotonic() - begin))

    def _event(self, kind: str, **facts: Any) -> None:
        self.events.write(json.dumps({"event": kind, "monotonic_s": time.monotonic(), **facts}) + "\n")
        self.events.flush()


def _asked_to_end(*_: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # once: the tree is being ended
    sys.exit(1)  # through the `finally` of `run`


def main(arguments: list[str]) -> None:
    """Serve one order."""
    for number in (signal.SIGTERM, signal.SIGINT):  # handlers, as an ignored signal would stay ignored in the command
        signal.signal(number, _asked_to_end)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the profiler was gone before it had told what to do
    tree.take_in_orphans()
    Keeper(Path(arguments[0]), Order.from_json(line)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
