"""Slurm as a port of the round: what jobs did on which GPUs, and the updates of jobs that carry out plans.

Slurm forgets the GPU of a job when the job ends. The port knows the GPU from an earlier round in which the job ran,
from the epilog's file, or from the note of the job's placement (a typed request can run on one GPU only).
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from interfere.client import PolicyClient
from interfere.errors import UnavailableError
from interfere.records import NAN, ActionKind, Plan
from interfere.records.limits import DEFAULT_PROMISE_TTL_S
from interfere.records.plans import slots_text
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import DecidedJob, Rejection
from interfere.serving.adapters.problem import STARTS
from interfere.serving.adapters.round import Advisor, PlannedChanges, Reading, decisions_of
from interfere.serving.adapters.slurm import scontrol
from interfere.serving.adapters.slurm.jobs import GpuAddress, Node, SlurmJob, node_names
from interfere.serving.adapters.slurm.problem import PartitionProblem, is_placed, partition_problem, partitions
from interfere.serving.adapters.slurm.scontrol import Edit, JobEnding, SlurmCommands, Spool
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.windows import Place, Run

_log = logging.getLogger("interfere.slurm")
SETTLE_S = 3.0  # marks are written once a second, and a shared folder shows them a moment later
MAX_COMPANY = 1  # windows of larger groups are not reported
NODES_S = 5.0  # between two looks at the nodes: a job that is sent to one that was drained meanwhile waits there


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
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Read and change a cluster by Slurm's commands. `clock`: gives the Unix seconds of a replay."""
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
        self._jobs, self._now_s = self._slurm.jobs(), self._clock() if self._clock else time.time()
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
                yield scontrol.place(
                    job, job.note.to, job.note.decision, self._now_s, grant_bytes, slots=job.note.slots
                )

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
                slots=slots_text(each.action.slots, "+"),
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
