"""One run of a command as the profiler sees it: starts its supervisor, reads its marks, ends it.

Laws: leaving a run ends all processes of the command, and so does killing the profiler (the supervisor's standard input
closes); a command that cannot be started, or whose processes cannot be ended, is one UnfitError; how a command ends by
itself is data.
"""

import contextlib
import json
import os
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
from interfere.profiling.programs.output import last_lines
from interfere.profiling.programs.process_tree import KILL_S
from interfere.profiling.programs.spec import Command
from interfere.profiling.programs.supervisor import EVENTS, LOG, RUN_FOLDER, SAMPLES, SPOOL, LaunchRequest

SUPERVISOR_S = 60.0  # to start and to end the supervisor's interpreter, beyond the command's own grace; it takes 0.2 s
SUPERVISOR_LOG = "supervisor.log"
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    """The exit status of the first process of a command. `str` gives it in words."""

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
        """Record what is run; of the environment the names only, as values may be secrets."""
        record = {**asdict(self.command), "env": [name for name, _ in self.command.env], "core": self.core}
        (self.folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")

    def _launch(self) -> None:
        request = LaunchRequest(
            argv=self.command.argv,
            cwd=self.command.cwd,
            env=dict(self.command.env),
            core=self.core,
            step_regex=self.command.step_regex,
            grace_s=self.grace_s,
        )
        with (self.folder / SUPERVISOR_LOG).open("wb") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "interfere.profiling.programs.supervisor", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal reaches the profiler alone
            )
        assert self._supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the supervisor died: `refresh` raises with its last words
            self._supervisor.stdin.write(request.to_json())
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
        """Name of the command."""
        return self.command.name

    @property
    def log(self) -> Path:
        """File with what the command printed."""
        return self.folder / LOG

    @property
    def marks(self) -> list[progress.Mark]:
        """Marks of the process that marked most steps: of ranks in lockstep one counts, not their sum."""
        return max(self._marks_by_writer.values(), key=lambda marks: marks[-1].steps, default=[])

    def steps_since(self, start_s: float) -> tuple[float, int]:
        """Steps between the first and the last mark at or after a moment, and the number of these marks."""
        steps = [mark.steps for mark in self.marks if mark.monotonic_s >= start_s]
        return (steps[-1] - steps[0], len(steps)) if steps else (0.0, 0)

    def refresh(self) -> None:
        """Read what was recorded since the last call. Raises UnfitError when command or supervisor is broken."""
        self._read_marks()
        assert self._supervisor is not None
        supervisor_runs = self._supervisor.poll() is None
        self._read_events()
        if not supervisor_runs and not self._all_ended:
            raise self._supervisor_error("ended by itself")

    def close(self) -> None:
        """End the command and its supervisor; log and samples are complete afterwards. May be called twice."""
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
