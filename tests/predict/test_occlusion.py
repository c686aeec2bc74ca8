"""Laws of occlusion: what the model does not read has no effect, what it reads has the effect worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.occlusion import FACTS, IDENTITY, FactEffect, Occlusion
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.records import JobProfile, KernelStat
from tests.models import DEVICE_TYPE, MODE, NEIGHBOUR, SLOPE, STEP_TIME_S, VICTIM, WORKLOADS, profile, publish

NOT_READ = ("step_time_s", "measured_at_s", "latency_p50_s", "latency_p99_s")  # by no feature, but the first
USUAL_S = float(np.median(list(STEP_TIME_S.values())))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OnnxPredictor:
    """log s = base + effect of victim and neighbour + slope · log step time of the victim; nothing else is read."""
    return load_model(publish(tmp_path_factory.mktemp("model")), FeatureEncoder())


@pytest.fixture(scope="module")
def occlusion(model: OnnxPredictor) -> Occlusion:
    return Occlusion(model, model.profiles.values())


def effects(occlusion: Occlusion, victim: JobProfile, neighbour: JobProfile) -> dict[tuple[bool, str], FactEffect]:
    found = occlusion.effects(victim, neighbour, DEVICE_TYPE, MODE)
    assert [abs(one.log_change) for one in found] == sorted((abs(one.log_change) for one in found), reverse=True)
    return {(one.of_victim, one.fact): one for one in found}


def test_the_one_fact_that_is_read_has_its_effect_against_the_median(occlusion: Occlusion) -> None:
    step = effects(occlusion, profile("train"), profile("gemm"))[True, "step time alone"]
    assert (step.value, step.reference, step.unit) == (STEP_TIME_S["train"], USUAL_S, "s")
    assert step.log_change == pytest.approx(SLOPE * math.log(STEP_TIME_S["train"] / USUAL_S), rel=1e-4)


def test_what_the_model_does_not_read_has_an_effect_of_exactly_zero(occlusion: Occlusion) -> None:
    victim = profile("train", memory_peak_bytes=7e9, busy_frac=0.1)
    found = effects(occlusion, victim, profile("gemm", step_time_s=9.0))
    unread = {key: one.log_change for key, one in found.items() if key[1] != IDENTITY}
    assert unread.pop((True, "step time alone")) != 0
    assert set(unread) == {
        (True, "peak memory"),
        (True, "share of time on the device"),
        (False, "peak memory"),
        (False, "share of time on the device"),
        (False, "step time alone"),
    }
    assert set(unread.values()) == {0.0}


def test_being_known_by_name_is_a_fact_too(occlusion: Occlusion) -> None:
    found = effects(occlusion, profile("train"), profile("gemm"))
    train, gemm = WORKLOADS.index("train") + 1, WORKLOADS.index("gemm") + 1
    assert found[True, IDENTITY].log_change == pytest.approx(VICTIM[train] - VICTIM[0], abs=1e-6)
    assert found[False, IDENTITY].log_change == pytest.approx(NEIGHBOUR[gemm] - NEIGHBOUR[0], abs=1e-6)


def test_a_job_that_is_the_usual_one_has_no_effect(occlusion: Occlusion) -> None:
    found = effects(occlusion, profile("train", step_time_s=USUAL_S), profile("gemm"))
    assert found[True, "step time alone"].log_change == 0.0


def test_facts_that_job_or_references_lack_are_left_out(model: OnnxPredictor) -> None:
    bare = JobProfile(workload="bare", device_type=DEVICE_TYPE, step_time_s=0.1, power_w=300.0)
    found = effects(Occlusion(model, model.profiles.values()), bare, bare)
    # nobody else has a power, and it has no peak memory
    assert {fact for _, fact in found} == {"step time alone", IDENTITY}


def test_timelines_and_kernels_come_from_the_profile_in_the_middle(model: OnnxPredictor) -> None:
    def one(k: int, device_type: str = DEVICE_TYPE) -> JobProfile:
        kernels = (KernelStat(name="gemm", mean_s=0.1, count=float(k)),)
        facts = {"busy_s": (float(k),), "idle_s": (1.0,), "kernels": kernels}
        return replace(profile(f"w{k}"), device_type=device_type, **facts)

    occlusion = Occlusion(model, [one(1), one(2), one(9), one(5, "other device")])
    found = effects(occlusion, one(3), one(4))
    stretches, kernels = "busy and idle stretches (mean busy one)", "kernels (launches a step)"
    assert [(found[True, fact].value, found[True, fact].reference) for fact in (stretches, kernels)] == [(3.0, 2.0)] * 2
    elsewhere = Occlusion(model, [one(5, "other device")])  # the only ones there are
    assert effects(elsewhere, one(3), one(4))[True, kernels].reference == 5.0


def test_every_fact_reads_and_replaces_fields_of_a_profile(tmp_path: Path) -> None:
    names = [fact.name for fact in FACTS]
    assert len(names) == len(set(names))
    numbers = {
        name: 0.5
        for name, field in JobProfile.__dataclass_fields__.items()
        if field.type is float and name not in NOT_READ
    }
    full = JobProfile(
        workload="w",
        device_type=DEVICE_TYPE,
        step_time_s=0.5,
        busy_s=(0.5,),
        idle_s=(0.1,),
        kernels=(KernelStat(name="k", mean_s=0.1, count=0.5),),
        **numbers,
    )
    assert {fact.value(full) for fact in FACTS} == {0.5}
    covered = {field for fact in FACTS for field in fact.fields}
    assert covered == {*numbers, "step_time_s", "busy_s", "idle_s", "kernels"}
