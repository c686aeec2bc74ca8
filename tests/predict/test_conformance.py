"""Every `Predictor` keeps the laws of the protocol: the model, its wrappers, and the predictors of the replay."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import interfere.predict
from interfere.features.pair import FeatureEncoder
from interfere.predict.measured import MeasuredPredictor, MeasuredSlowdown, PairKey
from interfere.predict.online.prior import default_prior
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, ObservationResult, Progress
from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.edge_world import edge_type
from interfere.testing.predictors import PredictorLaws, PredictorWorld
from tests.tables import DEVICE, TablePredictor, profile

SHIPPED = Path(interfere.predict.__file__).parent / "default"
MODE = "timeslice"
NAMES = ("a", "b", "c", "d", "silent")


@functools.cache
def shipped_model() -> OnnxPredictor:
    return load_model(SHIPPED, FeatureEncoder())


@functools.cache
def shipped_jobs() -> tuple[JobProfile, ...]:
    """Some jobs of the training data, and one unlike all of them: a pair with it abstains."""
    known = tuple(shipped_model().profiles.values())[:5]
    novel = replace(
        known[0],
        workload="novel",
        step_time_s=1e6,
        busy_frac=1e-9,
        busy_s=(1e5,) * 3,
        idle_s=(1e6,) * 3,
        memory_peak_bytes=1e15,
        memory_working_set_bytes=1e15,
        kernels=(),
    )
    return (*known, novel)


def measured_often() -> frozenset[tuple[str, str]]:
    """Pairs with an interval of their own, one of them with the novel job."""
    a, b, *_, novel = (job.workload for job in shipped_jobs())
    return frozenset({(a, b), (a, novel)})


def measured_around_the_model() -> MeasuredPredictor:
    """Pairs measured often, and one measured once."""
    _, b, c, *_ = (job.workload for job in shipped_jobs())
    often = MeasuredSlowdown(slowdown=1.3, lower=1.2, upper=1.5)
    once = MeasuredSlowdown(slowdown=1.7, lower=1.7, upper=1.7)
    pairs = {(b, c): once} | dict.fromkeys(measured_often(), often)
    return MeasuredPredictor(shipped_model(), {PairKey(*pair, DEVICE, MODE): row for pair, row in pairs.items()})


class TestOnnxPredictor(PredictorLaws):
    @pytest.fixture
    def world(self) -> PredictorWorld:
        return PredictorWorld(
            predictor=shipped_model(), jobs=shipped_jobs(), device_type=DEVICE, mode=MODE, abstains=True
        )


class TestMeasuredPredictor(PredictorLaws):
    @pytest.fixture
    def world(self) -> PredictorWorld:
        return PredictorWorld(
            predictor=measured_around_the_model(),
            jobs=shipped_jobs(),
            device_type=DEVICE,
            mode=MODE,
            abstains=True,
            with_measured_interval=measured_often(),
        )


def online_around_the_measured_table() -> tuple[OnlineModel, tuple[JobProfile, ...]]:
    """A model that learned of known pairs, of one of two directions of a novel pair, and of an unprofiled job."""
    jobs = {job.workload: job for job in shipped_jobs()}
    a, b, c, d, *_, novel = jobs
    prior = replace(default_prior(), means={(DEVICE, MODE): float(np.log(1.3))})
    model = OnlineModel(measured_around_the_model(), prior, measured=[(a, b, DEVICE, MODE)])
    observed = ((a, b), (b, a), (c, d), (d, d), (b, novel), ("unprofiled", a), (b, "unprofiled"))
    for number, (victim, neighbour) in enumerate(observed):
        window = Progress(
            observation_id=str(number),
            job_id="j",
            workload=victim,
            company=(neighbour,),
            device_type=DEVICE,
            mode=MODE,
            start_s=0.0,
            end_s=60.0,
            slowdown=1.2 + 0.05 * number,
        )
        assert model.observe(window, lambda workload, _: jobs.get(workload)).result is ObservationResult.APPLIED
    unprofiled = model.stand_ins.profile("unprofiled", DEVICE)
    assert unprofiled is not None
    return model, (*jobs.values(), unprofiled)


class TestOnlineModel(PredictorLaws):
    @pytest.fixture
    def world(self) -> PredictorWorld:
        model, jobs = online_around_the_measured_table()
        return PredictorWorld(
            predictor=model,
            jobs=jobs,
            device_type=DEVICE,
            mode=MODE,
            abstains=True,
            with_measured_interval=measured_often(),
        )


def belief(device_types: tuple[str, ...] = (DEVICE,)) -> MatrixPredictor:
    """A matrix of workloads, the last of which nobody can predict beside the first two."""
    rng = np.random.default_rng(0)
    slowdown = 1.0 + rng.random((len(NAMES), len(NAMES)))
    slowdown[-1, :2] = slowdown[:2, -1] = np.nan
    return MatrixPredictor(
        version="belief",
        device_types=device_types,
        index={name: k for k, name in enumerate(NAMES)},
        slowdown=slowdown,
        spread=0.2,
    )


class TestBeliefOfTheReplay(PredictorLaws):
    @pytest.fixture
    def world(self) -> PredictorWorld:
        return PredictorWorld(
            predictor=belief(), jobs=tuple(map(profile, NAMES)), device_type=DEVICE, mode=MODE, abstains=True
        )


class TestBeliefOnTwoDeviceTypes(PredictorLaws):
    @pytest.fixture(params=["fast", "edge"])
    def world(self, request: pytest.FixtureRequest) -> PredictorWorld:
        device_type = DEVICE if request.param == "fast" else edge_type(DEVICE)
        predictor = belief((DEVICE, edge_type(DEVICE)))
        jobs = tuple(profile(name, device_type=device_type) for name in NAMES)
        return PredictorWorld(predictor=predictor, jobs=jobs, device_type=device_type, mode=MODE, abstains=True)


class TestTableOfTheTests(PredictorLaws):
    @pytest.fixture
    def world(self) -> PredictorWorld:
        table = {(v, n): 1.0 + 0.2 * i + 0.1 * j for i, v in enumerate(NAMES) for j, n in enumerate(NAMES)}
        return PredictorWorld(
            predictor=TablePredictor(table, spread=1.3),
            jobs=tuple(map(profile, NAMES)),
            device_type=DEVICE,
            mode=MODE,
        )
