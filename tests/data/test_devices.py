"""Device types are found by any of their names, and unknown names are device types too."""

import math

import pytest

from interfere.devices import (
    CPU_CORE,
    GPU_NAMES,
    KNOWN_DEVICE_TYPES,
    find_device_type,
    has_peak_rates,
    require_peak_rates,
)
from interfere.errors import NotFoundError


def test_a_known_device_type_is_found_and_an_unknown_one_has_no_peak_rates() -> None:
    assert find_device_type("cpu-core") is CPU_CORE
    unknown = find_device_type("tpu-v9")
    assert unknown.name == "tpu-v9"
    assert math.isnan(unknown.peak_flops)
    assert math.isnan(unknown.memory_bytes)


@pytest.mark.parametrize("name", ["cpu-core", "tpu-v9", ""])
def test_missing_peak_rates_are_refused(name: str) -> None:
    assert not has_peak_rates(find_device_type(name))
    with pytest.raises(NotFoundError, match="no peak rates") as caught:
        require_peak_rates(name)
    assert "h100" in caught.value.remedy


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA  H200 ", "h200"),
        ("V100", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
    ],
)
def test_a_device_type_is_found_by_the_product_name_of_the_driver(product: str, name: str) -> None:
    assert require_peak_rates(product) is KNOWN_DEVICE_TYPES[name]


@pytest.mark.parametrize("name", GPU_NAMES)
def test_figures_of_a_gpu_are_complete_plausible_and_cited(name: str) -> None:
    device = KNOWN_DEVICE_TYPES[name]
    assert "NVIDIA" in device.source
    assert device.half_flops >= device.peak_flops > 1e12
    assert math.isnan(device.tf32_flops) or device.peak_flops <= device.tf32_flops <= 0.51 * device.half_flops
    assert 1e11 < device.memory_bandwidth_bytes_s < 1e13
    assert device.memory_bytes > 8e9
    assert device.multiprocessors > 10
    assert device.l2_bytes > 1e6


def test_no_two_devices_share_a_name() -> None:
    names = [name for device in KNOWN_DEVICE_TYPES.values() for name in (device.name, *device.aliases)]
    assert len(names) == len(set(names))


def test_a_mig_slice_has_its_share_of_the_gpu() -> None:
    whole, slice_ = KNOWN_DEVICE_TYPES["a100-80gb"], KNOWN_DEVICE_TYPES["a100-80gb-3g.40gb"]
    assert slice_.multiprocessors == 42
    assert slice_.memory_bytes == whole.memory_bytes / 2
    assert slice_.memory_bandwidth_bytes_s == whole.memory_bandwidth_bytes_s / 2
    assert slice_.peak_flops / whole.peak_flops == pytest.approx(42 / 108)
    assert {name for name in KNOWN_DEVICE_TYPES if name.startswith("a100-") and "g." in name} == {
        *(f"a100-{size}" for size in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")),
        *(f"a100-80gb-{size}" for size in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
    }
