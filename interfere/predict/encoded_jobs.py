"""Encoded jobs of a model, kept while their profiles are asked about again: bounded in number and in bytes.

Law: what is kept of a job never changes an answer; a job that is not kept is encoded again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.predict.completion import FactCompletion
from interfere.predict.novelty import JobSpace
from interfere.protocols import PairEncoder
from interfere.records import JobProfile

MAX_CACHED_JOBS = 20_000  # encoded jobs
MAX_CACHED_BYTES = 32 * 2**20  # of the profiles that were encoded, which the cache keeps alive
PROFILE_BYTES, KERNEL_BYTES, STRETCH_BYTES = 2_000, 800, 32  # of a profile in memory, roughly (sys.getsizeof)


class EncodedJob(NamedTuple):
    """One encoded profile."""

    profile: JobProfile
    row: NDArray[np.float32]  # float32[F], with absent facts estimated
    novelty: float  # 0 where the model folder has no job space


class EncodedJobs:
    """Encodes jobs, and keeps what it encoded last. Thread-safe."""

    def __init__(
        self, encoder: PairEncoder, job_space: JobSpace | None, completion: FactCompletion | None = None
    ) -> None:
        """`completion` estimates absent facts; without one, as in folders of older versions, they stay absent."""
        self._encoder, self._job_space, self._completion = encoder, job_space, completion
        self._row_bytes = 4 * len(encoder.job_names)
        # Keyed by object identity, because hashing a profile walks its timeline. The value holds the profile, so that
        # no other object gets its id.
        self._cache: OrderedDict[tuple[int, str, str], EncodedJob] = OrderedDict()
        self._mutex = threading.Lock()
        self.bytes = 0  # that the cache takes, roughly
        self.on_eviction: Callable[[int], None] = lambda _: None
        """Told how many jobs were evicted, because others needed their place."""

    def __len__(self) -> int:
        """Number of jobs that are kept."""
        return len(self._cache)

    def encode(
        self, jobs: Sequence[JobProfile], device_type: str, mode: str
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """float32[n, F] of the jobs, and float64[n] of their novelty. Every distinct profile is encoded once, and
        outside of the lock: others encode meanwhile. Raises InvalidInputError for a profile that has no encoding.
        """
        distinct = {id(job): job for job in jobs}
        with self._mutex:
            cached = {key: self._cache.get((key, device_type, mode)) for key in distinct}
        known = {key: entry for key, entry in cached.items() if entry is not None}
        missing = [job for key, job in distinct.items() if key not in known]
        if missing:
            encoded = self._encode_new(missing, device_type, mode)
            known |= {id(entry.profile): entry for entry in encoded}
            with self._mutex:
                evicted = sum(self._put(entry, device_type, mode) for entry in encoded)
            if evicted:
                self.on_eviction(evicted)
        entries = [known[id(job)] for job in jobs]
        return np.array([entry.row for entry in entries]), np.array([entry.novelty for entry in entries])

    def rows(self, jobs: Sequence[JobProfile], device_type: str, mode: str) -> NDArray[np.float32]:
        """float32[n, F] of profiles as they are, absent facts NaN; nothing is kept.

        Raises InvalidInputError for a profile that has no encoding.
        """
        try:
            return self._encoder.encode_jobs(jobs, device_type, mode)
        except (ArithmeticError, ValueError) as error:
            for job in jobs if len(jobs) > 1 else ():
                self.rows([job], device_type, mode)  # raises at the one that is the cause
            raise not_encodable(jobs[0], repr(error)) from None

    def forget(self, jobs: Iterable[JobProfile], device_type: str, mode: str) -> None:
        """Drop jobs that nobody will ask about again, because they came with a request or were removed."""
        with self._mutex:
            for job in jobs:
                if (entry := self._cache.pop((id(job), device_type, mode), None)) is not None:
                    self.bytes -= self._bytes_of(entry)

    def _encode_new(self, jobs: Sequence[JobProfile], device_type: str, mode: str) -> list[EncodedJob]:
        rows, variance = self.rows(jobs, device_type, mode), None
        if self._completion is not None:
            rows, variance = self._completion.complete(rows)
        novelty = np.zeros(len(rows)) if self._job_space is None else self._job_space.novelty(rows, variance)
        return [
            EncodedJob(job, row.copy(), job_novelty)
            for job, row, job_novelty in zip(jobs, rows, novelty.tolist(), strict=True)
        ]

    def _put(self, entry: EncodedJob, device_type: str, mode: str) -> int:
        """Keep one job; how many of the oldest were evicted for it."""
        key = id(entry.profile), device_type, mode
        if key in self._cache:
            return 0
        self.bytes += self._bytes_of(entry)
        self._cache[key] = entry
        evicted = 0
        while len(self._cache) > MAX_CACHED_JOBS or self.bytes > MAX_CACHED_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self.bytes -= self._bytes_of(oldest)
            evicted += 1
        return evicted

    def _bytes_of(self, entry: EncodedJob) -> int:
        """What a kept job takes in memory."""
        job = entry.profile
        return PROFILE_BYTES + KERNEL_BYTES * len(job.kernels) + STRETCH_BYTES * 2 * len(job.busy_s) + self._row_bytes


def not_encodable(job: JobProfile, why: str) -> InvalidInputError:
    """The error for a profile that a model cannot be asked about."""
    return InvalidInputError(
        f"the profile cannot be encoded ({why})",
        value=f"{job.workload} on {job.device_type}",
        remedy="check the units of its facts: seconds, bytes, shares of 1",
    )
