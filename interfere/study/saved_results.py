"""The results of tasks in a folder, one file for each process that writes there, from which an interrupted run goes on.

A file is JSON lines: the first names the format and the checksum of what results depend on, each other line is one
result. Arrays are compressed and written as text. Laws: a process appends to its own file and writes no other, so that
two on one folder lose nothing of each other; results of other inputs are never mixed in; a line that was not written
to its end is run again.
"""

import base64
import json
import os
import socket
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import InvalidInputError, UnfitError

FORMAT = 2
PATTERN = "*.jsonl"
ARRAY = "array"  # key of an array in a document: its data type, shape and compressed bytes


class SavedResults:
    """Reads what every process has saved in a folder, and appends to a file of this process."""

    def __init__(self, folder: Path, digest: str) -> None:
        """Read the folder. Raises InvalidInputError where it holds results of other inputs, UnfitError where it cannot
        be written."""
        self._folder, self._head = folder, json.dumps({"format": FORMAT, "digest": digest})
        self._path = folder / f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}.jsonl"  # of this process
        self._documents: dict[str, dict[str, Any]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob(PATTERN)):
                self._read(path)
        except OSError as error:
            raise _unwritable(folder, error) from None
        if not os.access(folder, os.W_OK):
            raise _unwritable(folder, "no right to write")

    def _read(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and _parsed(lines[0]) is not None and lines[0] != self._head:
            raise InvalidInputError(
                "the folder holds results of other inputs, of another seed or of another version",
                value=str(path),
                remedy="give another folder, or delete this one to begin anew",
            )
        for line in lines[1:]:
            if (entry := _parsed(line)) is not None and "task" in entry:
                self._documents[entry["task"]] = entry["document"]

    def documents(self) -> Mapping[str, dict[str, Any]]:
        """Task, as text -> its document; those of all processes that had saved any when this folder was opened."""
        return self._documents

    def add(self, task: str, document: Mapping[str, Any]) -> None:
        """Append one result. Raises UnfitError where the file cannot be written."""
        line = json.dumps({"task": task, "document": document}, default=_encoded)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n" if file.tell() else f"{self._head}\n{line}\n")
        except OSError as error:
            raise _unwritable(self._folder, error) from None


def delete_results(folder: Path) -> None:
    """Delete what all processes have saved in a folder, and the folder where nothing else is in it."""
    for path in folder.glob(PATTERN):
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _unwritable(folder: Path, error: object) -> UnfitError:
    return UnfitError(f"results cannot be kept ({error})", value=str(folder), remedy="give another folder")


def _parsed(line: str) -> dict[str, Any] | None:
    """The entry in a line; None where the line was not written to its end."""
    try:
        entry = json.loads(line, object_hook=_decoded)
    except (ValueError, TypeError, zlib.error):
        return None
    return entry if isinstance(entry, dict) else None


def _encoded(value: object) -> Any:
    """An array or a NumPy number as JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} cannot be saved")
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes())).decode("ascii")
    return {ARRAY: [value.dtype.str, value.shape, packed]}


def _decoded(entry: dict[str, Any]) -> Any:
    """Return the inverse of `_encoded` for arrays, and any other object unchanged."""
    if entry.keys() != {ARRAY}:
        return entry
    dtype, shape, packed = entry[ARRAY]
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=dtype).reshape(shape).copy()
