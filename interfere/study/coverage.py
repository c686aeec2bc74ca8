"""How much of a trace the truth knows: what a reader must know before any gain.

A job counts as known where the truth has a pair of its workload with a workload of the same trace. Jobs on several
devices are told apart: no table measured a gang beside a gang.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

import numpy as np

from interfere.errors import InvalidInputError
from interfere.sim.truth import TruthTable
from interfere.sim.world import HOUR_S, World

MIN_SHARE = 0.01  # of jobs and of GPU hours: below both, a gain of nothing would be an artefact of what is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Jobs and GPU hours of a trace: all of them, the part that the truth covers, and of this part the jobs on several
    devices."""

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

    def facts(self) -> dict[str, float]:
        """All figures, by name."""
        return asdict(self) | {"job_share": self.job_share, "gpu_h_share": self.gpu_h_share}

    def note(self) -> str:
        """Return the coverage in one line."""
        text = f"truth covers {self.job_share:.1%} of the trace's jobs and {self.gpu_h_share:.1%} of its GPU hours"
        if not self.has_gangs:
            return text
        return (
            f"{text}; {self.known_gang_gpu_h / self.known_gpu_h:.1%} of these GPU hours are of jobs on several GPUs, "
            "which no table measured in pairs: policies with -one-gpu let none of them share, the others assume that "
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
    """Raises InvalidInputError where the truth knows next to nothing of a trace, with names that may mean the same:
    sharing would seem to do nothing."""
    if coverage.job_share >= MIN_SHARE or coverage.gpu_h_share >= MIN_SHARE:
        return
    workloads = list(dict.fromkeys(job.workload or "(unnamed)" for world in worlds for job in world.jobs))
    names = Counter(job.workload for world in worlds for job in world.jobs if job.workload)
    rows = suggested_map([name for name, _ in names.most_common()], truth.workloads)
    suggestion = f"; names that may mean the same, for --workloads: {'; '.join(rows[:5])}" if rows else ""
    unnamed = "" if names else "; its jobs name no workload: import it again with --workloads FILE"
    raise InvalidInputError(
        f"the truth knows {coverage.job_share:.1%} of the trace's jobs and {coverage.gpu_h_share:.1%} of its GPU "
        "hours: what sharing would bring cannot be said",
        value=f"the trace's workloads: {', '.join(workloads[:8])}; the truth's: {', '.join(truth.workloads[:8])}",
        remedy=f"name the table's workloads with --workloads FILE (CSV: pattern,workload), measure pairs of its "
        f"workloads (`interfere onboard`), or name no policy that shares{suggestion}{unnamed}",
    )


def suggested_map(names: Iterable[str], workloads: Sequence[str]) -> list[str]:
    """Rows `pattern,workload` for names that resemble a workload's name, in the order of the names."""
    plain = {_plain(workload): workload for workload in workloads}
    rows = []
    for name in names:
        word = _plain(name)
        inside = [other for other in plain if len(word) > 3 and (word in other or (len(other) > 3 and other in word))]
        close = sorted(inside, key=len)[:1] or get_close_matches(word, plain, n=1, cutoff=0.75)
        if close:
            rows.append(f"^{name}$,{plain[close[0]]}")
    return rows


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


# --- what is not known ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownWorkload:
    """A workload of the trace of which the truth has no pair."""

    workload: str  # empty: jobs that name none
    jobs: int
    gpu_h: float


def unknown_workloads(truth: TruthTable, worlds: Sequence[World]) -> tuple[UnknownWorkload, ...]:
    """Workloads of which the truth has no pair, most GPU hours first."""
    jobs, hours = Counter[str](), Counter[str]()
    for world in worlds:
        for job in world.jobs:
            if job.workload not in truth.index or not np.isfinite(truth.table[truth.index[job.workload]]).any():
                jobs[job.workload] += 1
                hours[job.workload] += job.gpus * job.duration_s / HOUR_S  # type: ignore[assignment]
    found = [UnknownWorkload(workload=name, jobs=count, gpu_h=hours[name]) for name, count in jobs.items()]
    return tuple(sorted(found, key=lambda each: (-each.gpu_h, each.workload)))


def gpu_hours(worlds: Sequence[World]) -> dict[str, float]:
    """GPU hours of each named workload, most first."""
    hours: dict[str, float] = {}
    for world in worlds:
        for job in world.jobs:
            if job.workload and math.isfinite(job.duration_s):
                hours[job.workload] = hours.get(job.workload, 0.0) + job.gpus * job.duration_s / HOUR_S
    return dict(sorted(hours.items(), key=lambda item: (-item[1], item[0])))
