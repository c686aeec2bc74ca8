"""Laws of the online correction: it moves toward what was observed, never past it, and touches nobody else."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.predict.residual import CLIP, OnlineModel
from interfere.records import ObservationResult, PairBatch, Progress, Source
from tests.tables import DEVICE, TablePredictor, profile

TABLE = {(v, n): 1.0 + 0.2 * i + 0.1 * j for i, v in enumerate("abc") for j, n in enumerate("abc")}
PROFILES = {name: profile(name) for name in "abc"}


def resolve(workload: str, device_type: str):
    return PROFILES.get(workload) if device_type == DEVICE else None


def window(number: int, workload: str = "a", company: tuple[str, ...] = ("b",), **more: object) -> Progress:
    values = {"start_s": 10.0 * number, "end_s": 10.0 * number + 10.0, "device_type": DEVICE, **more}
    return Progress(observation_id=f"o{number}", job_id="j", workload=workload, company=company, **values)


def median(model: OnlineModel, victim: str, neighbour: str) -> float:
    one = np.array([0])
    jobs = (PROFILES[victim], PROFILES[neighbour])
    return float(
        model.predict_pairs(
            PairBatch(jobs=jobs, victim=one, neighbour=one + 1, device_type=DEVICE, mode="timeslice")
        ).median[0]
    )


@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_moves_toward_what_was_observed_and_never_past_it(slowdowns: list[float]) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    start = math.log(TABLE["a", "b"])
    errors = []
    for k, slowdown in enumerate(slowdowns):
        assert model.observe(window(k, slowdown=slowdown), resolve)[0] is ObservationResult.APPLIED
        errors.append(min(max(math.log(slowdown) - start, -CLIP), CLIP))
    moved = math.log(median(model, "a", "b")) - start
    mean = sum(errors) / len(errors)
    assert abs(moved) <= abs(mean) + 1e-12
    assert moved * mean >= -1e-12


def test_the_pair_moves_most_the_job_some_and_others_not_at_all() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    model.observe(window(0, slowdown=2 * TABLE["a", "b"]), resolve)
    gain = {pair: math.log(median(model, *pair) / TABLE[pair]) for pair in TABLE}
    assert gain["a", "b"] > gain["a", "c"] > 0
    assert gain["a", "c"] == gain["a", "a"]
    assert all(gain[pair] == 0 for pair in TABLE if pair[0] != "a")


def test_many_equal_windows_converge() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k in range(300):
        model.observe(window(k, slowdown=2.5), resolve)
    assert median(model, "a", "b") == pytest.approx(2.5, rel=0.01)


def test_windows_alone_teach_the_rate_that_pending_windows_waited_for() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    before = median(model, "a", "b")
    result, why = model.observe(window(0, steps=50.0), resolve)
    assert result is ObservationResult.PENDING_SOLO
    assert "alone" in why
    assert (model.pending(), median(model, "a", "b")) == (1, before)
    # 100 steps in 10 s alone, 50 in 10 s shared: slowdown 2.
    assert model.observe(window(1, company=(), steps=100.0), resolve)[0] is ObservationResult.APPLIED
    assert model.pending() == 0
    direct = OnlineModel(TablePredictor(TABLE))
    direct.observe(window(0, slowdown=2.0), resolve)
    assert median(model, "a", "b") == pytest.approx(median(direct, "a", "b"))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"company": (), "slowdown": 1.5}, "send steps"),
        ({"company": (), "steps": 0.0}, "teaches no rate"),
        ({"company": ("b", "c"), "slowdown": 1.5}, "groups of 3"),
        ({"company": ("never seen",), "slowdown": 1.5}, "register profiles"),
        ({"device_type": "tpu", "slowdown": 1.5}, "register profiles"),
    ],
)
def test_what_teaches_nothing_is_rejected_with_its_reason(more: dict, why: str) -> None:
    model = OnlineModel(TablePredictor(TABLE))
    result, reason = model.observe(window(0, **more), resolve)
    assert result is ObservationResult.REJECTED
    assert why in reason
    assert model.summary()["corrected_jobs"] == 0


def test_a_stuck_job_is_rejected_not_learnt() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    model.observe(window(0, company=(), steps=100.0), resolve)
    result, reason = model.observe(window(1, steps=0.0), resolve)
    assert result is ObservationResult.REJECTED
    assert "slowdown inf" in reason


def test_matrix_and_pairs_agree_after_learning() -> None:
    model = OnlineModel(TablePredictor(TABLE))
    for k, (workload, company) in enumerate((("a", "b"), ("b", "c"), ("c", "c"))):
        model.observe(window(k, workload, (company,), slowdown=3.0), resolve)
    jobs = [PROFILES[name] for name in "abca"]
    matrix = model.predict_matrix(jobs, jobs, DEVICE, "timeslice")
    for i, v in enumerate("abca"):
        for j, n in enumerate("abca"):
            assert matrix.victim_slowdown[i, j] == pytest.approx(median(model, v, n), rel=1e-6)
            assert matrix.neighbour_slowdown[i, j] == pytest.approx(median(model, n, v), rel=1e-6)


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
    model.observe(window(0, slowdown=4.0), resolve)
    assert model.predict_pairs(batch).source == (Source.MODEL,)
