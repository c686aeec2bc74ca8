"""The seconds that running jobs have lost to the jobs beside them, as predicted when they were placed.

A job that says what it takes alone needs longer beside others. Without this a job that shares a device seems to be at
its end long before it is, and others wait for it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from interfere.serving.adapters.observations import Decision

MAX_PREDICTIONS = 10_000  # newest ones, that are kept


class LostTime:
    """Adds up, from reading to reading, what each job loses: dt (1 - 1 / slowdown).

    After a restart of the adapter it begins at 0, and neighbours without a prediction cost nothing.
    """

    def __init__(self) -> None:
        self._slowdown_of: dict[tuple[str, frozenset[str]], float] = {}  # by job and its company
        self._lost_s: dict[str, float] = {}
        self._read_s = 0.0

    def predict(self, decisions: Iterable[Decision[Any]]) -> None:
        """Take in the predicted slowdowns of the jobs that start beside others, and of those others."""
        for decision in decisions:
            action = decision.action
            company = action.slowdown_of_partners
            members = {action.job_id: action.slowdown, **company}
            for job_id, slowdown in members.items():
                if company and slowdown > 0:  # not NaN
                    self._slowdown_of[job_id, frozenset(members) - {job_id}] = slowdown

    def advance(self, devices: Iterable[Sequence[str]], now_s: float) -> None:
        """Add the time since the last reading. `devices`: the ids of the jobs that run on each device."""
        elapsed_s = max(0.0, now_s - self._read_s) if self._read_s else 0.0
        self._read_s = now_s
        running = set[str]()
        for jobs in devices:
            running.update(jobs)
            for job_id in jobs:
                slowdown = self._slowdown_of.get((job_id, frozenset(jobs) - {job_id}), 1.0)
                self._lost_s[job_id] = self._lost_s.get(job_id, 0.0) + elapsed_s * max(0.0, 1.0 - 1.0 / slowdown)
        self._lost_s = {job_id: lost_s for job_id, lost_s in self._lost_s.items() if job_id in running}
        if len(self._slowdown_of) > 2 * MAX_PREDICTIONS:
            self._slowdown_of = dict(list(self._slowdown_of.items())[-MAX_PREDICTIONS:])

    def of(self, job_id: str) -> float:
        """Return what a running job has lost so far, in seconds; 0 where nothing is known."""
        return self._lost_s.get(job_id, 0.0)
