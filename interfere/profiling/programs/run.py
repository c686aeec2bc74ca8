"""One run of a command: the profiler's side, and the supervisor process that starts, watches and ends the command.

The profiler starts the supervisor, `python -P -m interfere.profiling.programs.run FOLDER`, and reads what it records.
The supervisor reads a launch request from standard input, starts the command in a session of its own, keeps its output
bounded, turns matches of a regular expression into step marks, and samples what the command's processes use. It ends
all of them when the command's first process has ended, and when its own standard input closes, whether the profiler is
done, was interrupted or was killed.

Laws: leaving a run ends all processes of the command, and so does killing the profiler; a command that cannot be
started, or whose processes cannot be ended, is one UnfitError; how a command ends by itself is data. The supervisor
outlives every process that it started; each line of `events.jsonl` and `samples.jsonl` is written whole; nothing of the
request's environment is written to disk.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from interfere import progress
from interfere.errors import UnfitError
from interfere.profiling.programs import supervision
from interfere.profiling.programs.spec import Command
from interfere.profiling.programs.supervision import KILL_S, BoundedLog, StepScanner, last_lines
from interfere.records.documents import from_document

SUPERVISOR_S = 60.0  # to start and to end the supervisor's interpreter, beyond the command's own grace; it takes 0.2 s
SUPERVISOR_LOG = "supervisor.log"
POLL_S = 0.01
WATCH_S = 0.05  # how late the end of a command may be noticed
SAMPLE_EVERY_S = 0.1
SAMPLE_COST = 50  # the next sample waits this many times the CPU time of the last one: 2 % of a core at most
MARK_EVERY_S = 0.02  # as long as a chunk of steps in worker traces; a record costs 10 µs (measured)
READ_BYTES = 1 << 16
RUN_FOLDER = "INTERFERE_PROGRESS_RUN"  # environment variable of every process of a run: the folder of the run
LOG, SPOOL, EVENTS, SAMPLES = "log.txt", "spool.jsonl", "events.jsonl", "samples.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    """The exit status of the first process of a command; as a string, the status in words."""

    monotonic_s: float
    exit_code: int
    running_children: int  # processes that it had started and left running

    def __str__(self) -> str:
        if self.exit_code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-self.exit_code).name}"
        text = f"exit code {self.exit_code}"
        if self.running_children:
            text += f", processes it had started still running: {self.running_children}"
        return text


class ProgramRun:
    """A context manager for one run of a command, recorded in `folder`."""

    def __init__(self, command: Command, folder: Path, *, core: int | None, grace_s: float) -> None:
        self.command, self.folder, self.core, self.grace_s = command, folder, core, grace_s
        self.started_s = self.closed_s = 0.0
        self.exit: ProgramExit | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._marks_by_writer: dict[str, list[progress.Mark]] = {}
        self._spool_offset = self._events_offset = 0
        self._all_ended = False  # the supervisor said that none of its processes is left

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        try:
            self._write_run_file()
            self._launch()
            self._wait_for_start()
        except BaseException:
            self.close()
            raise
        return self

    def _write_run_file(self) -> None:
        """Record the command that is run. Of its environment only the names are kept: values may be secrets."""
        record = {**asdict(self.command), "env": [name for name, _ in self.command.env], "core": self.core}
        (self.folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")

    def _launch(self) -> None:
        request = LaunchRequest(command=self.command, core=self.core, grace_s=self.grace_s)
        with (self.folder / SUPERVISOR_LOG).open("wb") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "interfere.profiling.programs.run", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal reaches the profiler alone
            )
        assert self._supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the supervisor died: `refresh` raises with its last words
            self._supervisor.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            self._supervisor.stdin.flush()

    def _wait_for_start(self) -> None:
        deadline_s = time.monotonic() + SUPERVISOR_S + KILL_S
        while not (self.started_s or self.exit):
            if time.monotonic() > deadline_s:
                raise self._supervisor_error("did not start")
            time.sleep(POLL_S)
            self.refresh()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.command.name

    @property
    def log(self) -> Path:
        """The file with the output of the command."""
        return self.folder / LOG

    @property
    def marks(self) -> list[progress.Mark]:
        """The step marks of the process with most steps: ranks in lockstep are not added up."""
        return max(self._marks_by_writer.values(), key=lambda marks: marks[-1].steps, default=[])

    def steps_since(self, start_s: float) -> tuple[float, int]:
        """Return the steps between the first and the last mark at or after a moment, and the number of these marks."""
        steps = [mark.steps for mark in self.marks if mark.monotonic_s >= start_s]
        return (steps[-1] - steps[0], len(steps)) if steps else (0.0, 0)

    def refresh(self) -> None:
        """Read what was recorded since the last call. Raises UnfitError for a broken command or supervisor."""
        self._read_marks()
        assert self._supervisor is not None
        supervisor_runs = self._supervisor.poll() is None
        self._read_events()
        if not supervisor_runs and not self._all_ended:
            raise self._supervisor_error("ended by itself")

    def close(self) -> None:
        """End the command and its supervisor; log and samples are then complete. A second call does nothing."""
        if self._supervisor is None:
            return
        supervisor, self.closed_s = self._supervisor, time.monotonic()
        # 1. Closing its standard input asks the supervisor to end the command.
        assert supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            supervisor.stdin.close()
        try:
            supervisor.wait(self.grace_s + KILL_S + SUPERVISOR_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        self._supervisor = None
        # 2. Read what it recorded to the end.
        self._read_marks()
        self._read_events()
        # 3. A supervisor that was killed left its processes to us.
        if not self._all_ended:
            self._kill_processes()

    def samples(self) -> list[dict[str, Any]]:
        """Return the supervisor's samples: the complete lines of `samples.jsonl`."""
        try:
            lines = (self.folder / SAMPLES).read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def _read_marks(self) -> None:
        spool = progress.read(self.folder / SPOOL, self._spool_offset)
        self._spool_offset = spool.offset
        for mark in spool.marks:
            self._marks_by_writer.setdefault(mark.writer, []).append(mark)

    def _read_events(self) -> None:
        try:
            content = (self.folder / EVENTS).read_bytes()[self._events_offset :]
        except FileNotFoundError:
            return
        complete_lines = content[: content.rfind(b"\n") + 1]
        self._events_offset += len(complete_lines)
        for line in complete_lines.splitlines():
            self._handle_event(json.loads(line))

    def _handle_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "started":
                self.started_s = event["monotonic_s"]
            case "failed":
                raise UnfitError(
                    f"command {self.name} cannot be started ({event['error']})",
                    value=self.command.line,
                    remedy="check its first word, and that it may be executed; there is no shell in between",
                )
            case "ended":
                self.exit = ProgramExit(
                    monotonic_s=event["monotonic_s"],
                    exit_code=event["exit_code"],
                    running_children=len(event["left"]),
                )
            case "gone":
                self._all_ended = True
                if event["left"]:
                    raise UnfitError(
                        f"processes of command {self.name} cannot be ended",
                        value=", ".join(map(str, event["left"])),
                        remedy="they hang in the kernel (a dead disk or driver?): see `ps`, then measure again",
                    )

    def _supervisor_error(self, what: str) -> UnfitError:
        return UnfitError(
            f"the supervisor of command {self.name} {what}",
            value=last_lines(self.folder / SUPERVISOR_LOG) or "it printed nothing",
            remedy=f"memory or disk ran out, or somebody ended it: see {self.folder}",
        )

    def _kill_processes(self) -> None:
        """Kill every process that carries this run's folder in its environment."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(RUN_FOLDER) == str(self.folder):
                    process.kill()


# --- the supervisor process -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The command to start and its limits: one line of JSON on the supervisor's standard input."""

    command: Command
    core: int | None = None  # to pin the command to; None: it is not pinned
    grace_s: float  # between SIGTERM and SIGKILL


