"""Slurm as a port of the round: one decision problem for each partition, runs of jobs on GPUs, and updates of jobs.

Slurm forgets the GPU of a job when the job ends. The port knows the GPU from an earlier round in which the job ran,
from the epilog's file, or from the note of the job's placement (a typed request can run on one GPU only).
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from interfere.client import PolicyClient
from interfere.errors import UnavailableError
from interfere.records import NAN, ActionKind, Device, Job, Plan, Snapshot
from interfere.records.cluster import MAX_SEATS
from interfere.records.limits import DEFAULT_PROMISE_TTL_S
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import DecidedJob, Rejection
from interfere.serving.adapters.problem import (
    STARTS,
    Problem,
    first_reason,
    host_reserves,
    job_record,
    memory_of,
    positions_decided,
    remaining_s_of,
)
from interfere.serving.adapters.round import Advisor, PlannedChanges, Reading, decisions_of
from interfere.serving.adapters.settings import GIB
from interfere.serving.adapters.slurm import scontrol
from interfere.serving.adapters.slurm.jobs import GpuAddress, Node, SlurmJob, node_names
from interfere.serving.adapters.slurm.scontrol import Edit, JobEnding, SlurmCommands, Spool
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.windows import Place, Run

_log = logging.getLogger("interfere.slurm")
SETTLE_S = 3.0  # marks are written once a second, and a shared folder shows them a moment later
MAX_COMPANY = 1  # windows of larger groups are not reported


NODES_S = 5.0  # between two looks at the nodes: a job that is sent to one that was drained meanwhile waits there
LEAST_SHARDS = 2  # of a GPU that is shared
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
    # 1. Who may be advised, in Slurm's order.
    left_out: Counter[str] = Counter()
    first_in_line = _first_in_line(partition, jobs)
    gpus = _shared_gpus(partition, jobs, nodes, settings, now_s, lost_s)
    smallest = min((gpu.shards for gpu in gpus), default=0)
    advised: list[tuple[SlurmJob, Job]] = []
    returned, blocked = list[SlurmJob](), list[SlurmJob]()
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
        elif first_in_line is not None and _is_held_back(job, first_in_line, now_s):
            left_out["whole GPUs go first"] += 1
            blocked.append(job)
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
    waiting = (job for job in jobs if job.state == "PENDING" and job.partition == partition and job.takes_whole_gpus)
    return max((job for job in waiting if job.reason == "Resources"), key=lambda job: job.priority, default=None)


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
) -> list[_SharedGpu]:
    """Return the GPUs of a partition that jobs may share, with their residents."""
    jobs_on: dict[GpuAddress, list[SlurmJob]] = {}
    for job in jobs:
        if job.is_running:
            for address in job.places:
                jobs_on.setdefault(address, []).append(job)
        elif is_placed(job, now_s, settings) and job.note and job.note.to:
            jobs_on.setdefault(job.note.to, []).append(job)
    followed = {name for job in jobs if is_placed(job, now_s, settings) and job.note for name in job.note.after}
    shared_gpus = []
    for node in nodes:
        reserve_bytes = _host_reserves(node, settings)
        for gpu in node.gpus if node.usable and partition in node.partitions else ():
            rule, present = settings.device(gpu.address), jobs_on.get(gpu.address, [])
            ending = {job.id for job in present if job.id in followed or _is_ending(job, settings, now_s, lost_s)}
            occupants = [job for job in present if job.id not in ending]
            residents = [_record(job, settings, now_s, is_resident=True, lost_s=lost_s(job.id)) for job in occupants]
            whole = any(held.kind == "gpu" and held.address == gpu.address for job in present for held in job.held)
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
                host_reserve_bytes=reserve_bytes.get(gpu.address, NAN),
                residents=tuple(resident for resident in residents if resident),
            )
            shared_gpus.append(
                _SharedGpu(
                    device=device,
                    shards=gpu.shards,
                    free_shards=gpu.shards - taken,
                    ending=tuple(job.id for job in present if job.id in ending and job.state != "COMPLETING"),
                )
            )
    return shared_gpus


def _is_ending(job: SlurmJob, settings: SlurmSettings, now_s: float, lost_s: Callable[[str], float]) -> bool:
    """Return whether a job has ended, or is predicted to end about now."""
    if not job.is_running or not settings.prepare_s:
        return False
    try:
        alone_s, ran_s = _run_times_s(job, now_s)
    except ValueError:
        return False
    return job.state == "COMPLETING" or abs(alone_s - ran_s + lost_s(job.id)) <= settings.prepare_s  # NaN: unknown


def _host_reserves(node: Node, settings: SlurmSettings) -> dict[GpuAddress, float]:
    """Return the host memory that backs what each GPU of a node grants beyond its own, whoever holds the GPU now."""
    ruled = [(gpu.address, rule) for gpu in node.gpus if (rule := settings.device(gpu.address)) is not None]
    devices = [
        Device(
            id=str(address),
            type=rule.type,
            memory_bytes=rule.memory_gib * GIB,
            oversubscription_ratio=rule.oversubscription_ratio,
        )
        for address, rule in ruled
    ]
    reserved = host_reserves(devices, settings.host_reserve_gib * GIB)
    return {address: each.host_reserve_bytes for (address, _), each in zip(ruled, reserved, strict=True)}


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


class SlurmPort:
    """A Slurm cluster as rounds of the adapter see it (`SchedulerPort`)."""

    name = "slurm"

    def __init__(
        self,
        settings: SlurmSettings,
        slurm: SlurmCommands,
        metrics: AdapterMetrics,
        *,
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read and change a cluster by Slurm's commands. `clock`: gives Unix seconds, those of a replay too."""
        self.dry_run, self._clock = dry_run, clock
        ends, moves = [ActionKind.END] * settings.grants_memory, [ActionKind.MOVE] * settings.moves
        promise_ttl_s = settings.start_s if settings.moves else DEFAULT_PROMISE_TTL_S
        self.limits = settings.limits(*ends, *moves, promise_ttl_s=promise_ttl_s)
        self.rules = settings.window_rules(settle_s=SETTLE_S, max_company=MAX_COMPANY)
        self.spool = Spool(settings.spool, settings.lookback_s)
        self._settings, self._slurm, self._metrics = settings, slurm, metrics
        self._jobs: tuple[SlurmJob, ...] = ()
        self._nodes: tuple[Node, ...] = ()
        self._nodes_read_s = -math.inf
        self._now_s = 0.0
        self._lost_s: Callable[[str], float] = lambda _: 0.0

    def read(self) -> Reading[SlurmJob, Edit]:
        """Read jobs, nodes and endings. Jobs that an earlier round left between two updates are to be repaired."""
        self._jobs, self._now_s = self._slurm.jobs(), self._clock()
        if not self._nodes or abs(self._now_s - self._nodes_read_s) >= NODES_S:
            self._nodes, self._nodes_read_s = self._slurm.nodes(), self._now_s
        if not self.dry_run:
            self.spool.sweep((job.id for job in self._jobs), self._now_s)
        return Reading(
            at_s=self._now_s,
            scopes=partitions(self._jobs, self._settings),
            runs=tuple(runs(self._jobs, self._nodes, self._settings, self.spool.endings())),
            decided_jobs=tuple(decided_jobs(self._jobs, self._settings, self._now_s)),
            repairs=tuple(self._repairs()),
        )

    def _repairs(self) -> Iterator[Edit]:
        """Yield the edits of jobs that an earlier round left between two updates, or stopped to start elsewhere."""
        for job in self._jobs:
            if job.state != "PENDING" or job.note is None:
                continue
            if job.note.state == "clearing":
                yield scontrol.repair(job, self._settings.window_s)
            elif job.note.state == "moving" and job.note.to is not None:
                grant_bytes = float(job.note.grant_bytes) or NAN
                yield scontrol.place(job, job.note.to, job.note.decision, self._now_s, grant_bytes)

    def problem(self, scope: str, lost_s: Callable[[str], float]) -> PartitionProblem:
        """Return the decision problem of a partition. A job that was just placed keeps its seat in later problems."""
        self._lost_s = lost_s
        return partition_problem(scope, self._jobs, self._nodes, self._settings, self._now_s, lost_s)

    def planned_changes(self, problem: PartitionProblem, plan: Plan | None) -> PlannedChanges[SlurmJob, Edit]:
        """Return the changes that carry out a plan. Jobs that may start at any moment come last, because scontrol waits
        while a job is in transition."""
        jobs = {job.id: job for job in (*problem.running, *problem.candidates)}
        decisions = decisions_of(plan.actions, jobs, plan.decision_id) if plan else ()
        placed = sorted(
            (each for each in decisions if each.action.kind in STARTS),
            key=lambda each: each.job.eligible_s <= self._now_s,
        )
        placements = [
            scontrol.place(
                each.job,
                GpuAddress(*each.action.device_id.split("/")),
                each.decision_id,
                self._now_s,
                each.action.grant_bytes,
                after=problem.ending.get(each.action.device_id, ()),
            )
            for each in placed
        ]
        ends = [scontrol.end(each.job, each.action.reason) for each in decisions if each.action.kind is ActionKind.END]
        moves = [
            scontrol.move(
                each.job,
                GpuAddress(*each.action.device_id.split("/")),
                each.decision_id,
                self._now_s,
                self._lost_s(each.job.id),
            )
            for each in decisions
            if each.action.kind is ActionKind.MOVE
        ]
        waiting = [each.job for each in decisions if each.action.kind is ActionKind.WAIT]
        due = scontrol.due((*problem.behind, *waiting), self._now_s, self._settings.window_s)
        renewals = scontrol.renew(due, self._settings.window_s)
        changes = (*map(scontrol.hand_back, problem.returned), *ends, *moves, *renewals, *placements)
        return PlannedChanges(decisions=decisions, changes=changes)

    def apply(self, changes: Sequence[Edit]) -> tuple[Rejection, ...]:
        """Update jobs, and return the rejected updates. The next decision problem sees the notes of the accepted
        ones."""
        rejected: tuple[Rejection, ...] = ()
        if not self.dry_run:
            try:
                rejected = self._slurm.apply(changes)
            except UnavailableError as error:  # some may have been applied: the next round reads which
                _log.warning("updates were interrupted: %s", error.one_line)
                self._metrics.add("races_total", "kind", "timeout")
            else:
                for edit in changes:
                    self._metrics.add("edits_total", "kind", edit.kind, by=len(edit.job_ids))
                for update in rejected:
                    self._metrics.add("races_total", "kind", "lost" if update.lost_race else "refused")
        refused = {update.job_id for update in rejected}
        decided = [edit for edit in changes if edit.kind != "repair" and edit.job_ids[0] not in refused]
        notes = {edit.job_ids[0]: edit.note for edit in decided if edit.note}
        self._jobs = tuple(replace(job, note=notes.get(job.id, job.note)) for job in self._jobs)
        return rejected


