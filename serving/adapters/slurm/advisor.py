"""One round: read Slurm, ask the server, update what changed, report what was seen. Stateless between rounds.

What a round remembers of earlier ones (places of jobs that ended since, ids already reported) only saves work: a
restart reads it again. On any error a round does nothing more, and Slurm starts the jobs by itself.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError, UnavailableError
from interfere.records import ActionKind, JobProfile, Limits, Observation, Plan, Progress, Snapshot
from serving.adapters.slurm import edits as edit
from serving.adapters.slurm import view
from serving.adapters.slurm.commands import Refusal, SlurmCommands
from serving.adapters.slurm.edits import Edit
from serving.adapters.slurm.metrics import AdvisorMetrics
from serving.adapters.slurm.occupancy import occupancy
from serving.adapters.slurm.outcomes import outcomes, refused
from serving.adapters.slurm.records import GpuAddress, Node, SlurmJob
from serving.adapters.slurm.settings import SlurmSettings
from serving.adapters.slurm.spool import Spool
from serving.adapters.slurm.windows import of_windows, window_id, windows

_log = logging.getLogger("interfere.slurm")
_START = (ActionKind.START_ALONE, ActionKind.START_SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided for one job."""

    job_id: str
    workload: str
    kind: str
    device: str
    partner_id: str
    slowdown: float
    reason: str
    decision_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did."""

    at_s: float
    decisions: tuple[Decision, ...]
    edits: tuple[Edit, ...]
    refusals: tuple[Refusal, ...]
    left_to_slurm: Counter[str]
    observations: Counter[str]


class Advisor:
    """Rounds over one cluster."""

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
        self._limits = Limits(
            allowed=frozenset({*_START, ActionKind.WAIT}), allow_extrapolation=settings.allow_extrapolation
        )
        self._spool = Spool(settings.spool, settings.lookback_s)
        self._seen: dict[tuple[str, int], tuple[GpuAddress, ...]] = {}
        self._told: set[str] = set()
        self._profiled: set[tuple[str, str]] = set()

    def round(self) -> Round:
        """Raises InterfereError where Slurm or the server does not answer; nothing is half-done that the next round
        does not mend."""
        jobs, nodes, now_s = self._slurm.jobs(), self._slurm.nodes(), time.time()
        as_read = jobs
        self._remember(jobs)
        mended = tuple(
            edit.repair(job, self._settings.window_s)
            for job in jobs
            if job.state == "PENDING" and job.note and job.note.state == "clearing"
        )
        refusals = self._apply(mended)
        decisions, done, left = list[Decision](), list(mended), Counter[str]()
        for partition in view.partitions(jobs):
            seen = view.build(partition, jobs, nodes, self._settings, now_s)
            left += seen.left_to_slurm
            wanted, decided = self._decide(seen, now_s)
            decisions += decided
            refusals += self._apply(wanted)
            done += wanted
            lost = {one.job_id for one in refusals}
            placed = {one.job_ids[0]: one.note for one in wanted if one.note and one.job_ids[0] not in lost}
            jobs = tuple(replace(job, note=placed.get(job.id, job.note)) for job in jobs)
        try:
            told = self._report(as_read, nodes, decisions, refusals, now_s)
        except InterfereError as error:  # what was placed stays placed; the windows are told by a later round
            _log.warning("nothing reported in this round: %s", " ".join(str(error).split()))
            self._metrics.add("observations_total", "result", "undelivered")
            told = Counter({"undelivered": 1})
        return Round(
            at_s=now_s,
            decisions=tuple(decisions),
            edits=tuple(done),
            refusals=refusals,
            left_to_slurm=left,
            observations=told,
        )

    def _remember(self, jobs: Sequence[SlurmJob]) -> None:
        places = {(job.id, job.restarts): view.place_of(job) for job in jobs if job.held}
        known = {job.id for job in jobs}
        self._seen = {key: value for key, value in (self._seen | places).items() if key[0] in known}

    def _decide(self, seen: view.View, now_s: float) -> tuple[tuple[Edit, ...], list[Decision]]:
        """Ask, and turn the answer into edits."""
        by_id = {job.id: job for job in seen.candidates}
        plan: Plan | None = None
        if seen.snapshot:
            plan = self._client.match(replace(seen.snapshot, limits=self._limits))
            check_plan(plan, seen.snapshot)
        decisions, placements, waiting = [], [], list(seen.behind)
        for action in plan.actions if plan else ():
            job = by_id[action.job_id]
            if action.kind in _START:
                to = GpuAddress(*action.device_id.split("/"))
                placements.append(edit.place(job, to, plan.decision_id if plan else "", now_s))
            else:
                waiting.append(job)
            decisions.append(
                Decision(
                    job_id=job.id,
                    workload=job.workload,
                    kind=action.kind.value,
                    device=action.device_id,
                    partner_id=action.partner_id,
                    slowdown=action.slowdown,
                    reason=action.reason,
                    decision_id=plan.decision_id if plan else "",
                )
            )
        # those that may start any moment come last: an update of a job in transition makes scontrol wait for it
        placements.sort(key=lambda one: by_id[one.job_ids[0]].eligible_s <= now_s)
        renewed = edit.renew(edit.due(waiting, now_s, self._settings.window_s), self._settings.window_s)
        return (*map(edit.hand_back, seen.back), *renewed, *placements), decisions

    def _apply(self, wanted: Sequence[Edit]) -> tuple[Refusal, ...]:
        if self._dry_run or not wanted:
            return ()
        try:
            found = self._slurm.apply(wanted)
        except UnavailableError as error:  # some may be done: what the next round reads says which
            _log.warning("updates are cut short: %s", " ".join(str(error).split()))
            self._metrics.add("races_total", "kind", "timeout")
            return ()
        for one in wanted:
            self._metrics.add("edits_total", "kind", one.kind, by=len(one.job_ids))
        for refusal in found:
            self._metrics.add("races_total", "kind", "lost" if refusal.lost_race else "refused")
        return found

    def _report(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[Node],
        decisions: Sequence[Decision],
        refusals: Sequence[Refusal],
        now_s: float,
    ) -> Counter[str]:
        """Tell the server what is new; the ids make it safe to tell twice."""
        settings, results = self._settings, Counter[str]()
        if self._dry_run:
            return results
        self._spool.sweep((job.id for job in jobs), now_s)
        seen = occupancy(jobs, nodes, self._spool.endings(), self._seen)
        cut = {window_id(one, settings): one for one in windows(seen, settings, now_s)}
        ends = {one.observation_id: one for one in outcomes(jobs, settings, now_s)}
        untold = [one for name, one in cut.items() if name not in self._told]
        fresh: list[Observation] = [*of_windows(untold, lambda stay: self._spool.marks(stay, now_s), settings)]
        fresh += [one for name, one in ends.items() if name not in self._told]
        of_job, by_id = {one.job_id: one for one in decisions}, {job.id: job for job in jobs}
        for refusal in refusals:
            if refusal.job_id in of_job and of_job[refusal.job_id].device:
                fresh.append(
                    refused(
                        by_id[refusal.job_id],
                        of_job[refusal.job_id].decision_id,
                        refusal.message,
                        lost=refusal.lost_race,
                        settings=settings,
                        at_s=now_s,
                    )
                )
        if fresh:
            for answer in self._client.observe(fresh):
                results[answer.result.value] += 1
                self._metrics.add("observations_total", "result", answer.result.value)
                self._told.add(answer.observation_id)
            self._profile([one for one in fresh if isinstance(one, Progress) and not one.company])
        self._told &= {*cut, *ends}
        return results

    def _profile(self, alone: Sequence[Progress]) -> None:
        """What a workload did alone is its first profile: from then on it may be paired."""
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for one in alone:
            steps, seconds = sums.get((one.workload, one.device_type), (0.0, 0.0))
            sums[one.workload, one.device_type] = steps + one.steps, seconds + one.end_s - one.start_s
        for key, (steps, seconds) in sums.items():
            if key in self._profiled:
                continue
            if not self._client.list_profiles(workload=key[0], device_type=key[1]):
                profile = JobProfile(workload=key[0], device_type=key[1], step_time_s=seconds / steps, source="slurm")
                self._client.register_profiles([profile])
            self._profiled.add(key)


def check_plan(plan: Plan, asked: Snapshot) -> None:
    """A server says only what it was asked: whatever else it says must not reach scontrol. Raises InvalidInputError."""
    jobs, devices = {job.id for job in asked.pending}, {device.id for device in asked.devices}
    for action in plan.actions:
        if action.job_id not in jobs or (action.kind in _START and action.device_id not in devices):
            raise InvalidInputError(
                "the server's plan speaks of jobs or devices that it was not asked about",
                value=f"{action.job_id!r} on {action.device_id!r}",
                remedy="check what answers at `server`",
            )
