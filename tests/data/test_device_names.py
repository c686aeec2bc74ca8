"""Device types from the names that drivers report."""

import pytest

from interfere.devices import device_type_of_product


@pytest.mark.parametrize(
    ("name", "device_type"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("Tesla K80", "k80"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("NVIDIA GH200 480GB", "gh200-480gb"),
        ("", ""),
    ],
)
def test_a_known_product_has_its_device_type_and_another_keeps_its_own(name: str, device_type: str) -> None:
    assert device_type_of_product(name) == device_type
    assert device_type_of_product(name.upper()) == device_type
