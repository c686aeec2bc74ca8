"""Laws of the online correction: it moves toward the observation, never past it, and changes no unrelated pair."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.predict.residual import OnlineModel
from interfere.records import ObservationResult, PairBatch, Prediction, Progress, Source
from tests.tables import DEVICE, TablePredictor, matrix_batch, profile

TABLE = {(v, n): 1.0 + 0.2 * i + 0.1 * j for i, v in enumerate("abc") for j, n in enumerate("abc")}
PROFILES = {name: profile(name) for name in "abc"}


def resolve(workload: str, device_type: str):
    return PROFILES.get(workload) if device_type == DEVICE else None


def window(number: int, workload: str = "a", company: tuple[str, ...] = ("b",), **more: object) -> Progress:
    values = {"start_s": 10.0 * number, "end_s": 10.0 * number + 10.0, "device_type": DEVICE, **more}
    return Progress(observation_id=f"o{number}", job_id="j", workload=workload, company=company, **values)


def ask(model: OnlineModel, victim: str, neighbour: str) -> Prediction:
    one = np.array([0])
    jobs = (PROFILES[victim], PROFILES[neighbour])
    return model.predict_pairs(
        PairBatch(jobs=jobs, victim=one, neighbour=one + 1, device_type=DEVICE, mode="timeslice")
    )


def median(model: OnlineModel, victim: str, neighbour: str) -> float:
    return float(ask(model, victim, neighbour).median[0])


@given(st.lists(st.floats(0.5, 3.2), min_size=1, max_size=30))  # a threefold correction is the most there is
@settings(max_examples=60, deadline=None)
def test_every_window_moves_its_pair_toward_it_and_never_past_it(slowdowns: list[float]) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k, slowdown in enumerate(slowdowns):
        before = median(model, "a", "b")
        assert model.observe(window(k, slowdown=slowdown), resolve).weight > 0
        after = median(model, "a", "b")
        assert min(before, slowdown) - 1e-9 <= after <= max(before, slowdown) + 1e-9
        assert after != before or slowdown == pytest.approx(before)


def test_the_pair_moves_most_then_whoever_shares_a_job_in_its_role_and_others_not_at_all() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    model.observe(window(0, slowdown=1.3 * TABLE["a", "b"]), resolve)
    gain = {pair: math.log(median(model, *pair) / TABLE[pair]) for pair in TABLE}
    assert gain["a", "b"] > max(gain[pair] for pair in TABLE if pair != ("a", "b"))
    assert min(gain["a", "a"], gain["a", "c"]) > 0  # a suffers more than predicted
    assert min(gain["b", "b"], gain["c", "b"]) > 0  # b slows its neighbours down more than predicted
    assert all(gain[pair] == 0 for pair in TABLE if pair[0] != "a" and pair[1] != "b")


def test_intervals_tighten_with_evidence_and_never_widen() -> None:
    model = OnlineModel(TablePredictor(TABLE, spread=1.5))
    width = math.log(1.5)
    for k in range(10):
        model.observe(window(k, slowdown=1.1 * TABLE["a", "b"]), resolve)
        answer = ask(model, "a", "b")
        now = math.log(answer.upper[0] / answer.median[0])
        assert now < width
        width = now
        assert ask(model, "a", "c").upper[0] / ask(model, "a", "c").median[0] < 1.5
    assert ask(model, "c", "c").upper[0] == pytest.approx(1.5 * TABLE["c", "c"])


def test_errors_of_the_model_on_other_pairs_do_not_move_a_measured_pair() -> None:
    model = OnlineModel(TablePredictor(TABLE), measured=[("a", "c", DEVICE, "timeslice")])
    for k in range(5):
        model.observe(window(k, slowdown=1.3 * TABLE["a", "b"]), resolve)
    assert median(model, "a", "a") > 1.1 * TABLE["a", "a"]
    assert median(model, "a", "c") == pytest.approx(TABLE["a", "c"], rel=0.01)
    model.observe(window(9, company=("c",), slowdown=1.2 * TABLE["a", "c"]), resolve)
    assert median(model, "a", "c") > TABLE["a", "c"]


def test_old_evidence_fades() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(2000):
        model.observe(window(k, slowdown=1.9), resolve)
    for k in range(400):
        model.observe(window(k, slowdown=2.0), resolve)
    assert median(model, "a", "b") == pytest.approx(2.0, rel=0.01)


def test_restoring_a_savepoint_unlearns_everything_since() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k, (workload, company) in enumerate((("a", "b"), ("b", "c"))):
        model.observe(window(k, workload, (company,), slowdown=1.5), resolve)
    model.observe(window(5, "c", ("a",), steps=5.0), resolve)
    before = {pair: median(model, *pair) for pair in TABLE}, model.summary()
    model.set_savepoint()
    for k in range(30):
        model.observe(window(10 + k, "c", (), steps=100.0), resolve)
        model.observe(window(50 + k, "a", ("c",), slowdown=1.5 + k), resolve)
    assert ({pair: median(model, *pair) for pair in TABLE}, model.summary()) != before
    model.restore_savepoint()
    assert ({pair: median(model, *pair) for pair in TABLE}, model.summary()) == before


def test_many_equal_windows_converge() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(300):
        model.observe(window(k, slowdown=1.5), resolve)
    assert median(model, "a", "b") == pytest.approx(1.5, rel=0.01)


def test_a_solo_window_teaches_the_rate_that_pending_windows_wait_for() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    before = median(model, "a", "b")
    result, why, *_ = model.observe(window(0, steps=50.0), resolve)
    assert result is ObservationResult.PENDING_SOLO
    assert "no solo window" in why
    assert (model.summary()["pending_solo"], median(model, "a", "b")) == (1, before)
    # 100 steps in 10 s solo, 50 in 10 s shared: slowdown 2.
    assert model.observe(window(1, company=(), steps=100.0), resolve)[0] is ObservationResult.APPLIED
    assert model.summary()["pending_solo"] == 0
    direct = OnlineModel(TablePredictor(TABLE))
    direct.observe(window(0, slowdown=2.0), resolve)
    assert median(model, "a", "b") == pytest.approx(median(direct, "a", "b"))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"company": (), "slowdown": 1.5}, "send steps"),
        ({"company": (), "steps": 0.0}, "teaches no rate"),
    ],
)
def test_what_teaches_nothing_is_rejected_with_its_reason(more: dict, why: str) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    result, reason, *_ = model.observe(window(0, **more), resolve)
    assert result is ObservationResult.REJECTED
    assert why in reason
    assert model.summary()["corrected_jobs"] == 0


@pytest.mark.parametrize("more", [{"company": ("never seen",)}, {"device_type": "tpu"}])
def test_a_window_of_a_job_without_any_facts_is_kept(more: dict) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    result, reason, *_ = model.observe(window(0, slowdown=1.5, **more), resolve)
    assert result is ObservationResult.PENDING_SOLO
    assert "kept until" in reason
    assert model.summary()["pending_solo"] == 1


def test_a_window_of_profiled_jobs_that_the_model_predicts_nothing_for_is_kept() -> None:
    known = {**TABLE, ("a", "c"): math.nan}
    model = OnlineModel(TablePredictor(known))
    result, reason, *_ = model.observe(window(0, company=("c",), slowdown=1.5), resolve)
    assert result is ObservationResult.PENDING_SOLO
    assert "kept until another model is served" in reason
    assert model.summary()["pending_solo"] == 1
    model.observe(window(1, company=(), steps=100.0), resolve)  # tries again, and keeps it again
    assert model.summary()["pending_solo"] == 1
    assert median(model, "a", "b") == TABLE["a", "b"]


def test_one_wrong_solo_window_moves_no_slowdown() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(5):
        model.observe(window(k, company=(), steps=100.0), resolve)
        model.observe(window(20 + k, steps=100.0 / TABLE["a", "b"]), resolve)
    before = median(model, "a", "b")
    model.observe(window(10, company=(), steps=100_000.0), resolve)
    for k in range(20):
        model.observe(window(30 + k, steps=100.0 / TABLE["a", "b"]), resolve)
    assert median(model, "a", "b") == pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("steps", [5e-301, 1e-12, 1e300])
def test_a_rate_that_no_job_has_is_rejected_not_learned(steps: float) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(2):
        model.observe(window(k, company=(), steps=100.0), resolve)
    learned = model.observe(window(9, company=(), steps=steps), resolve)
    assert learned.result is ObservationResult.REJECTED
    assert "steps per second" in learned.reason
    model.observe(window(10, company=(), steps=100.0), resolve)
    assert model.summary()["solo_rates"] == 1


def test_a_job_without_a_step_is_rejected_not_learned() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    model.observe(window(0, company=(), steps=100.0), resolve)
    result, reason, *_ = model.observe(window(1, steps=0.0), resolve)
    assert result is ObservationResult.REJECTED
    assert "slowdown inf" in reason


def test_matrix_and_pairs_agree_after_learning() -> None:
    model = OnlineModel(TablePredictor(TABLE, spread=1.4), measured=[("b", "a", DEVICE, "timeslice")])
    for k, (workload, company) in enumerate((("a", "b"), ("b", "c"), ("c", "c"))):
        model.observe(window(k, workload, (company,), slowdown=1.5), resolve)
    jobs = [PROFILES[name] for name in "abca"]
    matrix = model.predict_matrix(matrix_batch(jobs))
    upper = model.predict_matrix(matrix_batch(jobs), quantile=0.95)
    for i, v in enumerate("abca"):
        for j, n in enumerate("abca"):
            assert matrix.victim_slowdown[i, j] == pytest.approx(median(model, v, n), rel=1e-6)
            assert matrix.neighbour_slowdown[i, j] == pytest.approx(median(model, n, v), rel=1e-6)
            assert upper.victim_slowdown[i, j] == pytest.approx(ask(model, v, n).upper[0], rel=1e-6)
            assert upper.neighbour_slowdown[i, j] == pytest.approx(ask(model, n, v).upper[0], rel=1e-6)


def test_a_corrected_measurement_is_no_longer_called_measured() -> None:
    class Measured(TablePredictor):
        def predict_pairs(self, batch: PairBatch):
            answer = super().predict_pairs(batch)
            return type(answer)(
                **{f: getattr(answer, f) for f in answer.__dataclass_fields__} | {"source": (Source.MEASURED,)}
            )

    model = OnlineModel(Measured(TABLE))
    batch = PairBatch(
        jobs=(PROFILES["a"], PROFILES["b"]),
        victim=np.array([0]),
        neighbour=np.array([1]),
        device_type=DEVICE,
        mode="timeslice",
    )
    assert model.predict_pairs(batch).source == (Source.MEASURED,)
    model.observe(window(0, slowdown=1.5), resolve)
    assert model.predict_pairs(batch).source == (Source.MODEL,)
