"""A device type that the model never saw: a few observed pairs tell about the others, by what their jobs are like."""

import numpy as np
import pytest

from interfere.predict.online import state, unseen_device
from interfere.predict.online.unseen_device import MAX_BASIS, DeviceBelief, PairPoints, _kernel, unobserved
from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, MatrixBatch, PairBatch, Progress
from tests.tables import TablePredictor

DEVICE, MODE, NOISE_VAR = "new-gpu", "mps", 0.02**2
JOBS = [f"w{k}" for k in range(20)]
FACTS = np.random.default_rng(1).normal(0.0, 0.5, (len(JOBS), 3))
TABLE = {(v, n): 1.3 for v in JOBS for n in JOBS}
TRUTH = {
    (v, n): float(np.exp(0.7 + 0.3 * FACTS[i, 0] - 0.2 * FACTS[j, 1]))
    for i, v in enumerate(JOBS)
    for j, n in enumerate(JOBS)
}


def random_points(rng: np.random.Generator, count: int) -> PairPoints:
    return PairPoints(rng.normal(0, 0.6, (count, 4)), rng.normal(0, 0.6, (count, 4)), rng.uniform(0.0, 1.0, count))


def point(points: PairPoints, k: int) -> PairPoints:
    return PairPoints(points.victims[[k]], points.neighbours[[k]], points.log_predicted[[k]])


def learned(points: PairPoints, errors: np.ndarray) -> DeviceBelief:
    belief = unobserved(points.victims.shape[1])
    for k, error in enumerate(errors):
        mean, variance = belief.expected(point(points, k))
        total = float(variance[0]) + NOISE_VAR
        belief = belief.learned(point(points, k), (error - float(mean[0])) / total, 1.0 / total)
    return belief


def test_it_is_the_gaussian_process_of_its_covariance() -> None:
    rng = np.random.default_rng(0)
    points, asked, errors = random_points(rng, 30), random_points(rng, 9), rng.normal(0.2, 0.2, 30)
    mean, variance = learned(points, errors).expected(asked)
    cross, own = _kernel(asked, points), _kernel(asked, asked)
    solved = np.linalg.inv(_kernel(points, points) + NOISE_VAR * np.eye(30))
    np.testing.assert_allclose(mean, cross @ solved @ errors, atol=1e-3)
    np.testing.assert_allclose(variance, np.diag(own - cross @ solved @ cross.T), atol=1e-3)


def test_a_window_costs_no_more_after_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in covariances: a window, expected and learned, needs two rows of at most `MAX_BASIS`."""
    sizes: list[int] = []
    monkeypatch.setattr(unseen_device, "_kernel", lambda *given: sizes.append(_kernel(*given).size) or _kernel(*given))
    rng = np.random.default_rng(0)
    points = random_points(rng, 1_000)
    belief = learned(points, rng.normal(0.2, 0.2, 1_000))
    assert len(sizes) <= 2 * 1_000
    assert max(sizes) <= MAX_BASIS
    assert len(belief.mean) == MAX_BASIS
    assert belief.covariance.shape == belief.inverse.shape == (MAX_BASIS, MAX_BASIS)
    assert np.linalg.eigvalsh(belief.covariance).min() > -1e-9
    assert np.all(belief.expected(points)[1] >= 0.0)


def model_with_facts() -> OnlineModel:
    def coordinates(jobs: list[JobProfile], *_: str) -> np.ndarray:
        return FACTS[[JOBS.index(job.workload) for job in jobs]]

    return OnlineModel(TablePredictor(TABLE, spread=1.3), coordinates=coordinates)


def jobs() -> tuple[JobProfile, ...]:
    return tuple(JobProfile(workload=name, device_type=DEVICE, step_time_s=0.01) for name in JOBS)


def observe(model: OnlineModel, count: int) -> None:
    rng, profiles = np.random.default_rng(2), dict(zip(JOBS, jobs(), strict=True))
    for k in range(count):
        victim, neighbour = (str(name) for name in rng.choice(JOBS, 2, replace=False))
        window = Progress(
            observation_id=str(k),
            job_id="j",
            workload=victim,
            company=(neighbour,),
            device_type=DEVICE,
            mode=MODE,
            start_s=0.0,
            end_s=1.0,
            slowdown=TRUTH[victim, neighbour],
        )
        model.observe(window, lambda name, _: profiles[name])


def ask(model: OnlineModel) -> tuple[np.ndarray, float, float]:
    """(medians of all pairs, mean error of their logarithms, coverage)."""
    pairs = [(i, j) for i in range(len(JOBS)) for j in range(len(JOBS)) if i != j]
    victim, neighbour = np.array(pairs).T
    answer = model.predict_pairs(
        PairBatch(jobs=jobs(), victim=victim, neighbour=neighbour, device_type=DEVICE, mode=MODE)
    )
    truth = np.array([TRUTH[JOBS[i], JOBS[j]] for i, j in pairs])
    inside = (answer.lower <= truth) & (truth <= answer.upper)
    return answer.median, float(np.abs(np.log(answer.median / truth)).mean()), float(inside.mean())


def test_pairs_of_jobs_like_the_observed_ones_are_predicted_too() -> None:
    model = model_with_facts()
    observe(model, 4)
    assert model.knows(DEVICE, MODE)  # not yet
    observe(model, 20)
    assert not model.knows(DEVICE, MODE)
    _, error, coverage = ask(model)
    assert error <= 0.05
    assert coverage >= 0.85
    without_facts = OnlineModel(TablePredictor(TABLE, spread=1.3))
    observe(without_facts, 20)
    assert error <= 0.6 * ask(without_facts)[1]


def test_matrix_pairs_a_snapshot_and_a_restored_state_agree() -> None:
    model = model_with_facts()
    observe(model, 30)
    medians, *_ = ask(model)
    again = model_with_facts()
    state.restore_state(again, state.dump_state(model))
    snapshot = model.snapshot()
    observe(model, 40)
    for other in (again, snapshot):
        np.testing.assert_allclose(ask(other)[0], medians, rtol=1e-12)
    observe(again, 40)
    np.testing.assert_allclose(ask(again)[0], ask(model)[0], rtol=1e-9)
    batch = MatrixBatch(victims=jobs(), neighbours=jobs(), device_type=DEVICE, mode=MODE)
    pair_upper = model.predict_pairs(
        PairBatch(jobs=jobs(), victim=np.array([3]), neighbour=np.array([7]), device_type=DEVICE, mode=MODE)
    ).upper[0]
    assert model.predict_matrix(batch, quantile=0.95).victim_slowdown[3, 7] == pytest.approx(pair_upper, rel=1e-5)
    assert model.predict_matrix(batch, quantile=0.95).neighbour_slowdown[7, 3] == pytest.approx(pair_upper, rel=1e-5)
