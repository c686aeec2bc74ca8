"""Schema version 1 of the Parquet files, as Arrow schemas: jobs, pairs, groups, raw blocks, traces, virtual clusters.

Units are seconds and bytes; an unknown number is null on disk and NaN in a record. Law: a column is a field of a
record, with the same name and type; only `feasible` is derived, for readers that filter without this code.
`groups.parquet` came after tables had been written: a table without it has no groups.
"""

from typing import Any

from interfere.records import (
    COUNTERS,
    BlockSide,
    GroupMeasurement,
    JobProfile,
    KernelStat,
    MeasuredBlock,
    PairMeasurement,
)
from interfere.records.record import fields_of, is_record

SCHEMA_VERSION = 1
SCHEMA_VERSION_KEY = b"interfere.schema"
MAX_STEP_S = 3_600.0  # a longer step is taken for a time in another unit
MAX_BYTES = 1e16
JOB_KEY = ("workload", "device_type", "source")  # one row of each source: readers combine them
PAIR_KEY = ("victim", "neighbour", "device_type", "mode", "metric", "important")
GROUP_KEY = ("victim", "company", "device_type", "mode", "metric")
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
_FIRST_KERNEL_FIELDS = ("name", "mean_s", "gap_s", "count", "grid", "block")
OPTIONAL_KERNEL_FIELDS = tuple(each.name for each in fields_of(KernelStat) if each.name not in _FIRST_KERNEL_FIELDS)
OPTIONAL_COLUMNS = frozenset((*OPTIONAL_JOB_COLUMNS, *OPTIONAL_KERNEL_FIELDS, "family", "measured_at_s", "important"))
MEMORY_COLUMNS = tuple(each.name for each in fields_of(JobProfile) if each.name.endswith("_bytes"))


def record_schema(record_type: Any, **derived: type) -> Any:
    """Return the schema of a file with one row per record; `derived` are further columns and their types."""
    return _versioned(_columns(record_type) | {name: _arrow_type(kind) for name, kind in derived.items()})


def jobs_schema() -> Any:
    """Return the schema of `jobs.parquet`: one row per JobProfile, the facts of a job from one source."""
    return record_schema(JobProfile)


def measurements_schema(record_type: type[PairMeasurement] | type[GroupMeasurement]) -> Any:
    """Return the schema of `pairs.parquet` or `groups.parquet`: one row per measured slowdown of a victim.

    A self pair is one row. `company` of a group lists two or more neighbours of the victim, sorted, a workload as often
    as it runs there.
    """
    columns = list(_columns(record_type).items())
    columns.insert([name for name, _ in columns].index("measured_at_s") + 1, ("feasible", _arrow_type(bool)))
    return _versioned(dict(columns))


def raw_schema(*, groups: bool = False) -> Any:
    """Return the schema of `raw.parquet`, or that of `raw_groups.parquet`: one row per side of a measured block.

    Refused blocks have rows too. Every slowdown is computed from these; `slices` is their number.
    """
    import pyarrow as pa

    beside = {"company": pa.list_(pa.string())} if groups else {"neighbour": pa.string(), "important": pa.string()}
    of_block, of_side = _columns(MeasuredBlock), _columns(BlockSide)
    for name in ("sides", "mode"):
        del of_block[name]
    del of_side["workload"]
    return _versioned({"victim": pa.string(), **beside, **of_block, **of_side, "slices": pa.int32()})


def _columns(record_type: Any) -> dict[str, Any]:
    """Return the Arrow type of each field of a record type, by the field's name."""
    import pyarrow as pa

    columns = {}
    for each in fields_of(record_type):
        kind = _arrow_type(each.type)
        columns[each.name] = kind if each.collection is None else pa.list_(kind)
    return columns


def _arrow_type(kind: Any) -> Any:
    """Return the Arrow type of one value: a struct for a record, text for a member of an enum."""
    import pyarrow as pa

    if is_record(kind):
        return pa.struct(list(_columns(kind).items()))
    return {float: pa.float64(), int: pa.int32(), bool: pa.bool_()}.get(kind, pa.string())


def _versioned(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.schema(list(columns.items()), metadata={SCHEMA_VERSION_KEY: str(SCHEMA_VERSION).encode()})
