"""A scheduler that tells the online model what its jobs measured, before it asks it again.

Every span in company that is over becomes one `Progress` with its slowdown, as an agent on the device would report it.
Law: only what is over by now is told, each span once.
"""

from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, Progress
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Decision, Scheduler

LEAST_S = 60.0  # of a span: a shorter window is mostly start-up


class LearningScheduler:
    """Wraps any scheduler that decides by `online`."""

    def __init__(self, inner: Scheduler, online: OnlineModel, profiles: Profiles, mode: str) -> None:
        self._inner, self._online, self._profiles, self._mode = inner, online, profiles, mode
        self._told = 0
        self.observations = 0

    def decide(self, cluster: Cluster) -> Decision:
        """Learn first."""
        for k, span in enumerate(cluster.spans[self._told :], self._told):
            if not span.partner_id or span.end_s - span.start_s < LEAST_S:
                continue
            own, other = cluster.jobs[span.job_id].job, cluster.jobs[span.partner_id].job
            window = Progress(
                observation_id=f"span-{k}",
                job_id=own.id,
                workload=own.workload,
                company=(other.workload,),
                device_type=cluster.devices[span.device_ids[0]].device.type,
                mode=self._mode,
                start_s=span.start_s,
                end_s=span.end_s,
                slowdown=span.slowdown,
            )
            self._online.observe(window, self._resolve)
            self.observations += 1
        self._told = len(cluster.spans)
        return self._inner.decide(cluster)

    def _resolve(self, workload: str, device_type: str) -> JobProfile | None:
        return self._profiles.get((workload, device_type))
