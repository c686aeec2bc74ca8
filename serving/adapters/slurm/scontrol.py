"""Edits of jobs as lines for `scontrol`, and Slurm's commands, each run with a timeout: they hang while slurmctld does
not answer.

Slurm refuses to turn `shard:1` into `shard:g1:1` in one update: the request is cleared first, then written anew. Law: a
job without a request is never left where the scheduler may take it (slurmctld 22.05.8 crashes on it): it is put off
for a year in the update that clears it, and both updates are lines of one process that outlives the advisor.
"""

import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO

from interfere.errors import UnavailableError, UnfitError
from interfere.records import NAN
from interfere.serving.adapters.observations import Rejection
from interfere.serving.adapters.slurm.jobs import (
    GpuAddress,
    Node,
    Note,
    SlurmJob,
    as_word,
    is_safe,
    read_jobs,
    read_nodes,
)

FAR = "now+365days"
MAX_IDS = 100  # in one update: a line of 1 kB
MAX_LINES = 200  # of one scontrol process: about a second and a half at 7 ms an update
_REFUSED = re.compile(r"(?m)^(.*?) for job (\d+)\s*$")
# What slurmctld says of a job that started, ended or left before the update reached it.
_GONE = ("no longer pending", "already", "Invalid job id", "Invalid node name", "transition", "is running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Updates of one or more jobs, as lines for scontrol in order. `note`: the note that a single job has
    afterwards."""

    kind: str  # place, renew, repair, free, end
    job_ids: tuple[str, ...]
    lines: tuple[str, ...]
    note: Note | None = None
    cancels: bool = False  # does scancel end the jobs once their lines are accepted?


def place(job: SlurmJob, address: GpuAddress, decision: str, now_s: float, grant_bytes: float = NAN) -> Edit:
    """Return an edit that assigns a pending job to one GPU and lets the job start. `grant_bytes`: memory granted to the
    job on the GPU; NaN for no grant."""
    before = job.note or Note()
    tres = before.tres or job.tres
    decision_note = decision if is_safe(decision) else ""
    note = Note(
        state="placed",
        to=address,
        tres=tres,
        decision=decision_note,
        round_s=int(now_s),
        tries=before.tries + 1,
        grant_bytes=0 if math.isnan(grant_bytes) else int(grant_bytes),
    )
    write = (
        f"update JobId={job.id} TresPerNode=gres:shard:{address.gres}:{job.shards} ReqNodeList={address.node} "
        f"StartTime=now {job.noting(note)}"
    )
    if job.typed:
        return Edit(kind="place", job_ids=(job.id,), lines=(write,), note=note)
    clear = f"update JobId={job.id} TresPerNode= StartTime={FAR} {job.noting(replace(note, state='clearing'))}"
    return Edit(kind="place", job_ids=(job.id,), lines=(clear, write), note=note)


def renew(jobs: Sequence[SlurmJob], window_s: float) -> tuple[Edit, ...]:
    """Return edits that defer waiting jobs once more."""
    ids = [job.id for job in jobs]
    return tuple(
        Edit(
            kind="renew",
            job_ids=tuple(part),
            lines=(f"update JobId={','.join(part)} StartTime=now+{max(1, round(window_s))}",),
        )
        for k in range(0, len(ids), MAX_IDS)
        if (part := ids[k : k + MAX_IDS])
    )


def repair(job: SlurmJob, window_s: float) -> Edit:
    """Return an edit that gives a job, caught between two updates, its own GPU request back."""
    tres = job.note.tres if job.note and job.note.tres else "gres:shard:1"
    note = Note()
    line = (
        f"update JobId={job.id} TresPerNode={tres} ReqNodeList= StartTime=now+{max(1, round(window_s))} "
        f"{job.noting(note)}"
    )
    return Edit(kind="repair", job_ids=(job.id,), lines=(line,), note=note)


def hand_back(job: SlurmJob) -> Edit:
    """Return an edit that gives a pending job back to Slurm.

    It restores the job's own GPU request where that was cleared, allows any node, and sets the start time to now.
    """
    note = job.note or Note()
    tres = f"TresPerNode={note.tres or 'gres:shard:1'} " if note.state == "clearing" else ""
    freed = replace(note, state="freed", to=None)
    line = f"update JobId={job.id} {tres}ReqNodeList= StartTime=now {job.noting(freed)}"
    return Edit(kind="free", job_ids=(job.id,), lines=(line,), note=freed)


def end(job: SlurmJob, reason: str) -> Edit:
    """Return an edit that cancels a running job. The reason stands in its note, and in its standard error."""
    note = replace(job.note or Note(), state="ended", why=as_word(reason))
    lines = (f"update JobId={job.id} {job.noting(note)}", f"notify {job.id} interfere ends this job: {note.why}")
    return Edit(kind="end", job_ids=(job.id,), lines=lines, note=note, cancels=True)


def due(jobs: Iterable[SlurmJob], now_s: float, window_s: float) -> tuple[SlurmJob, ...]:
    """Return the jobs whose deferral is more than half over."""
    return tuple(job for job in jobs if job.eligible_s - now_s < window_s / 2)


class SlurmCommands:
    """Runs Slurm's commands: reads jobs and nodes, applies edits. Raises UnavailableError when slurmctld does not
    answer in time."""

    def __init__(self, timeout_s: float, only_user: int | None = None) -> None:
        """Run scontrol. `only_user`: the id of the one user whose jobs are advised, with the rights of this user."""
        self._timeout_s, self._only_user = timeout_s, only_user

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Return all jobs, with those that ended in the last MinJobAge seconds."""
        return read_jobs(self._run("squeue", "--json"), self._only_user)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        return read_nodes(self._run("sinfo", "--json"))

    def apply(self, edits: Sequence[Edit]) -> tuple[Rejection, ...]:
        """Apply edits in order, and return the rejected updates, at most one a job."""
        rejected: dict[str, Rejection] = {}
        batch: list[Edit] = []
        for edit in edits:
            if batch and sum(len(queued.lines) for queued in batch) + len(edit.lines) > MAX_LINES:
                self._update(batch, rejected)
                batch = []
            batch.append(edit)
        if batch:
            self._update(batch, rejected)
        return tuple(rejected.values())

    def _update(self, edits: Sequence[Edit], rejected: dict[str, Rejection]) -> None:
        """Send all updates to one scontrol process, which reads them from a file.

        The process has a session of its own, so that killing the advisor does not stop it between two lines.
        """
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
            lost_race = any(word in message for word in _GONE)
            rejected.setdefault(job_id, Rejection(job_id=job_id, message=message.strip(), lost_race=lost_race))
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
