"""Defines a workload: a name, and a function `build` that returns one step to repeat; and the table of built-in ones.

A step does its work and calls `pause(seconds)` wherever the real job would wait: for input, for a request, for a
network. So the profiler sees when the job is busy and when it is idle, and other jobs can use the idle time.

Two kinds of workload are made of others. A gang runs the step of another workload on several devices, and its ranks
wait for one another after each step. A service answers requests that arrive at a fixed rate; each of its rates is a
workload. Arrivals are an open loop: a request arrives whether or not the earlier are answered. The latency of a request
is the time from its arrival to its answer, so it includes the wait behind earlier requests. A closed loop, in which the
next request waits for the last answer, hides that wait (Schroeder, Wierman and Harchol-Balter, "Open Versus Closed: A
Cautionary Tale", NSDI 2006).

Gaps between arrivals are exponential, as those of independent users are. A step holds the requests of about
`STEP_S`; their gaps are the middle quantiles of the exponential distribution, each once, in an order that is drawn
anew for every step. So steps have the same number of requests and the same length, and bursts differ.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from interfere.records import NAN
from interfere.records.measurements import GANG_SUFFIX

Pause = Callable[[float], None]
Step = Callable[[Pause], None]
Answer = Callable[[], object]  # answers one request; an iterator over tokens, where it generates them


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job of repeated steps. `build` is called once in the worker process and returns the function of one step."""

    name: str
    description: str
    build: Callable[[], Step]
    framework: str = ""  # "torch": operators, FLOPs and bytes are counted; otherwise the declared ones are taken
    flops_per_step: float = NAN
    bytes_per_step: float = NAN
    operator: str = ""  # the one operator that does the work, for workloads whose operators cannot be profiled
    operator_count: float = 1.0  # its calls per step
    requests_per_s: float = NAN  # of a service: the rate of arrivals
    gang_of: str = ""  # of a gang: the workload whose step each rank runs
    ranks: int = 1  # devices; the ranks of a gang meet after each step
    beside_all: bool = True  # False: a campaign measures it beside a part of the workloads alone


BUILT_IN: dict[str, Workload] = {}  # by name, in the order of their definition


def built_in(
    name: str, description: str, framework: str, **declared: Any
) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Enter a build function into `BUILT_IN` as the workload of that name.

    `declared` are further fields of Workload: the work of a step where it cannot be counted.
    """

    def enter(build: Callable[[], Step]) -> Callable[[], Step]:
        BUILT_IN[name] = Workload(name=name, description=description, build=build, framework=framework, **declared)
        return build

    return enter


def built_in_service(
    name: str, description: str, framework: str, *, requests_per_s: tuple[float, float, float], operator: str = ""
) -> Callable[[Callable[[], Answer]], Callable[[], Answer]]:
    """Enter a build function into `BUILT_IN` as three workloads, one for each rate of arrivals, named `name@rate`.

    The build function returns the function that answers one request. The rates offer 20 to 33, 32 to 50 and 45 to
    71 % of a core of an AMD EPYC of 2.6 GHz; profiles say how much of another. `operator` names what answers
    a request where operators cannot be profiled. A campaign measures the middle rate beside all other workloads, the
    other two beside a part of them.
    """

    def enter(build: Callable[[], Answer]) -> Callable[[], Answer]:
        for place, rate in enumerate(requests_per_s):
            named = f"{name}@{rate:g}"
            BUILT_IN[named] = Workload(
                name=named,
                description=f"{description}, {rate:g} requests/s",
                build=partial(_open_loop, build, rate),
                framework=framework,
                operator=operator,
                operator_count=float(OpenLoop.requests_a_step(rate)) if operator else 1.0,
                requests_per_s=rate,
                beside_all=place == 1,
            )
        return build

    return enter


def _open_loop(build: Callable[[], Answer], requests_per_s: float) -> Step:
    return OpenLoop(build(), requests_per_s=requests_per_s)


def built_in_gang(of: str) -> None:
    """Enter the gang of two ranks of a built-in workload into `BUILT_IN`, named after it."""
    name = of + GANG_SUFFIX
    description = f"{BUILT_IN[of].description}; 2 ranks with a barrier after each step"
    BUILT_IN[name] = replace(BUILT_IN[of], name=name, description=description, gang_of=of, ranks=2, beside_all=False)
