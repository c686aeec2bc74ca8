"""Schema version 1 of the Parquet files, as Arrow schemas: jobs, pairs, groups, raw blocks, traces, virtual clusters.

Units are seconds and bytes; an unknown number is null on disk and NaN in a record. Law: a column is a field of a
record, with the same name; only `feasible` is derived, for readers that filter without this code. `groups.parquet` came
after tables had been written: a table without it has no groups.
"""

from typing import Any

from interfere.records import COUNTERS

SCHEMA_VERSION = 1
SCHEMA_VERSION_KEY = b"interfere.schema"
MAX_STEP_S = 3_600.0  # a longer step is taken for a time in another unit
MAX_BYTES = 1e16
JOB_KEY = ("workload", "device_type", "source")  # one row of each source: readers combine them
# Facts that were added to the schema after tables had been written: in a file without them they read as null.
OPTIONAL_JOB_COLUMNS = (
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
    *COUNTERS,
    "power_w",
)
OPTIONAL_KERNEL_FIELDS = (
    "sd_s",
    "flops",
    "bytes",
    "sm_used",
    "occupancy_frac",
    "compute_frac",
    "memory_frac",
    "compute_bound",
)
MEMORY_COLUMNS = (
    "memory_peak_bytes",
    "memory_working_set_bytes",
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_memory_peak_bytes",
)
OPTIONAL_COLUMNS = frozenset((*OPTIONAL_JOB_COLUMNS, *OPTIONAL_KERNEL_FIELDS, "family", "measured_at_s", "important"))
PAIR_KEY = ("victim", "neighbour", "device_type", "mode", "metric", "important")
GROUP_KEY = ("victim", "company", "device_type", "mode", "metric")


def jobs_schema() -> Any:
    """The schema of `jobs.parquet`: one row per JobProfile, which is what one source says of a job."""
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
            *((name, number) for name in OPTIONAL_KERNEL_FIELDS),
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
            *((name, number) for name in OPTIONAL_JOB_COLUMNS),
            ("family", text),
            ("measured_at_s", number),
        ]
    )


def pairs_schema() -> Any:
    """The schema of `pairs.parquet`: one row per PairMeasurement, the slowdown of a victim beside a neighbour.

    A self pair is one row.
    """
    import pyarrow as pa

    return _versioned([*_measurement_fields(("neighbour", pa.string())), ("important", pa.string())])


def groups_schema() -> Any:
    """Return the schema of `groups.parquet`: one row per GroupMeasurement, the slowdown of a victim beside its
    neighbours.

    `company` lists two or more neighbours of the victim, sorted. A workload is listed as often as it runs there.
    """
    import pyarrow as pa

    return _versioned(_measurement_fields(("company", pa.list_(pa.string()))))


def _measurement_fields(beside: tuple[str, Any]) -> list[tuple[str, Any]]:
    """Return the columns of a measured slowdown. `beside` is the column that names the victim's neighbours."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    return [
        ("victim", text),
        beside,
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


def extras_schema() -> Any:
    """The schema of `extras.parquet`: one row per ExtraFact, a value of a spreadsheet that is no known fact.

    `neighbour` is empty where the value is about a job alone; `number` is null where the value is no number.
    """
    import pyarrow as pa

    text = pa.string()
    names = ("workload", "neighbour", "device_type", "source", "name", "value")
    return _versioned([*((name, text) for name in names), ("number", pa.float64())])


def raw_schema() -> Any:
    """The schema of `raw.parquet`: one row per side of a measured block of a pair, also of refused ones.

    Every slowdown is computed from these.
    """
    import pyarrow as pa

    return _raw_fields([("neighbour", pa.string()), ("important", pa.string())])


def raw_groups_schema() -> Any:
    """The schema of `raw_groups.parquet`: one row per side of a measured block of a group, also of refused ones."""
    import pyarrow as pa

    return _raw_fields([("company", pa.list_(pa.string()))])


def _raw_fields(beside: list[tuple[str, Any]]) -> Any:
    import pyarrow as pa

    number, text, integer = pa.float64(), pa.string(), pa.int32()
    return _versioned(
        [
            ("victim", text),
            *beside,
            ("pass_index", integer),
            ("attempt", integer),
            ("started_at_s", number),
            ("window_s", number),
            ("steps_alone", integer),
            ("wall_alone_s", number),
            ("cpu_alone_s", number),
            ("steps_shared", integer),
            ("wall_shared_s", number),
            ("cpu_shared_s", number),
            ("slices", integer),
            ("slices_counted", integer),
            ("log_error", number),
            ("overlap_frac", number),
            ("steal_frac", number),
            ("drift_frac", number),
            ("reason", text),
        ]
    )


def trace_schema() -> Any:
    """The schema of `trace.parquet`: one row per TraceJob; `start_s` is that of the whole trace."""
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
    """The schema of `clusters.parquet`: one row per VirtualCluster."""
    import pyarrow as pa

    return _versioned([("vc", pa.string()), ("nodes", pa.int32()), ("gpus_per_node", pa.int32())])


def _versioned(fields: list[tuple[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.schema(fields, metadata={SCHEMA_VERSION_KEY: str(SCHEMA_VERSION).encode()})
