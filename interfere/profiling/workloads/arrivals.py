"""Arrivals of requests at a service: an open loop, in which a request arrives whether or not the earlier are answered.

The latency of a request is the time from its arrival to its answer, so it includes the wait behind earlier requests. A
closed loop, in which the next request waits for the last answer, hides that wait (Schroeder, Wierman and
Harchol-Balter, "Open Versus Closed: A Cautionary Tale", NSDI 2006).

Gaps between arrivals are exponential, as those of independent users are. A step holds the requests of about
`STEP_S`; their gaps are the middle quantiles of the exponential distribution, each once, in an order that is drawn
anew for every step. So steps have the same number of requests and the same length, and bursts differ.

A service that generates text answers with an iterator over its tokens, and the time of the first one is kept as well.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

STEP_S = 0.03  # of arrivals in a step: a slice of the profiler holds several steps
MIN_REQUESTS = 2  # in a step
REQUESTS_KEPT = 100_000  # newest ones, where nobody takes them


class Answered(NamedTuple):
    """When a request arrived and was answered, in monotonic seconds; the columns of `trace.Requests`."""

    arrival_s: float
    answer_s: float
    first_token_s: float = math.nan  # NaN where no tokens are generated
    tokens: int = 0


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
        self._answered: deque[Answered] = deque(maxlen=REQUESTS_KEPT)
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
            answer = self._answer()
            if isinstance(answer, Iterator):
                self._answered.append(self._generated(answer))
            else:
                self._answered.append(Answered(self._arrival_s, self._clock()))

    def _generated(self, tokens: Iterator[object]) -> Answered:
        """Let all tokens of the present request be generated, each of which is there when the iterator yields it."""
        count, first_token_s = 0, math.nan
        for count, _ in enumerate(tokens, 1):
            if count == 1:
                first_token_s = self._clock()
        return Answered(self._arrival_s, self._clock(), first_token_s, count)

    def take_answered(self) -> list[Answered]:
        """Return the requests that were answered since the last call."""
        answered = list(self._answered)
        self._answered.clear()
        return answered
