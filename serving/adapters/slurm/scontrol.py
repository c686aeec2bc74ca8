"""What the advisor tells Slurm and reads of it: edits of jobs as lines for `scontrol`, Slurm's commands, and the spool.

Each command runs with a timeout: they hang while slurmctld does not answer. Slurm refuses to turn `shard:1` into
`shard:g1:1` in one update: the request is cleared first, then written anew. Law: a job without a request is never left
where the scheduler may take it (slurmctld 22.05.8 crashes on it): it is put off for a year in the update that clears
it, and both updates are lines of one process that outlives the advisor.

The spool holds step marks `JOB.jsonl` that jobs write, and endings `JOB.RESTARTS.NODE.end` that the epilog writes. Jobs
may write anything into it, so its content is not trusted. Marks are read only from regular files of the job's own user,
up to a size limit, without following links or waiting. Endings are read from a separate folder that only root writes,
and only from files of root or of the user of this process. Law: no user can cost the job of another user its ending;
nor its marks, where root's prolog makes the files of marks. Law: a refused file is named once in the log.
"""

import json
import logging
import math
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from interfere.errors import UnavailableError, UnfitError
from interfere.progress import Mark, open_regular, read_marks
from interfere.records import NAN
from interfere.serving.adapters.observations import Rejection
from interfere.serving.adapters.slurm.jobs import (
    GpuAddress,
    Node,
    Note,
    SlurmJob,
    as_word,
    is_safe,
    read_expected_nodes,
    read_jobs,
    read_nodes,
)
from interfere.serving.adapters.windows import Residency

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

    kind: str  # place, prepare, renew, repair, free, end, move
    job_ids: tuple[str, ...]
    lines: tuple[str, ...]
    note: Note | None = None
    cancels: bool = False  # does scancel end the jobs once their lines are accepted?


def place(
    job: SlurmJob,
    address: GpuAddress,
    decision: str,
    now_s: float,
    grant_bytes: float = NAN,
    after: Sequence[str] = (),
    slots: str = "",
) -> Edit:
    """Return an edit that assigns a pending job to one GPU and lets the job start.

    `grant_bytes`: memory granted to the job on the GPU; NaN for no grant. `slots`: that hold it, as in notes. `after`:
    the jobs that have to end first; such a placement is no try.
    """
    before = job.note or Note()
    tres = before.tres or job.tres
    decision_note = decision if is_safe(decision) else ""
    note = Note(
        state="placed",
        to=address,
        tres=tres,
        decision=decision_note,
        round_s=int(now_s),
        tries=before.tries + (not after),
        after=tuple(after),
        grant_bytes=0 if math.isnan(grant_bytes) else int(grant_bytes),
        slots=slots,
        spent_s=before.spent_s,
    )
    write = (
        f"update JobId={job.id} TresPerNode=gres:shard:{address.gres}:{job.shards} ReqNodeList={address.node} "
        f"{_dependency(before, after)}StartTime=now {job.noting(note)}"
    )
    kind = "prepare" if after else "place"
    if job.typed:
        return Edit(kind=kind, job_ids=(job.id,), lines=(write,), note=note)
    clear = f"update JobId={job.id} TresPerNode= StartTime={FAR} {job.noting(replace(note, state='clearing'))}"
    return Edit(kind=kind, job_ids=(job.id,), lines=(clear, write), note=note)


def _dependency(before: Note, after: Sequence[str] = ()) -> str:
    """Return the words of an update that let a job start only after the end of others, in place of those before."""
    if not after and not before.after:
        return ""
    return f"Dependency={'afterany:' + ':'.join(after) if after else ''} "


def move(job: SlurmJob, address: GpuAddress, decision: str, now_s: float, lost_s: float = 0.0) -> Edit:
    """Return an edit that stops a running job, which starts again on another GPU: `place` lets it, once it waits.

    Slurm sends SIGTERM to the job, which writes its checkpoint and ends, and then puts the job back into the queue.
    `lost_s`: what it lost of this run to the jobs beside it.
    """
    note = replace(
        job.note or Note(),
        state="moving",
        to=address,
        decision=decision if is_safe(decision) else "",
        round_s=int(now_s),
        tries=0,
        spent_s=(job.note.spent_s if job.note else 0) + int(now_s - job.start_s - lost_s),
    )
    lines = (f"requeue {job.id}", f"update JobId={job.id} {job.noting(note)}")
    return Edit(kind="move", job_ids=(job.id,), lines=lines, note=note)


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
    before = job.note or Note()
    tres = before.tres or "gres:shard:1"
    note = Note()
    line = (
        f"update JobId={job.id} TresPerNode={tres} ReqNodeList= {_dependency(before)}"
        f"StartTime=now+{max(1, round(window_s))} {job.noting(note)}"
    )
    return Edit(kind="repair", job_ids=(job.id,), lines=(line,), note=note)


