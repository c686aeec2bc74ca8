"""The spool folder: step marks `JOB.jsonl` that jobs write, endings `JOB.RESTARTS.end` that the epilog writes."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from interfere.progress import Mark, read
from serving.adapters.slurm.occupancy import Ending, Stay, read_ending

TAIL_BYTES = 2**20  # of a file met for the first time: 10,000 marks, three hours of one a second


class Spool:
    """Remembers how far each file was read; what is forgotten by a restart is read again."""

    def __init__(self, folder: Path, lookback_s: float) -> None:
        self._folder, self._lookback_s = folder, lookback_s
        self._read: dict[str, tuple[int, list[Mark]]] = {}

    def marks(self, stay: Stay, now_s: float) -> list[Mark]:
        """Marks of a job of the last minutes. A file that is no plain file of the job's owner is nobody's."""
        path = self._folder / f"{stay.job.id}.jsonl"
        try:
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode) or about.st_uid not in (stay.job.user_id, 0):
                return []
            offset, marks = self._read.get(stay.job.id, (max(0, about.st_size - TAIL_BYTES), []))
            found = read(path, offset)
        except OSError:
            return []
        marks = [mark for mark in (*marks, *found.marks) if mark.unix_s >= now_s - self._lookback_s]
        self._read[stay.job.id] = (found.offset, marks)
        return marks

    def endings(self) -> tuple[Ending, ...]:
        """What epilogs left."""
        found = []
        for path in self._folder.glob("*.end"):
            with suppress(OSError, UnicodeDecodeError):
                found.append(read_ending(path.read_text(encoding="utf-8")))
        return tuple(one for one in found if one)

    def sweep(self, known: Iterable[str], now_s: float) -> None:
        """Remove the files of jobs that Slurm has forgotten."""
        keep = set(known)
        self._read = {job: value for job, value in self._read.items() if job in keep}
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                job, _, rest = entry.name.partition(".")
                ours = job.isdecimal() and (rest == "jsonl" or rest.endswith("end"))
                with suppress(OSError):
                    if ours and job not in keep and now_s - entry.stat(follow_symlinks=False).st_mtime > 3600:
                        os.unlink(entry.path)
