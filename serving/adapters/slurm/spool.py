"""The spool: step marks `JOB.jsonl` that jobs write, and endings `JOB.RESTARTS.NODE.end` that the epilog writes.

Jobs may write anything into the spool, so its content is not trusted. Marks are read only from regular files of the
job's own user, up to a size limit, without following links or waiting. Endings are read from a separate folder that
only root writes, and only from files of root or of the user of this process.

Law: no user can cost the job of another user its ending; nor its marks, where root's prolog makes the files of marks.
Law: a file that is refused is named once in the log.
"""

import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from interfere.progress import Mark, open_regular, read_marks
from interfere.serving.adapters.slurm.jobs import SlurmJob
from interfere.serving.adapters.windows import Residency

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
        """Return what the folder's mode lets users do to the jobs of others; empty where it protects them."""
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
