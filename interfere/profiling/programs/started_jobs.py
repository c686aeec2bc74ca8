"""Jobs that `interfere run` started on this node: one folder a job, in which its supervisor and the node's agent meet.

    job.json       by the supervisor, before the command starts: who it is, where it runs, what memory it asks for
    spool.jsonl    by the job: step marks
    notices.jsonl  by the agent: warnings, and the request to end the job
    ended.json     by the supervisor, when no process of the job is left: when, and why

Law 1: who started a job ends it. The agent asks the supervisor, which is the parent of all processes of the job; no
other process is ever signalled. Law 2: where the supervisor was killed or does not act, the agent ends the supervisor,
the processes below it, and those that carry the job's token in their environment and belong to the user of the folder.
Each is held by a pidfd before it is looked at, so that a process id that was given anew is never signalled. Law 3: a
file that is a link, or of another user than the folder, is not read.
"""

import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from interfere.errors import ConflictError, InvalidInputError, UnfitError
from interfere.file_writing import write_text
from interfere.profiling.programs.process_tree import all_pids, owner, start_time
from interfere.progress import open_regular
from interfere.records import NAN
from interfere.records.documents import from_json, to_json

JOBS = Path("/run/interfere/jobs")
TOKEN_VARIABLE = "INTERFERE_JOB"  # noqa: S105 - a name: in the environment of every process of a job
RECORD, SPOOL, NOTICES, ENDING = "job.json", "spool.jsonl", "notices.jsonl", "ended.json"
MAX_RECORD_BYTES = 64 << 10
KEPT_S = 86_400.0  # an ended job that no agent has reported is removed after a day

_log = logging.getLogger("interfere.agent")


class NoticeKind(StrEnum):
    """What the agent tells a job's supervisor."""

    WARNING = "warning"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line of `notices.jsonl`."""

    kind: NoticeKind
    reason: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What `job.json` says of a job."""

    job_id: str
    workload: str
    device_id: str  # without its node
    memory_bytes: float = NAN  # that it asks for; NaN: it does not say, and holds no grant
    supervisor_pid: int
    supervisor_start: str  # field 22 of /proc/PID/stat: with the id it names one process for ever
    since_s: float  # unix time
    token: str
    cgroup: str = ""  # name of its own memory control group


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What `ended.json` says of a job."""

    at_s: float
    reason: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob:
    """A job that `interfere run` started, as its folder describes it."""

    folder: Path
    user_id: int
    record: JobRecord
    ending: Ending | None = None

    @property
    def id(self) -> str:
        """The job's id in decisions."""
        return self.record.job_id

    @property
    def workload(self) -> str:
        """The name of the workload."""
        return self.record.workload

    @property
    def run_id(self) -> str:
        """The prefix of the ids of its observations: another run of the same name has another token."""
        return f"{self.record.job_id}.{self.record.token[:8]}"

    @property
    def history_id(self) -> str:
        """The same as `run_id`: a job runs once."""
        return self.run_id

    def supervisor_lives(self) -> bool:
        """Whether the process that started the job is still there, and of the user of the folder."""
        pid = self.record.supervisor_pid
        return _is_supervisor(pid, self) and owner(pid) == self.user_id


def make_folder(root: Path, job_id: str) -> Path:
    """Return the new folder of a job, which only its user may enter, after removing those of jobs that ended a day ago.

    Raises InvalidInputError for a name that is none of a folder, ConflictError where a job has this name.
    """
    if not job_id or job_id.startswith(".") or "/" in job_id or not job_id.isprintable() or len(job_id) > 200:
        raise InvalidInputError("this is no name of a job", value=job_id, remedy="use letters, digits, - and _")
    try:
        make_root(root)
        for job in started_jobs(root):
            if job.ending is not None and (job.id == job_id or time.time() - job.ending.at_s > KEPT_S):
                remove(job)
        folder = root / job_id
        folder.mkdir(mode=0o700)
        for name in (SPOOL, NOTICES):
            (folder / name).touch(mode=0o600)
    except FileExistsError:
        raise ConflictError("a job of this name is running", value=job_id, remedy="give it another --job") from None
    except OSError as error:
        what = f"the folder of started jobs cannot be written ({error.strerror})"
        raise UnfitError(what, value=root, remedy="give one that you may write to: --jobs-folder FOLDER") from None
    return folder


