"""Defines a workload: a name, and a function `build` that returns one step to repeat; and the table of built-in ones.

A step does its work and calls `pause(seconds)` wherever the real job would wait: for input, for a request, for a
network. So the profiler sees when the job is busy and when it is idle, and other jobs can use the idle time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interfere.records import NAN

Pause = Callable[[float], None]
Step = Callable[[Pause], None]


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
