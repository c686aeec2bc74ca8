"""Slurm's jobs and nodes as one decision problem per partition. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from interfere.records import NAN, Device, Job, Snapshot
from interfere.records.cluster import MAX_SEATS
from interfere.serving.adapters.problem import Problem, first_reason, horizon, job_record, memory_of
from interfere.serving.adapters.settings import GIB
from interfere.serving.adapters.slurm.jobs import GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.settings import SlurmSettings

LEAST_SHARDS = 2  # of a GPU that is shared
MAX_JOBS = 500  # in one request: a quarter of a second of the server


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedGpu:
    """A GPU that may be shared."""

    device: Device
    shards: int
    free_shards: int

    def seats(self, shards_of_job: int) -> int:
        """Return how many jobs the device can hold: its running jobs, and as many more of this size as fit."""
        return min(MAX_SEATS, len(self.device.residents) + max(0, self.free_shards // shards_of_job))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProblem(Problem[SlurmJob]):
    """The decision problem of one partition."""

    granted: tuple[SlurmJob, ...]  # running with a memory grant in their note
    returned: tuple[SlurmJob, ...]  # placed before, and not to be advised any more: they go back to Slurm


def partitions(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    """Partitions with pending jobs that ask for advice, or with running jobs that hold a grant."""
    return tuple(sorted({job.partition for job in jobs if (job.state == "PENDING" and job.note) or _holds_grant(job)}))


def is_placed(job: SlurmJob, now_s: float, settings: SlurmSettings) -> bool:
    """Whether the job was just placed and may start at any moment."""
    note = job.note if job.state == "PENDING" else None
    return (
        note is not None and note.state == "placed" and note.to is not None and now_s - note.round_s < settings.start_s
    )


def build(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> PartitionProblem:
    """The decision problem of a partition now."""
    # 1. Who may be advised, in Slurm's order.
    left_out: Counter[str] = Counter()
    gpus = _shared_gpus(partition, jobs, nodes, settings, now_s)
    smallest = min((gpu.shards for gpu in gpus), default=0)
    advised: list[tuple[SlurmJob, Job]] = []
    returned: list[SlurmJob] = []
    for job in jobs:
        if job.state != "PENDING" or job.partition != partition or job.note is None:
            continue  # the job did not ask for advice
        if is_placed(job, now_s, settings):
            continue
        reason = _exclusion_reason(job, smallest, settings, now_s)
        record = None if reason else _record(job, settings, now_s)
        if record is None:
            left_out[reason or "comment"] += 1
            if job.note.state == "placed":
                returned.append(job)
        else:
            advised.append((job, record))
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].submit_s, int(pair[0].id)))
    # 2. The devices, with as many seats as jobs of the largest request find.
    largest_request = max((job.shards for job, _ in advised), default=1)
    devices = tuple(
        replace(gpu.device, seats=seats)
        for gpu in gpus
        if (seats := gpu.seats(largest_request)) > 1 or settings.grants_memory
    )
    # 3. As many jobs as may be decided at once; the grants of running jobs are looked at even where nobody waits.
    number = min(horizon(devices, settings), MAX_JOBS)
    granted = tuple(job for job in jobs if job.partition == partition and _holds_grant(job))
    snapshot = None
    if advised[:number] or (granted and devices):
        snapshot = Snapshot(
            pending=tuple(record for _, record in advised[:number]),
            devices=devices,
            scope=f"{settings.cluster}/{partition}",
            now_s=now_s if settings.grants_memory else NAN,  # grants are kept from one request to the next
        )
    return PartitionProblem(
        snapshot=snapshot,
        candidates=tuple(job for job, _ in advised[:number]),
        granted=granted,
        behind=tuple(job for job, _ in advised[number:]),
        returned=tuple(returned),
        left_out=left_out,
    )


def _exclusion_reason(job: SlurmJob, smallest: int, settings: SlurmSettings, now_s: float) -> str:
    assert job.note is not None
    tried = job.note.state == "placed" and job.note.tries >= settings.most_tries
    checks = {
        job.special: bool(job.special),
        "tried too often": job.note.state == "freed" or tried,
        "being repaired": job.note.state == "clearing",
        "waited long enough": now_s - job.submit_s > settings.most_deferred_s,
        "size": not 1 <= job.shards * LEAST_SHARDS <= smallest,  # two of its kind must fit on one GPU
    }
    return first_reason(checks)


def _holds_grant(job: SlurmJob) -> bool:
    return job.state == "RUNNING" and job.note is not None and job.note.grant_bytes > 0


def _shared_gpus(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> list[_SharedGpu]:
    """The GPUs of a partition that advice may use, with their residents."""
    jobs_on: dict[GpuAddress, list[SlurmJob]] = {}
    for job in jobs:
        if job.is_running:
            for address in job.places:
                jobs_on.setdefault(address, []).append(job)
        elif is_placed(job, now_s, settings) and job.note and job.note.to:
            jobs_on.setdefault(job.note.to, []).append(job)
    shared_gpus = []
    for node in nodes:
        for gpu in node.gpus if node.usable and partition in node.partitions else ():
            rule, occupants = settings.device(gpu.address), jobs_on.get(gpu.address, [])
            residents = [_record(job, settings, now_s, is_resident=True) for job in occupants]
            whole = any(kind == "gpu" for job in occupants for kind, *_ in job.held)
            if rule is None or gpu.shards < LEAST_SHARDS or whole or not all(residents):
                continue  # unknown, not shared, taken as a whole, or occupied by a job that does not name its workload
            taken = sum(_shards_on(job, gpu.address) for job in occupants)
            device = Device(
                id=str(gpu.address),
                node=node.name,
                type=rule.type,
                memory_bytes=rule.memory_gib * GIB,
                mode=rule.mode,
                granule_bytes=rule.granule_gib * GIB,
                oversubscription_ratio=rule.oversubscription_ratio,
                residents=tuple(resident for resident in residents if resident),
            )
            shared_gpus.append(_SharedGpu(device=device, shards=gpu.shards, free_shards=gpu.shards - taken))
    return shared_gpus


def _shards_on(job: SlurmJob, address: GpuAddress) -> int:
    """Shards of one GPU that a job holds, or will once it starts."""
    return sum(count for kind, gres, count in job.held if kind == "shard" and gres == address.gres) or job.shards


def _record(job: SlurmJob, settings: SlurmSettings, now_s: float, *, is_resident: bool = False) -> Job | None:
    """Return the job as a record, with its memory grant if it is a resident.

    None where its comment names no valid workload.
    """
    try:
        memory_bytes = memory_of(job.comment_value("memory_gib"))
    except ValueError:
        return None
    return job_record(
        job,
        settings,
        now_s,
        priority=job.priority,
        submitted_s=job.submit_s,
        memory_bytes=memory_bytes,
        max_slowdown=job.comment_value("max_slowdown"),
        grant_bytes=float(job.note.grant_bytes) if is_resident and job.note and job.note.grant_bytes else NAN,
    )
