"""Drift tests: stationary series never alarm, shifts are found within a few windows, and learning resumes by itself."""

import numpy as np
import pytest

from interfere.predict.online.drift import (
    JOB_DECISION_WINDOWS,
    OUTLIER_Z,
    DriftTest,
    Verdict,
    global_drift_test,
    job_drift_test,
)
from interfere.predict.residual import OnlineModel
from interfere.records import ObservationResult
from tests.predict.test_residual import TABLE, median, resolve, window
from tests.tables import TablePredictor, profile


def run(test: DriftTest, values: list[float]) -> tuple[DriftTest, list[Verdict]]:
    verdicts = []
    for z in values:
        test, verdict = test.update(z)
        verdicts.append(verdict)
    return test, verdicts


def test_a_stationary_series_never_alarms() -> None:
    values = np.random.default_rng(0).normal(size=20_000).tolist()
    for test in (job_drift_test(), global_drift_test()):
        after, verdicts = run(test, values)
        assert (after.alarm_count, after.frozen) == (0, False)
        assert set(verdicts) == {Verdict.LEARN}


@pytest.mark.parametrize(("shift", "within"), [(3.0, 8), (-3.0, 8), (6.0, 4), (1.5, 25)])
def test_a_shift_is_found_within_a_few_windows(shift: float, within: int) -> None:
    after, _ = run(job_drift_test(), [shift] * within)
    assert after.alarm_count == 1


def test_one_outlier_is_quarantined_and_the_next_window_is_learned() -> None:
    after, verdicts = run(job_drift_test(), [0.0, OUTLIER_Z + 1, 0.0])
    assert verdicts == [Verdict.LEARN, Verdict.QUARANTINE, Verdict.LEARN]
    assert after.alarm_count == 0


def test_a_passing_disturbance_is_forgotten() -> None:
    frozen, _ = run(job_drift_test(), [5.0] * 3)
    assert frozen.frozen
    after, verdicts = run(frozen, [0.1, -0.2] * JOB_DECISION_WINDOWS)
    assert not after.frozen
    assert verdicts[: JOB_DECISION_WINDOWS - 1] == [Verdict.QUARANTINE] * (JOB_DECISION_WINDOWS - 1)
    assert Verdict.RELEARN not in verdicts


def test_a_new_level_is_relearned() -> None:
    frozen, _ = run(job_drift_test(), [5.0] * 3)
    _, verdicts = run(frozen, [6.0, 6.3, 5.8, 6.1, 6.0, 6.2])
    assert Verdict.RELEARN in verdicts
    assert verdicts[-1] is Verdict.LEARN


def test_a_reporter_that_contradicts_itself_stays_frozen() -> None:
    frozen, _ = run(job_drift_test(), [5.0] * 3)
    after, verdicts = run(frozen, [20.0, -20.0, 3.0, -9.0] * 20)
    assert after.frozen
    assert set(verdicts) == {Verdict.QUARANTINE}


def test_when_all_jobs_drift_learning_stops_and_resumes() -> None:
    names = [f"w{k}" for k in range(40)]
    table = {(v, n): 1.5 for v in names for n in names}
    profiles = {name: profile(name) for name in names}
    model = OnlineModel(TablePredictor(table))

    def report(factor: float, rounds: int) -> list[ObservationResult]:
        return [
            model.observe(
                window(k, names[k % 40], (names[(7 * k + r) % 40],), slowdown=1.5 * factor),
                lambda name, _: profiles[name],
            ).result
            for r in range(rounds)
            for k in range(40)
        ]

    assert set(report(1.0, 15)) == {ObservationResult.APPLIED}
    shifted = report(1.4, 8)
    assert model.global_test.alarm_count >= 1
    assert ObservationResult.QUARANTINED in shifted
    assert shifted[-40:].count(ObservationResult.APPLIED) >= 38
    assert not model.global_test.frozen


def test_many_new_jobs_off_in_one_direction_are_learned_not_frozen() -> None:
    names = [f"w{k}" for k in range(300)]
    table = {(v, n): 1.2 for v in names for n in names}
    profiles = {name: profile(name) for name in names}
    model = OnlineModel(TablePredictor(table))
    for k, name in enumerate(names):
        verdicts = model.observe(window(k, name, (names[(k + 1) % 300],), slowdown=1.6), lambda n, _: profiles[n])
        assert verdicts.result is ObservationResult.APPLIED
    assert model.alarm_count == 0


def test_a_frozen_job_teaches_nothing_about_its_neighbours() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(30):
        model.observe(window(k, slowdown=TABLE["a", "b"]), resolve)
    while not model.drifting_workloads():
        model.observe(window(99, slowdown=2.5 * TABLE["a", "b"]), resolve)
    assert model.drifting_workloads() == ("a",)
    before = {pair: median(model, *pair) for pair in TABLE}
    model.observe(window(100, slowdown=9.0), resolve)
    assert {pair: median(model, *pair) for pair in TABLE} == before
