"""How much of a trace the truth knows: what a reader must know before any gain.

A job counts as known where the truth has a pair of its workload with a workload of the same trace. Jobs on several
devices are told apart: no table measured a gang beside a gang.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.errors import InvalidInputError
from interfere.sim.truth import TruthTable
from interfere.sim.world import HOUR_S, World

MIN_SHARE = 0.01  # of jobs and of GPU hours: below both, a gain of nothing would be an artefact of what is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Jobs and GPU hours of a trace: all, those that the truth knows, and of these those on several devices."""

    jobs: int
    known_jobs: int
    known_gang_jobs: int
    gpu_h: float
    known_gpu_h: float
    known_gang_gpu_h: float

    @property
    def job_share(self) -> float:
        """Known jobs, of all."""
        return self.known_jobs / max(self.jobs, 1)

    @property
    def gpu_h_share(self) -> float:
        """Known GPU hours, of all."""
        return self.known_gpu_h / max(self.gpu_h, 1e-12)

    @property
    def has_gangs(self) -> bool:
        """May jobs on several devices share?"""
        return self.known_gang_jobs > 0

    def note(self) -> str:
        """In one line."""
        text = f"truth covers {self.job_share:.1%} of the trace's jobs and {self.gpu_h_share:.1%} of its GPU hours"
        if not self.has_gangs:
            return text
        return (
            f"{text}; {self.known_gang_gpu_h / self.known_gpu_h:.1%} of these GPU hours are of jobs on several GPUs, "
            "which no table measured in pairs: policies with +one-gpu let none of them share, the others assume that "
            "they slow down as on one GPU"
        )


def coverage_of(truth: TruthTable, worlds: Sequence[World]) -> Coverage:
    """The coverage of all jobs of these worlds."""
    jobs = [job for world in worlds for job in world.jobs]
    present = [k for k, workload in enumerate(truth.workloads) if workload in {job.workload for job in jobs}]
    known = {truth.workloads[k] for k in present if np.isfinite(truth.table[k, present]).any()}
    counts, hours = np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2))  # [is known, is a gang]
    for job in jobs:
        place = int(job.workload in known), int(job.gpus > 1)
        counts[place] += 1
        hours[place] += job.gpus * job.duration_s / HOUR_S
    return Coverage(
        jobs=len(jobs),
        known_jobs=int(counts[1].sum()),
        known_gang_jobs=int(counts[1, 1]),
        gpu_h=float(hours.sum()),
        known_gpu_h=float(hours[1].sum()),
        known_gang_gpu_h=float(hours[1, 1]),
    )


def require_coverage(coverage: Coverage, truth: TruthTable, worlds: Sequence[World]) -> None:
    """Raises InvalidInputError where the truth knows next to nothing of a trace: sharing would seem to do nothing."""
    if coverage.job_share >= MIN_SHARE or coverage.gpu_h_share >= MIN_SHARE:
        return
    workloads = list(dict.fromkeys(job.workload or "(unnamed)" for world in worlds for job in world.jobs))
    raise InvalidInputError(
        f"the truth knows {coverage.job_share:.1%} of the trace's jobs and {coverage.gpu_h_share:.1%} of its GPU "
        "hours: what sharing would bring cannot be said",
        value=f"the trace's workloads: {', '.join(workloads[:8])}; the truth's: {', '.join(truth.workloads[:8])}",
        remedy="name the trace's workloads as the table does, measure pairs of them, or name no policy that shares",
    )
