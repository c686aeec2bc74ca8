"""What the server and its workers send each other: pickled records, each after its length, over a pipe.

Both ends are this program on this machine: the pipe is not a way in for anybody else.
"""

import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowing:
    """The state that a worker must have before it computes: the model, the profiles, and at least this much of the
    log."""

    model_folder: Path
    model_version: str
    last_sequence: int
    profiles_digest: str
    relearning: bool = False  # the server learns the log again, and will store the result


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Compute the answer to a request."""

    method: str
    request: bytes
    knowing: Knowing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The worker has loaded the model and may be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The bytes of the answer, and what the metrics are to count."""

    answer: bytes
    counts: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # method of `Metrics`, its arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A refusal in wire form, or the traceback of an unexpected error."""

    code: str = ""
    status: bytes = b""
    traceback: str = ""


def send(pipe: IO[bytes], record: object) -> None:
    """Write one record. Raises OSError where the other end is gone."""
    content = pickle.dumps(record, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one record; None at the end of the pipe."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    content = pipe.read(length)
    return pickle.loads(content) if len(content) == length else None  # noqa: S301 - from our own process
