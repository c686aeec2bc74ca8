"""Which job ran on which GPU when, and what became of jobs with a decision. Pure functions.

Slurm forgets the GPU of a job when it ends. It is known from one of: an earlier round in which the job ran, the
epilog's file, the note of its placement (a typed request can run nowhere else).
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from interfere.serving.adapters.observations import Fate
from interfere.serving.adapters.slurm.jobs import GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.partition import is_placed
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.slurm.spool import JobEnding
from interfere.serving.adapters.windows import Place, Run


def runs(
    jobs: Iterable[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, endings: Iterable[JobEnding] = ()
) -> Iterator[Run[SlurmJob]]:
    """All runs that Slurm still remembers."""
    by_index = {(node.name, gpu.index): gpu.address for node in nodes for gpu in node.gpus}
    ending_of = {(ending.job_id, ending.restarts): ending for ending in endings}
    for job in jobs:
        if not (job.is_running or job.has_ended) or not job.start_s or not job.node:
            continue
        noted: list[GpuAddress | None] = []
        if ending := ending_of.get((job.id, job.restarts)):
            noted = [by_index.get((ending.node, index)) for index in ending.gpu_indices]
        if not any(noted) and job.note and job.note.state in ("placed", "ended"):
            noted = [job.note.to if job.note.to and job.note.to.node == job.node else None]
        asks = "shard" in job.tres or "gpu" in job.tres
        yield Run(
            job=job,
            start_s=job.start_s,
            end_s=math.inf if job.is_running else job.end_s,
            places=tuple(_place(address, settings) for address in job.places),
            noted_places=tuple(_place(address, settings) for address in noted if address),
            possible_places=tuple(
                _place(gpu.address, settings) for node in nodes if asks and node.name == job.node for gpu in node.gpus
            ),
        )


def _place(address: GpuAddress, settings: SlurmSettings) -> Place:
    rule = settings.device(address)
    return Place(str(address), rule.type, rule.mode) if rule else Place(str(address))


def fates(jobs: Iterable[SlurmJob], settings: SlurmSettings, now_s: float) -> Iterator[Fate[SlurmJob]]:
    """What became of all advised jobs that Slurm remembers."""
    for job in jobs:
        note = job.note
        if note is None:
            continue
        planned = note.to if note.state == "placed" else None
        is_late = job.state == "PENDING" and note.state == "placed" and not is_placed(job, now_s, settings)
        has_run = bool(job.start_s) and now_s >= job.start_s and (job.is_running or job.has_ended)
        has_started = has_run and planned is not None and bool(job.node)
        is_as_planned = planned is not None and job.node == planned.node
        yield Fate(
            job=job,
            decision_id=note.decision,
            device_id=str(planned or ""),
            missed_s=note.round_s + settings.start_s if is_late else 0.0,
            missed_reason=f"it did not start within {settings.start_s:g} s",
            tries=note.tries,
            started_s=job.start_s if has_started else 0.0,
            started_on=(str(planned) if is_as_planned else job.node) if has_started else "",
            ended_s=job.end_s if has_run and job.has_ended else 0.0,
            end_reason=note.why.replace("_", " ") or job.state.lower().replace("_", " "),
        )
