"""Which job ran on which GPU when, from what Slurm shows and what epilogs wrote. Pure functions.

Slurm forgets the GPU of a job when it ends. It is known from one of: an earlier round in which the job ran, the
epilog's file, the note of its placement (a typed request can run nowhere else).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from interfere.serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.view import RUNNING, place_of

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
class JobEnding:
    """What an epilog wrote: the job ran on these GPUs until now."""

    job_id: str
    restarts: int
    node: str
    gpu_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnGpu:
    """One run of one job on one GPU. Unix seconds; `end_s` is infinite while it runs."""

    job: SlurmJob
    address: GpuAddress
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """All runs of jobs on GPUs, and when nodes had a job whose GPU is unknown."""

    stays: tuple[JobOnGpu, ...]
    unclear: tuple[tuple[str, float, float], ...]  # node, from, until


def read_ending(text: str) -> JobEnding | None:
    """The content of an epilog's file; None for anything else."""
    try:
        row = json.loads(text)
        indices = tuple(int(part) for part in str(row.get("gpus") or "").split(",") if part)
        return JobEnding(
            job_id=str(row["job"]), restarts=int(row.get("restarts") or 0), node=str(row["node"]), gpu_indices=indices
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def occupancy(
    jobs: Iterable[SlurmJob],
    nodes: Sequence[Node],
    endings: Iterable[JobEnding] = (),
    known_places: Mapping[tuple[str, int], tuple[GpuAddress, ...]] | None = None,
) -> Occupancy:
    """All runs that Slurm still remembers. `known_places`: from earlier rounds, by job and restart."""
    by_index = {(node.name, gpu.index): gpu.address for node in nodes for gpu in node.gpus}
    ending_of = {(ending.job_id, ending.restarts): ending for ending in endings}
    stays: list[JobOnGpu] = []
    unclear: list[tuple[str, float, float]] = []
    for job in jobs:
        running = job.state in RUNNING
        if not (running or job.state in ENDED) or not job.start_s or not job.node:
            continue
        end_s = math.inf if running else job.end_s
        key = (job.id, job.restarts)
        places = place_of(job) or (known_places or {}).get(key, ())
        ending = ending_of.get(key)
        if not places and ending:
            addresses = (by_index.get((ending.node, index)) for index in ending.gpu_indices)
            places = tuple(address for address in addresses if address)
        if (
            not places
            and job.note
            and job.note.to
            and job.note.state in ("placed", "ended")
            and job.note.to.node == job.node
        ):
            places = (job.note.to,)
        if places:
            stays += [JobOnGpu(job=job, address=place, start_s=job.start_s, end_s=end_s) for place in places]
        elif "shard" in job.tres or "gpu" in job.tres:
            unclear.append((job.node, job.start_s, end_s))
    return Occupancy(stays=tuple(stays), unclear=tuple(unclear))
