"""One round of advice: read Slurm, ask the policy server, update jobs, report measurements.

Rounds are stateless: what one remembers of earlier ones (places of jobs that ended since, ids already reported) only
saves work, and is read again after a restart. After any error a round does nothing more, and Slurm starts the jobs by
itself.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError, UnavailableError
from interfere.records import ActionKind, JobProfile, Limits, Observation, Plan, Progress, Snapshot
from interfere.serving.adapters.slurm import edits as scontrol
from interfere.serving.adapters.slurm import view
from interfere.serving.adapters.slurm.commands import RejectedUpdate, SlurmCommands
from interfere.serving.adapters.slurm.edits import Edit
from interfere.serving.adapters.slurm.metrics import AdvisorMetrics
from interfere.serving.adapters.slurm.occupancy import occupancy
from interfere.serving.adapters.slurm.outcomes import outcomes, refused
from interfere.serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.slurm.spool import Spool
from interfere.serving.adapters.slurm.windows import colocation_windows, progress_of_windows, window_id

_log = logging.getLogger("interfere.slurm")
_START = (ActionKind.START_ALONE, ActionKind.START_SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """The server's decision for one job."""

    job_id: str
    workload: str
    kind: str
    device: str
    partner_id: str
    slowdown: float
    grant_bytes: float  # memory that the job is granted; NaN without grants
    reason: str
    decision_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The report of one round."""

    at_s: float
    decisions: tuple[JobDecision, ...]
    edits: tuple[Edit, ...]
    rejected: tuple[RejectedUpdate, ...]
    left_to_slurm: Counter[str]
    observations: Counter[str]


class Advisor:
    """Advises one cluster, round by round."""

    def __init__(
        self,
        settings: SlurmSettings,
        slurm: SlurmCommands,
        client: PolicyClient,
        metrics: AdvisorMetrics,
        *,
        dry_run: bool = False,
    ) -> None:
        self._settings, self._slurm, self._client, self._metrics = settings, slurm, client, metrics
        self._dry_run = dry_run
        self._limits = Limits.of(
            allowed=frozenset({*_START, ActionKind.WAIT, *({ActionKind.END} if settings.grants_memory else ())}),
            allow_extrapolation=settings.allow_extrapolation,
            ageing_s=settings.patience_s,
            grant_patience_s=settings.grant_patience_s,
        )
        self._spool = Spool(settings.spool, settings.lookback_s)
        self._known_places: dict[tuple[str, int], tuple[GpuAddress, ...]] = {}
        self._reported_ids: set[str] = set()
        self._profiled: set[tuple[str, str]] = set()

    def round(self) -> Round:
        """One round. Raises InterfereError where Slurm or the server does not answer; the next round completes whatever
        was interrupted."""
        # 1. Read Slurm.
        jobs, nodes, now_s = self._slurm.jobs(), self._slurm.nodes(), time.time()
        jobs_as_read = jobs
        self._remember_places(jobs)
        # 2. Repair jobs that were caught between two updates.
        repairs = tuple(
            scontrol.repair(job, self._settings.window_s)
            for job in jobs
            if job.state == "PENDING" and job.note and job.note.state == "clearing"
        )
        rejected = self._apply(repairs)
        decisions, applied, left_to_slurm = list[JobDecision](), list(repairs), Counter[str]()
        # 3. Decide and apply, partition by partition; a placed job holds its seat for the next partition.
        for partition in view.partitions(jobs):
            partition_view = view.build(partition, jobs, nodes, self._settings, now_s)
            left_to_slurm += partition_view.left_to_slurm
            edits, partition_decisions = self._decide(partition_view, now_s)
            decisions += partition_decisions
            rejected += self._apply(edits)
            applied += edits
            rejected_ids = {update.job_id for update in rejected}
            placed = {edit.job_ids[0]: edit.note for edit in edits if edit.note and edit.job_ids[0] not in rejected_ids}
            jobs = tuple(replace(job, note=placed.get(job.id, job.note)) for job in jobs)
        # 4. Report what was measured.
        try:
            results = self._report(jobs_as_read, nodes, decisions, rejected, now_s)
        except InterfereError as error:  # placements stay; a later round reports the windows
            _log.warning("nothing reported in this round: %s", " ".join(str(error).split()))
            self._metrics.add("observations_total", "result", "undelivered")
            results = Counter({"undelivered": 1})
        return Round(
            at_s=now_s,
            decisions=tuple(decisions),
            edits=tuple(applied),
            rejected=rejected,
            left_to_slurm=left_to_slurm,
            observations=results,
        )

    def _remember_places(self, jobs: Sequence[SlurmJob]) -> None:
        places = {(job.id, job.restarts): view.place_of(job) for job in jobs if job.held}
        known = {job.id for job in jobs}
        self._known_places = {key: value for key, value in (self._known_places | places).items() if key[0] in known}

    def _decide(self, partition_view: view.PartitionView, now_s: float) -> tuple[tuple[Edit, ...], list[JobDecision]]:
        """The server's decisions for a partition, and the edits that carry them out."""
        by_id = {job.id: job for job in (*partition_view.granted, *partition_view.candidates)}
        plan: Plan | None = None
        if partition_view.snapshot:
            plan = self._client.match(replace(partition_view.snapshot, limits=self._limits))
            check_plan_subjects(plan, partition_view.snapshot)
        decisions, placements, waiting = [], [], list(partition_view.behind)
        ends: list[Edit] = []
        for action in plan.actions if plan else ():
            job = by_id.get(action.job_id)
            if job is None:  # it holds no grant that it was told of
                _log.warning("%s is not ended: its comment has no grant; %s", action.job_id, action.reason)
                continue
            if action.kind in _START:
                address = GpuAddress(*action.device_id.split("/"))
                decision = plan.decision_id if plan else ""
                placements.append(scontrol.place(job, address, decision, now_s, action.grant_bytes))
            elif action.kind is ActionKind.END:
                ends.append(scontrol.end(job, action.reason))
            else:
                waiting.append(job)
            decisions.append(
                JobDecision(
                    job_id=job.id,
                    workload=job.workload,
                    kind=action.kind.value,
                    device=action.device_id,
                    partner_id=action.partner_id,
                    slowdown=action.slowdown,
                    grant_bytes=action.grant_bytes,
                    reason=action.reason,
                    decision_id=plan.decision_id if plan else "",
                )
            )
        # Jobs that may start any moment come last: scontrol waits while a job is in transition.
        placements.sort(key=lambda placement: by_id[placement.job_ids[0]].eligible_s <= now_s)
        renewals = scontrol.renew(scontrol.due(waiting, now_s, self._settings.window_s), self._settings.window_s)
        return (*map(scontrol.hand_back, partition_view.returned), *ends, *renewals, *placements), decisions

    def _apply(self, edits: Sequence[Edit]) -> tuple[RejectedUpdate, ...]:
        if self._dry_run or not edits:
            return ()
        try:
            rejected = self._slurm.apply(edits)
        except UnavailableError as error:  # some may have been applied: the next round reads which
            _log.warning("updates were interrupted: %s", " ".join(str(error).split()))
            self._metrics.add("races_total", "kind", "timeout")
            return ()
        for edit in edits:
            self._metrics.add("edits_total", "kind", edit.kind, by=len(edit.job_ids))
        for update in rejected:
            self._metrics.add("races_total", "kind", "lost" if update.lost_race else "refused")
        return rejected

    def _report(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[Node],
        decisions: Sequence[JobDecision],
        rejected: Sequence[RejectedUpdate],
        now_s: float,
    ) -> Counter[str]:
        """Report what is new to the server; the ids make it safe to report twice."""
        settings, results = self._settings, Counter[str]()
        if self._dry_run:
            return results
        self._spool.sweep((job.id for job in jobs), now_s)
        # 1. Windows of constant co-location and outcomes that were not reported yet.
        gpu_use = occupancy(jobs, nodes, self._spool.endings(), self._known_places)
        window_of = {window_id(each, settings): each for each in colocation_windows(gpu_use, settings, now_s)}
        outcome_of = {each.observation_id: each for each in outcomes(jobs, settings, now_s)}
        new_windows = [window for name, window in window_of.items() if name not in self._reported_ids]
        observations: list[Observation] = [
            *progress_of_windows(new_windows, lambda stay: self._spool.marks(stay, now_s), settings)
        ]
        observations += [outcome for name, outcome in outcome_of.items() if name not in self._reported_ids]
        # 2. Placements that Slurm rejected in this round.
        decision_of, by_id = {each.job_id: each for each in decisions}, {job.id: job for job in jobs}
        for update in rejected:
            if update.job_id in decision_of and decision_of[update.job_id].device:
                observations.append(
                    refused(
                        by_id[update.job_id],
                        decision_of[update.job_id].decision_id,
                        update.message,
                        lost=update.lost_race,
                        settings=settings,
                        at_s=now_s,
                    )
                )
        # 3. Deliver them; a first window alone becomes a profile.
        if observations:
            for answer in self._client.observe(observations):
                results[answer.result.value] += 1
                self._metrics.add("observations_total", "result", answer.result.value)
                self._reported_ids.add(answer.observation_id)
            self._register_profiles([each for each in observations if isinstance(each, Progress) and not each.company])
        self._reported_ids &= {*window_of, *outcome_of}
        return results

    def _register_profiles(self, solo_windows: Sequence[Progress]) -> None:
        """Register the solo step time of a workload as its first profile: from then on it may be paired."""
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for window in solo_windows:
            key = window.workload, window.device_type
            steps, seconds = sums.get(key, (0.0, 0.0))
            sums[key] = steps + window.steps, seconds + window.end_s - window.start_s
        for key, (steps, seconds) in sums.items():
            if key in self._profiled:
                continue
            if not self._client.list_profiles(workload=key[0], device_type=key[1]):
                profile = JobProfile(workload=key[0], device_type=key[1], step_time_s=seconds / steps, source="slurm")
                self._client.register_profiles([profile])
            self._profiled.add(key)


def check_plan_subjects(plan: Plan, snapshot: Snapshot) -> None:
    """Raise InvalidInputError for a plan about jobs or devices outside the snapshot: it must not reach scontrol."""
    pending, devices = {job.id for job in snapshot.pending}, {device.id for device in snapshot.devices}
    running = {job.id for device in snapshot.devices for job in device.residents}
    for action in plan.actions:
        jobs = running if action.kind is ActionKind.END else pending
        if action.job_id not in jobs or (action.kind in _START and action.device_id not in devices):
            raise InvalidInputError(
                "the server's plan is about jobs or devices that were not in the request",
                value=f"{action.job_id!r} on {action.device_id!r}",
                remedy="check what answers at `server`",
            )
