"""The drift watch: calm series are left alone, shifts are found within a few windows, and it returns by itself."""

import numpy as np
import pytest

from interfere.predict.online.drift import ABSURD_Z, RETURN, Verdict, Watch, global_watch, job_watch
from interfere.predict.residual import OnlineModel
from interfere.records import ObservationResult
from tests.predict.test_residual import TABLE, median, resolve, window
from tests.tables import TablePredictor, profile


def run(watch: Watch, values: list[float]) -> tuple[Watch, list[Verdict]]:
    said = []
    for z in values:
        watch, verdict = watch.judge(z)
        said.append(verdict)
    return watch, said


def test_a_calm_series_never_alarms() -> None:
    values = np.random.default_rng(0).normal(size=20_000).tolist()
    for watch in (job_watch(), global_watch()):
        after, said = run(watch, values)
        assert (after.alarms, after.frozen) == (0, False)
        assert set(said) == {Verdict.LEARN}


@pytest.mark.parametrize(("shift", "within"), [(3.0, 8), (-3.0, 8), (6.0, 4), (1.5, 25)])
def test_a_shift_is_found_within_a_few_windows(shift: float, within: int) -> None:
    after, _ = run(job_watch(), [shift] * within)
    assert after.alarms == 1


def test_one_absurd_window_is_held_and_the_next_is_learned() -> None:
    after, said = run(job_watch(), [0.0, ABSURD_Z + 1, 0.0])
    assert said == [Verdict.LEARN, Verdict.HOLD, Verdict.LEARN]
    assert after.alarms == 0


def test_a_passing_disturbance_is_forgotten() -> None:
    frozen, _ = run(job_watch(), [5.0] * 3)
    assert frozen.frozen
    after, said = run(frozen, [0.1, -0.2] * RETURN)
    assert not after.frozen
    assert said[: RETURN - 1] == [Verdict.HOLD] * (RETURN - 1)
    assert Verdict.LEARN_ANEW not in said


def test_a_new_level_is_learned_anew() -> None:
    frozen, _ = run(job_watch(), [5.0] * 3)
    _, said = run(frozen, [6.0, 6.3, 5.8, 6.1, 6.0, 6.2])
    assert Verdict.LEARN_ANEW in said
    assert said[-1] is Verdict.LEARN


def test_a_reporter_that_contradicts_itself_stays_frozen() -> None:
    frozen, _ = run(job_watch(), [5.0] * 3)
    after, said = run(frozen, [20.0, -20.0, 3.0, -9.0] * 20)
    assert after.frozen
    assert set(said) == {Verdict.HOLD}


def test_when_all_jobs_drift_everything_is_frozen_and_comes_back() -> None:
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
    assert model.everyone.alarms >= 1
    assert ObservationResult.QUARANTINED in shifted
    assert shifted[-40:].count(ObservationResult.APPLIED) >= 38
    assert not model.everyone.frozen


def test_many_new_jobs_off_in_one_direction_are_learned_not_frozen() -> None:
    names = [f"w{k}" for k in range(300)]
    table = {(v, n): 1.2 for v in names for n in names}
    profiles = {name: profile(name) for name in names}
    model = OnlineModel(TablePredictor(table))
    for k, name in enumerate(names):
        said = model.observe(window(k, name, (names[(k + 1) % 300],), slowdown=1.6), lambda n, _: profiles[n])
        assert said.result is ObservationResult.APPLIED
    assert model.alarms == 0


def test_a_frozen_job_teaches_nothing_about_its_neighbours() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(30):
        model.observe(window(k, slowdown=TABLE["a", "b"]), resolve)
    while not model.frozen():
        model.observe(window(99, slowdown=2.5 * TABLE["a", "b"]), resolve)
    assert model.frozen() == ("a",)
    before = {pair: median(model, *pair) for pair in TABLE}
    model.observe(window(100, slowdown=9.0), resolve)
    assert {pair: median(model, *pair) for pair in TABLE} == before
