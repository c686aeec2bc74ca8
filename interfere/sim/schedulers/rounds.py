"""Decisions in rounds: a real scheduler looks at its queue every few seconds, not at the moment of an event."""

import math
from dataclasses import dataclass

from interfere.sim.cluster import Cluster, Decision, Scheduler
from interfere.sim.world import LATE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundScheduler:
    """A scheduler that decides at whole multiples of `round_s` alone; between two of them everything waits.

    Law: nothing starts, stops or is dropped between two rounds.
    """

    inner: Scheduler
    round_s: float

    def decide(self, cluster: Cluster) -> Decision:
        """Return the inner scheduler's decision where a round is due; else ask for the next round."""
        next_s = math.ceil((cluster.now_s - LATE_S) / self.round_s) * self.round_s
        return Decision(wake_s=next_s) if next_s > cluster.now_s + LATE_S else self.inner.decide(cluster)
