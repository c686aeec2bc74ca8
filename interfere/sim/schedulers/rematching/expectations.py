"""How long a job is expected to run on, and what its speed counts, under each order of the queue.

An order that knows durations goes by them. For any other the expected remaining time is the service attained so far:
lifetimes have heavy tails, so the longer a job has run, the longer it runs on (Harchol-Balter and Downey, ACM TOCS
1997). Where durations are known the speed of a job counts 1 / expected time, completions a second; else all count 1.
"""

from dataclasses import dataclass

from interfere.sim.cluster import Cluster, JobState
from interfere.sim.schedulers.duration_estimates import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The expected remaining time and the weight of each job."""

    estimate: Estimate | None  # of durations; None: nobody knows them
    least_s: float  # no job is expected to end sooner: a slice

    def expected_s(self, state: JobState, cluster: Cluster) -> float:
        """Expected remaining time alone at speed 1."""
        if self.estimate is None:
            return max(self.least_s, cluster.served_s(state))
        return max(self.least_s, self.estimate.remaining_s(state, cluster))

    def weight(self, state: JobState, cluster: Cluster) -> float:
        """Return the weight of one second of the job's work."""
        return 1.0 if self.estimate is None else 1.0 / self.expected_s(state, cluster)
