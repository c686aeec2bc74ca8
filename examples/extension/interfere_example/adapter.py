"""One round of a scheduler whose queue is a JSON file: python scheduler.py STATE ADDRESS NOW_S."""

import json
import math
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from interfere import Device, Job, Limits, PolicyClient, Snapshot
from interfere.client import AloneFallback
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import DecidedJob
from interfere.serving.adapters.problem import STARTS, Problem, remaining_s_of
from interfere.serving.adapters.round import Advisor, PlannedChanges, Reading, decisions_of
from interfere.serving.adapters.settings import AdapterSettings
from interfere.serving.adapters.windows import CombinedMarks, Place, Run


@dataclass(frozen=True)
class QueuedJob:
    id: str
    workload: str
    device: str = ""
    since_s: float = 0.0
    decision: str = ""
    remaining_s: float = 0.0  # alone, from its start; 0: not known
    run_id = history_id = property(lambda self: self.id)


class JsonQueue:
    """Implements SchedulerPort."""

    name, limits, rules, dry_run = "toy", Limits(), AdapterSettings().window_rules(settle_s=1.0), False

    def __init__(self, file, now_s):
        self.file, self.now_s = file, now_s

    def read(self):
        state = json.loads(self.file.read_text())
        self.devices, self.jobs = state["devices"], [QueuedJob(**row) for row in state["jobs"]]
        running = [job for job in self.jobs if job.device]
        places = [(Place(job.device, "cpu-core"),) for job in running]
        runs = [Run(job=j, start_s=j.since_s, end_s=math.inf, places=p) for j, p in zip(running, places, strict=True)]
        decided_jobs = [DecidedJob(job=job, decision_id=job.decision, device_id=job.device) for job in running]
        return Reading(at_s=self.now_s, scopes=("all",), runs=tuple(runs), decided_jobs=tuple(decided_jobs))

    def problem(self, scope, lost_s):
        ran_s = {job: self.now_s - job.since_s if job.device else 0.0 for job in self.jobs}
        left_s = {job: remaining_s_of(job.remaining_s or math.nan, ran_s[job], lost_s(job.id)) for job in self.jobs}
        records = {job: Job(id=job.id, workload=job.workload, remaining_s=left_s[job]) for job in self.jobs}
        on = {name: tuple(records[job] for job in self.jobs if job.device == name) for name in self.devices}
        devices = tuple(Device(id=name, type="cpu-core", node=name, residents=on[name]) for name in self.devices)
        pending = tuple(job for job in self.jobs if not job.device)
        snapshot = Snapshot(pending=tuple(records[job] for job in pending), devices=devices, scope=scope)
        return Problem(snapshot=snapshot if pending else None, candidates=pending, left_out=Counter())

    def planned_changes(self, problem, plan):
        decisions = decisions_of(plan.actions, problem.candidates_by_id, plan.decision_id) if plan else ()
        return PlannedChanges(decisions=decisions, changes=tuple(d for d in decisions if d.action.kind in STARTS))

    def apply(self, changes):
        for each in changes:
            placed = replace(each.job, device=each.action.device_id, since_s=self.now_s, decision=each.decision_id)
            self.jobs[self.jobs.index(each.job)] = placed
        self.file.write_text(json.dumps({"devices": self.devices, "jobs": [asdict(job) for job in self.jobs]}))
        return ()


if __name__ == "__main__":
    port = JsonQueue(Path(sys.argv[1]), float(sys.argv[3]))
    with PolicyClient(sys.argv[2], fallback=AloneFallback()) as client:
        done = Advisor(port, client, CombinedMarks(), AdapterSettings(cluster="toy"), AdapterMetrics("toy", {})).round()
        print([(each.job.id, each.action.device_id) for each in done.decisions], dict(done.observations))
