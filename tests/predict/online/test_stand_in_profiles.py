"""An unprofiled job starts from the means of its co-located workloads, and is learned like any other."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.predict.online import state
from interfere.predict.online.prior import ResidualPrior, default_prior
from interfere.predict.online.stand_in_profiles import UNPROFILED
from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, ObservationResult, PairBatch, Prediction, Source
from tests.predict.test_residual import resolve, window
from tests.tables import DEVICE, TablePredictor, matrix_batch

NAMES = ("a", "b", "c", "unprofiled", "other")
TABLE = {(v, n): 1.4 for v in NAMES for n in NAMES}
MODE = "timeslice"


def prior() -> ResidualPrior:
    """The domain's mean is 1.5; every victim beside c is slowed down 20 % more, beside b 20 % less."""
    homes = [(name, DEVICE, MODE) for name in "abc"]
    return replace(
        default_prior(),
        signatures={home: np.zeros(0) for home in homes},
        means={(DEVICE, MODE): float(np.log(1.5))},
        victim_effect=dict(zip(homes, (-0.1, 0.0, 0.1), strict=True)),
        neighbour_effect=dict(zip(homes, (0.0, -0.2, 0.2), strict=True)),
    )


def ask(model: OnlineModel, victim: JobProfile, neighbour: JobProfile) -> Prediction:
    one = np.array([0])
    return model.predict_pairs(
        PairBatch(jobs=(victim, neighbour), victim=one, neighbour=one + 1, device_type=DEVICE, mode=MODE)
    )


def profile_of(model: OnlineModel, name: str = "unprofiled") -> JobProfile:
    found = model.stand_ins.profile(name, DEVICE)
    assert found is not None
    return found


def test_it_has_no_profile_before_something_was_observed_of_it() -> None:
    model = OnlineModel(TablePredictor(TABLE), prior())
    assert model.stand_ins.profile("unprofiled", DEVICE) is None
    assert model.observe(window(0, "unprofiled", ("b",), slowdown=1.3), resolve).result is ObservationResult.APPLIED
    assert profile_of(model).source == UNPROFILED
    assert profile_of(model) is profile_of(model)
    assert model.stand_ins.profile("other", DEVICE) is None


def test_it_starts_from_the_means_of_its_neighbours_and_moves_to_what_is_measured() -> None:
    model = OnlineModel(TablePredictor(TABLE), prior())
    start = {"b": 1.5 * np.exp(-0.2), "c": 1.5 * np.exp(0.2)}
    model.observe(window(0, "unprofiled", ("b",), slowdown=float(start["b"])), resolve)  # as the means say
    for name, expected in start.items():
        said = ask(model, profile_of(model), resolve(name, DEVICE))
        assert said.median[0] == pytest.approx(expected, rel=1e-6)
        assert said.lower[0] < expected < said.upper[0]
        assert said.source == (Source.MODEL,)
    for k in range(20):
        model.observe(window(1 + k, "unprofiled", ("b",), slowdown=1.8), resolve)
    assert ask(model, profile_of(model), resolve("b", DEVICE)).median[0] == pytest.approx(1.8, rel=0.02)
    assert ask(model, profile_of(model), resolve("c", DEVICE)).median[0] > start["c"] * 1.1
    assert ask(model, resolve("a", DEVICE), resolve("c", DEVICE)).median[0] == pytest.approx(1.4, rel=1e-6)


def test_matrix_pairs_and_a_restored_state_agree_about_it() -> None:
    model = OnlineModel(TablePredictor(TABLE), prior())
    for k in range(6):
        model.observe(window(k, "unprofiled", ("b", "c")[k % 2 :][:1], slowdown=1.5 + 0.1 * k), resolve)
        model.observe(window(k + 10, "a", ("unprofiled",), slowdown=1.3), resolve)
    again = OnlineModel(TablePredictor(TABLE), prior())
    state.restore_state(again, state.dump_state(model))
    jobs = [profile_of(model), *(resolve(name, DEVICE) for name in "abc")]
    for quantile, end in ((0.5, "median"), (0.95, "upper")):
        matrix = model.predict_matrix(matrix_batch(jobs), quantile=quantile)
        for i, victim in enumerate(jobs):
            for j, neighbour in enumerate(jobs):
                said = getattr(ask(model, victim, neighbour), end)[0]
                assert matrix.victim_slowdown[i, j] == pytest.approx(said, rel=1e-5)
                assert matrix.neighbour_slowdown[j, i] == pytest.approx(said, rel=1e-5)
                assert getattr(ask(again, victim, neighbour), end)[0] == pytest.approx(said)


def test_without_means_and_facts_a_window_is_kept_until_something_is_known() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    result, why, *_ = model.observe(window(0, "unprofiled", ("b",), slowdown=1.3), resolve)
    assert result is ObservationResult.PENDING_SOLO
    assert "nothing is known of unprofiled" in why
    assert (model.summary()["pending_solo"], model.summary()["corrected_jobs"]) == (1, 0)
    model.observe(window(1, "unprofiled", (), steps=100.0), resolve)  # 0.1 s a step
    assert (model.summary()["pending_solo"], model.summary()["corrected_jobs"]) == (0, 1)
    found = model.stand_ins.profile("unprofiled", DEVICE)
    assert found is not None
    assert (found.source, found.step_time_s) == ("observed", pytest.approx(0.1, rel=0.045))


def test_a_profile_of_another_device_type_lends_the_facts_that_hold_on_any() -> None:
    elsewhere = JobProfile(
        workload="moved", device_type="other", step_time_s=0.5, busy_frac=0.7, flops_per_step=1e9, family="net"
    )
    model = OnlineModel(TablePredictor(TABLE), elsewhere={"moved": elsewhere}.get)
    assert model.stand_ins.profile("moved", DEVICE) is None  # nothing was observed of it here
    model.observe(window(1, "moved", (), steps=100.0), resolve)
    found = model.stand_ins.profile("moved", DEVICE)
    assert found is not None
    assert (found.device_type, found.flops_per_step, found.family) == (DEVICE, 1e9, "net")
    assert np.isnan(found.busy_frac)
    assert found.step_time_s == pytest.approx(0.1, rel=0.045)
    assert model.stand_ins.profile("moved", DEVICE) is found
