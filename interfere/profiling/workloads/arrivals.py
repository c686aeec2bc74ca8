"""Arrivals of requests at a service: an open loop, in which a request arrives whether or not the earlier are answered.

The latency of a request is the time from its arrival to its answer, so it includes the wait behind earlier requests. A
closed loop, in which the next request waits for the last answer, hides that wait (Schroeder, Wierman and
Harchol-Balter, "Open Versus Closed: A Cautionary Tale", NSDI 2006).

Gaps between arrivals are exponential, as those of independent users are. A step holds the requests of about
`STEP_S`; their gaps are the middle quantiles of the exponential distribution, each once, in an order that is drawn
anew for every step. So steps have the same number of requests and the same length, and bursts differ.
"""

import math
import time
from collections import deque
from collections.abc import Callable

import numpy as np

STEP_S = 0.03  # of arrivals in a step: a slice of the profiler holds several steps
MIN_REQUESTS = 2  # in a step
REQUESTS_KEPT = 100_000  # newest ones, where nobody takes them


class OpenLoop:
    """One step of a service: requests arrive at fixed rate, wait in order of arrival, and are answered one by one."""

    def __init__(
        self,
        answer: Callable[[], object],
        *,
        requests_per_s: float,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answer, self._clock, self._rng = answer, clock, np.random.default_rng(seed)
        count = self.requests_a_step(requests_per_s)
        quantiles = -np.log1p(-(np.arange(count) + 0.5) / count)
        self._gaps_s = quantiles * (count / requests_per_s / quantiles.sum())
        self._answered: deque[tuple[float, float]] = deque(maxlen=REQUESTS_KEPT)
        self._arrival_s = math.nan

    @staticmethod
    def requests_a_step(requests_per_s: float) -> int:
        """Return the number of requests in a step."""
        return max(MIN_REQUESTS, round(requests_per_s * STEP_S))

    def restart(self) -> None:
        """Let arrivals begin now with an empty queue, as after a time in which the service was stopped."""
        self._arrival_s = self._clock()

    def __call__(self, pause: Callable[[float], None]) -> None:
        """Answer the requests of one step; `pause` waits for the next arrival where the queue is empty."""
        if math.isnan(self._arrival_s):
            self.restart()
        for gap_s in self._rng.permutation(self._gaps_s).tolist():
            self._arrival_s += gap_s
            wait_s = self._arrival_s - self._clock()
            if wait_s > 0:
                pause(wait_s)
            self._answer()
            self._answered.append((self._arrival_s, self._clock()))

    def take_answered(self) -> list[tuple[float, float]]:
        """Return arrival and answer, in monotonic seconds, of each request since the last call."""
        answered = list(self._answered)
        self._answered.clear()
        return answered
