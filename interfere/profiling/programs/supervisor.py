"""The supervisor process of one command: `python -P -m interfere.profiling.programs.supervisor FOLDER`.

It reads a launch request from standard input, starts the command in a session of its own, keeps its output bounded,
turns matches of a regular expression into step marks, and samples what the command's processes use. It ends all of
them when the command's first process has ended, and when its own standard input closes, whether the profiler is done,
was interrupted or was killed.

Laws: it outlives every process that it started; each line of `events.jsonl` and `samples.jsonl` is written whole;
nothing of the request's environment is written to disk.
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
from interfere.profiling.programs import process_tree
from interfere.profiling.programs.output import BoundedLog, StepScanner

POLL_S = 0.05  # how late the end of a command may be noticed
SAMPLE_EVERY_S, LIST_EVERY_S = 0.1, 1.0  # totals ten times a second, single processes once
SAMPLE_COST = 50  # the next sample waits this many times the CPU time of the last one: 2 % of a core at most
MARK_EVERY_S = 0.02  # as long as a chunk of steps in worker traces; a record costs 10 µs (measured)
READ_BYTES = 1 << 16
RUN_FOLDER = "INTERFERE_PROGRESS_RUN"  # environment variable of every process of a run: the folder of the run
LOG, SPOOL, EVENTS, SAMPLES = "log.txt", "spool.jsonl", "events.jsonl", "samples.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """Which command to start and how: one line of JSON on the supervisor's standard input."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]  # on top of the supervisor's own
    core: int | None
    step_regex: str
    grace_s: float

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Read the text that `to_json` wrote."""
        return cls(**json.loads(line))

    def to_json(self) -> bytes:
        """The request as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Supervisor:
    """Supervises one command, from its start until none of its processes is left."""

    def __init__(self, folder: Path, request: LaunchRequest) -> None:
        self.folder, self.request = folder, request
        self.events, self.samples = (folder / EVENTS).open("a"), (folder / SAMPLES).open("a")
        self.log, self.spool = BoundedLog(folder / LOG), folder / SPOOL
        self.scanner = StepScanner(request.step_regex) if request.step_regex else None
        self.marks = progress.Writer(str(self.spool), MARK_EVERY_S)
        self.output_fd, self.pid = -1, 0
        self.next_sample_s = self.next_list_s = 0.0

    def run(self) -> None:
        """Start the command, watch it, and end all its processes."""
        surviving_pids: list[int] = []
        try:
            if self._start():
                self._watch()
        finally:
            surviving_pids = process_tree.end_descendants(self.request.grace_s, self._drain_output)
            self._drain_output()
            self.marks.flush()
            self.log.close()
            self._write_event("gone", left=surviving_pids, dropped_bytes=self.log.dropped_bytes)

    def _start(self) -> bool:
        """Start the command; False when the system cannot."""
        self.output_fd, command_end = os.pipe()
        os.set_blocking(self.output_fd, False)
        own_cores = os.sched_getaffinity(0)
        if self.request.core is not None:
            os.sched_setaffinity(0, {self.request.core})  # the command inherits it
        try:
            process = subprocess.Popen(
                self.request.argv,
                cwd=self.request.cwd or None,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=command_end,
                stderr=command_end,
                start_new_session=True,
                preexec_fn=process_tree.die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            self._write_event("failed", error=error.strerror or str(error))
            return False
        finally:
            os.close(command_end)
            os.sched_setaffinity(0, own_cores)
        self.pid, process.returncode = process.pid, 0  # `reap_children` waits for it, with all the others
        self._write_event("started", pid=process.pid)
        return True

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, **self.request.env, RUN_FOLDER: str(self.folder)}
        if self.scanner:
            # Python buffers what it prints into a pipe: lines would arrive in bursts, long after their steps.
            environment |= {"PYTHONUNBUFFERED": "1"}
            environment.pop(progress.SPOOL_VARIABLE, None)  # steps are never counted twice
        else:
            environment |= {progress.SPOOL_VARIABLE: str(self.spool), progress.INTERVAL_VARIABLE: str(MARK_EVERY_S)}
        return environment

    def _watch(self) -> None:
        """Read output and take samples until the first process has ended or the profiler closes standard input."""
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            selector.register(self.output_fd, selectors.EVENT_READ)
            while True:
                # 1. Read what the command printed; standard input becomes readable only when it is closed.
                for key, _ in selector.select(POLL_S):
                    if key.fd != self.output_fd:
                        self._write_sample(last=True)
                        return
                    if not self._read_output():
                        selector.unregister(self.output_fd)
                # 2. See whether the first process has ended.
                exit_code = process_tree.reap_children().get(self.pid)
                if exit_code is not None:
                    self._write_sample(last=True)
                    remaining_pids = [process.pid for process in process_tree.descendants()]
                    self._write_event("ended", exit_code=exit_code, left=remaining_pids)
                    return
                # 3. Take a sample when one is due.
                self._write_sample()

    def _read_output(self) -> bool:
        """Read and scan some output; False when there will be no more."""
        try:
            chunk = os.read(self.output_fd, READ_BYTES)
        except BlockingIOError:
            return True
        self.log.add(chunk)
        if self.scanner and (steps := self.scanner.count_steps(chunk)):
            self.marks.step(steps)
        return bool(chunk)

    def _drain_output(self) -> None:
        """Read the available output. Otherwise a command that prints while it ends would wait for a reader."""
        if self.output_fd < 0:
            return
        deadline_s = time.monotonic() + POLL_S
        while time.monotonic() < deadline_s:
            try:
                chunk = os.read(self.output_fd, READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self.log.add(chunk)

    def _write_sample(self, *, last: bool = False) -> None:
        """Write a sample when one is due; the last one in any case, with all processes."""
        start_s, start_cpu_s = time.monotonic(), time.thread_time()
        if start_s < self.next_sample_s and not last:
            return
        list_processes = last or start_s >= self.next_list_s
        sample = asdict(process_tree.sample_tree(self.request.core, list_processes=list_processes))
        self.samples.write(json.dumps(sample, separators=(",", ":")) + "\n")
        self.samples.flush()
        if list_processes:
            self.next_list_s = start_s + LIST_EVERY_S
        self.next_sample_s = start_s + max(SAMPLE_EVERY_S, SAMPLE_COST * (time.thread_time() - start_cpu_s))

    def _write_event(self, event: str, **facts: Any) -> None:
        self.events.write(json.dumps({"event": event, "monotonic_s": time.monotonic(), **facts}) + "\n")
        self.events.flush()


def _exit_once(*_: object) -> None:
    """Signal handler: leave through the `finally` of `run`, and ignore further signals while processes are ended."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def main(arguments: list[str]) -> None:
    """Read one launch request from standard input and supervise its command."""
    for number in (signal.SIGTERM, signal.SIGINT):  # handlers, as an ignored signal would stay ignored in the command
        signal.signal(number, _exit_once)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the profiler ended before its request was complete
    process_tree.adopt_orphans()
    Supervisor(Path(arguments[0]), LaunchRequest.from_json(line)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
