"""Run a job so that this node's agent measures its memory, warns it and ends it: `interfere run -- PROGRAM`."""

import math
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from interfere import progress
from interfere.commands.output import progress_note
from interfere.errors import UnfitError
from interfere.monitoring.job_memory import MemoryCgroup, cgroup_of
from interfere.profiling.programs import device_admission, started_jobs
from interfere.profiling.programs.process_tree import start_time
from interfere.profiling.programs.started_jobs import Ending, JobRecord, NoticeKind
from interfere.records import NAN
from interfere.sharing.device_turns import environment_of, find_priority

app = typer.Typer(add_completion=False)
GIB = 2.0**30
WATCH_S = 0.1  # how late an end, a notice or a signal may be noticed
ENDED_BY_AGENT = 128 + signal.SIGTERM  # exit status, as a shell reports a program that SIGTERM ended


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    line: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARGUMENT...", help="What to run.")],
    workload: Annotated[str, typer.Option(help="Its workload: what it runs. Default: the program's file name.")] = "",
    job: Annotated[str, typer.Option(help="Id of the job. Default: made of the workload.")] = "",
    device: Annotated[
        str, typer.Option(help="The device on this node: its id in the agent's settings, or the UUID of its GPU.")
    ] = "0",
    memory_gib: Annotated[float, typer.Option(min=0, help="Device memory that it asks for. 0: it does not say.")] = 0.0,
    limit_gib: Annotated[
        float, typer.Option(min=0, help="Hard limit of its host memory, by a control group. 0: none.")
    ] = 0.0,
    priority: Annotated[
        str, typer.Option(help="high or low: its PyTorch operators take turns with other such jobs of the device.")
    ] = "",
    jobs: Annotated[
        Path, typer.Option("--jobs-folder", help="Folder of the started jobs of this node.")
    ] = started_jobs.JOBS,
    grace_s: Annotated[float, typer.Option(min=0, help="Seconds between SIGTERM and SIGKILL.")] = 10.0,
) -> None:
    """Run a job that this node's agent knows: its memory is measured, and it is warned and ended by its grant.

    A device that cannot back the memory that the job asks for refuses it. A job on a GPU sees that GPU alone. Its exit
    status is that of the program; 143 where it was ended. All its processes end with its first one.
    """
    name = workload or Path(line[0]).name
    if priority:
        find_priority(priority)
    admission = device_admission.admit(
        jobs,
        JobRecord(
            job_id=job or f"{name}-{secrets.token_hex(4)}",
            workload=name,
            device_id=device,
            memory_bytes=memory_gib * GIB or NAN,
            supervisor_pid=os.getpid(),
            supervisor_start=start_time(os.getpid()),
            since_s=time.time(),
            token=secrets.token_hex(16),
        ),
    )
    if admission.objection:
        progress_note(f"an agent that enforces grants would refuse this job: {admission.objection}")
    turns = environment_of(priority, admission.record.device_id) if priority else {}
    supervised = SupervisedJob(
        folder=admission.folder,
        record=admission.record,
        grace_s=grace_s,
        environment={**admission.environment, **turns},
    )
    raise typer.Exit(supervised.run(line, limit_gib * GIB or NAN))


@dataclass(kw_only=True)
class SupervisedJob:
    """A job below this process, from its start until none of its processes is left."""

    folder: Path
    record: JobRecord
    grace_s: float
    environment: dict[str, str] = field(default_factory=dict)  # what the command gets beside that of this process
    _signal: int = 0  # the first that this process was sent
    _offset: int = 0  # of the notices that were read
    _exit_code: int = 0
    _cgroup: MemoryCgroup | None = None

    def run(self, argv: list[str], limit_bytes: float = NAN) -> int:
        """Run the command to its end, and return its exit status. Raises UnfitError where it cannot be started."""
        from interfere.profiling.programs import supervision

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._remember_signal)
        supervision.adopt_orphans()
        reason = "it could not be started"
        self._exit_code = 127
        try:
            self._enter_cgroup(limit_bytes)
            started_jobs.write_record(self.folder, self.record)
            pid = self._start(argv, supervision.die_with_parent)
            reason = self._watch(pid)
        finally:
            supervision.end_descendants(self.grace_s, lambda: None)
            if self._cgroup is not None:
                self._cgroup.remove()
            ending = Ending(at_s=time.time(), reason=reason[:200], exit_code=self._exit_code)
            started_jobs.write_ending(self.folder, ending)
        return self._exit_code

    def _remember_signal(self, number: int, _: FrameType | None) -> None:
        self._signal = self._signal or number

    def _enter_cgroup(self, limit_bytes: float) -> None:
        """Make the job's own memory control group below this process's own; without a limit it has none."""
        if math.isnan(limit_bytes):
            return
        own = cgroup_of(os.getpid())
        if own is None:
            remedy = "leave --limit-gib out: the agent measures process trees"
            raise UnfitError("this machine has no memory controller", value=limit_bytes, remedy=remedy)
        name = f"interfere-{self.record.token}"
        self._cgroup = own.child(name, limit_bytes)
        self.record = replace(self.record, cgroup=name)

    def _start(self, argv: list[str], die_with_parent: Callable[[], None]) -> int:
        """Start the command, and return its process id."""
        cgroup = self._cgroup

        def prepare() -> None:
            die_with_parent()
            if cgroup is not None:
                cgroup.enter()

        environment = {
            **os.environ,
            **self.environment,
            started_jobs.TOKEN_VARIABLE: self.record.token,
            progress.SPOOL_VARIABLE: str(self.folder / started_jobs.SPOOL),
        }
        try:
            process = subprocess.Popen(argv, env=environment, preexec_fn=prepare)  # noqa: PLW1509 - no other thread of Python
        except (OSError, subprocess.SubprocessError) as error:
            remedy = "check its first word, and that it may be executed; there is no shell in between"
            raise UnfitError(f"the program cannot be started ({error})", value=argv[0], remedy=remedy) from None
        process.returncode = 0  # `reap_children` waits for it, with all the others
        return process.pid

    def _watch(self, pid: int) -> str:
        """Wait until the first process has ended, or the job is to end; return why it ends."""
        from interfere.profiling.programs import supervision

        while True:
            exit_code = supervision.reap_children().get(pid)
            if exit_code is not None:
                self._exit_code = exit_code if exit_code >= 0 else 128 - exit_code
                return "finished" if exit_code == 0 else f"failed: exit status {self._exit_code}"
            if self._signal:
                self._exit_code = 128 + self._signal
                return f"ended by {signal.Signals(self._signal).name}"
            for notice in self._notices():
                if notice.kind is NoticeKind.END:
                    progress_note(f"interfere ends this job: {notice.reason}")
                    self._exit_code = ENDED_BY_AGENT
                    return notice.reason
                progress_note(f"interfere warns this job: {notice.reason}")
            time.sleep(WATCH_S)

    def _notices(self) -> list[started_jobs.Notice]:
        try:
            notices, self._offset = started_jobs.read_notices(self.folder, self._offset)
        except OSError as error:
            sys.stderr.write(f"interfere: notices cannot be read: {error}\n")
            return []
        return notices
