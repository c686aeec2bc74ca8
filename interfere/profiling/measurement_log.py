"""The append-only log of a campaign: every block and solo profile as a line on disk, behind a lock.

Laws: a line counts only when it is complete (a last line that a kill cut short is dropped); one profiler a folder; a
folder continues only the campaign with which it was started.
"""

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interfere.errors import ConflictError, InvalidInputError, TableError, UnfitError
from interfere.file_writing import write_text
from interfere.records import JobProfile, MeasuredBlock, WorkloadGroup
from interfere.records.documents import from_document, to_document
from interfere.sharing_modes import DEFAULT_MODE

BlocksByGroup = dict[WorkloadGroup, list[MeasuredBlock]]  # keyed by MeasuredBlock.key
# Settings that a folder of an earlier release does not name.
OLDER_IDENTITY = {"mode": DEFAULT_MODE, "protocol": "windows"}


class MeasurementLog:
    """The files in the raw folder of a measurement: settings, commands, measured blocks and solo profiles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks_path, self.profiles_path = folder / "blocks.jsonl", folder / "solo.jsonl"
        self.identity_path, self.jobs_path = folder / "campaign.json", folder / "commands.json"

    def bind_campaign(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Start a campaign in this folder, or continue the campaign that was started here.

        `identity` holds the settings that must stay the same for measurements to be comparable. Raises ConflictError
        when the folder was started with other settings, or holds measurements and `resume` is off.
        """
        if not self.identity_path.exists():
            self.identity_path.write_text(json.dumps(identity, indent=2) + "\n")
            return
        recorded = _parse_object(self.identity_path, self.identity_path.read_text())
        if not resume and (self.blocks_path.exists() or self.profiles_path.exists()):
            raise ConflictError(
                "this folder already holds measurements",
                value=self.folder.parent,
                remedy="resume it, or choose another",
            )
        for name, value in identity.items():
            before = recorded.get(name, OLDER_IDENTITY.get(name))
            if before != value:
                raise ConflictError(
                    f"this folder holds other measurements: its {name} is {before!r}, not {value!r}",
                    value=self.folder.parent,
                    remedy="repeat its settings, or choose another folder",
                )

    def check_jobs(self, jobs: dict[str, dict[str, Any]]) -> None:
        """Raise ConflictError when a name stood for another job in earlier measurements of this folder."""
        known = self._recorded_jobs()
        for name, record in jobs.items():
            earlier = known.get(name, record)
            if changed := [field for field, value in record.items() if earlier.get(field) != value]:
                raise ConflictError(
                    f"the name {name} stands for another command in this folder: its {', '.join(changed)} differs",
                    value=f"{self.folder.parent}: {shlex.join(earlier['argv'])}",
                    remedy="choose another name or folder (--name, --out)",
                )

    def record_job(self, name: str, record: dict[str, Any]) -> None:
        """Record the job that a measured name stands for. A job that failed is not recorded and may be corrected."""
        if not record:
            return
        text = json.dumps({**self._recorded_jobs(), name: record}, indent=2) + "\n"
        write_text(self.jobs_path, text)

    def _recorded_jobs(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.jobs_path.read_text())) if self.jobs_path.exists() else {}
        except ValueError as error:
            raise TableError(
                f"{self.jobs_path.name} is not a file that the profiler wrote",
                value=f"{self.jobs_path}: {error}",
                remedy="delete it; commands are then known by their names alone",
            ) from None

    def append_block(self, block: MeasuredBlock) -> None:
        """Append a measured block to the log, which is on disk when the call returns."""
        _append_line(self.blocks_path, to_document(block))

    def append_profile(self, profile: JobProfile) -> None:
        """Append the profile of a job alone to the log, which is on disk when the call returns."""
        _append_line(self.profiles_path, to_document(profile))

    def blocks(self) -> list[MeasuredBlock]:
        """Return all blocks in the order of measurement. Raises TableError for a line that is not a block."""
        return [_parse_block(self.blocks_path, line) for line in _complete_lines(self.blocks_path)]

    def blocks_by_group(self) -> BlocksByGroup:
        """Return all blocks by the group of jobs that ran in them."""
        blocks_by_group: BlocksByGroup = {}
        for block in self.blocks():
            blocks_by_group.setdefault(block.key, []).append(block)
        return blocks_by_group

    def profiles(self) -> dict[str, JobProfile]:
        """Return the solo profiles by workload. Of two profiles of one workload the later one counts."""
        path = self.profiles_path
        profiles = [from_document(JobProfile, _parse_object(path, line)) for line in _complete_lines(path)]
        return {profile.workload: profile for profile in profiles}


@contextmanager
def lock_log(folder: Path) -> Iterator[MeasurementLog]:
    """Open the log in `folder`, which is made if needed, and lock the folder until the `with` block ends.

    Raises UnfitError when the folder cannot be written or another profiler holds the lock.
    """
    import fcntl  # here, so that a system without it is first told that it cannot pin processes

    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnfitError(
            "cannot write here", value=f"{folder}: {error.strerror}", remedy="choose a folder you may write (--out)"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            raise UnfitError(
                "another profiler works in this folder",
                value=f"{folder.parent} (process {holder})",
                remedy="wait for it, or choose another folder",
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield MeasurementLog(folder)
    finally:
        os.close(handle)


def _append_line(path: Path, record: dict[str, Any]) -> None:
    try:
        with path.open("ab") as file:
            _drop_incomplete_end(path)
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnfitError(
            "a measurement cannot be written",
            value=f"{path}: {error.strerror}",
            remedy="free space on the disk, then resume",
        ) from None


def _drop_incomplete_end(path: Path) -> None:
    """Remove an incomplete last line from a file: the text after the last newline."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line]  # the last piece has no newline: incomplete


def _parse_object(path: Path, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError(f"{type(record).__name__} instead of an object")
    except ValueError as error:
        raise _foreign_line(path, error) from None
    return record


def _parse_block(path: Path, line: str) -> MeasuredBlock:
    try:
        block = from_document(MeasuredBlock, _parse_object(path, line))
    except InvalidInputError as error:
        raise _foreign_line(path, error) from None
    if len(block.sides) < 2:
        raise _foreign_line(path, ValueError(f"{len(block.sides)} sides"))
    return block


def _foreign_line(path: Path, error: Exception) -> TableError:
    return TableError(
        f"{path.name} holds a line that no profiler wrote",
        value=f"{path}: {error}",
        remedy="delete that line, then resume",
    )
