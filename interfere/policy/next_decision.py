"""When the scheduler should ask for the next decision: at the first foreseen event, or after a time slice.

The events are: the predicted end of a running or starting job, now + remaining_s · slowdown; the expiry of a promise;
the last moment at which a waiting job can start alone on the fastest type and still meet its deadline; the opening or
closing of a device. An unpredicted slowdown counts as 1, so that the job cannot end before its predicted event.
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.rules.runtime import remaining_quantile_s
from interfere.policy.slowdowns import SlowdownOfJob
from interfere.records import Action, ActionKind, Promise
from interfere.records.cluster import spans


def next_decision_s(
    context: PlanningContext, actions: Sequence[Action], promises: Sequence[Promise], slowdown_of: SlowdownOfJob
) -> float:
    """Return the time of the next decision in seconds on the caller's clock; NaN where no event is foreseen.

    `actions` are the actions of the plan that change a placement, `promises` those in the ledger after the plan.
    """
    snapshot = context.snapshot
    started = {action.job_id for action in actions if action.places}
    last_starts_s = [
        job.deadline_s - remaining_quantile_s(job, snapshot.limits.slowdown.risk)
        for job in snapshot.pending
        if job.id not in started
    ]
    closing = (device.windows for device in snapshot.devices if device.windows)
    openings_s = [at_s for windows in closing for span in spans(windows) for at_s in span]
    events_s = [*_predicted_ends_s(context, actions, slowdown_of), *(p.action.promised_by_s for p in promises)]
    events_s.append(snapshot.now_s + snapshot.limits.timing.slice_s)
    events_s += [at_s for at_s in (*last_starts_s, *openings_s) if math.isfinite(at_s) and at_s > snapshot.now_s]
    return float(np.fmin.reduce(events_s, initial=math.nan))


def _predicted_ends_s(context: PlanningContext, actions: Sequence[Action], slowdown_of: SlowdownOfJob) -> list[float]:
    """Return the predicted end time of every running or starting job whose remaining_s is known."""
    starting = {action.job_id for action in actions if action.places}
    stopped = {action.job_id for action in actions if action.kind in (ActionKind.PREEMPT, ActionKind.END)}
    jobs = [job for device in context.snapshot.devices for job in device.residents if job.id not in stopped]
    jobs += [job for job in context.snapshot.pending if job.id in starting]
    told = [job for job in jobs if job.remaining_s >= 0]
    remaining_s = np.array([job.remaining_s for job in told], dtype=np.float64)
    slowdowns = np.array([slowdown_of.get(job.id, math.nan) for job in told], dtype=np.float64)
    return list((context.now_s + remaining_s * np.fmax(slowdowns, 1.0)).tolist())
