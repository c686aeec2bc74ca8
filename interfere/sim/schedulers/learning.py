"""A scheduler that corrects its online model by what its jobs measured, before each decision.

Every completed span in which a job shared becomes one progress observation with its slowdown, as an agent on the
device would report it.
Law: only spans that have ended are reported, each once.
"""

from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, Progress
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Decision, Scheduler

MIN_SPAN_S = 60.0  # a shorter window is mostly start-up


class LearningScheduler:
    """Wraps any scheduler that decides by the online model."""

    def __init__(self, inner: Scheduler, online: OnlineModel, profiles: Profiles, mode: SharingMode) -> None:
        self._inner, self._online, self._profiles, self._mode = inner, online, profiles, mode
        self._spans_read = 0
        self.observations = 0

    def decide(self, cluster: Cluster) -> Decision:
        """Let the model observe the spans that ended since the last call, then return the wrapped scheduler's
        decision."""
        for k, span in enumerate(cluster.spans[self._spans_read :], self._spans_read):
            if not span.company_ids or span.end_s - span.start_s < MIN_SPAN_S:
                continue
            victim = cluster.jobs[span.job_id].job
            observation = Progress(
                observation_id=f"span-{k}",
                job_id=victim.id,
                workload=victim.workload,
                company=tuple(cluster.jobs[other].job.workload for other in span.company_ids),
                device_type=cluster.devices[span.device_ids[0]].device.type,
                mode=self._mode,
                start_s=span.start_s,
                end_s=span.end_s,
                slowdown=span.slowdown,
            )
            self._online.observe(observation, self._resolve)
            self.observations += 1
        self._spans_read = len(cluster.spans)
        return self._inner.decide(cluster)

    def _resolve(self, workload: str, device_type: str) -> JobProfile | None:
        return self._profiles.get((workload, device_type))
