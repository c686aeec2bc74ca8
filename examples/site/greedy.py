"""The Slurm adapter with another planner: `advise` as it ships, but every job in order goes where its pair costs least.

    python -m examples.site.greedy FILE

A job takes an idle device; else, of the devices with one job, the one beside which the predicted joint throughput is
largest, where it is above the server's least; else it waits. Predictions are the server's, and so is what it learns.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

from interfere.client import AloneFallback, PolicyClient
from interfere.errors import UnavailableError
from interfere.records import Action, ActionKind, Device, Job, Plan, Snapshot
from interfere.serving.adapters.slurm.command import advise_slurm
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.sharing_modes import SharingMode


class GreedyClient(PolicyClient):
    """A client whose decisions are greedy, and made here."""

    def match(self, snapshot: Snapshot) -> Plan:
        """Start the jobs in order, each where it costs least."""
        # 1. Idle devices: as the fallback does without a server.
        plan = AloneFallback().match(snapshot, UnavailableError("greedy"))
        started = {action.device_id: action.job_id for action in plan.actions if action.device_id}
        jobs = {job.id: job for job in snapshot.pending}
        hosts = {
            device.id: (device, host)
            for device in snapshot.devices
            if (device.seats or 2) > 1 and len(device.residents) + (device.id in started) == 1
            for host in (*device.residents, *(jobs[started[k]] for k in [device.id] if k in started))
        }
        # 2. The other jobs, beside the host with the largest joint throughput.
        actions = []
        for action in plan.actions:
            if action.kind is not ActionKind.WAIT or not hosts:
                actions.append(action)
                continue
            options = {
                device_id: self._pair(jobs[action.job_id], host, device, snapshot)
                for device_id, (device, host) in hosts.items()
            }
            best = max(options, key=lambda device_id: sum(1.0 / slowdown for slowdown in options[device_id]))
            own, others = options[best]
            if 1.0 / own + 1.0 / others <= snapshot.limits.slowdown.min_joint_throughput:
                actions.append(action)
                continue
            _, host = hosts.pop(best)
            actions.append(
                Action(
                    kind=ActionKind.START_SHARED,
                    job_id=action.job_id,
                    device_id=best,
                    partner_id=host.id,
                    slowdown=own,
                    partner_slowdown=others,
                    reason="greedy",
                )
            )
        return replace(plan, actions=tuple(actions))

    def _pair(self, job: Job, host: Job, device: Device, snapshot: Snapshot) -> tuple[float, float]:
        """Return the predicted slowdowns of the job and of the host; infinite where the server abstains."""
        answer = self.predict(
            [job.workload, host.workload],
            pairs=[(0, 1), (1, 0)],
            device_type=device.type,
            mode=device.mode or SharingMode.TIMESLICE,
            allow_extrapolation=snapshot.limits.allow_extrapolation,
        )
        own, other = map(float, answer.prediction.median)
        return (own, other) if not math.isnan(own + other) else (math.inf, math.inf)


if __name__ == "__main__":
    chosen = SlurmSettings.load(Path(sys.argv[1]), {})
    with GreedyClient(chosen.server, timeout_s=chosen.timeout_s) as greedy:
        advise_slurm(chosen, greedy, as_json=True)
