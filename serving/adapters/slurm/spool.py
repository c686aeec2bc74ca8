"""The spool folder: step marks `JOB.jsonl` that jobs write, endings `JOB.RESTARTS.end` that the epilog writes."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from interfere.progress import Mark, read
from serving.adapters.slurm.occupancy import JobEnding, JobOnGpu, read_ending

TAIL_BYTES = 2**20  # of a file met for the first time: 10,000 marks, three hours of one a second


class Spool:
    """Reads the spool folder and remembers how far each file was read; after a restart it is read again."""

    def __init__(self, folder: Path, lookback_s: float) -> None:
        self._folder, self._lookback_s = folder, lookback_s
        self._read: dict[str, tuple[int, list[Mark]]] = {}

    def marks(self, stay: JobOnGpu, now_s: float) -> list[Mark]:
        """Recent marks of a job. A file that is not a regular file of the job's owner is ignored."""
        path = self._folder / f"{stay.job.id}.jsonl"
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (stay.job.user_id, 0):
                return []
            offset, marks = self._read.get(stay.job.id, (max(0, status.st_size - TAIL_BYTES), []))
            new = read(path, offset)
        except OSError:
            return []
        marks = [mark for mark in (*marks, *new.marks) if mark.unix_s >= now_s - self._lookback_s]
        self._read[stay.job.id] = (new.offset, marks)
        return marks

    def endings(self) -> tuple[JobEnding, ...]:
        """The endings that epilogs wrote."""
        endings = []
        for path in self._folder.glob("*.end"):
            with suppress(OSError, UnicodeDecodeError):
                endings.append(read_ending(path.read_text(encoding="utf-8")))
        return tuple(ending for ending in endings if ending)

    def sweep(self, known: Iterable[str], now_s: float) -> None:
        """Remove the files of jobs that Slurm has forgotten."""
        keep = set(known)
        self._read = {job: value for job, value in self._read.items() if job in keep}
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                job, _, rest = entry.name.partition(".")
                is_spool_file = job.isdecimal() and (rest == "jsonl" or rest.endswith("end"))
                with suppress(OSError):
                    if is_spool_file and job not in keep and now_s - entry.stat(follow_symlinks=False).st_mtime > 3600:
                        os.unlink(entry.path)
