"""A bounded cache of encoded jobs, whose entries live as long as their profiles.

Law 1: the cache never changes an answer; a job that is not cached is encoded again.
Law 2: the cache keeps no profile alive: once a request's profile is freed or replaced, its entry is dropped.
"""

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.predict.completion import FactCompletion
from interfere.predict.novelty import JobSpace
from interfere.protocols import PairEncoder
from interfere.records import JobProfile
from interfere.sharing_modes import SharingMode

MAX_CACHED_JOBS = 20_000  # encoded jobs
ENTRY_BYTES = 700  # approximate memory of one cached job besides its numbers (sys.getsizeof)

_Key = tuple[int, str, str]
"""Identity of a profile (hashing one walks its timeline), device type, mode."""


class EncodedJob(NamedTuple):
    """The cached encoding of one profile."""

    profile: weakref.ref[JobProfile]
    row: NDArray[np.float32]  # float32[F], with absent facts estimated
    novelty: float  # 0 where the model folder has no job space


class EncodedJobs:
    """Encodes jobs and caches the most recent ones. Thread-safe."""

    def __init__(
        self, encoder: PairEncoder, job_space: JobSpace | None, completion: FactCompletion | None = None
    ) -> None:
        """Create an empty cache; `completion` estimates absent facts, which stay absent (NaN) without one."""
        self._encoder, self._job_space, self._completion = encoder, job_space, completion
        self._entry_bytes = ENTRY_BYTES + 4 * len(encoder.job_names)
        self._cache: OrderedDict[_Key, EncodedJob] = OrderedDict()
        # Keys of profiles that are gone. They are dropped by whoever takes the lock next, and so before another profile
        # with the identity of one of them is looked up: a profile may end anywhere, also while its thread has the lock.
        self._gone: deque[_Key] = deque()
        self._mutex = threading.Lock()
        self.on_eviction: Callable[[int], None] = lambda _: None
        """Told how many jobs were evicted, because others needed their place."""

    def __len__(self) -> int:
        """Return the number of cached jobs."""
        with self._mutex:
            self._drop_gone()
            return len(self._cache)

    @property
    def bytes(self) -> int:
        """Return the approximate memory use of the cache in bytes."""
        return len(self) * self._entry_bytes

    def encode(
        self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return the encoded jobs float32[n, F] and their novelty float64[n].

        Each distinct profile is encoded once, outside the lock, so that other threads can encode at the same time.
        Raises InvalidInputError for a profile that cannot be encoded.
        """
        distinct = {id(job): job for job in jobs}
        with self._mutex:
            self._drop_gone()
            cached = {key: self._cache.get((key, device_type, mode)) for key in distinct}
        known = {key: entry for key, entry in cached.items() if entry is not None}
        missing = [job for key, job in distinct.items() if key not in known]
        if missing:
            encoded = {id(job): entry for job, entry in self._encode_new(missing, device_type, mode)}
            known |= encoded
            with self._mutex:
                self._drop_gone()
                evicted = sum(self._put((key, device_type, mode), entry) for key, entry in encoded.items())
            if evicted:
                self.on_eviction(evicted)
        entries = [known[id(job)] for job in jobs]
        return np.array([entry.row for entry in entries]), np.array([entry.novelty for entry in entries])

    def rows(self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> NDArray[np.float32]:
        """Return float32[n, F]: the encoded profiles with absent facts as NaN; the cache is not used.

        Raises InvalidInputError for a profile that cannot be encoded.
        """
        try:
            return self._encoder.encode_jobs(jobs, device_type, mode)
        except (ArithmeticError, ValueError) as error:
            for job in jobs if len(jobs) > 1 else ():
                self.rows([job], device_type, mode)  # raises at the one that is the cause
            raise not_encodable(jobs[0], repr(error)) from None

    def _encode_new(
        self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode
    ) -> list[tuple[JobProfile, EncodedJob]]:
        rows, variance = self.rows(jobs, device_type, mode), None
        if self._completion is not None:
            rows, variance = self._completion.complete(rows)
        novelty = np.zeros(len(rows)) if self._job_space is None else self._job_space.novelty(rows, variance)
        return [
            (job, EncodedJob(self._watched(job, (id(job), device_type, mode)), row.copy(), job_novelty))
            for job, row, job_novelty in zip(jobs, rows, novelty.tolist(), strict=True)
        ]

    def _watched(self, job: JobProfile, key: _Key) -> weakref.ref[JobProfile]:
        """Return a weak reference to the profile that records the cache key when the profile is freed."""
        gone = self._gone
        return weakref.ref(job, lambda _: gone.append(key))

    def _drop_gone(self) -> None:
        """Drop the entries of freed profiles. The caller must hold the lock."""
        while self._gone:
            self._cache.pop(self._gone.popleft(), None)

    def _put(self, key: _Key, entry: EncodedJob) -> int:
        """Cache one encoded job, and return the number of older entries that were evicted."""
        if key in self._cache:
            return 0
        self._cache[key] = entry
        if len(self._cache) <= MAX_CACHED_JOBS:
            return 0
        self._cache.popitem(last=False)
        return 1


def not_encodable(job: JobProfile, why: str) -> InvalidInputError:
    """Return the error for a profile that cannot be encoded."""
    return InvalidInputError(
        f"the profile cannot be encoded ({why})",
        value=f"{job.workload} on {job.device_type}",
        remedy="check the units of its facts: seconds, bytes, shares of 1",
    )
