"""What moving to another machine costs: the shipped model, of the table `cpu`, judged by the pairs of `cpu-groups`.

Both tables hold the same 16 workloads on one core, of an AMD EPYC and of an Intel Xeon. The shipped model is told the
profiles of the second machine and asked for the second machine's pairs, before and after it observed some of them.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.config import SHIPPED_MODEL
from interfere.data.loading import load_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.groups import DEFAULT_COMPOSITION
from interfere.predict.onnx import load_model
from interfere.predict.residual import OnlineModel
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch, PairMeasurement, Progress, Source
from interfere.serving.state import load_served_model
from interfere.training.dataset import build_dataset
from interfere.training.groups.fit import (
    FindPair,
    PairSlowdown,
    covered,
    fit_composition,
    group_cases,
    group_folds,
    measured_groups,
    measured_pairs,
)
from tests.bench.history import record

pytestmark = pytest.mark.bench
OBSERVED = (0, 5, 10, 20, 40)  # unordered pairs, of 136
ORDERS = range(10)


def test_two_machines_agree_about_which_pairs_are_slow() -> None:
    first, second = (
        {(row.victim, row.neighbour): row.slowdown for row in load_table(name).ok_pairs}
        for name in ("cpu", "cpu-groups")
    )
    before, now = (np.log([table[pair] for pair in first]) for table in (first, second))
    figures = {
        "pairs": len(first),
        "mae": float(np.abs(speed(before) - speed(now)).mean()),
        "log_correlation": float(np.corrcoef(before, now)[0, 1]),
        "bias": float(np.exp((now - before).mean()) - 1),
    }
    print("\ncpu-groups against cpu:", {name: round(value, 4) for name, value in figures.items()})
    record("second machine, pairs", figures)
    assert first.keys() == second.keys()
    assert figures["log_correlation"] > 0.85


@pytest.mark.parametrize("as_served", [True, False])
def test_the_shipped_model_learns_the_second_machine(as_served: bool) -> None:
    """As served, with the measured pairs of the first machine, and the model's own answers alone."""
    table, served = load_table("cpu-groups"), load_served_model(SHIPPED_MODEL)
    truth = {(row.victim, row.neighbour): row for row in table.ok_pairs}
    inner = load_model(SHIPPED_MODEL, FeatureEncoder())
    scores: dict[int, list[tuple[float, float, float]]] = {n: [] for n in OBSERVED}
    for seed in ORDERS:
        unordered = sorted({(min(pair), max(pair)) for pair in truth})
        order = [unordered[k] for k in np.random.default_rng(seed).permutation(len(unordered))]
        asked = {*order[max(OBSERVED) :]}
        others = [row for pair, row in truth.items() if (min(pair), max(pair)) in asked]
        model = served.untaught() if as_served else OnlineModel(inner, served.prior)
        for n in range(max(OBSERVED) + 1):
            if n in OBSERVED:
                scores[n].append(score(model, table.jobs, others))
            for pair in dict.fromkeys([order[n], order[n][::-1]]):
                observe(model, table.jobs, truth[pair])
    source = "as served" if as_served else "model alone"
    mae, coverage, _ = score(served.untaught() if as_served else inner, table.jobs, list(truth.values()))
    print(f"\n{source}, on all {len(truth)} pairs: MAE {mae:.4f}, coverage {coverage:.3f}; on {len(others)} of them:")
    figures = {n: np.mean(each, axis=0).tolist() for n, each in scores.items()}
    for n, (mae, coverage, measured) in figures.items():
        print(f"  {n:3} observed: MAE {mae:.4f}, coverage {coverage:.3f}, answered by the first table {measured:.0%}")
    record(f"second machine, {source}", {f"mae {n}": each[0] for n, each in figures.items()})
    for fewer, more in pairwise(OBSERVED):
        assert figures[more][0] < figures[fewer][0], "observing more pairs lowers the error"
        assert figures[more][1] > figures[fewer][1], "and the intervals hold more"


