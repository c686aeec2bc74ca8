"""Measured facts of jobs alone: kernels and profiles. No derived features."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import NAN, check, number_violations, text_violations


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStat:
    """One kernel identity (name, grid, block) of a job alone: FIKIT's SK and SG tables, one row.

    On a CPU the "kernels" are the operators of the profiler, without grid and block.

    >>> from interfere import KernelStat
    >>> KernelStat(name="gemm", mean_s=30e-6, count=10).gap_s
    nan
    """

    name: str
    mean_s: float  # SK: mean run time
    gap_s: float = NAN  # SG: mean idle time until the next kernel
    count: float = 1.0  # launches per step
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    sd_s: float = NAN  # spread of the run time between launches
    flops: float = NAN  # of one launch
    bytes: float = NAN  # device memory traffic of one launch
    sm_used: float = NAN  # multiprocessors that one launch fills
    occupancy_frac: float = NAN  # achieved warps over the most a multiprocessor holds
    compute_frac: float = NAN  # throughput of the busiest compute pipe over its peak
    memory_frac: float = NAN  # throughput of device memory over its peak
    compute_bound: float = NAN  # 1 compute-bound, 0 memory-bound, as classed by the profiler

    def __post_init__(self) -> None:
        check(
            text_violations(self, "name")
            + number_violations(self, "mean_s", "count", nan=False)
            + number_violations(
                self,
                "gap_s",
                "sd_s",
                "flops",
                "bytes",
                "sm_used",
                "occupancy_frac",
                "compute_frac",
                "memory_frac",
                "compute_bound",
            )
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From JSON: lists become tuples, null means absent. Raises TypeError on missing or unknown fields."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if v is not None}
        return cls(**values)


# Shares in [0, 1] that a monitoring system reports of a job alone.
COUNTERS = (
    "gpu_util_frac",
    "memory_util_frac",
    "sm_active_frac",
    "sm_occupancy_frac",
    "tensor_active_frac",
    "dram_active_frac",
)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)  # caches must not keep profiles alive
class JobProfile:
    """What one workload does alone on one device type: facts only, no derived features.

    >>> from interfere import JobProfile, KernelStat
    >>> kernels = (KernelStat(name="gemm", mean_s=30e-6, count=10), KernelStat(name="relu", mean_s=3e-6, count=20))
    >>> profile = JobProfile(workload="net", device_type="v100", step_time_s=1e-3, kernels=kernels)
    >>> JobProfile.from_dict(profile.to_dict()).kernels == kernels
    True
    """

    workload: str
    device_type: str
    step_time_s: float  # mean time of one step (or request) alone; NaN where only the device was watched
    source: str = "user"  # cpu, cuda, static, gavel, ...
    step_time_sd_s: float = NAN  # between blocks
    busy_frac: float = NAN  # share of wall time on the device
    busy_s: tuple[float, ...] = ()  # consecutive busy stretches, a sample of the timeline
    idle_s: tuple[float, ...] = ()  # the idle stretch after each busy one
    flops_per_step: float = NAN
    bytes_per_step: float = NAN  # memory traffic, as declared or counted from operand shapes
    memory_peak_bytes: float = NAN
    memory_working_set_bytes: float = NAN
    kernels: tuple[KernelStat, ...] = ()
    memory_model_bytes: float = NAN  # parameters and buffers
    memory_activation_bytes: float = NAN  # most of them alive at once
    memory_gradient_bytes: float = NAN
    memory_optimizer_bytes: float = NAN
    static_step_time_s: float = NAN  # what a static trace expects on this device type, nothing run
    static_memory_peak_bytes: float = NAN  # the same trace's peak: without context and workspaces
    gpu_util_frac: float = NAN  # share of time in which any kernel ran (NVML utilization.gpu)
    memory_util_frac: float = NAN  # share of time in which device memory was read or written (NVML utilization.memory)
    sm_active_frac: float = NAN  # a warp resident, mean over time and multiprocessors (DCGM SM active)
    sm_occupancy_frac: float = NAN  # resident warps over the most possible (DCGM SM occupancy)
    tensor_active_frac: float = NAN  # tensor cores busy (DCGM tensor active)
    dram_active_frac: float = NAN  # device memory interface busy (DCGM DRAM active)
    power_w: float = NAN  # mean draw of the device
    family: str = ""  # the architecture, where the source names one: splits hold families out, no feature reads it
    measured_at_s: float = NAN  # unix time of the newest measurement in it; no feature reads it

    def __post_init__(self) -> None:
        bad = text_violations(self, "workload", "device_type", "source")
        bad += number_violations(self, "step_time_s", low=1e-9)
        bad += number_violations(
            self,
            "step_time_sd_s",
            "busy_frac",
            "flops_per_step",
            "bytes_per_step",
            "memory_peak_bytes",
            "memory_working_set_bytes",
            "memory_model_bytes",
            "memory_activation_bytes",
            "memory_gradient_bytes",
            "memory_optimizer_bytes",
            "static_step_time_s",
            "static_memory_peak_bytes",
            "power_w",
            "measured_at_s",
            *COUNTERS,
        )
        if self.family:
            bad += text_violations(self, "family")
        for name in ("busy_s", "idle_s"):
            if not all(math.isfinite(v) and v >= 0 for v in getattr(self, name)):
                bad.append(
                    Violation(field=name, what="must hold finite seconds ≥ 0", value="a bad entry", remedy="drop it")
                )
        if len(self.busy_s) != len(self.idle_s):
            bad.append(
                Violation(
                    field="idle_s",
                    what="must be as long as busy_s",
                    value=f"{len(self.idle_s)} ≠ {len(self.busy_s)}",
                    remedy="send one idle stretch after each busy one (0 where there is none)",
                )
            )
        check(bad)

    @property
    def expected_peak_bytes(self) -> float:
        """The measured peak, else the peak that a static trace expects, else NaN."""
        return self.static_memory_peak_bytes if math.isnan(self.memory_peak_bytes) else self.memory_peak_bytes

    @property
    def profile_id(self) -> str:
        """Content hash: equal facts have equal ids, also under a later release that knows more kinds of facts."""
        return hashlib.sha256(json.dumps(_present(self.to_dict()), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; NaN becomes null."""

        def clean(value: Any) -> Any:
            if isinstance(value, float) and math.isnan(value):
                return None
            if isinstance(value, dict):
                return {k: clean(v) for k, v in value.items()}
            return [clean(v) for v in value] if isinstance(value, list | tuple) else value

        return {k: clean(v) for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; unknown keys are an error."""
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(data) - known):
            raise InvalidInputError("unknown fields in a profile", value=unknown, remedy=f"use {sorted(known)}")
        values = {k: v for k, v in data.items() if v is not None}
        if "step_time_s" in data:
            values.setdefault("step_time_s", NAN)
        try:
            values["kernels"] = tuple(KernelStat.from_dict(kernel) for kernel in values.get("kernels", ()))
            for name in ("busy_s", "idle_s"):
                values[name] = tuple(float(v) for v in values.get(name, ()))
            return cls(**values)
        except TypeError as error:
            raise InvalidInputError(
                "a profile is incomplete", value=str(error), remedy="give workload, device_type, step_time_s"
            ) from None


def _present(value: Any) -> Any:
    """Without what is absent, at every depth."""
    if isinstance(value, dict):
        return {name: _present(inner) for name, inner in value.items() if inner is not None}
    return [_present(inner) for inner in value] if isinstance(value, list) else value
