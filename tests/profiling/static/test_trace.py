"""Counts that can be done by hand, and laws that hold for every model."""

import pytest

from interfere.devices import KNOWN
from interfere.errors import InvalidInputError
from interfere.profiling.catalogue import find
from interfere.profiling.static.roofline import LAUNCH_S, op_time_s
from interfere.profiling.static.trace import StaticTrace, trace
from tests.profiling.static import factories as make

WIDTH, BATCH = make.WIDTH, make.BATCH
PARAMETERS = WIDTH * WIDTH
DEVICES = [device for device in KNOWN.values() if device.peak_flops > 0]


def product_flops(found: StaticTrace) -> float:
    return sum(cost.flops * calls for cost, calls in found.calls if cost.product)


def test_a_linear_layer_is_counted_by_hand() -> None:
    found = trace(make.linear)
    assert product_flops(found) == 2 * (2 * BATCH * WIDTH * WIDTH)  # forward and weight gradient: x needs none
    assert found.model_bytes == found.gradient_bytes == PARAMETERS * 4
    assert found.optimizer_bytes == 0
    assert found.peak_bytes >= found.model_bytes + found.gradient_bytes
    assert found.touched_bytes >= 2 * PARAMETERS * 4


def test_adam_keeps_two_moments() -> None:
    found = trace(make.linear_adam)
    assert found.optimizer_bytes == pytest.approx(2 * PARAMETERS * 4, rel=0.01)  # and a step counter


def test_inference_has_no_gradients_and_half_the_products() -> None:
    found = trace(make.linear_forward)
    assert found.gradient_bytes == found.optimizer_bytes == 0
    assert product_flops(found) == 2 * BATCH * WIDTH * WIDTH


def test_autocast_computes_in_half_precision_with_the_same_arithmetic() -> None:
    full, half = trace(make.linear), trace(make.linear_half)
    assert product_flops(full) == product_flops(half)
    assert all(cost.half for cost, _ in half.calls if cost.product)
    assert not any(cost.half for cost, _ in full.calls)


def test_attention_counts_the_same_fused_or_spelled_out() -> None:
    fused, spelled = trace(make.attention_fused), trace(make.attention_spelled_out)
    forward = 2 * (2 * 4 * 8 * 128 * 128 * 64)
    # The fused backward computes QKᵀ once more instead of keeping it.
    assert product_flops(fused) == product_flops(spelled) + forward / 2


def test_a_recurrent_layer_has_its_formula_and_waits_for_its_steps() -> None:
    found = trace(make.recurrent)
    weights = 4 * 48 * (32 + 48)
    assert product_flops(found) == 3 * (2 * weights * 20 * 4)
    assert max(cost.serial for cost, _ in found.calls) == 20


def test_more_of_the_batch_is_more_of_everything_but_the_model() -> None:
    one, two = (trace(find(f"ResNet-18 (batch size {batch})")) for batch in (16, 32))  # type: ignore[arg-type]
    assert two.flops == pytest.approx(2 * one.flops, rel=0.01)
    assert two.activation_bytes == pytest.approx(2 * one.activation_bytes, rel=0.25)
    assert two.model_bytes == one.model_bytes


def test_resnet_50_needs_what_the_field_counts() -> None:
    found = trace(find("ResNet-50 (batch size 32)"))  # type: ignore[arg-type]
    assert 770e9 <= found.flops <= 800e9
    assert found.model_bytes == pytest.approx(25.6e6 * 4, rel=0.01)


@pytest.mark.parametrize("make_one", [make.linear, make.linear_adam, make.attention_fused, make.recurrent])
def test_the_parts_cover_the_peak(make_one: object) -> None:
    found = trace(make_one)  # type: ignore[arg-type]
    parts = found.model_bytes + found.gradient_bytes + found.optimizer_bytes + found.activation_bytes
    assert found.peak_bytes <= parts


def test_no_operator_beats_the_roofline_of_any_device() -> None:
    found = trace(make.attention_spelled_out)
    for device in DEVICES:
        for cost, _ in found.calls:
            peak = device.half_flops if cost.half else device.peak_flops
            least_s = max(cost.flops / peak, cost.bytes / device.memory_bandwidth_bytes_s) + LAUNCH_S
            assert op_time_s(cost, device) >= least_s


def test_equal_factories_give_equal_traces() -> None:
    assert trace(make.linear_adam) == trace(make.linear_adam)


def test_a_model_of_seven_billion_parameters_is_traced_without_its_weights() -> None:
    import resource

    found = trace(make.seven_billion)
    assert found.model_bytes > 6.5e9 * 4
    assert found.optimizer_bytes == pytest.approx(2 * found.model_bytes, rel=0.01)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 4e9


@pytest.mark.parametrize(
    ("broken", "said"), [(make.data_dependent, "cannot be traced"), (make.not_traceable, "Linear")]
)
def test_what_cannot_be_traced_is_one_clear_error(broken: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        trace(broken, "mine")  # type: ignore[arg-type]
    assert caught.value.remedy
