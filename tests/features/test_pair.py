"""Laws of the encoder: equal facts give equal bytes, absent facts give NaN, and swapping sides swaps blocks."""

import hashlib
import math

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.features.job import UTILISATION_COLUMNS, kernel_family, mean, quantile
from interfere.features.pair import CONTENTION_COLUMNS, FeatureEncoder
from interfere.records import JobProfile, KernelStat

FULL = JobProfile(
    workload="resnet",
    device_type="cpu-core",
    step_time_s=0.02,
    step_time_sd_s=0.001,
    busy_frac=0.75,
    busy_s=(0.004, 0.006, 0.005),
    idle_s=(0.001, 0.00005, 0.004),
    flops_per_step=2.5e8,
    bytes_per_step=4e7,
    memory_peak_bytes=3e8,
    memory_working_set_bytes=1e8,
    kernels=(
        KernelStat(name="aten::mm", mean_s=1e-4, count=10, sd_s=1e-5, occupancy_frac=0.5, sm_used=40, compute_bound=1),
        KernelStat(name="aten::relu", mean_s=2e-5, gap_s=1e-5, count=20, memory_frac=0.8, compute_bound=0),
    ),
    gpu_util_frac=0.6,
    memory_util_frac=0.3,
    sm_active_frac=0.55,
    dram_active_frac=0.7,
    power_w=200.0,
    memory_model_bytes=2e7,
    static_step_time_s=0.016,
    static_memory_peak_bytes=4e8,
)
BARE = JobProfile(workload="x", device_type="h200", step_time_s=1.0)
ENCODER = FeatureEncoder()


def rows(*profiles: JobProfile) -> np.ndarray:
    return ENCODER.encode_jobs(profiles, "cpu-core", "timeslice")


def test_same_bytes_in_any_memory_layout_and_batch() -> None:
    both = rows(FULL, BARE, FULL)
    victims, neighbours = both[[0, 1, 2, 0]], both[[1, 0, 0, 0]]
    whole = ENCODER.encode_pairs(victims, neighbours)
    fortran = ENCODER.encode_pairs(np.asfortranarray(victims), np.asfortranarray(neighbours))
    one_by_one = np.concatenate([ENCODER.encode_pairs(victims[k : k + 1], neighbours[k : k + 1]) for k in range(4)])
    assert whole.tobytes() == fortran.tobytes() == one_by_one.tobytes()
    assert whole.dtype == np.float32
    assert whole.shape == (4, len(ENCODER.pair_names))


def test_golden_v2() -> None:
    """Exact bytes of one pair. A change here is a change of the encoder: raise features.pair.VERSION."""
    both = rows(FULL, BARE)
    pair = ENCODER.encode_pairs(both[:1], both[:1])
    assert ENCODER.fingerprint == "38b96de0c8574b75"
    assert hashlib.sha256(pair.tobytes()).hexdigest()[:16] == "f0a50da2bcef3992"


def test_known_values() -> None:
    row = dict(zip(ENCODER.job_names, rows(FULL)[0].tolist(), strict=True))
    assert row["log_step_time_s"] == pytest.approx(math.log(0.02))
    assert row["busy_frac"] == pytest.approx(0.75)
    assert row["log_busy_p50_s"] == pytest.approx(math.log(0.005))
    assert row["long_gap_frac"] == pytest.approx(0.005 / 0.02005, rel=1e-5)
    assert row["gemm_time_frac"] == pytest.approx(1e-3 / 1.4e-3)
    assert row["elementwise_time_frac"] == pytest.approx(0.4e-3 / 1.4e-3)
    assert row["log_gflop_per_s"] == pytest.approx(math.log1p(12.5))
    assert (row["mode_timeslice"], row["mode_mps"]) == (1.0, 0.0)
    pair = dict(zip(ENCODER.pair_names, ENCODER.encode_pairs(rows(FULL), rows(FULL))[0].tolist(), strict=True))
    assert pair["busy_frac_sum"] == pytest.approx(1.5)
    assert pair["busy_frac_excess"] == pytest.approx(0.5)
    assert pair["fair_share_log_slowdown"] == pytest.approx(math.log(1.5625))
    assert pair["log_memory_sum_mib"] == pytest.approx(math.log1p(6e8 / 2**20))
    assert pair["gpu_util_excess"] == pytest.approx(0.2)
    assert pair["memory_util_excess"] == 0.0
    assert pair["dram_active_excess"] == pytest.approx(0.4)
    assert pair["static_busy_product"] == pytest.approx(0.64)
    assert pair["roofline_log_slowdown"] == pytest.approx(math.log(1.6))