def hand_back(job: SlurmJob) -> Edit:
    """Return an edit that gives a pending job back to Slurm.

    It restores the job's own GPU request where that was cleared, allows any node, and sets the start time to now.
    """
    note = job.note or Note()
    tres = f"TresPerNode={note.tres or 'gres:shard:1'} " if note.state == "clearing" else ""
    freed = replace(note, state="freed", to=None, after=())
    line = f"update JobId={job.id} {tres}ReqNodeList= {_dependency(note)}StartTime=now {job.noting(freed)}"
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
        """Return all jobs, with those that ended in the last MinJobAge seconds.

        Slurm before 23.02 writes the nodes that it keeps for a job into its tables and not into its JSON.
        """
        jobs = read_jobs(self._run("squeue", "--json"), self._only_user)
        if not any(job.is_next_for_whole_gpus and not job.expected_nodes for job in jobs):
            return jobs
        text = self._run("squeue", "--noheader", "--states=PENDING", "--format=%i %Y")
        expected = read_expected_nodes(text)
        return tuple(replace(job, expected_nodes=expected.get(job.id, job.expected_nodes)) for job in jobs)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        return read_nodes(self._run("sinfo", "--json"))

    def process_ids(self, job_id: str, node: str) -> tuple[int, ...]:
        """Return the ids of the processes of a job on this host, as its slurmd for `node` tracks them."""
        rows = (line.split() for line in self._run("scontrol", "listpids", job_id, node).splitlines())
        return tuple(int(row[0]) for row in rows if len(row) > 1 and row[0].isdecimal() and row[1] == job_id)

    def notify(self, job_id: str, message: str) -> None:
        """Write a message into the standard error of a running job."""
        self._run("scontrol", "notify", job_id, message)

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


_log = logging.getLogger("interfere.slurm")
TAIL_BYTES = 2**20  # of a file met for the first time: 10,000 marks, three hours of one a second
READ_BYTES = 2**22  # of one file in one round; the rest follows in the next
ENDING_BYTES = 4096  # an ending has 100 bytes
MAX_ENDINGS = 20_000  # of a round: more are left for the next
ENDINGS = "endings"  # folder of the endings in the spool
PROLOG_S = 60.0  # a file that is still missing so long after the start was made by no prolog


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnding:
    """The end of a job as a Slurm epilog wrote it: the job ran on these GPUs until this time."""

    job_id: str
    restarts: int
    node: str
    gpu_indices: tuple[int, ...]