def make_root(root: Path) -> None:
    """Make the folder of all started jobs where there is none. Raises OSError."""
    if not root.is_dir():
        root.mkdir(parents=True)
        root.chmod(0o1777)  # every user may start jobs, and remove none of others


def write_record(folder: Path, record: JobRecord) -> None:
    """Write what a job is. Readers see the whole record or none."""
    write_text(folder / RECORD, to_json(record) + "\n")


def write_ending(folder: Path, ending: Ending) -> None:
    """Write that no process of a job is left. Readers see the whole record or none."""
    write_text(folder / ENDING, to_json(ending) + "\n")


def started_jobs(root: Path) -> list[StartedJob]:
    """Return the jobs of all folders, by name. Folders that hold no valid record are left out."""
    jobs = []
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    for name in names:
        with suppress(OSError, ValueError, InvalidInputError, RecursionError):
            folder = root / name
            status = os.lstat(folder)
            record = from_json(JobRecord, _read(folder / RECORD, status.st_uid))
            if record.job_id != name:
                continue
            ending = None
            with suppress(FileNotFoundError):
                ending = from_json(Ending, _read(folder / ENDING, status.st_uid))
            jobs.append(StartedJob(folder=folder, user_id=status.st_uid, record=record, ending=ending))
    return jobs


def send(job: StartedJob, notice: Notice) -> None:
    """Append a notice for the supervisor of a job. Raises OSError."""
    handle = open_regular(job.folder / NOTICES, os.O_WRONLY | os.O_APPEND, (job.user_id,))
    try:
        os.write(handle, (json.dumps(asdict(notice)) + "\n").encode())
    finally:
        os.close(handle)


def read_notices(folder: Path, offset: int) -> tuple[list[Notice], int]:
    """Return the notices from an offset on, and the offset to read on from; a line that is none is skipped."""
    content = (folder / NOTICES).read_bytes()[offset:]
    complete = content[: content.rfind(b"\n") + 1]
    notices = []
    for line in complete.splitlines():
        with suppress(ValueError, InvalidInputError):
            notices.append(from_json(Notice, line.decode()))
    return notices, offset + len(complete)


def remove(job: StartedJob) -> None:
    """Remove the folder of a job that has ended."""
    shutil.rmtree(job.folder, ignore_errors=True)


def end_forcibly(job: StartedJob, below: Iterable[int]) -> int:
    """Kill the supervisor of a job, the processes `below` it, and all that carry the job's token; of its user alone.

    For a job whose supervisor was killed or does not act. Returns how many processes were signalled.
    """
    below, count = frozenset(below), 0
    for pid in all_pids():
        try:
            handle = os.pidfd_open(pid)  # from here on the id stands for this process, also when it has ended
        except OSError:
            continue
        try:
            if owner(pid) == job.user_id and (pid in below or _is_supervisor(pid, job) or _carries(pid, job)):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                count += 1
        except OSError as error:
            _log.warning("process %d of job %s cannot be ended: %s", pid, job.id, error.strerror)
        finally:
            os.close(handle)
    return count


def token_processes(job: StartedJob) -> tuple[int, ...]:
    """Return the ids of the processes of the job's user that carry the job's token in their environment."""
    return tuple(pid for pid in all_pids() if owner(pid) == job.user_id and _carries(pid, job))


def _is_supervisor(pid: int, job: StartedJob) -> bool:
    return pid == job.record.supervisor_pid and start_time(pid) == job.record.supervisor_start


def _carries(pid: int, job: StartedJob) -> bool:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{TOKEN_VARIABLE}={job.record.token}".encode() in content.split(b"\0")


def _read(path: Path, user_id: int) -> str:
    with os.fdopen(open_regular(path, os.O_RDONLY, (user_id,)), "rb") as file:
        return file.read(MAX_RECORD_BYTES).decode()
