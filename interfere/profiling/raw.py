"""What a campaign has measured so far: append-only lines that survive a kill, behind a lock.

Laws: a line counts only when it is whole (a torn last one, of a kill, is dropped); one profiler a folder; a folder
continues only the campaign it was started with.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.errors import ConflictError, TableError, UnfitError
from interfere.profiling.protocol import Side
from interfere.records import JobProfile

Chunk = tuple[float, float, float, float, float]  # window, start since the block's, wall, CPU seconds, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a pair as it was measured. `reason` is empty when it passed every gate."""

    pass_index: int
    attempt: int
    started_at_s: float  # unix time
    window_s: float
    sides: tuple[Side, Side]
    steal_frac: float
    drift_frac: float
    reason: str
    chunks: tuple[tuple[Chunk, ...], tuple[Chunk, ...]]

    @property
    def key(self) -> frozenset[str]:
        """The unordered pair; one name for a self pair."""
        return frozenset(side.workload for side in self.sides)


class RawLog:
    """The raw folder of one campaign, held under its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks_path, self.solo_path = folder / "blocks.jsonl", folder / "solo.jsonl"
        self.identity_path = folder / "campaign.json"

    def bind(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Start a campaign here, or continue the one that was started. Raises ConflictError."""
        if not self.identity_path.exists():
            self.identity_path.write_text(json.dumps(identity, indent=2) + "\n")
            return
        found = _parsed(self.identity_path, self.identity_path.read_text())
        if not resume and (self.blocks_path.exists() or self.solo_path.exists()):
            raise ConflictError(
                "this folder already holds measurements",
                value=self.folder.parent,
                remedy="resume it, or choose another",
            )
        for name, value in identity.items():
            if found.get(name) != value:
                raise ConflictError(
                    f"this folder holds another campaign: its {name} is {found.get(name)!r}, not {value!r}",
                    value=self.folder.parent,
                    remedy="repeat its settings, or choose another folder",
                )

    def append_block(self, block: Block) -> None:
        """Keep one block, at once."""
        _append(self.blocks_path, asdict(block))

    def append_solo(self, profile: JobProfile) -> None:
        """Keep one profile, at once."""
        _append(self.solo_path, profile.to_dict())

    def blocks(self) -> list[Block]:
        """All whole lines. Raises TableError for one that is not ours."""
        return [_block(self.blocks_path, line) for line in _lines(self.blocks_path)]

    def solos(self) -> dict[str, JobProfile]:
        """Profiles by workload."""
        profiles = [JobProfile.from_dict(_parsed(self.solo_path, line)) for line in _lines(self.solo_path)]
        return {profile.workload: profile for profile in profiles}


@contextmanager
def locked(folder: Path) -> Iterator[RawLog]:
    """The raw log of `folder`, made if needed. Raises UnfitError when it is read-only or another profiler has it."""
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
        yield RawLog(folder)
    finally:
        os.close(handle)


def _append(path: Path, row: dict[str, Any]) -> None:
    try:
        with path.open("ab") as file:
            _drop_torn_end(path)
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnfitError(
            "cannot keep a measurement", value=f"{path}: {error.strerror}", remedy="free the disk, then resume"
        ) from None


def _drop_torn_end(path: Path) -> None:
    """Cut what follows the last newline: a line that a kill tore."""
    with path.open("rb+") as file:
        content_end = file.seek(0, os.SEEK_END)
        if not content_end:
            return
        file.seek(content_end - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line]  # after the last newline: torn, or nothing


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
        if not isinstance(row, dict):
            raise ValueError(type(row).__name__)
    except ValueError as error:
        raise TableError(
            f"{path.name}: a line is not ours", value=f"{path}: {error}", remedy="delete that line, then resume"
        ) from None
    return row


def _block(path: Path, line: str) -> Block:
    row = _parsed(path, line)
    try:
        sides = tuple(Side(**side) for side in row.pop("sides"))
        chunks = tuple(tuple(tuple(chunk) for chunk in side) for side in row.pop("chunks"))
        return Block(sides=sides, chunks=chunks, **row)  # type: ignore[arg-type]  # two of each, as written
    except (KeyError, TypeError) as error:
        raise TableError(
            f"{path.name}: a line is not ours", value=f"{path}: {error}", remedy="delete that line, then resume"
        ) from None
