"""What running jobs have lost to the jobs beside them."""

from dataclasses import replace

import pytest

from interfere.records import Action, ActionKind
from interfere.serving.adapters.observations import Decision, LostTime
from interfere.serving.adapters.windows import Run
from tests.serving.adapters.test_windows import PlainJob, run


def start(job_id: str, slowdown: float, **partners: float) -> Decision[PlainJob]:
    """A decision to start a job beside others. `partners`: their predicted slowdowns."""
    names, slowdowns = tuple(partners), tuple(partners.values())
    beside = {"partner_ids": names, "partner_slowdowns": slowdowns} if len(names) > 1 else {}
    action = Action(
        kind=ActionKind.START_SHARED,
        job_id=job_id,
        device_id="d",
        partner_id=names[0],
        slowdown=slowdown,
        partner_slowdown=slowdowns[0],
        **beside,
    )
    return Decision(job=PlainJob(job_id, "w"), action=action, decision_id="1")


def on(device: str, *names: str) -> list[Run[PlainJob]]:
    return [run(name, 0.0, float("inf"), device) for name in names]


def test_a_job_loses_time_beside_others_alone() -> None:
    lost = LostTime()
    lost.predict([start("b", 2.0, a=1.25)])
    lost.advance(on("d", "a"), 100.0)
    lost.advance(on("d", "a"), 110.0)
    assert lost.of("a") == 0.0
    lost.advance(on("d", "a", "b"), 110.0)
    lost.advance(on("d", "a", "b"), 120.0)
    assert (lost.of("a"), lost.of("b")) == (pytest.approx(2.0), pytest.approx(5.0))
    lost.advance(on("d", "b"), 130.0)
    assert lost.of("b") == pytest.approx(5.0), "alone again"
    assert lost.of("a") == 0.0, "forgotten with its end"


def test_neighbours_without_a_prediction_cost_nothing() -> None:
    lost = LostTime()
    lost.predict([start("b", float("nan"), a=0.8)])
    for now_s in (1.0, 11.0):
        lost.advance([*on("d", "a", "b"), *on("e", "c", "d")], now_s)
    assert [lost.of(name) for name in "abcde"] == [0.0] * 5


def test_a_gang_loses_once_whatever_the_number_of_its_devices() -> None:
    """Its ranks wait for each other: its slowdown is that beside all the jobs on its devices."""
    lost = LostTime()
    lost.predict([start("gang", 2.0, a=1.25, b=1.5)])
    gang = run("gang", 0.0, float("inf"), "d0", "d1")
    for now_s in (1.0, 11.0):
        lost.advance([gang, *on("d0", "a"), *on("d1", "b")], now_s)
    assert lost.of("gang") == pytest.approx(5.0)


def test_a_job_that_was_started_again_has_lost_nothing_yet() -> None:
    lost = LostTime()
    lost.predict([start("b", 2.0, a=1.25)])
    runs = on("d", "a", "b")
    for now_s in (1.0, 11.0):
        lost.advance(runs, now_s)
    restarted = replace(runs[0], job=Restarted("a", "w"))
    lost.advance([restarted, runs[1]], 21.0)
    assert (lost.of("a"), lost.of("b")) == (pytest.approx(2.0), pytest.approx(10.0))


class Restarted(PlainJob):
    """The second run of a job."""

    @property
    def run_id(self) -> str:
        return f"{self.id}.1"