def read_ending(text: str) -> JobEnding | None:
    """Return the ending that an epilog's file holds; None for any other text."""
    try:
        row = json.loads(text)
        indices = tuple(int(part) for part in str(row.get("gpus") or "").split(",") if part)
        return JobEnding(
            job_id=str(row["job"]), restarts=int(row.get("restarts") or 0), node=str(row["node"]), gpu_indices=indices
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


class Spool:
    """Reads the spool folder and remembers how far each file was read; after a restart it is read again. Implements
    MarkSource."""

    def __init__(self, folder: Path, lookback_s: float) -> None:
        self._folder, self._lookback_s = folder, lookback_s
        self._read: dict[str, tuple[int, list[Mark]]] = {}
        self._told: set[str] = set()  # jobs whose file was refused

    def weakness(self) -> str:
        """Return what the mode of the spool folder lets users do to others' jobs; empty where it protects them."""
        try:
            status = os.lstat(self._folder)
        except OSError:
            return ""
        if stat.S_ISLNK(status.st_mode):
            return f"the spool {self._folder} is a link: prolog and epilog write nothing into it"
        if not status.st_mode & stat.S_IWOTH:
            return ""
        if not status.st_mode & stat.S_ISVTX:
            return f"every user can replace the marks of every job: protect it with `chmod 0711 {self._folder}`"
        return (
            f"every user may make files in the spool {self._folder}: without root's prolog, who makes JOB.jsonl first "
            f"silences that job. Set Prolog=/etc/slurm/prolog.sh, then `chmod 0711 {self._folder}`"
        )

    def complete_until_s(self, now_s: float) -> float:
        """Return the time up to which the marks that jobs wrote are complete, as `MarkSource.complete_until_s`."""
        return now_s

    def marks(self, residency: Residency[SlurmJob], now_s: float) -> list[Mark]:
        """Return the recent marks of a job. A file that is not a regular file of the job's user is ignored and named
        once in the log."""
        job_id = residency.job.id
        try:
            with _opened(self._folder / f"{job_id}.jsonl", (residency.job.user_id, 0)) as file:
                size = os.fstat(file.fileno()).st_size
                offset, marks = self._read.get(job_id, (max(0, size - TAIL_BYTES), []))
                if size > offset + READ_BYTES:  # a hole, or more than anybody steps: only its end counts
                    offset = size - TAIL_BYTES
                file.seek(offset)
                new = read_marks(file.read(READ_BYTES), offset)
        except FileNotFoundError:
            self._note_missing_file(residency, now_s)
            return []
        except OSError as error:
            remedy = "let root's prolog.sh make the files, and let only the advisor's user and group into the folder"
            self._tell(job_id, f"its file {job_id}.jsonl is not read: {error.strerror or error}; {remedy}")
            return []
        except (ValueError, RecursionError):
            return []
        marks = [mark for mark in (*marks, *new.marks) if mark.unix_s >= now_s - self._lookback_s]
        self._read[job_id] = (new.offset, marks)
        return marks

    def endings(self) -> tuple[JobEnding, ...]:
        """Return the endings that epilogs wrote. A folder that other users may write into counts as empty."""
        folder, endings = self._folder / ENDINGS, []
        for name in _names(folder, ".end") if _is_protected(folder) else ():
            with suppress(OSError, ValueError, RecursionError), _opened(folder / name, _trusted_users()) as file:
                ending = read_ending(file.read(ENDING_BYTES).decode())
                if ending is not None and name.startswith(f"{ending.job_id}.{ending.restarts}."):
                    endings.append(ending)
            if len(endings) >= MAX_ENDINGS:
                break
        return tuple(endings)

    def sweep(self, known: Iterable[str], now_s: float) -> None:
        """Remove the files of jobs that Slurm has forgotten."""
        keep = set(known)
        self._read = {job: value for job, value in self._read.items() if job in keep}
        self._told &= keep
        for folder, ending in ((self._folder, "jsonl"), (self._folder, "end"), (self._folder / ENDINGS, "end")):
            for name in _names(folder, f".{ending}"):
                job = name.partition(".")[0]
                with suppress(OSError):
                    is_old = now_s - os.lstat(folder / name).st_mtime > 3600
                    if job.isdecimal() and job not in keep and is_old:
                        os.unlink(folder / name)

    def _note_missing_file(self, residency: Residency[SlurmJob], now_s: float) -> None:
        """Tell of a job that may not make its file, and for which no prolog made one."""
        with suppress(OSError):
            is_open = os.lstat(self._folder).st_mode & stat.S_IWOTH
            if not is_open and residency.job.user_id not in _trusted_users() and now_s > residency.start_s + PROLOG_S:
                self._tell(residency.job.id, f"no prolog made its file in {self._folder}: set Prolog= to prolog.sh")

    def _tell(self, job_id: str, what: str) -> None:
        if job_id not in self._told:
            self._told.add(job_id)
            _log.warning("job %s has no marks: %s", job_id, what)


def _trusted_users() -> tuple[int, ...]:
    """Return the users whose endings count: root, who runs the epilog, and the user of this process."""
    return 0, os.geteuid()


def _is_protected(folder: Path) -> bool:
    """Whether a folder is no link, and only root or the user of this process may write into it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid in _trusted_users() and not open_to_others


@contextmanager
def _opened(path: Path, users: tuple[int, ...]) -> Iterator[IO[bytes]]:
    """Open a regular file of one of the users, without following a link or waiting for a writer. Raises OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY, users), "rb", buffering=0) as file:
        yield file


def _names(folder: Path, ending: str) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.name.endswith(ending)]
    return []
