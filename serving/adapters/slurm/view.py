"""Jobs and nodes become what `Match` is asked: pure, one snapshot a partition.

Law: a seat is offered once. A job placed a moment ago counts as a resident of its seat until it runs or has lost it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interfere.errors import InvalidInputError
from interfere.records import NAN, Device, Job, Snapshot
from serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from serving.adapters.slurm.settings import GIB, SlurmSettings

RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")
SEATS = 2  # the server pairs jobs: at most two on a device
MOST_ASKED = 500  # jobs in one question: a quarter of a second of the server
MOST_CHOICES = 900_000  # pairs in one question: the server takes a million


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seats:
    """A GPU that may be shared."""

    device: Device
    shards: int
    free_shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is to be decided in one partition."""

    partition: str
    snapshot: Snapshot | None  # None when nothing can start: there is nothing to ask
    candidates: tuple[SlurmJob, ...]  # pending in the snapshot
    behind: tuple[SlurmJob, ...]  # ours too, too far behind in the queue for the free seats
    back: tuple[SlurmJob, ...]  # placed once, and not to be advised any more: Slurm gets them back
    left_to_slurm: Counter[str]  # why others are not advised, and how many


def partitions(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    """Those with pending jobs of ours."""
    return tuple(sorted({job.partition for job in jobs if job.state == "PENDING" and job.note}))


def place_of(job: SlurmJob) -> tuple[GpuAddress, ...]:
    """The GPUs a running job holds, in part or whole."""
    return tuple(dict.fromkeys(GpuAddress(job.node, gres) for _, gres, _ in job.held)) if "," not in job.node else ()


def is_placed(job: SlurmJob, now_s: float, settings: SlurmSettings) -> bool:
    """Placed a moment ago, and to start any time now."""
    return (
        job.state == "PENDING"
        and job.note is not None
        and job.note.state == "placed"
        and job.note.to is not None
        and now_s - job.note.round_s < settings.start_s
    )


def build(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> View:
    """What is to be decided in `partition` now."""
    left: Counter[str] = Counter()
    seats = _seats(partition, jobs, nodes, settings, now_s)
    smallest = min((seat.shards for seat in seats), default=0)
    ours: list[tuple[SlurmJob, Job]] = []
    back: list[SlurmJob] = []
    for job in jobs:
        if job.state != "PENDING" or job.partition != partition or job.note is None:
            continue  # nobody asked for advice
        if is_placed(job, now_s, settings):
            continue
        why = _why_not(job, smallest, settings, now_s)
        record = None if why else _job(job, 1.0 + max(0.0, now_s - job.submit_s) // settings.patience_s)
        if record is None:
            left[why or "comment"] += 1
            if job.note.state == "placed":
                back.append(job)
        else:
            ours.append((job, record))
    ours.sort(key=lambda pair: (-pair[0].priority, pair[0].submit_s, int(pair[0].id)))
    need = max((job.shards for job, _ in ours), default=1)
    seats = [seat for seat in seats if len(seat.device.residents) != 1 or seat.free_shards >= need]
    free = sum(max(0, SEATS - len(seat.device.residents)) for seat in seats)
    singles = sum(len(seat.device.residents) == 1 for seat in seats)
    most = MOST_CHOICES // (3 * MOST_ASKED // 2 + singles)  # each job beside each other one, waiting, or a resident
    horizon = min(free * settings.lookahead, MOST_ASKED, most)
    asked, behind = ours[:horizon], ours[horizon:]
    snapshot = None
    if asked:
        snapshot = Snapshot(
            pending=tuple(record for _, record in asked),
            devices=tuple(seat.device for seat in seats),
            scope=f"{settings.cluster}/{partition}",
        )
    return View(
        partition=partition,
        snapshot=snapshot,
        candidates=tuple(job for job, _ in asked),
        behind=tuple(job for job, _ in behind),
        back=tuple(back),
        left_to_slurm=left,
    )


def _why_not(job: SlurmJob, smallest: int, settings: SlurmSettings, now_s: float) -> str:
    assert job.note is not None
    if job.special:
        return job.special
    if job.note.state == "freed" or (job.note.state == "placed" and job.note.tries >= settings.most_tries):
        return "tried too often"
    if job.note.state == "clearing":
        return "being repaired"
    if now_s - job.submit_s > settings.most_deferred_s:
        return "waited long enough"
    if not 1 <= job.shards * SEATS <= smallest:
        return "size"  # two of its kind must fit on one GPU
    return ""


def _seats(
    partition: str, jobs: Sequence[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, now_s: float
) -> list[_Seats]:
    """The GPUs of a partition that advice may use, with their residents."""
    on: dict[GpuAddress, list[SlurmJob]] = {}
    for job in jobs:
        if job.state in RUNNING:
            for address in place_of(job):
                on.setdefault(address, []).append(job)
        elif is_placed(job, now_s, settings) and job.note and job.note.to:
            on.setdefault(job.note.to, []).append(job)
    found = []
    for node in nodes:
        for gpu in node.gpus if node.usable and partition in node.partitions else ():
            rule, here = settings.device(gpu.address), on.get(gpu.address, [])
            residents = [_job(job) for job in here]
            whole = any(kind == "gpu" for job in here for kind, *_ in job.held)
            if rule is None or gpu.shards < SEATS or whole or not all(residents):
                continue  # unknown, unshared, taken as a whole, or home to a job that does not say what it runs
            taken = sum(_shards_on(job, gpu.address) for job in here)
            device = Device(
                id=str(gpu.address),
                node=node.name,
                type=rule.type,
                memory_bytes=rule.memory_gib * GIB,
                mode=rule.mode,
                residents=tuple(one for one in residents if one),
            )
            found.append(_Seats(device=device, shards=gpu.shards, free_shards=gpu.shards - taken))
    return found


def _shards_on(job: SlurmJob, address: GpuAddress) -> int:
    """Shards of one GPU that a job holds, or will once it starts."""
    return sum(count for kind, gres, count in job.held if kind == "shard" and gres == address.gres) or job.shards


def _job(job: SlurmJob, weight: float = 1.0) -> Job | None:
    """None for a comment that says nothing usable."""
    try:
        memory, cap = job.said("memory_gib"), job.said("max_slowdown")
        return Job(
            id=job.id,
            workload=job.workload,
            memory_peak_bytes=float(memory) * GIB if memory else NAN,
            max_slowdown=float(cap) if cap else NAN,
            weight=weight,
        )
    except (InvalidInputError, ValueError):
        return None
