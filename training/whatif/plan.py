"""The replays that answer a what-if question.

At the trace's own load: each queue without sharing, with greedy placement under each cap, and with matching. At each
load asked for: without sharing and with greedy; with matching at the highest, where the two differ most if they do;
under each cap at the middle one, since a trace with free devices says nothing about caps at its own load. More than two
seats a device are replayed wherever matching is, which alone forms larger groups, under queues that stop no job: once
with groups that nobody measured as the sum of their pairs, once as the product.
Where gangs may share, the measured line lets one-GPU jobs share only, and a second one rests on the assumption about
gangs. Scenarios about workloads without truth are replayed at the trace's own load.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from interfere.sim.schedulers.names import GREEDY, MATCHING, ONE_GPU, name_with_seats
from interfere.sim.sweeps.tasks import SweepTask
from interfere.sim.truth import Composition
from interfere.training.whatif.inputs import WhatIfInputs
from interfere.training.whatif.question import WhatIf


def plan_tasks(question: WhatIf, inputs: WhatIfInputs) -> list[SweepTask]:
    """All tasks, in the order of how much their answer is worth when the sweep is interrupted."""
    tasks: list[SweepTask] = []
    for world in range(len(inputs.worlds)):
        tasks += _at_own_load(question, inputs, world)
    stretchable = [k for k, world in enumerate(inputs.worlds) if 0 < world.load < math.inf]
    for load in question.loads:
        for world in stretchable:
            tasks += _at_load(question, inputs, world, load)
    return list(dict.fromkeys(tasks))


def shared_name(queue: str, sharing: str, *, one_gpu: bool) -> str:
    """The scheduler's name with sharing."""
    return "+".join((queue, sharing, ONE_GPU) if one_gpu else (queue, sharing))


def middle_load(question: WhatIf) -> float:
    """The load at which caps are compared beside the trace's own."""
    return sorted(question.loads)[len(question.loads) // 2]


def _at_own_load(question: WhatIf, inputs: WhatIfInputs, world: int) -> Iterator[SweepTask]:
    gangs = inputs.coverage.has_gangs
    for queue in question.queue_names:
        greedy = shared_name(queue, GREEDY, one_gpu=gangs)
        for draw in range(question.draws + 1):
            yield SweepTask(policy=queue, world=world, draw=draw)
            yield SweepTask(policy=greedy, world=world, draw=draw)
        if gangs:
            yield SweepTask(policy=shared_name(queue, GREEDY, one_gpu=False), world=world)
        for cap in question.caps:
            yield SweepTask(policy=greedy, world=world, max_slowdown=cap)
        for scenario in range(1, len(inputs.scenarios)):
            yield SweepTask(policy=greedy, world=world, scenario=scenario)
        yield from _matching(question, queue, SweepTask(policy=queue, world=world), one_gpu=gangs)


def _at_load(question: WhatIf, inputs: WhatIfInputs, world: int, load: float) -> Iterator[SweepTask]:
    gangs = inputs.coverage.has_gangs
    for queue in question.queue_names:
        yield SweepTask(policy=queue, world=world, load=load)
        yield SweepTask(policy=shared_name(queue, GREEDY, one_gpu=gangs), world=world, load=load)
        if gangs:
            yield SweepTask(policy=shared_name(queue, GREEDY, one_gpu=False), world=world, load=load)
        if load == middle_load(question):
            for cap in question.caps:
                greedy = shared_name(queue, GREEDY, one_gpu=gangs)
                yield SweepTask(policy=greedy, world=world, load=load, max_slowdown=cap)
        if load == max(question.loads):
            yield from _matching(question, queue, SweepTask(policy=queue, world=world, load=load), one_gpu=gangs)


def _matching(question: WhatIf, queue: str, alone: SweepTask, *, one_gpu: bool) -> Iterator[SweepTask]:
    """The task with matching for two seats a device, and for more where the scheduler forms such groups."""
    pairs = shared_name(queue, MATCHING, one_gpu=one_gpu)
    yield replace(alone, policy=pairs)
    for name in filter(None, (name_with_seats(pairs, seats) for seats in question.seats)):
        for composition in Composition:
            yield replace(alone, policy=name, composition=composition)
