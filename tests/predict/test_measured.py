"""A measured pair is answered by its measurement, in one call or in a matrix, in both directions."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.predict.measured import MeasuredPredictor, MeasuredSlowdown, PairKey
from interfere.predict.residual import OnlineModel
from interfere.records import PairBatch, Source
from tests.tables import DEVICE, TablePredictor, matrix_batch, profile

TABLE = {(v, n): 2.0 for v in "abc" for n in "abc"}
ROW = MeasuredSlowdown(slowdown=1.3, lower=1.2, upper=1.5)
JOBS = tuple(profile(name) for name in "abc")


def predictor(**where: str) -> MeasuredPredictor:
    key = PairKey(**({"victim": "a", "neighbour": "b", "device_type": DEVICE, "mode": "timeslice"} | where))
    return MeasuredPredictor(TablePredictor(TABLE), {key: ROW})


def test_measured_pairs_replace_the_models() -> None:
    batch = PairBatch(
        jobs=JOBS, victim=np.array([0, 1, 0]), neighbour=np.array([1, 0, 2]), device_type=DEVICE, mode="timeslice"
    )
    answer = predictor().predict_pairs(batch)
    assert answer.median.tolist() == [1.3, 2.0, 2.0]
    assert (answer.lower[0], answer.upper[0]) == (1.2, 1.5)
    assert answer.source == (Source.MEASURED, Source.MODEL, Source.MODEL)


def test_the_matrix_agrees_in_both_directions() -> None:
    answer = predictor().predict_matrix(matrix_batch(JOBS, JOBS[::-1]))
    expected = np.full((3, 3), 2.0)
    expected[0, 1] = 1.3  # victim a beside neighbour b
    np.testing.assert_allclose(answer.victim_slowdown, expected, rtol=1e-6)
    back = np.full((3, 3), 2.0)
    back[1, 2] = 1.3  # neighbour a beside victim b
    np.testing.assert_allclose(answer.neighbour_slowdown, back, rtol=1e-6)


@pytest.mark.parametrize("where", [{"mode": "mps"}, {"device_type": "h200"}])
def test_a_measurement_elsewhere_says_nothing_here(where: dict[str, str]) -> None:
    answer = predictor(**where).predict_matrix(matrix_batch(JOBS))
    np.testing.assert_array_equal(answer.victim_slowdown, 2.0)


def test_quantiles_follow_the_interval_of_the_measurement() -> None:
    levels = [
        predictor().predict_matrix(matrix_batch(JOBS[:1], JOBS[1:2]), quantile=q).victim_slowdown.item()
        for q in (0.025, 0.5, 0.975)
    ]
    assert levels == pytest.approx([1.2, 1.3, 1.5])


def test_a_pair_measured_once_is_as_uncertain_as_the_models_answer() -> None:
    once = MeasuredSlowdown(slowdown=1.3, lower=1.3, upper=1.3)
    one = MeasuredPredictor(TablePredictor(TABLE, spread=1.25), {PairKey("a", "b", DEVICE, "timeslice"): once})
    batch = PairBatch(jobs=JOBS, victim=np.array([0]), neighbour=np.array([1]), device_type=DEVICE, mode="timeslice")
    answer = one.predict_pairs(batch)
    assert (answer.median[0], answer.source[0]) == (1.3, Source.MEASURED)
    assert (answer.lower[0], answer.upper[0]) == (pytest.approx(1.3 / 1.25), pytest.approx(1.3 * 1.25))
    for q, expected in ((0.05, 1.3 / 1.25), (0.5, 1.3), (0.95, 1.3 * 1.25)):
        ahead = one.predict_matrix(matrix_batch(JOBS[:1], JOBS[1:2]), quantile=q).victim_slowdown.item()
        back = one.predict_matrix(matrix_batch(JOBS[1:2], JOBS[:1]), quantile=q).neighbour_slowdown.item()
        assert ahead == back == pytest.approx(expected, rel=1e-6)


def test_a_job_whose_step_time_contradicts_the_measured_one_is_answered_by_the_model() -> None:
    key = PairKey("a", "b", DEVICE, "timeslice")
    step_times = {("a", DEVICE): 0.01, ("b", DEVICE): 0.01}
    measured = MeasuredPredictor(TablePredictor(TABLE), {key: ROW}, step_times)
    online = OnlineModel(measured, measured=[key], step_times=step_times)
    jobs = [
        profile("a"),
        profile("b"),
        replace(profile("a"), step_time_s=0.02),
        replace(profile("a"), step_time_s=0.011),
    ]
    batch = PairBatch(
        jobs=tuple(jobs),
        victim=np.array([0, 2, 3]),
        neighbour=np.ones(3, dtype=int),
        device_type=DEVICE,
        mode="timeslice",
    )
    for predictor in (measured, online):
        answer = predictor.predict_pairs(batch)
        assert answer.source == (Source.MEASURED, Source.MODEL, Source.MEASURED)
        assert answer.median.tolist() == [ROW.slowdown, TABLE["a", "b"], ROW.slowdown]
        matrix = predictor.predict_matrix(matrix_batch(jobs, jobs[1:2]))
        assert matrix.victim_slowdown[[0, 2, 3], 0].tolist() == pytest.approx(answer.median.tolist())
