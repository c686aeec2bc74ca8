"""Who was on which GPU when: stays, from what Slurm shows and what epilogs wrote down; pure.

Slurm forgets the GPU of a job when it ends. It is known from one of: a round that saw it run, the epilog's file, the
note of our own placement (a typed request has no other place to go).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from serving.adapters.slurm.view import RUNNING, place_of

ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What an epilog wrote: the job was here until now."""

    job_id: str
    restarts: int
    node: str
    gpu_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One run of one job on one GPU. Unix seconds; `end_s` is infinite while it runs."""

    job: SlurmJob
    address: GpuAddress
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """All stays, and when which nodes had a job of which nobody knows the GPU."""

    stays: tuple[Stay, ...]
    unclear: tuple[tuple[str, float, float], ...]  # node, from, until


def read_ending(text: str) -> Ending | None:
    """One file of the epilog; None for anything else."""
    try:
        row = json.loads(text)
        indices = tuple(int(part) for part in str(row.get("gpus") or "").split(",") if part)
        return Ending(
            job_id=str(row["job"]), restarts=int(row.get("restarts") or 0), node=str(row["node"]), gpu_indices=indices
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def occupancy(
    jobs: Iterable[SlurmJob],
    nodes: Sequence[Node],
    endings: Iterable[Ending] = (),
    seen: Mapping[tuple[str, int], tuple[GpuAddress, ...]] | None = None,
) -> Occupancy:
    """Everything that ran and was not forgotten. `seen`: places that earlier rounds saw, by job and restart."""
    by_index = {(node.name, gpu.index): gpu.address for node in nodes for gpu in node.gpus}
    dropped = {(one.job_id, one.restarts): one for one in endings}
    stays: list[Stay] = []
    unclear: list[tuple[str, float, float]] = []
    for job in jobs:
        running = job.state in RUNNING
        if not (running or job.state in ENDED) or not job.start_s or not job.node:
            continue
        end_s = math.inf if running else job.end_s
        key = (job.id, job.restarts)
        places = place_of(job) or (seen or {}).get(key, ())
        ending = dropped.get(key)
        if not places and ending:
            found = tuple(by_index.get((ending.node, index)) for index in ending.gpu_indices)
            places = tuple(one for one in found if one)
        if not places and job.note and job.note.to and job.note.state == "placed" and job.note.to.node == job.node:
            places = (job.note.to,)
        if places:
            stays += [Stay(job=job, address=place, start_s=job.start_s, end_s=end_s) for place in places]
        elif "shard" in job.tres or "gpu" in job.tres:
            unclear.append((job.node, job.start_s, end_s))
    return Occupancy(stays=tuple(stays), unclear=tuple(unclear))