@pytest.mark.parametrize("as_served", [True, False])
def test_the_shipped_composition_predicts_the_groups_of_the_second_machine(as_served: bool) -> None:
    """Fitted to groups with the pairs of their own machine, judged with the shipped model's pairs, groups held out."""
    table = load_table("cpu-groups")
    inner = load_model(SHIPPED_MODEL, FeatureEncoder())
    model = load_served_model(SHIPPED_MODEL).untaught() if as_served else inner
    groups = measured_groups([table])
    own = group_cases(groups, [table], measured_pairs(build_dataset([table], FeatureEncoder())))
    cases = group_cases(groups, [table], predicted_pairs(model, table.jobs))
    assert len(cases) == len(own) == len(groups)
    shipped, fold = inner.composition("cpu-core", "timeslice"), group_folds(own)
    assert fold is not None
    held_out = np.full(len(cases), np.nan)
    for k in np.unique(fold).tolist():
        composition = fit_composition(own.take(fold != k))
        held_out[fold == k] = cases.take(fold == k).predicted(composition)
    default = cases.speed_errors(cases.predicted(DEFAULT_COMPOSITION))
    low, high = difference_interval(cases.speed_errors(held_out) - default, cases.members)
    inside, before = (covered(cases, cases.predicted(each), each) for each in (shipped, DEFAULT_COMPOSITION))
    source = "as served" if as_served else "model alone"
    figures = {
        "default": float(default.mean()),
        "held out": float(cases.speed_errors(held_out).mean()),
        "sum": float(cases.speed_errors(1 + cases.excess).mean()),
        "product": float(cases.speed_errors(cases.product).mean()),
        "coverage": float(inside.mean()),
        "coverage of default": float(before.mean()),
    }
    print(f"\n{source}, {len(cases)} victims in groups:", {name: round(value, 4) for name, value in figures.items()})
    print(f"  held out - default: {low:+.4f} to {high:+.4f}")
    record(f"second machine, groups, {source}", figures)
    assert high < 0
    assert 0.85 <= figures["coverage"] <= 0.97


def predicted_pairs(model: Predictor, jobs: Sequence[JobProfile]) -> FindPair:
    """What a model says of each ordered pair of the jobs on one CPU core."""
    names = [job.workload for job in jobs]
    victim, neighbour = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    batch = PairBatch(jobs=tuple(jobs), victim=victim, neighbour=neighbour, device_type="cpu-core", mode="timeslice")
    answer = model.predict_pairs(batch)
    found = {
        (names[i], names[j]): PairSlowdown(*ends)
        for i, j, *ends in zip(
            victim.tolist(),
            neighbour.tolist(),
            answer.median.tolist(),
            answer.lower.tolist(),
            answer.upper.tolist(),
            strict=True,
        )
    }
    return lambda victim, neighbour, domain: found.get((victim, neighbour))


def difference_interval(
    difference: NDArray[np.float64], members: Sequence[frozenset[str]], resamples: int = 2_000
) -> tuple[float, float]:
    """The 90 % interval of the mean of a difference, by a bootstrap over whole groups."""
    groups = sorted({tuple(sorted(each)) for each in members})
    place = np.array([groups.index(tuple(sorted(each))) for each in members])
    sums, counts = (np.bincount(place, weights=each) for each in (difference, np.ones(len(difference))))
    drawn = np.random.default_rng(0).integers(len(groups), size=(resamples, len(groups)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.05, 0.95])
    return float(low), float(high)


def observe(model: OnlineModel, jobs: Sequence[JobProfile], row: PairMeasurement) -> None:
    """One window of a pair."""
    profiles = {job.workload: job for job in jobs}
    window = Progress(
        observation_id="w",
        job_id="j",
        workload=row.victim,
        company=(row.neighbour,),
        device_type=row.device_type,
        mode=row.mode,
        start_s=0.0,
        end_s=1.0,
        slowdown=row.slowdown,
    )
    model.observe(window, lambda name, _: profiles[name])


def score(model: Predictor, jobs: Sequence[JobProfile], rows: Sequence[PairMeasurement]) -> tuple[float, float, float]:
    """(MAE of speed, coverage of the intervals, share that is answered by a measurement) of pairs."""
    index = {job.workload: k for k, job in enumerate(jobs)}
    answer = model.predict_pairs(
        PairBatch(
            jobs=tuple(jobs),
            victim=np.array([index[row.victim] for row in rows]),
            neighbour=np.array([index[row.neighbour] for row in rows]),
            device_type=rows[0].device_type,
            mode=rows[0].mode,
        )
    )
    truth = np.array([row.slowdown for row in rows])
    inside = (answer.lower <= truth) & (truth <= answer.upper)
    errors = np.abs(speed(np.log(answer.median)) - speed(np.log(truth)))
    assert np.isfinite(errors).all(), "the shipped model knows these workloads"
    measured = [source is Source.MEASURED for source in answer.source]
    return float(errors.mean()), float(inside.mean()), float(np.mean(measured))