def slurm_metrics() -> AdapterMetrics:
    """Return the metrics of the Slurm adapter."""
    return AdapterMetrics("slurm", {"edits_total": "Updates of jobs by kind."})


def slurm_advisor(
    settings: SlurmSettings, slurm: SlurmCommands, client: PolicyClient, metrics: AdapterMetrics, *, dry_run: bool
) -> Advisor[SlurmJob, PartitionProblem, Edit]:
    """Return an advisor of one Slurm cluster."""
    port = SlurmPort(settings, slurm, metrics, dry_run=dry_run)
    if weakness := port.spool.weakness():
        _log.warning("%s", weakness)
    return Advisor(port, client, port.spool, settings, metrics)


def runs(
    jobs: Iterable[SlurmJob], nodes: Sequence[Node], settings: SlurmSettings, endings: Iterable[JobEnding] = ()
) -> Iterator[Run[SlurmJob]]:
    """Yield all runs of jobs that Slurm still remembers."""
    by_index = {(node.name, gpu.index): gpu.address for node in nodes for gpu in node.gpus}
    indices_of: dict[tuple[str, int], list[tuple[str, int]]] = {}  # a job on several nodes has an ending on each
    for ending in endings:
        own = indices_of.setdefault((ending.job_id, ending.restarts), [])
        own += [(ending.node, index) for index in ending.gpu_indices]
    for job in jobs:
        if not (job.is_running or job.has_ended) or not job.start_s or not job.node:
            continue
        noted = [by_index.get(own) for own in indices_of.get((job.id, job.restarts), ())]
        if not any(noted) and job.note and job.note.state in ("placed", "ended"):
            noted = [job.note.to if job.note.to and job.note.to.node == job.node else None]
        asks, ran_on = "shard" in job.tres or "gpu" in job.tres, node_names(job.node)
        yield Run(
            job=job,
            start_s=job.start_s,
            end_s=math.inf if job.is_running else job.end_s,
            places=tuple(_place(address, settings) for address in job.places),
            noted_places=tuple(_place(address, settings) for address in noted if address),
            possible_places=tuple(
                _place(gpu.address, settings) for node in nodes if asks and node.name in ran_on for gpu in node.gpus
            ),
        )


def _place(address: GpuAddress, settings: SlurmSettings) -> Place:
    rule = settings.device(address)
    return Place(str(address), rule.type, rule.mode) if rule else Place(str(address))


def decided_jobs(jobs: Iterable[SlurmJob], settings: SlurmSettings, now_s: float) -> Iterator[DecidedJob[SlurmJob]]:
    """Return the history of every advised job that Slurm still remembers."""
    for job in jobs:
        note = job.note
        if note is None:
            continue
        planned = note.to if note.state == "placed" else None
        is_late = job.state == "PENDING" and note.state == "placed" and not is_placed(job, now_s, settings)
        has_run = bool(job.start_s) and now_s >= job.start_s and (job.is_running or job.has_ended)
        has_started = has_run and planned is not None and bool(job.node)
        is_as_planned = planned is not None and job.node == planned.node
        yield DecidedJob(
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
