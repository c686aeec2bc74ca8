"""What a partition asks the policy server: its pending jobs that ask for advice, and the GPUs that jobs may share.

A pending job that was placed a moment ago counts as a resident, so that its seat is offered once; a running job that is
predicted to end about now counts as ended, so that the next job of its place can be chosen beforehand. Pure functions.

Law: a job is kept from a place only where Slurm would start nothing before the job of whole GPUs that is first in line.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interfere.records import NAN, Device, Job, Snapshot
from interfere.records.cluster import MAX_SEATS
from interfere.serving.adapters.problem import (
    Problem,
    first_reason,
    host_reserves,
    job_record,
    memory_of,
    positions_decided,
    remaining_s_of,
)
from interfere.serving.adapters.settings import GIB
from interfere.serving.adapters.slurm.jobs import Gpu, GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.settings import SlurmSettings

LEAST_SHARDS = 2  # of a GPU that is shared
OTHER_NODES = "other nodes"  # pool of the devices that the job of whole GPUs first in line does not take
MAX_JOBS = 500  # in one request: a quarter of a second of the server


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedGpu:
    """A GPU that may be shared."""

    device: Device
    shards: int
    free_shards: int
    ending: tuple[str, ...]  # ids of running jobs that count as ended

    def seats(self, shards_of_job: int) -> int:
        """Return how many jobs the device can hold: its running jobs, and as many more of this size as fit."""
        return min(MAX_SEATS, len(self.device.residents) + max(0, self.free_shards // shards_of_job))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProblem(Problem[SlurmJob]):
    """The decision problem of one partition."""

    running: tuple[SlurmJob, ...]  # that hold a memory grant, or may be moved
    returned: tuple[SlurmJob, ...]  # placed before, and not to be advised any more: they go back to Slurm
    ending: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by device: running jobs that count as ended


def partitions(jobs: Iterable[SlurmJob], settings: SlurmSettings) -> tuple[str, ...]:
    """Return the partitions with pending jobs that ask for advice, or with running jobs that may be ended or moved."""
    asking = (job for job in jobs if (job.state == "PENDING" and job.note) or _is_decided_on(job, settings))
    return tuple(sorted({job.partition for job in asking}))


def is_placed(job: SlurmJob, now_s: float, settings: SlurmSettings) -> bool:
    """Whether a pending job was placed a moment ago and may start at any time."""
    note = job.note if job.state == "PENDING" else None
    if note is None or note.to is None or note.state not in ("placed", "moving"):
        return False
    return now_s - note.round_s < settings.start_s


def partition_problem(
    partition: str,
    jobs: Sequence[SlurmJob],
    nodes: Sequence[Node],
    settings: SlurmSettings,
    now_s: float,
    lost_s: Callable[[str], float] = lambda _: 0.0,
) -> PartitionProblem:
    """Return the decision problem of a partition. `lost_s`: what a running job has lost to others so far, by job id."""
    # 1. Who may be advised, in Slurm's order, and who only where the job of whole GPUs first in line does not start.
    left_out: Counter[str] = Counter()
    first = _first_in_line(partition, jobs)
    placed = _placed(partition, jobs, nodes, settings, now_s)
    gpus = _shared_gpus(partition, jobs, nodes, settings, now_s, lost_s, placed)
    kept_nodes = {gpu.device.node for gpu in gpus}.intersection(first.expected_nodes) if first else set[str]()
    has_other_places = bool(kept_nodes) and any(gpu.device.node not in kept_nodes for gpu in gpus)
    smallest = min((gpu.shards for gpu in gpus), default=0)
    advised: list[tuple[SlurmJob, Job]] = []
    returned, blocked = list[SlurmJob](), list[SlurmJob]()
    for job in jobs:
        if job.state != "PENDING" or job.partition != partition or job.note is None:
            continue  # the job did not ask for advice
        if job.id in placed:
            continue
        reason = _exclusion_reason(job, smallest, settings, now_s)
        record = None if reason else _record(job, settings, now_s)
        if record is None:
            left_out[reason or "comment"] += 1
            if job.note.state == "placed":
                returned.append(job)
        elif first is None or not _is_held_back(job, first, now_s):
            advised.append((job, record))
        elif has_other_places:
            advised.append((job, replace(record, pools=(OTHER_NODES,))))
        else:
            left_out["whole GPUs go first"] += 1
            blocked.append(job)
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].submit_s, int(pair[0].id)))
    # 2. The devices, with as many seats as jobs of the largest request find.
    largest_request = max((job.shards for job, _ in advised), default=1)
    is_split = any(record.pools for _, record in advised)
    devices = tuple(
        replace(gpu.device, seats=seats, pool=OTHER_NODES if is_split and gpu.device.node not in kept_nodes else "")
        for gpu in gpus
        if (seats := gpu.seats(largest_request)) > 1 or settings.grants_memory
    )
    # 3. As many jobs as may be decided at once; the grants of running jobs are looked at even where nobody waits.
    decided = set(positions_decided([record for _, record in advised], devices, settings, MAX_JOBS))
    candidates = [pair for k, pair in enumerate(advised) if k in decided]
    running = tuple(job for job in jobs if job.partition == partition and _is_decided_on(job, settings))
    snapshot = None
    if candidates or (running and devices):
        snapshot = Snapshot(
            pending=tuple(record for _, record in candidates),
            devices=devices,
            scope=f"{settings.cluster}/{partition}",
            # Grants are kept from one request to the next, and a move is not of a job that has just started.
            now_s=now_s if settings.grants_memory or settings.moves else NAN,
        )
    return PartitionProblem(
        snapshot=snapshot,
        candidates=tuple(job for job, _ in candidates),
        running=running,
        behind=(*(job for k, (job, _) in enumerate(advised) if k not in decided), *blocked),
        returned=tuple(returned),
        ending={gpu.device.id: gpu.ending for gpu in gpus},
        left_out=left_out,
    )


def _placed(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> dict[str, GpuAddress]:
    """Return the placed jobs that keep their places, with these.

    A job that waits for others to end is decided again where a GPU of its partition is idle and no other job waits for
    a decision: the others may take longer than predicted.
    """
    placed = {job.id: job.note.to for job in jobs if is_placed(job, now_s, settings) and job.note and job.note.to}
    waiting = [job for job in jobs if job.state == "PENDING" and job.partition == partition and job.note]
    first = _first_in_line(partition, jobs)
    taken = {address for job in jobs if job.is_running for address in job.places} | set(placed.values())
    gpus = [gpu for node in nodes if node.usable and partition in node.partitions for gpu in node.gpus]
    is_idle = any(gpu.address not in taken and settings.device(gpu.address) is not None for gpu in gpus)
    if is_idle and all(job.id in placed for job in waiting):
        running = {job.id for job in jobs if job.is_running}
        for job in waiting:
            is_first = first is None or job.priority > first.priority
            if is_first and job.note and running.intersection(job.note.after):
                del placed[job.id]
    return placed


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


def _first_in_line(partition: str, jobs: Iterable[SlurmJob]) -> SlurmJob | None:
    """Return the job of whole GPUs for which Slurm keeps the next free ones of a partition; None where no such job
    waits."""
    waiting = (job for job in jobs if job.partition == partition and job.is_next_for_whole_gpus)
    return max(waiting, key=lambda job: job.priority, default=None)


def _is_held_back(job: SlurmJob, first: SlurmJob, now_s: float) -> bool:
    """Return whether Slurm lets a job wait for one of whole GPUs, as backfilling does: the other one goes first, and
    this one may still run when that one is expected to start."""
    ends_in_time = 0 < job.limit_s <= first.start_s - now_s
    return job.priority < first.priority and not ends_in_time


def _is_decided_on(job: SlurmJob, settings: SlurmSettings) -> bool:
    """Return whether a job runs that a decision may end, for its memory grant, or move."""
    if job.state != "RUNNING" or job.note is None:
        return False
    return job.note.grant_bytes > 0 or (_may_move(job, settings) and len(job.places) == 1)


def _may_move(job: SlurmJob, settings: SlurmSettings) -> bool:
    is_moving = job.note is None or job.note.state == "moving"
    named = all(job.comment_value(key) for key in ("remaining_s", "checkpoint_s"))
    return settings.moves and job.may_requeue and named and not (job.state == "RUNNING" and is_moving)


def _shared_gpus(
    partition: str,
    jobs: Sequence[SlurmJob],
    nodes: Sequence[Node],
    settings: SlurmSettings,
    now_s: float,
    lost_s: Callable[[str], float],
    placed: Mapping[str, GpuAddress],
) -> list[_SharedGpu]:
    """Return the GPUs of a partition that jobs may share, with their residents."""
    jobs_on: dict[GpuAddress, list[SlurmJob]] = {}
    for job in jobs:
        if job.is_running:
            for address in job.places:
                jobs_on.setdefault(address, []).append(job)
        elif job.id in placed:
            jobs_on.setdefault(placed[job.id], []).append(job)
    followed = {name for job in jobs if job.id in placed and job.note for name in job.note.after}
    shared_gpus = []
    for node in nodes:
        for gpu, device in _ruled_devices(node, settings) if node.usable and partition in node.partitions else ():
            present = jobs_on.get(gpu.address, [])
            ending = {job.id for job in present if job.id in followed or _is_ending(job, settings, now_s, lost_s)}
            occupants = [job for job in present if job.id not in ending]
            residents = [_record(job, settings, now_s, is_resident=True, lost_s=lost_s(job.id)) for job in occupants]
            whole = any(held.kind == "gpu" and held.address == gpu.address for job in present for held in job.held)
            if gpu.shards < LEAST_SHARDS or whole or not all(residents):
                continue  # not shared, taken as a whole, or occupied by a job that does not name its workload
            taken = sum(_shards_on(job, gpu.address) for job in occupants)
            shared_gpus.append(
                _SharedGpu(
                    device=replace(device, residents=tuple(resident for resident in residents if resident)),
                    shards=gpu.shards,
                    free_shards=gpu.shards - taken,
                    ending=tuple(job.id for job in present if job.id in ending and job.state != "COMPLETING"),
                )
            )
    return shared_gpus


def _ruled_devices(node: Node, settings: SlurmSettings) -> Iterator[tuple[Gpu, Device]]:
    """Yield the GPUs of a node that the settings describe, with the host memory that backs what each grants beyond its
    own, whoever holds the GPU now."""
    ruled = [(gpu, rule) for gpu in node.gpus if (rule := settings.device(gpu.address)) is not None]
    devices = [
        Device(
            id=str(gpu.address),
            node=node.name,
            type=rule.type,
            memory_bytes=rule.memory_gib * GIB,
            mode=rule.mode,
            granule_bytes=rule.granule_gib * GIB,
            oversubscription_ratio=rule.oversubscription_ratio,
        )
        for gpu, rule in ruled
    ]
    reserved = host_reserves(devices, settings.host_reserve_gib * GIB)
    return zip((gpu for gpu, _ in ruled), reserved, strict=True)


def _is_ending(job: SlurmJob, settings: SlurmSettings, now_s: float, lost_s: Callable[[str], float]) -> bool:
    """Return whether a job has ended, or is predicted to end about now."""
    if not job.is_running or not settings.prepare_s:
        return False
    try:
        alone_s, ran_s = _run_times_s(job, now_s)
    except ValueError:
        return False
    return job.state == "COMPLETING" or abs(alone_s - ran_s + lost_s(job.id)) <= settings.prepare_s  # NaN: unknown


def _shards_on(job: SlurmJob, address: GpuAddress) -> int:
    """Return the number of shards of a GPU that a job holds, or will hold once it starts."""
    return sum(held.number for held in job.held if held.kind == "shard" and held.address == address) or job.shards


def _record(
    job: SlurmJob, settings: SlurmSettings, now_s: float, *, is_resident: bool = False, lost_s: float = 0.0
) -> Job | None:
    """Return the job as a record, with its memory grant if it is a resident. `lost_s`: of its run, to other jobs.

    None where its comment names no valid workload.
    """
    checkpoint_s = NAN
    try:
        memory_bytes = memory_of(job.comment_value("memory_gib"))
        remaining_s = remaining_s_of(*_run_times_s(job, now_s), lost_s)
        if _may_move(job, settings):
            checkpoint_s = float(job.comment_value("checkpoint_s"))
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
        remaining_s=remaining_s,
        checkpoint_s=checkpoint_s,
        since_s=(job.start_s if job.is_running else now_s) if is_resident and settings.moves else NAN,
    )


def _run_times_s(job: SlurmJob, now_s: float) -> tuple[float, float]:
    """Return what a job takes alone, NaN where its comment does not say, and how long it has run.

    Raises ValueError where the comment says no number.
    """
    ran_s = (now_s - job.start_s if job.is_running else 0.0) + (job.note.spent_s if job.note else 0)
    return float(job.comment_value("remaining_s") or NAN), ran_s
