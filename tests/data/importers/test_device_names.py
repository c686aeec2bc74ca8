"""Device types from the names that drivers report."""

import pytest

from interfere.data.importers.device_names import device_type_of


@pytest.mark.parametrize(
    ("name", "device_type"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("A100-PCIE-40GB", "a100"),
        ("Tesla V100-PCIE-32GB", "v100"),
        ("Tesla K80", "k80"),
        ("Tesla T4", "t4"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("GeForce RTX 3090 Ti", "rtx3090ti"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("some new card", "some"),
        ("", ""),
    ],
)
def test_brand_form_factor_and_memory_do_not_count(name: str, device_type: str) -> None:
    assert device_type_of(name) == device_type
    assert device_type_of(name.upper()) == device_type
