"""What running jobs have lost to the jobs beside them."""

import pytest

from interfere.records import Action, ActionKind
from interfere.serving.adapters.observations import Decision, LostTime
from tests.serving.adapters.test_windows import PlainJob


def start(job_id: str, partner_id: str, slowdown: float, partner_slowdown: float) -> Decision[PlainJob]:
    action = Action(
        kind=ActionKind.START_SHARED,
        job_id=job_id,
        device_id="d",
        partner_id=partner_id,
        slowdown=slowdown,
        partner_slowdown=partner_slowdown,
    )
    return Decision(job=PlainJob(job_id, "w"), action=action, decision_id="1")


def test_a_job_loses_time_beside_others_alone() -> None:
    lost = LostTime()
    lost.predict([start("b", "a", 2.0, 1.25)])
    lost.advance([["a"]], 100.0)
    lost.advance([["a"]], 110.0)
    assert lost.of("a") == 0.0
    lost.advance([["a", "b"]], 110.0)
    lost.advance([["a", "b"]], 120.0)
    assert (lost.of("a"), lost.of("b")) == (pytest.approx(2.0), pytest.approx(5.0))
    lost.advance([["b"]], 130.0)
    assert lost.of("b") == pytest.approx(5.0), "alone again"
    assert lost.of("a") == 0.0, "forgotten with its end"


def test_neighbours_without_a_prediction_cost_nothing() -> None:
    lost = LostTime()
    lost.predict([start("b", "a", float("nan"), 0.8)])
    for now_s in (1.0, 11.0):
        lost.advance([["a", "b"], ["c", "d"]], now_s)
    assert [lost.of(name) for name in "abcde"] == [0.0] * 5
