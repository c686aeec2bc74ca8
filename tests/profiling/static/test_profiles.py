"""Static facts beside measured ones, and back."""

import math
from dataclasses import replace

import pytest

from interfere.data.facts import combine_facts, without_static
from interfere.errors import NotFoundError
from interfere.profiling import catalogue
from interfere.profiling.static import Traceable
from interfere.profiling.static.profiles import attach_static, static_profile
from interfere.profiling.static.trace import trace_step
from interfere.records import JobProfile
from tests.profiling.static import sample_factories as make

MEASURED = JobProfile(workload="ResNet-18 (batch size 16)", device_type="v100", step_time_s=0.013, source="gavel")
FACTORIES = {MEASURED.workload: make.linear_adam, "attention": make.attention_fused}


def test_a_purely_static_profile_has_the_roofline_as_its_step() -> None:
    found = static_profile(trace_step(make.linear), "mine", "h100")
    assert (
        found.step_time_s
        == found.static_step_time_s
        == pytest.approx(sum(kernel.mean_s * kernel.count for kernel in found.kernels))
    )
    assert found.source == "static"
    assert math.isnan(found.memory_peak_bytes)
    assert {kernel.compute_bound for kernel in found.kernels} <= {0.0, 1.0}


def test_a_faster_device_is_never_slower() -> None:
    found = trace_step(make.attention_spelled_out)
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


def test_a_device_is_known_by_its_product_name_too() -> None:
    by_product = replace(MEASURED, device_type="Tesla V100-SXM2-16GB")
    (found,) = attach_static([by_product], lookup=FACTORIES.get).jobs
    (same,) = attach_static([MEASURED], lookup=FACTORIES.get).jobs
    assert found.device_type == "Tesla V100-SXM2-16GB"
    assert found.static_step_time_s == same.static_step_time_s


def test_a_device_without_ceilings_gets_nothing() -> None:
    core = replace(MEASURED, device_type="cpu-core")
    assert attach_static([core], lookup=FACTORIES.get).jobs == (core,)
    with pytest.raises(NotFoundError, match="cpu-core"):
        static_profile(trace_step(make.linear), "mine", "cpu-core")


def test_one_trace_serves_every_device() -> None:
    traced: list[int] = []

    def counted() -> Traceable:
        traced.append(1)
        return make.linear()

    jobs = [replace(MEASURED, workload="mine", device_type=name) for name in ("k80", "v100", "h100")]
    found = attach_static(jobs, lookup={"mine": counted}.get).jobs
    assert len(traced) == 1
    assert len({job.static_step_time_s for job in found}) == 3
    assert len({job.flops_per_step for job in found}) == 1


def test_a_static_profile_joins_a_measured_one_without_changing_it() -> None:
    first = static_profile(trace_step(make.linear), MEASURED.workload, "v100")
    second = static_profile(trace_step(make.linear_adam), MEASURED.workload, "v100")
    joined = combine_facts([MEASURED, first])
    assert without_static(joined) == MEASURED
    assert combine_facts([joined, second]).memory_optimizer_bytes > 0, "the newer trace counts"
    assert without_static(combine_facts([joined, second])) == MEASURED
    assert combine_facts([first, second]) == second
    own_flops = combine_facts([replace(MEASURED, flops_per_step=5.0), first])
    assert (own_flops.flops_per_step, own_flops.bytes_per_step) == (5.0, first.bytes_per_step)


# Parameters in millions: of the papers and reference ports, or summed by hand from the layers' shapes.
@pytest.mark.journey
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("ResNet-18 (batch size 64)", 11.17),
        ("Transformer (batch size 16)", 47.24),
        ("LM (batch size 80)", 13.99),
        ("Recommendation (batch size 512)", 8.06),
        ("A3C", 3.25),
        ("CycleGAN", 28.29),
        ("BERT SQuAD bs32 amp1", 108.9),
        ("DCGAN LSUN bs128 amp1", 3.58 + 2.77),
        ("VGG CIFAR-10 bs32 amp0", 9.23),
        ("EfficientNet CIFAR-10 bs64 amp0", 3.60),
        ("LSTM Wikitext2 bs64 amp1", 13.99),
        ("MobileNetV2 CIFAR-10 bs32 amp0", 2.24),
        ("MobileNetV3 ImageNet bs128 amp1", 5.48),
        ("NeuMF MovieLens bs64 amp0", 1.60),
        ("ResNet50 ImageNet bs32 amp1", 25.56),
        ("PPO LunarLander bs64 amp0", 0.0098),
        ("Transformer Multi30k bs32 amp1", 47.24 + 1.61),
    ],
)
def test_every_architecture_is_traced_and_has_its_number_of_parameters(name: str, millions: float) -> None:
    factory = catalogue.find_factory(name)
    assert factory is not None
    found = static_profile(trace_step(factory, name), name, "v100")
    assert found.flops_per_step > 1e6
    assert 0 < found.step_time_s < 10
    # Gradients are parameters alone; each is rounded up to 512 bytes, which shows where a model is tiny.
    assert found.memory_gradient_bytes / 4e6 == pytest.approx(millions, rel=0.02, abs=0.001)


@pytest.mark.parametrize("name", ["TD3 BipedalWalker bs32 amp0", "ResNet-18", "GPT-9 (batch size 2)", "", "a:b"])
def test_a_name_outside_the_catalogue_has_no_factory(name: str) -> None:
    assert catalogue.find_factory(name) is None


def test_every_listed_form_of_name_is_found() -> None:
    for form in catalogue.MODELS:
        assert catalogue.find_factory(form.replace("size N", "size 8").replace("bsN amp0|1", "bs8 amp1"))
