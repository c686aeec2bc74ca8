"""The profiler's side of one run of a command: starts its keeper, reads its marks, ends it.

Laws: leaving a run ends the whole tree of the command, and a profiler that is killed ends it too (the keeper's standard
input closes); a command that cannot be started, or whose processes cannot be ended, is one UnfitError; how a command
ends by itself is data.
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
from interfere.profiling.programs.keeper import EVENTS, LOG, RUN, SAMPLES, SPOOL, Order
from interfere.profiling.programs.output import last_lines
from interfere.profiling.programs.spec import Command
from interfere.profiling.programs.tree import KILL_S

KEEPER_S = 5.0  # beyond the command's own grace: interpreter start and end


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the first process of a command ended by itself."""

    monotonic_s: float
    exit_code: int
    left: int  # processes that it had started and left running

    def __str__(self) -> str:
        if self.exit_code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-self.exit_code).name}"
        code = f"exit code {self.exit_code}"
        return f"{code}, processes it had started still running: {self.left}" if self.left else code


class Run:
    """One start of a command. A context manager."""

    def __init__(self, command: Command, folder: Path, *, core: int | None, grace_s: float) -> None:
        self.command, self.folder, self.core, self.grace_s = command, folder, core, grace_s
        self.started_s = self.closed_s = 0.0
        self.ended: Ended | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._marks: dict[str, list[progress.Mark]] = {}
        self._spool_offset = self._events_offset = 0
        self._gone = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        kept = {**asdict(self.command), "env": [name for name, _ in self.command.env], "core": self.core}
        (self.folder / "run.json").write_text(json.dumps(kept, indent=2) + "\n")
        order = Order(
            argv=self.command.argv,
            cwd=self.command.cwd,
            env=dict(self.command.env),
            core=self.core,
            step_regex=self.command.step_regex,
            grace_s=self.grace_s,
        )
        try:
            with (self.folder / "keeper.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "interfere.profiling.programs.keeper", str(self.folder)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in the terminal reaches the profiler alone
                )
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died: told by `_event`, with its own words
                self._process.stdin.write(order.to_json())
                self._process.stdin.flush()
            until = time.monotonic() + KEEPER_S + KILL_S
            while not (self.started_s or self.ended):
                if time.monotonic() > until:
                    raise self._broken("did not start")
                time.sleep(0.01)
                self.refresh()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The command's."""
        return self.command.name

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / LOG

    @property
    def marks(self) -> list[progress.Mark]:
        """Marks of the process that marked most steps: of ranks in lockstep one counts, not their sum."""
        return max(self._marks.values(), key=lambda marks: marks[-1].steps, default=[])

    def steps_since(self, start_s: float) -> tuple[float, int]:
        """Steps between the first and the last mark at or after a moment, and how many marks there are."""
        inside = [mark.steps for mark in self.marks if mark.monotonic_s >= start_s]
        return (inside[-1] - inside[0], len(inside)) if inside else (0.0, 0)

    def refresh(self) -> None:
        """Take in what happened since the last call. Raises UnfitError where command or keeper is broken."""
        spool = progress.read(self.folder / SPOOL, self._spool_offset)
        self._spool_offset = spool.offset
        for mark in spool.marks:
            self._marks.setdefault(mark.writer, []).append(mark)
        assert self._process is not None
        alive = self._process.poll() is None
        self._read_events()
        if not alive and not self._gone:
            raise self._broken("ended by itself")

    def close(self) -> None:
        """End the command and its keeper; the log and the samples are whole afterwards. May be called twice."""
        if self._process is None:
            return
        process, self.closed_s = self._process, time.monotonic()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(self.grace_s + KILL_S + KEEPER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
        spool = progress.read(self.folder / SPOOL, self._spool_offset)
        for mark in spool.marks:
            self._marks.setdefault(mark.writer, []).append(mark)
        self._read_events()
        if not self._gone:
            self._sweep()

    def samples(self) -> list[dict[str, Any]]:
        """What the keeper sampled, whole lines only."""
        try:
            lines = (self.folder / SAMPLES).read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def _read_events(self) -> None:
        try:
            content = (self.folder / EVENTS).read_bytes()[self._events_offset :]
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._events_offset += len(whole)
        for line in whole.splitlines():
            self._event(json.loads(line))

    def _event(self, event: dict[str, Any]) -> None:
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
                at_s, code, left = event["monotonic_s"], event["exit_code"], len(event["left"])
                self.ended = Ended(monotonic_s=at_s, exit_code=code, left=left)
            case "gone":
                self._gone = True
                if event["left"]:
                    raise UnfitError(
                        f"processes of command {self.name} cannot be ended",
                        value=", ".join(map(str, event["left"])),
                        remedy="they are stuck in the kernel (a dead disk or driver?): see `ps`, then measure again",
                    )

    def _broken(self, how: str) -> UnfitError:
        return UnfitError(
            f"the keeper of command {self.name} {how}",
            value=last_lines(self.folder / "keeper.log") or "it said nothing",
            remedy=f"out of memory or disk, or somebody ended it: see {self.folder}",
        )

    def _sweep(self) -> None:
        """The keeper was killed: end whoever carries this run's folder in its environment."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(RUN) == str(self.folder):
                    process.kill()