class Supervisor:
    """Supervises one command, from its start until none of its processes is left."""

    def __init__(self, folder: Path, request: LaunchRequest) -> None:
        self.folder, self.request = folder, request
        self.events, self.samples = (folder / EVENTS).open("a"), (folder / SAMPLES).open("a")
        self.log, self.spool = BoundedLog(folder / LOG), folder / SPOOL
        self.scanner = StepScanner(request.command.step_regex) if request.command.step_regex else None
        self.marks = progress.Writer(str(self.spool), MARK_EVERY_S)
        self.output_fd, self.pid = -1, 0
        self.next_sample_s = 0.0

    def run(self) -> None:
        """Start the command, watch it, and end all its processes."""
        surviving_pids: list[int] = []
        try:
            if self._start():
                self._watch()
        finally:
            surviving_pids = supervision.end_descendants(self.request.grace_s, self._drain_output)
            self._drain_output()
            self.marks.flush()
            self.log.close()
            self._write_event("gone", left=surviving_pids, dropped_bytes=self.log.dropped_bytes)

    def _start(self) -> bool:
        """Start the command. Return False where the system cannot start it."""
        self.output_fd, command_end = os.pipe()
        os.set_blocking(self.output_fd, False)
        own_cores = os.sched_getaffinity(0)
        if self.request.core is not None:
            os.sched_setaffinity(0, {self.request.core})  # the command inherits it
        try:
            process = subprocess.Popen(
                self.request.command.argv,
                cwd=self.request.command.cwd or None,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=command_end,
                stderr=command_end,
                start_new_session=True,
                preexec_fn=supervision.die_with_parent,  # noqa: PLW1509 - this process has one thread
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
        environment = {**os.environ, **dict(self.request.command.env), RUN_FOLDER: str(self.folder)}
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
                for key, _ in selector.select(WATCH_S):
                    if key.fd != self.output_fd:
                        self._write_sample(last=True)
                        return
                    if not self._read_output():
                        selector.unregister(self.output_fd)
                # 2. See whether the first process has ended.
                exit_code = supervision.reap_children().get(self.pid)
                if exit_code is not None:
                    self._write_sample(last=True)
                    remaining_pids = [process.pid for process in supervision.descendants()]
                    self._write_event("ended", exit_code=exit_code, left=remaining_pids)
                    return
                # 3. Take a sample when one is due.
                self._write_sample()

    def _read_output(self) -> bool:
        """Read and scan some output of the command. Return False when there will be no more."""
        try:
            chunk = os.read(self.output_fd, READ_BYTES)
        except BlockingIOError:
            return True
        self.log.add(chunk)
        if self.scanner and (steps := self.scanner.count_steps(chunk)):
            self.marks.step(steps)
        return bool(chunk)

    def _drain_output(self) -> None:
        """Read the available output, so that a command which prints while it ends does not wait for a reader."""
        if self.output_fd < 0:
            return
        deadline_s = time.monotonic() + WATCH_S
        while time.monotonic() < deadline_s:
            try:
                chunk = os.read(self.output_fd, READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self.log.add(chunk)

    def _write_sample(self, *, last: bool = False) -> None:
        """Write a sample when one is due, or when it is the `last` one."""
        start_s, start_cpu_s = time.monotonic(), time.thread_time()
        if start_s < self.next_sample_s and not last:
            return
        sample = asdict(supervision.sample_tree(self.request.core))
        self.samples.write(json.dumps(sample, separators=(",", ":")) + "\n")
        self.samples.flush()
        self.next_sample_s = start_s + max(SAMPLE_EVERY_S, SAMPLE_COST * (time.thread_time() - start_cpu_s))

    def _write_event(self, event: str, **facts: Any) -> None:
        self.events.write(json.dumps({"event": event, "monotonic_s": time.monotonic(), **facts}) + "\n")
        self.events.flush()


def _exit_once(*_: object) -> None:
    """Handle a signal: leave through the `finally` of `Supervisor.run`, and ignore further signals meanwhile."""
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
    supervision.adopt_orphans()
    Supervisor(Path(arguments[0]), from_document(LaunchRequest, json.loads(line))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
