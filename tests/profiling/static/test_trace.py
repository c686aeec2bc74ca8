"""Counts that can be done by hand, and laws that hold for every model."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from interfere.devices import GPU_NAMES, find_device_type
from interfere.errors import InvalidInputError
from interfere.profiling.catalogue import find_factory
from interfere.profiling.static import Factory
from interfere.profiling.static.profiles import LAUNCH_S, operator_time_s, peak_flops
from interfere.profiling.static.trace import StaticTrace, trace_step
from tests.profiling.static import sample_factories as make

WIDTH, BATCH = make.WIDTH, make.BATCH
PARAMETERS = WIDTH * WIDTH


def product_flops(found: StaticTrace) -> float:
    return sum(cost.flops * calls for cost, calls in found.calls if cost.product)


def test_a_linear_layer_is_counted_by_hand() -> None:
    found = trace_step(make.linear)
    assert product_flops(found) == 2 * (2 * BATCH * WIDTH * WIDTH)  # forward and weight gradient: x needs none
    assert found.model_bytes == found.gradient_bytes == PARAMETERS * 4
    assert found.optimizer_bytes == 0
    assert found.peak_bytes >= found.model_bytes + found.gradient_bytes
    assert found.touched_bytes >= 2 * PARAMETERS * 4


def test_adam_keeps_two_moments() -> None:
    found = trace_step(make.linear_adam)
    assert found.optimizer_bytes == pytest.approx(2 * PARAMETERS * 4, rel=0.01)  # and a step counter


def test_inference_has_no_gradients_and_half_the_products() -> None:
    found = trace_step(make.linear_forward)
    assert found.gradient_bytes == found.optimizer_bytes == 0
    assert product_flops(found) == 2 * BATCH * WIDTH * WIDTH


def test_autocast_computes_in_half_precision_with_the_same_arithmetic() -> None:
    full, half = trace_step(make.linear), trace_step(make.linear_half)
    assert product_flops(full) == product_flops(half)
    assert all(cost.half for cost, _ in half.calls if cost.product)
    assert not any(cost.half for cost, _ in full.calls)


def test_attention_counts_the_same_fused_or_spelled_out() -> None:
    fused, spelled = trace_step(make.attention_fused), trace_step(make.attention_spelled_out)
    forward = 2 * (2 * 4 * 8 * 128 * 128 * 64)
    # The fused backward computes QKᵀ once more instead of keeping it.
    assert product_flops(fused) == product_flops(spelled) + forward / 2


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_a_recurrent_layer_has_its_formula_and_waits_for_its_steps(kind: type[nn.RNNBase], gates: int) -> None:
    found = trace_step(lambda: make.recurrent(kind))
    weights = gates * 48 * (32 + 48)
    assert product_flops(found) == 3 * (2 * weights * 20 * 4)
    assert max(cost.serial for cost, _ in found.calls) == 20
    assert sum(calls for _, calls in found.calls) < 20, "not taken apart step by step"


def test_directions_and_layers_of_a_recurrent_network_add_up() -> None:
    found = trace_step(lambda: make.recurrent(nn.LSTM, both_ways=True, layers=2))
    weights = 2 * 4 * 48 * (32 + 48) + 2 * 4 * 48 * (2 * 48 + 48)
    assert product_flops(found) == 3 * (2 * weights * 20 * 4)
    assert max(cost.serial for cost, _ in found.calls) == 4 * 20


def test_a_recurrent_state_carries_gradients() -> None:
    found = trace_step(make.encoder_and_decoder)
    assert found.gradient_bytes == found.model_bytes


def test_an_encoder_layer_in_inference_is_seen_into() -> None:
    tokens, width = 4 * 16, 64
    dense = 2 * tokens * width * (3 * width + width + 2 * 256)
    attention = 2 * 2 * tokens * 16 * width
    assert product_flops(trace_step(make.encoder_layer)) == dense + attention


def test_dropout_is_one_kernel_and_keeps_a_byte_an_element() -> None:
    found = trace_step(make.dropped)
    (dropout,) = [cost for cost, _ in found.calls if cost.name == "aten::native_dropout"]
    elements = 4096 * make.WIDTH
    assert dropout.bytes == elements * (4 + 4 + 1)


def test_an_optimizer_takes_all_parameters_at_once_unless_told_otherwise() -> None:
    default, together, apart = (trace_step(lambda f=f: make.perceptron(f)) for f in (None, True, False))
    assert default == together
    assert len(default.calls) < len(apart.calls)


def test_clipping_reads_the_gradient() -> None:
    plain, clipped = trace_step(make.linear), trace_step(make.clipped)
    assert clipped.bytes >= plain.bytes + PARAMETERS * 4
    assert any("norm" in cost.name for cost, _ in clipped.calls)


def test_an_expanded_tensor_is_fetched_once() -> None:
    found = trace_step(make.linear)  # the gradient of a sum is one number, expanded
    assert all(cost.bytes <= 3 * max(PARAMETERS, BATCH * WIDTH) * 4 for cost, _ in found.calls)
    assert min(cost.bytes for cost, _ in found.calls) < 100


def test_the_largest_input_sets_the_memory_and_nothing_else() -> None:
    usual, some_longer = trace_step(make.unequal), trace_step(lambda: make.unequal(64))
    assert some_longer.calls == usual.calls
    assert some_longer.touched_bytes == usual.touched_bytes
    assert some_longer.activation_bytes == pytest.approx(4 * usual.activation_bytes, rel=0.05)
    assert some_longer.model_bytes == usual.model_bytes


def test_a_loss_on_logits_counts_the_kernels_that_it_calls() -> None:
    found = trace_step(make.clicks)
    logits = 512 * 4096 * 4
    touched = sum(cost.bytes * calls for cost, calls in found.calls if not cost.product)
    assert touched >= 8 * logits
    assert not any("binary_cross_entropy_with_logits" in cost.name for cost, _ in found.calls)


def test_memory_agrees_with_a_real_run(tmp_path: Path) -> None:
    from torch.profiler import profile

    found = trace_step(lambda: make.perceptron(True))
    with profile(profile_memory=True) as seen:
        job = make.perceptron(True)
        job.step()
        job.step()
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    real = max(event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]")
    assert found.peak_bytes == pytest.approx(real, rel=0.02)


def test_more_of_the_batch_is_more_of_everything_but_the_model() -> None:
    one, two = (trace_step(find_factory(f"ResNet-18 (batch size {batch})")) for batch in (16, 32))  # type: ignore[arg-type]
    assert two.flops == pytest.approx(2 * one.flops, rel=0.01)
    assert two.activation_bytes == pytest.approx(2 * one.activation_bytes, rel=0.25)
    assert two.model_bytes == one.model_bytes


def test_resnet_50_needs_what_the_field_counts() -> None:
    found = trace_step(find_factory("ResNet-50 (batch size 32)"))  # type: ignore[arg-type]
    assert 770e9 <= found.flops <= 800e9
    assert found.model_bytes == pytest.approx(25.6e6 * 4, rel=0.01)


@pytest.mark.parametrize("make_one", [make.linear, make.linear_adam, make.attention_fused, make.recurrent])
def test_the_parts_cover_the_peak(make_one: object) -> None:
    found = trace_step(make_one)  # type: ignore[arg-type]
    parts = found.model_bytes + found.gradient_bytes + found.optimizer_bytes + found.activation_bytes
    assert found.peak_bytes <= parts


@pytest.mark.parametrize("make_one", [make.attention_spelled_out, make.convolution, lambda: make.convolution(amp=True)])
def test_no_operator_beats_the_roofline_of_any_device(make_one: Factory) -> None:
    found = trace_step(make_one)
    for device in map(find_device_type, GPU_NAMES):
        for cost, _ in found.calls:
            shortest_s = (
                max(cost.flops / peak_flops(cost, device), cost.bytes / device.memory_bandwidth_bytes_s) + LAUNCH_S
            )
            assert operator_time_s(cost, device) >= shortest_s


def test_the_precision_decides_the_unit() -> None:
    (full, _), (half, _) = (
        next((cost, n) for cost, n in trace_step(lambda amp=amp: make.convolution(amp=amp)).calls if cost.convolution)
        for amp in (False, True)
    )
    dense = next(cost for cost, _ in trace_step(make.linear).calls if cost.product)
    v100, a100 = find_device_type("v100"), find_device_type("a100")
    assert peak_flops(full, v100) == v100.peak_flops
    assert peak_flops(full, a100) == a100.tf32_flops
    assert peak_flops(half, a100) == a100.half_flops
    assert peak_flops(dense, a100) == a100.peak_flops, "torch multiplies float32 matrices in float32"


def test_equal_factories_give_equal_traces() -> None:
    assert trace_step(make.linear_adam) == trace_step(make.linear_adam)


def test_a_model_of_seven_billion_parameters_is_traced_without_its_weights() -> None:
    import resource

    found = trace_step(make.seven_billion)
    assert found.model_bytes > 6.5e9 * 4
    assert found.optimizer_bytes == pytest.approx(2 * found.model_bytes, rel=0.01)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 4e9


@pytest.mark.parametrize(
    ("broken", "said", "remedy"),
    [
        (make.data_dependent, "cannot be traced", ".item()"),
        (make.sparse, "cannot be traced", "sparse=False"),
        pytest.param(
            make.on_a_gpu,
            "cannot be traced",
            "on the CPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it can be traced"),
        ),
        (make.made_at_import, "cannot be traced", "inside the factory"),
        (make.not_traceable, "Linear", "training(model, loss, optimizer)"),
        (make.idle, "computed nothing", "every call"),
    ],
)
def test_what_cannot_be_traced_is_one_clear_error(broken: Factory, said: str, remedy: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        trace_step(broken, "mine")
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value.value)


def test_a_failed_trace_leaves_torch_as_it_was() -> None:
    with pytest.raises(InvalidInputError):
        trace_step(make.data_dependent)
    assert torch.backends.mha.get_fastpath_enabled()
    assert type(torch.zeros(1)) is torch.Tensor
