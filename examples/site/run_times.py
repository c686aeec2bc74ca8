"""What the records of runs say of times beside the steps: how long programs take to end, and how long places are empty.

A job's program is measured apart, in processor time (`alone.json`). In a run it takes longer: it reads files, the other
core uses the same caches, and Slurm runs on the cores too. After its last step its processes still have to end, which
takes as much processor time as loading does in some programs; only then does Slurm give its place to the next job.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.site.arms import Arm

Run = Mapping[str, Any]
# An estimate from one run under Slurm alone: from Slurm's allocation to the first line of the program, with which its
# record begins.
LAUNCH_S = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTimes:
    """What programs take in runs on devices of their own, by workload."""

    stretch: Mapping[str, float]  # of their time, relative to what was measured apart
    shut_down_s: Mapping[str, float]  # from the last step until the next job of the place may be launched


def begin_unix_s(job: Mapping[str, Any]) -> float:
    """Return the time at which the program of a job began."""
    return float(job["end_unix_s"] - job["wall_completion_s"] * (1.0 - job["wait_s"] / job["completion_s"]))


def submission_unix_s(job: Mapping[str, Any]) -> float:
    """Return the time at which a job was submitted."""
    return float(job["end_unix_s"] - job["wall_completion_s"])


def program_times(runs: Iterable[Run]) -> ProgramTimes:
    """Return what the runs under Slurm alone say, where no job has a neighbour; nothing where there are none."""
    took_s, nominal_s, shut_down_s = dict[str, float](), dict[str, float](), dict[str, list[float]]()
    for run in runs:
        if run["arm"] != Arm.SLURM.value:
            continue
        for job in run["jobs"]:
            if job["gpus"] == 1:
                workload = job["workload"]
                took_s[workload] = took_s.get(workload, 0.0) + job["completion_s"] - job["wait_s"]
                nominal_s[workload] = nominal_s.get(workload, 0.0) + job["nominal_s"]
        for before, after in turnovers(run, seats=1):
            gap_s = begin_unix_s(after) - before["end_unix_s"] - LAUNCH_S
            shut_down_s.setdefault(before["workload"], []).append(max(0.0, gap_s))
    return ProgramTimes(
        stretch={workload: took_s[workload] / nominal_s[workload] for workload in took_s},
        shut_down_s={workload: statistics.median(gaps) for workload, gaps in shut_down_s.items()},
    )


def turnovers(run: Run, seats: int) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return for each job of one GPU that waited when its place became free the job that had the place, and itself.

    A node has `seats` places; a job takes the one that is free for longest. Places that a gang had or takes are left
    out: two of them have to be free at once.
    """
    found = []
    for node in sorted({node for job in run["jobs"] for node in job["nodes"]}):
        free: list[Mapping[str, Any] | None] = [None] * seats  # the job that had the place
        on_node = [job for job in run["jobs"] if node in job["nodes"]]
        events = [(begin_unix_s(job), 1, job) for job in on_node] + [(job["end_unix_s"], 0, job) for job in on_node]
        for _, begins, job in sorted(events, key=lambda event: event[:2]):
            if not begins:
                free += [job if job["gpus"] == 1 else None] * (1 if job["gpus"] == 1 else seats)
            elif job["gpus"] > 1:
                free.clear()
            else:
                before = free.pop(0) if free else None
                if before is not None and submission_unix_s(job) < before["end_unix_s"]:
                    found.append((before, job))
    return found


def median_turnover_s(runs: Sequence[Run], seats: int) -> float:
    """Return the median time from the last step of a job to the first line of the next program in its place; NaN where
    no job waited for a place."""
    gaps_s = [begin_unix_s(after) - before["end_unix_s"] for run in runs for before, after in turnovers(run, seats)]
    return statistics.median(gaps_s) if gaps_s else math.nan


def control_share(runs: Iterable[Run], arm: Arm) -> float:
    """Return the share of the cores that the control plane took under an arm; 0 where it did not run."""
    own = [run for run in runs if run["arm"] == arm.value]
    core_s = sum(run["wall_s"] * run["cores"] for run in own)
    return sum(run["control_s"] for run in own) / core_s if core_s else 0.0
