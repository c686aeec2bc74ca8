"""Static facts beside measured ones, and back."""

import math
from dataclasses import replace

import pytest

from interfere.devices import KNOWN, device_type
from interfere.profiling import catalogue
from interfere.profiling.static.profiles import attach_static, static_profile, without_static
from interfere.profiling.static.trace import trace
from interfere.records import JobProfile
from tests.profiling.static import factories as make

MEASURED = JobProfile(workload="ResNet-18 (batch size 16)", device_type="v100", step_time_s=0.013, source="gavel")
FACTORIES = {MEASURED.workload: make.linear_adam, "attention": make.attention_fused}


def test_a_purely_static_profile_has_the_roofline_as_its_step() -> None:
    found = static_profile(trace(make.linear), "mine", "h100")
    assert (
        found.step_time_s
        == found.static_step_time_s
        == pytest.approx(sum(kernel.mean_s * kernel.count for kernel in found.kernels))
    )
    assert found.source == "static"
    assert math.isnan(found.memory_peak_bytes)
    assert {kernel.compute_bound for kernel in found.kernels} <= {0.0, 1.0}


def test_a_faster_device_is_never_slower() -> None:
    found = trace(make.attention_spelled_out)
    times = [
        static_profile(found, "mine", name).step_time_s for name in ("k80", "p100", "v100", "a100", "h100", "h200")
    ]
    assert times == sorted(times, reverse=True)


def test_attaching_fills_what_is_absent_and_can_be_undone() -> None:
    nobody = replace(MEASURED, workload="nobody traced this")
    nowhere = replace(MEASURED, device_type="tpu-v9")
    kernels = replace(MEASURED, workload="attention", flops_per_step=5.0)
    jobs = (MEASURED, nobody, nowhere, kernels)
    found = attach_static(jobs, lookup=FACTORIES.get)
    assert found.jobs[0].step_time_s == MEASURED.step_time_s
    assert found.jobs[0].source == "gavel+static"
    assert found.jobs[0].kernels
    assert found.jobs[0].static_memory_peak_bytes > 0
    assert math.isnan(found.jobs[0].memory_peak_bytes)
    assert found.jobs[1:] == jobs[1:]
    assert found.traced == (MEASURED.workload,)
    assert found.unknown == ("attention", "nobody traced this")
    assert tuple(map(repr, map(without_static, found.jobs))) == tuple(map(repr, jobs))
    assert attach_static(found.jobs, lookup=FACTORIES.get).jobs == found.jobs


@pytest.mark.parametrize(
    "name",
    [
        "ResNet-18 (batch size 64)", "Transformer (batch size 16)", "LM (batch size 80)", "A3C", "CycleGAN",
        "Recommendation (batch size 512)", "BERT SQuAD bs32 amp1", "DCGAN LSUN bs128 amp1", "VGG CIFAR-10 bs32 amp0",
        "EfficientNet CIFAR-10 bs64 amp0", "LSTM Wikitext2 bs64 amp1", "MobileNetV2 CIFAR-10 bs32 amp0",
        "MobileNetV3 ImageNet bs128 amp1", "NeuMF MovieLens bs64 amp0", "ResNet50 ImageNet bs32 amp1",
        "ResNet18 CIFAR-10 bs32 amp0", "Transformer Multi30k bs32 amp1",
    ],
)  # fmt: skip
def test_every_architecture_of_the_catalogue_is_traced(name: str) -> None:
    factory = catalogue.find(name)
    assert factory is not None
    found = static_profile(trace(factory, name), name, "v100")
    assert found.flops_per_step > 1e6
    assert 0 < found.step_time_s < 10
    assert found.memory_gradient_bytes >= 0.9 * found.memory_model_bytes


@pytest.mark.parametrize("name", ["PPO LunarLander bs32 amp0", "ResNet-18", "GPT-9 (batch size 2)", "", "a:b"])
def test_a_name_outside_the_catalogue_has_no_factory(name: str) -> None:
    assert catalogue.find(name) is None


# Parameter counts of the papers and reference ports, in millions.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("ResNet18 CIFAR-10 bs32 amp0", 11.17), ("VGG CIFAR-10 bs32 amp0", 9.23),
        ("MobileNetV2 CIFAR-10 bs32 amp0", 2.24), ("MobileNetV3 ImageNet bs32 amp0", 5.48),
        ("BERT SQuAD bs32 amp0", 109.0), ("CycleGAN", 28.29),
    ],
)  # fmt: skip
def test_architectures_have_the_published_number_of_parameters(name: str, millions: float) -> None:
    factory = catalogue.find(name)
    assert factory is not None
    assert trace(factory).gradient_bytes / 4e6 == pytest.approx(millions, rel=0.02)


def test_devices_are_found_by_any_spelling_and_cite_their_datasheet() -> None:
    assert device_type("Tesla V100-SXM2-16GB") is device_type("v100") is device_type("V100")
    assert device_type("NVIDIA H200") is device_type("h200")
    for device in KNOWN.values():
        assert device.source
        if device.name != "cpu-core":
            assert device.half_flops >= device.peak_flops > 1e12
            assert 1e11 < device.memory_bandwidth_bytes_s < 1e13
            assert device.memory_bytes > 8e9
            assert device.multiprocessors > 10
            assert device.l2_bytes > 1e6
