"""Advice on modes from hand-made predictions: what is known is told and chosen by, and nothing else is."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from interfere.policy.modes.advice import advise
from interfere.policy.modes.outlook import (
    STEP_TIME_ERROR,
    GroupPredictor,
    JobToAdvise,
    best_assignment,
    even_partition,
    partitions,
    slowdown_scenarios,
)
from interfere.records import JobProfile, Prediction, Source
from interfere.records.mode_advice import (
    ModeAdvice,
    ModeMeasurementKind,
    ModeOutlook,
    ModeReasonKind,
    ModeSource,
)

GPU = "a100-80gb"
NAN = math.nan


def job(workload: str, *, target_s: float = NAN, slices: Mapping[int, float] | None = None) -> JobToAdvise:
    """A job of 0.1 s a step on the whole device, and its step times in slices by size."""
    sizes = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}
    names = {f"{GPU}-{sizes[size]}": step_s for size, step_s in (slices or {}).items()}
    return JobToAdvise(
        workload=workload,
        profile=JobProfile(workload=workload, device_type=GPU, source="user", step_time_s=0.1),
        slice_profiles={
            name: JobProfile(workload=workload, device_type=name, source="user", step_time_s=step_s)
            for name, step_s in names.items()
        },
        latency_target_s=target_s,
    )


def predictor(
    known: Mapping[str, Sequence[float]], *, spread: float = 1.1, feasibility: float = NAN, measured: bool = False
) -> GroupPredictor:
    """Medians by mode, their intervals a factor of `spread` to both sides; other modes abstain."""

    def predict(mode: str) -> Prediction:
        median = np.array(known.get(mode, [NAN, NAN]))
        source = Source.ABSTAINED if mode not in known else Source.MEASURED if measured else Source.COMPOSED
        return Prediction(
            median=median,
            lower=median / spread,
            upper=median * spread,
            feasibility=np.full(len(median), feasibility),
            source=(source,) * len(median),
            reason=("" if mode in known else f"never saw {mode}: measure it",) * len(median),
        )

    return predict


def outlook(advice: ModeAdvice, mode: str) -> ModeOutlook:
    return next(each for each in advice.modes if each.mode == mode)


def test_the_mode_of_the_highest_throughput_is_recommended_and_unknown_ones_only_with_what_to_measure() -> None:
    jobs = (job("a"), job("b"))
    advice = advise(jobs, GPU, predictor({"timeslice": (1.9, 1.8), "mps": (1.3, 1.4)}))
    chosen = advice.recommendation
    assert (chosen.kind, chosen.mode, chosen.other_mode) == (ModeReasonKind.HIGHEST_THROUGHPUT, "mps", "timeslice")
    assert outlook(advice, "mps").throughput == pytest.approx(1 / 1.3 + 1 / 1.4)
    assert outlook(advice, "mps").lower == pytest.approx((1 / 1.3 + 1 / 1.4) / 1.1)
    assert chosen.probability_best > 0.99
    for mode in ("stream", "priority", "mig"):
        unknown = outlook(advice, mode)
        assert unknown.source is ModeSource.ABSTAINED
        assert unknown.reason
        assert all(math.isnan(each.slowdown) for each in unknown.jobs)
        assert math.isnan(unknown.throughput)
        assert unknown.measure
        assert all(math.isnan(each.expected_gain) for each in unknown.measure)
    assert "mps" in chosen.reason


def test_one_after_the_other_is_recommended_where_sharing_loses() -> None:
    advice = advise((job("a"), job("b")), GPU, predictor({"timeslice": (2.3, 2.4)}))
    assert (advice.recommendation.kind, advice.recommendation.mode) == (ModeReasonKind.SHARING_LOSES, "")
    assert advice.recommendation.throughput == 1.0


def test_a_target_excludes_modes_that_are_too_likely_to_break_it() -> None:
    known = {"timeslice": (1.5, 1.1), "mps": (1.2, 1.6)}
    jobs = (job("a", target_s=0.15), job("b"))
    loose = advise((job("a"), job("b")), GPU, predictor(known))
    assert loose.recommendation.mode == "timeslice"
    strict = advise(jobs, GPU, predictor(known))
    assert strict.recommendation.mode == "mps"
    assert outlook(strict, "timeslice").jobs[0].miss_probability == pytest.approx(0.5, abs=0.01)
    assert math.isnan(outlook(strict, "timeslice").jobs[1].miss_probability)
    assert advise(jobs, GPU, predictor({"timeslice": (1.5, 1.1)})).recommendation.kind is (
        ModeReasonKind.TARGETS_EXCLUDE_MODES
    )
    # A target that is not even kept alone excludes no mode: nothing can keep it.
    hopeless = advise((job("a", target_s=0.05), job("b")), GPU, predictor({"timeslice": (1.5, 1.1)}))
    assert hopeless.recommendation.mode == "timeslice"


def test_below_the_risk_a_miss_is_weighed_against_throughput() -> None:
    known = {"timeslice": (1.40, 1.27), "mps": (1.20, 1.52)}
    jobs = (job("a", target_s=0.15), job("b"))
    assert advise((job("a"), job("b")), GPU, predictor(known)).recommendation.mode == "timeslice"
    risky = advise(jobs, GPU, predictor(known), risk=0.5)
    assert outlook(risky, "timeslice").jobs[0].miss_probability < 0.5
    assert risky.recommendation.mode == "mps"


def test_jobs_that_do_not_fit_run_one_after_the_other() -> None:
    advice = advise((job("a"), job("b")), GPU, predictor({"mps": (1.1, 1.1)}, feasibility=0.01))
    assert advice.recommendation.kind is ModeReasonKind.DOES_NOT_FIT


def test_nothing_known_is_said_and_what_to_measure_too() -> None:
    unprofiled = JobToAdvise(workload="a", profile=None)
    advice = advise((unprofiled, job("b")), GPU, predictor({}))
    assert advice.recommendation.kind is ModeReasonKind.NOTHING_KNOWN
    assert math.isnan(advice.recommendation.throughput)
    first = advice.measure[0]
    assert (first.kind, first.workloads, first.device_type) == (ModeMeasurementKind.ALONE, ("a",), GPU)


def test_the_measurement_that_could_change_the_choice_comes_first_and_a_measured_mode_needs_none() -> None:
    wide = advise((job("a"), job("b")), GPU, predictor({"timeslice": (1.5, 1.5), "mps": (1.4, 1.4)}, spread=1.5))
    assert wide.measure[0].expected_gain > 0.01
    gains = [each.expected_gain for each in wide.measure if not math.isnan(each.expected_gain)]
    assert gains == sorted(gains, reverse=True)
    narrow = advise((job("a"), job("b")), GPU, predictor({"timeslice": (1.9, 1.9), "mps": (1.1, 1.1)}, spread=1.05))
    assert all(math.isnan(each.expected_gain) for each in narrow.measure)
    measured = advise((job("a"), job("b")), GPU, predictor({"mps": (1.4, 1.4)}, spread=1.5, measured=True))
    assert outlook(measured, "mps").source is ModeSource.MEASURED
    assert outlook(measured, "mps").measure == ()


def test_slices_are_derived_from_jobs_alone_and_the_larger_goes_to_whom_it_helps() -> None:
    flat, steep = {3: 0.1, 4: 0.1}, {3: 0.2, 4: 0.14}
    jobs = (job("flat", slices=flat), job("steep", slices=steep))
    mig = outlook(advise(jobs, GPU, predictor({})), "mig")
    assert mig.source is ModeSource.DERIVED
    assert [each.slice_type for each in mig.jobs] == [f"{GPU}-3g.40gb", f"{GPU}-4g.40gb"]
    assert [each.slowdown for each in mig.jobs] == pytest.approx([1.0, 1.4])
    assert mig.jobs[1].upper == pytest.approx(1.4 * math.exp(STEP_TIME_ERROR))


def test_a_size_between_two_that_were_measured_lies_between_them_and_one_beyond_is_not_guessed() -> None:
    between = best_assignment((job("a", slices={2: 0.3, 4: 0.12}), job("b", slices={3: 0.2, 4: 0.2})), GPU)
    assert between is not None
    assert {each.slice_type for each in between} == {f"{GPU}-4g.40gb", f"{GPU}-3g.40gb"}
    only_small = advise((job("a", slices={1: 0.3}), job("b", slices={7: 0.1})), GPU, predictor({}))
    assert outlook(only_small, "mig").source is ModeSource.ABSTAINED
    assert {each.device_type for each in outlook(only_small, "mig").measure} == {f"{GPU}-3g.40gb", f"{GPU}-4g.40gb"}
    middle = advise((job("a", slices={2: 0.3, 4: 0.12}), job("b", slices={4: 0.25})), GPU, predictor({}))
    held = outlook(middle, "mig")
    assert held.jobs[0].slice_type == f"{GPU}-3g.40gb"
    assert held.jobs[0].lower < 1.2
    assert held.jobs[0].upper > 3.0
    assert [each.device_type for each in held.measure] == [f"{GPU}-3g.40gb"]


def test_partitions_are_those_of_an_a100() -> None:
    assert set(partitions(2)) >= {(3, 4), (3, 3), (1, 4)}
    assert (4, 4) not in set(partitions(2))
    assert (1, 3, 3) not in set(partitions(3))
    assert [even_partition(k) for k in (1, 2, 3, 4, 7)] == [(7,), (3, 4), (2, 2, 3), (1, 2, 2, 2), (1,) * 7]
    assert even_partition(8) == ()


def test_scenarios_have_the_quantiles_that_they_are_made_of() -> None:
    scenarios = slowdown_scenarios(1.5, 1.2, 2.5)
    assert np.quantile(scenarios, [0.05, 0.5, 0.95]) == pytest.approx([1.2, 1.5, 2.5], rel=0.01)
