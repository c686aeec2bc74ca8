"""What a reporter keeps while no server answers, and reports later."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from interfere.errors import UnavailableError
from interfere.records import Action, ActionKind, Observation, ObservationAnswer, ObservationResult
from interfere.serving.adapters.journal import Journal
from interfere.serving.adapters.observations import Decision, Rejection, Reporter
from interfere.serving.adapters.windows import CombinedMarks, WindowRules


class Server:
    """A server that is away at first."""

    def __init__(self) -> None:
        self.is_away, self.stored = True, list[str]()

    def observe(self, observations: Sequence[Observation]) -> tuple[ObservationAnswer, ...]:
        """Store observations."""
        if self.is_away:
            raise UnavailableError("the database is away", retry_after_s=0.5)
        self.stored += [each.observation_id for each in observations]
        names = self.stored[-len(observations) :]
        return tuple(ObservationAnswer(observation_id=name, result=ObservationResult.APPLIED) for name in names)


def test_a_refused_change_is_reported_once_the_server_is_back() -> None:
    rules = WindowRules(report_every_s=60.0, least_window_s=10.0, lookback_s=3600.0, settle_s=0.0)
    reporter, server = Reporter[Any]("toy", "c", rules, CombinedMarks[Any](), Journal(None)), Server()
    client: Any = server
    job: Any = SimpleNamespace(id="j", history_id="j-1", run_id="j-1", workload="gemm")
    action = Action(kind=ActionKind.START_ALONE, job_id="j", device_id="d")
    decisions = [Decision(job=job, action=action, decision_id="d1")]
    rejected = [Rejection(job_id="j", message="the queue is closed", lost_race=False)]
    with pytest.raises(UnavailableError):
        reporter.report(client, decisions, rejected, 100.0)
    server.is_away = False
    assert reporter.report(client, [], [], 200.0) == {"applied": 1}
    assert reporter.report(client, [], [], 300.0) == {}
    assert server.stored == ["toy/c/j-1/refused/d1"]
