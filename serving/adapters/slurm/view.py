"""Slurm's jobs and nodes as one snapshot per partition for `Match`. Pure functions.

Law: a seat is offered once. A job that was just placed counts as a resident of its seat until it runs or has lost it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError
from interfere.records import NAN, Device, Job, Snapshot
from interfere.records.cluster import HIGHEST_PRIORITY, MAX_SEATS
from interfere.serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.settings import GIB, SlurmSettings

RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")
LEAST_SHARDS = 2  # of a GPU that is shared
MAX_JOBS = 500  # in one request: a quarter of a second of the server
MAX_PAIRS = 900_000  # possible pairs in one request: the server accepts a million


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedGpu:
    """A GPU that may be shared."""

    device: Device
    shards: int
    free_shards: int

    def seats(self, shards_of_job: int) -> int:
        """How many jobs it holds, those that run there and as many of this size as fit beside them."""
        return min(MAX_SEATS, len(self.device.residents) + max(0, self.free_shards // shards_of_job))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """The decision problem of one partition."""

    partition: str
    snapshot: Snapshot | None  # None when nothing can start
    candidates: tuple[SlurmJob, ...]  # pending in the snapshot
    granted: tuple[SlurmJob, ...]  # running with a memory grant in their note
    behind: tuple[SlurmJob, ...]  # advised jobs too far behind in the queue for the free seats
    returned: tuple[SlurmJob, ...]  # placed before, and not to be advised any more: they go back to Slurm
    left_to_slurm: Counter[str]  # number of jobs that are not advised, by reason


def partitions(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    """Partitions with pending jobs that ask for advice, or with running jobs that hold a grant."""
    return tuple(sorted({job.partition for job in jobs if (job.state == "PENDING" and job.note) or _holds_grant(job)}))


def place_of(job: SlurmJob) -> tuple[GpuAddress, ...]:
    """The GPUs a running job holds, in part or whole."""
    return tuple(dict.fromkeys(GpuAddress(job.node, gres) for _, gres, _ in job.held)) if "," not in job.node else ()


def is_placed(job: SlurmJob, now_s: float, settings: SlurmSettings) -> bool:
    """Whether the job was just placed and may start at any moment."""
    return (
        job.state == "PENDING"
        and job.note is not None
        and job.note.state == "placed"
        and job.note.to is not None
        and now_s - job.note.round_s < settings.start_s
    )


def build(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> PartitionView:
    """The decision problem of a partition now."""
    left_to_slurm: Counter[str] = Counter()
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
        record = None if reason else _job(job, settings, now_s)
        if record is None:
            left_to_slurm[reason or "comment"] += 1
            if job.note.state == "placed":
                returned.append(job)
        else:
            advised.append((job, record))
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].submit_s, int(pair[0].id)))
    largest_request = max((job.shards for job, _ in advised), default=1)
    devices = [
        replace(gpu.device, seats=seats)
        for gpu in gpus
        if (seats := gpu.seats(largest_request)) > 1 or settings.grants_memory
    ]
    free_seats = sum((device.seats or 0) - len(device.residents) for device in devices)
    singles = sum(len(device.residents) == 1 for device in devices)
    max_jobs = MAX_PAIRS // (3 * MAX_JOBS // 2 + singles)  # each job beside each other one, waiting, or a resident
    horizon = min(free_seats * settings.lookahead, MAX_JOBS, max_jobs)
    candidates, behind = advised[:horizon], advised[horizon:]
    snapshot = None
    granted = tuple(job for job in jobs if job.partition == partition and _holds_grant(job))
    if candidates or (granted and devices):
        snapshot = Snapshot(
            pending=tuple(record for _, record in candidates),
            devices=tuple(devices),
            scope=f"{settings.cluster}/{partition}",
            now_s=now_s if settings.grants_memory else NAN,  # grants are kept from one request to the next
        )
    return PartitionView(
        partition=partition,
        snapshot=snapshot,
        candidates=tuple(job for job, _ in candidates),
        granted=granted,
        behind=tuple(job for job, _ in behind),
        returned=tuple(returned),
        left_to_slurm=left_to_slurm,
    )


def _exclusion_reason(job: SlurmJob, smallest: int, settings: SlurmSettings, now_s: float) -> str:
    assert job.note is not None
    if job.special:
        return job.special
    if job.note.state == "freed" or (job.note.state == "placed" and job.note.tries >= settings.most_tries):
        return "tried too often"
    if job.note.state == "clearing":
        return "being repaired"
    if now_s - job.submit_s > settings.most_deferred_s:
        return "waited long enough"
    if not 1 <= job.shards * LEAST_SHARDS <= smallest:
        return "size"  # two of its kind must fit on one GPU
    return ""


def _holds_grant(job: SlurmJob) -> bool:
    return job.state == "RUNNING" and job.note is not None and job.note.grant_bytes > 0


def _shared_gpus(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> list[_SharedGpu]:
    """The GPUs of a partition that advice may use, with their residents."""
    jobs_on: dict[GpuAddress, list[SlurmJob]] = {}
    for job in jobs:
        if job.state in RUNNING:
            for address in place_of(job):
                jobs_on.setdefault(address, []).append(job)
        elif is_placed(job, now_s, settings) and job.note and job.note.to:
            jobs_on.setdefault(job.note.to, []).append(job)
    shared_gpus = []
    for node in nodes:
        for gpu in node.gpus if node.usable and partition in node.partitions else ():
            rule, occupants = settings.device(gpu.address), jobs_on.get(gpu.address, [])
            residents = [_job(job, settings, now_s, granted=True) for job in occupants]
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


def _job(job: SlurmJob, settings: SlurmSettings, now_s: float, *, granted: bool = False) -> Job | None:
    """The job as a record, where it is `granted` memory with its grant; None where its comment names no valid
    workload."""
    try:
        memory, cap = job.comment_value("memory_gib"), job.comment_value("max_slowdown")
        return Job(
            id=job.id,
            workload=job.workload,
            memory_peak_bytes=float(memory) * GIB if memory else NAN,
            grant_bytes=float(job.note.grant_bytes) if granted and job.note and job.note.grant_bytes else NAN,
            max_slowdown=float(cap) if cap else NAN,
            priority=_level(job, settings),
            elapsed_s=max(0.0, now_s - job.submit_s) if job.submit_s else NAN,
        )
    except (InvalidInputError, ValueError):
        return None


def _level(job: SlurmJob, settings: SlurmSettings) -> int:
    """The job's priority in whole units of `priority_unit`, at most the highest; 0 where there is no unit.

    Slurm's priorities are sums of age, size, fair share and the like, which differ between any two jobs: as they stand,
    each job would go strictly before the next.
    """
    if settings.priority_unit == 0:
        return 0
    return min(HIGHEST_PRIORITY, int(job.priority // settings.priority_unit))
