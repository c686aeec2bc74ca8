"""Unknown devices are devices too."""

import math

from interfere.devices import CPU_CORE, device_type


def test_a_known_device_is_found_and_an_unknown_one_has_no_ceilings() -> None:
    assert device_type("cpu-core") is CPU_CORE
    unknown = device_type("tpu-v9")
    assert unknown.name == "tpu-v9"
    assert math.isnan(unknown.peak_flops)
    assert math.isnan(unknown.memory_bytes)
