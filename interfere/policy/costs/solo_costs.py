"""What jobs cost in the objective that start alone on one device class."""

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.miss_probability import solo_miss_probabilities
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.occupancy import solo_occupancy_costs
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import relative_checkpoint_losses, slowdowns_to_miss
from interfere.records import Device, Job


def costs_alone(jobs: JobsOnClass, context: PlanningContext) -> NDArray[np.float64]:
    """float64[n]: time lost, checkpoints, expected misses and the price of the devices; no rule is asked."""
    objective, pending, times = context.objective, jobs.jobs, jobs.relative_times
    stretch = times + relative_checkpoint_losses(pending, jobs.runtimes)
    cost = objective.constant(pending) + objective.rate(pending) * stretch
    if objective.deadline_miss_price:
        limits = slowdowns_to_miss(pending, times, context.now_s)
        cost += objective.deadline_miss_price * weights(pending) * solo_miss_probabilities(limits)
    return np.asarray(cost + solo_occupancy_costs(jobs, objective))


def cost_alone(job: Job, device: Device, context: PlanningContext) -> float:
    """What one job costs alone on a device of the snapshot."""
    device_class = context.device_class(device)
    times = context.relative_times_on(device_class.type, [job])
    return float(costs_alone(JobsOnClass.of([job], device_class, context, times, timed=True), context)[0])
