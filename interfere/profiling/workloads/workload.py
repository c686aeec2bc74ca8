"""Defines a workload: a name, and a function `build` that returns one step to repeat; and the table of built-in ones.

A step does its work and calls `pause(seconds)` wherever the real job would wait: for input, for a request, for a
network. So the profiler sees when the job is busy and when it is idle, and other jobs can use the idle time.

Two kinds of workload are made of others. A service answers requests that arrive at a fixed rate, whether or not the
earlier ones are answered (`interfere.profiling.workloads.arrivals`); each of its rates is a workload. A gang runs the
step of another workload on several devices, and its ranks wait for one another after each step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from interfere.profiling.workloads.arrivals import OpenLoop
from interfere.records import NAN
from interfere.records.measurements import GANG_SUFFIX

Pause = Callable[[float], None]
Step = Callable[[Pause], None]
Answer = Callable[[], object]  # answers one request; an iterator over tokens, where it generates them


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
