"""Schema v1 of the tables at rest, as Arrow schemas: jobs, pairs, raw, and traces with their clusters.

SI seconds and bytes; an absent number is null on disk and NaN in a record. Law: a column is a field of a record, with
the same name; `pairs.feasible` alone is derived, for readers who filter without our code.
"""

from typing import Any

from interfere.records import COUNTERS

VERSION = 1
VERSION_KEY = b"interfere.schema"
MAX_STEP_S = 3_600.0  # a step longer than an hour is a time in another unit
MAX_BYTES = 1e16
JOB_KEY = ("workload", "device_type")
# Facts that joined the schema after tables had been written: a file without them reads as null.
LATER_JOB = (
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
    *COUNTERS,
    "power_w",
)
LATER_KERNEL = (
    "sd_s",
    "flops",
    "bytes",
    "sm_used",
    "occupancy_frac",
    "compute_frac",
    "memory_frac",
    "compute_bound",
)
MEMORY = (
    "memory_peak_bytes",
    "memory_working_set_bytes",
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_memory_peak_bytes",
)
LATER = frozenset((*LATER_JOB, *LATER_KERNEL, "family"))
PAIR_KEY = ("victim", "neighbour", "device_type", "mode", "metric")


def jobs_schema() -> Any:
    """One row per JobProfile."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    kernel = pa.struct(
        [
            ("name", text),
            ("mean_s", number),
            ("gap_s", number),
            ("count", number),
            ("grid", pa.list_(pa.int32())),
            ("block", pa.list_(pa.int32())),
            *((name, number) for name in LATER_KERNEL),
        ]
    )
    return _versioned(
        [
            ("workload", text),
            ("device_type", text),
            ("step_time_s", number),
            ("source", text),
            ("step_time_sd_s", number),
            ("busy_frac", number),
            ("busy_s", pa.list_(number)),
            ("idle_s", pa.list_(number)),
            ("flops_per_step", number),
            ("bytes_per_step", number),
            ("memory_peak_bytes", number),
            ("memory_working_set_bytes", number),
            ("kernels", pa.list_(kernel)),
            *((name, number) for name in LATER_JOB),
            ("family", text),
        ]
    )


def pairs_schema() -> Any:
    """One row per PairMeasurement: slowdown of one victim beside one neighbour. A self pair is one row."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    return _versioned(
        [
            ("victim", text),
            ("neighbour", text),
            ("device_type", text),
            ("mode", text),
            ("metric", text),
            ("slowdown", number),
            ("lower", number),
            ("upper", number),
            ("passes", pa.list_(number)),
            ("status", text),
            ("reason", text),
            ("overlap_frac", number),
            ("steal_frac", number),
            ("source", text),
            ("campaign", text),
            ("device_name", text),
            ("measured_at_s", number),
            ("feasible", pa.bool_()),
        ]
    )


def raw_schema() -> Any:
    """One row per side of a measured block, refused ones included: what every slowdown is computed from."""
    import pyarrow as pa

    number, text, whole = pa.float64(), pa.string(), pa.int32()
    return _versioned(
        [
            ("victim", text),
            ("neighbour", text),
            ("pass_index", whole),
            ("attempt", whole),
            ("started_at_s", number),
            ("window_s", number),
            ("steps_alone", whole),
            ("wall_alone_s", number),
            ("cpu_alone_s", number),
            ("steps_shared", whole),
            ("wall_shared_s", number),
            ("cpu_shared_s", number),
            ("chunks_shared", whole),
            ("overlap_frac", number),
            ("steal_frac", number),
            ("drift_frac", number),
            ("reason", text),
        ]
    )


def trace_schema() -> Any:
    """One row per TraceJob; `start_s` is that of the whole trace."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    return _versioned(
        [
            ("job_id", text),
            ("workload", text),
            ("arrival_s", number),
            ("gpus", pa.int32()),
            ("duration_s", number),
            ("total_steps", number),
            ("user", text),
            ("vc", text),
            ("status", text),
            ("start_s", number),
        ]
    )


def clusters_schema() -> Any:
    """One row per TraceCluster."""
    import pyarrow as pa

    return _versioned([("vc", pa.string()), ("nodes", pa.int32()), ("gpus_per_node", pa.int32())])


def _versioned(fields: list[tuple[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.schema(fields, metadata={VERSION_KEY: str(VERSION).encode()})