def test_kernels_counters_and_ceilings_on_a_known_device() -> None:
    row = dict(zip(ENCODER.job_names, ENCODER.encode_jobs([FULL], "v100", "mps")[0].tolist(), strict=True))
    assert row["occupancy_time_frac"] == pytest.approx(0.5)  # the other kernel says nothing
    assert row["sm_fill_time_frac"] == pytest.approx(0.5)  # 40 of 80
    assert row["memory_throughput_time_frac"] == pytest.approx(0.8)
    assert row["compute_bound_time_frac"] == pytest.approx(1e-3 / 1.4e-3)
    assert row["kernel_cv"] == pytest.approx(0.1)
    assert row["log_launches_per_s"] == pytest.approx(math.log1p(30 / 0.02))
    assert row["sm_active_frac"] == pytest.approx(0.55)
    assert row["log_power_w"] == pytest.approx(math.log1p(200.0))
    assert row["peak_flops_frac"] == pytest.approx(2.5e8 / 0.02 / 15.7e12)
    assert row["memory_peak_device_frac"] == pytest.approx(3e8 / (16 * 2**30))  # measured, not the static one
    assert row["log_step_over_static"] == pytest.approx(math.log(0.02 / 0.016))
    assert row["static_busy_frac"] == pytest.approx(0.8)


def test_hidden_columns_are_absent_and_the_others_are_the_same() -> None:
    poor = FeatureEncoder(visible_columns=UTILISATION_COLUMNS)
    rich, seen = rows(FULL)[0], poor.encode_jobs([FULL], "cpu-core", "timeslice")[0]
    for name, full, shown in zip(ENCODER.job_names, rich.tolist(), seen.tolist(), strict=True):
        assert (shown == full or math.isnan(full)) if name in UTILISATION_COLUMNS else math.isnan(shown)
    pair = dict(zip(poor.pair_names, poor.encode_pairs(seen[None], seen[None])[0].tolist(), strict=True))
    assert pair["gpu_util_sum"] == pytest.approx(1.2)
    assert math.isnan(pair["busy_frac_sum"])


def test_absent_facts_are_nan_never_zero() -> None:
    row = dict(zip(ENCODER.job_names, rows(BARE)[0].tolist(), strict=True))
    present = {name for name, value in row.items() if not math.isnan(value)}
    assert present == {"log_step_time_s", *(name for name in row if name.startswith("mode_"))}


def test_swapping_sides_swaps_the_blocks() -> None:
    both = rows(FULL, BARE)
    ahead, back = ENCODER.encode_pairs(both[:1], both[1:]), ENCODER.encode_pairs(both[1:], both[:1])
    width = len(ENCODER.job_names)
    np.testing.assert_array_equal(ahead[:, :width], back[:, width : 2 * width])
    assert len(ENCODER.pair_names) == 2 * width + len(CONTENTION_COLUMNS) == len(set(ENCODER.pair_names))


def test_wrong_width_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="float32"):
        ENCODER.encode_pairs(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ampere_sgemm_128x64_nn", "gemm"),
        ("aten::native_batch_norm", "norm"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4", "conv"),
        ("flash_fwd_kernel", "attention"),
        ("Memcpy HtoD", "memcpy"),
        ("aten::embedding_bag", "embedding"),
        ("something else entirely", "other"),
    ],
)
def test_kernel_families(name: str, expected: str) -> None:
    assert kernel_family(name) == expected


def test_statistics_by_hand() -> None:
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert math.isnan(quantile([], 0.5))
    assert mean([0.1] * 10) == 0.1
    assert math.isnan(mean([]))
