"""Runs Slurm's commands, each with a timeout: they hang while slurmctld does not answer."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from interfere.errors import UnavailableError, UnfitError
from interfere.serving.adapters.slurm.edits import Edit
from interfere.serving.adapters.slurm.reading import read_jobs, read_nodes
from interfere.serving.adapters.slurm.records import Node, SlurmJob

MAX_LINES = 200  # of one scontrol process: about a second and a half at 7 ms an update
_REFUSED = re.compile(r"(?m)^(.*?) for job (\d+)\s*$")
# What slurmctld says of a job that started, ended or left before the update reached it.
_GONE = ("no longer pending", "already", "Invalid job id", "Invalid node name", "transition", "is running")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedUpdate:
    """An update that Slurm rejected."""

    job_id: str
    message: str

    @property
    def lost_race(self) -> bool:
        """Whether the job had started or ended before the update arrived."""
        return any(word in self.message for word in _GONE)


class SlurmCommands:
    """Reads jobs and nodes, and applies edits. Raises UnavailableError when slurmctld does not answer in time."""

    def __init__(self, timeout_s: float, only_user: int | None = None) -> None:
        """`only_user`: id of the one user whose jobs are advised, with the rights of that user."""
        self._timeout_s, self._only_user = timeout_s, only_user

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs, ended ones of the last MinJobAge seconds too."""
        return read_jobs(self._run("squeue", "--json"), self._only_user)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return read_nodes(self._run("sinfo", "--json"))

    def apply(self, edits: Sequence[Edit]) -> tuple[RejectedUpdate, ...]:
        """Apply edits in order; the rejected updates, at most one a job."""
        rejected: dict[str, RejectedUpdate] = {}
        batch: list[Edit] = []
        for edit in edits:
            if batch and sum(len(queued.lines) for queued in batch) + len(edit.lines) > MAX_LINES:
                self._update(batch, rejected)
                batch = []
            batch.append(edit)
        if batch:
            self._update(batch, rejected)
        return tuple(rejected.values())

    def _update(self, edits: Sequence[Edit], rejected: dict[str, RejectedUpdate]) -> None:
        """One scontrol process reads all lines from a file, in a session of its own: killing the advisor does not
        stop it between two lines."""
        with tempfile.TemporaryFile("w+") as lines:
            lines.write("".join(f"{line}\n" for edit in edits for line in edit.lines))
            lines.seek(0)
            process = self._start("scontrol", [], lines)
            try:
                _, output = process.communicate(timeout=self._timeout_s + 0.05 * len(edits))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise UnavailableError(
                    "scontrol did not finish in time",
                    value=f"{len(edits)} edits",
                    remedy="none needed: the next round reads which edits were applied",
                ) from None
        for message, job_id in _REFUSED.findall(output):
            rejected.setdefault(job_id, RejectedUpdate(job_id=job_id, message=message.strip()))
        for job_id in (job_id for edit in edits if edit.cancels for job_id in edit.job_ids):
            if job_id not in rejected:
                self._run("scancel", "--quiet", job_id)  # quiet: says nothing of a job that has just ended

    def _run(self, *command: str) -> str:
        process = self._start(command[0], command[1:], subprocess.DEVNULL)
        try:
            stdout, stderr = process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise UnavailableError(
                f"{command[0]} did not answer in {self._timeout_s:g} s", remedy="is slurmctld running? scontrol ping"
            ) from None
        if process.returncode:
            raise UnavailableError(
                f"{command[0]} failed",
                value=stderr.strip()[:200] or f"status {process.returncode}",
                remedy="run it by hand: scontrol ping",
            )
        return stdout

    def _start(self, name: str, arguments: Sequence[str], stdin: IO[str] | int) -> "subprocess.Popen[str]":
        try:
            return subprocess.Popen(
                [name, *arguments],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise UnfitError(
                f"the command {name} is missing", remedy="run on a host with Slurm's client commands in PATH"
            ) from None
