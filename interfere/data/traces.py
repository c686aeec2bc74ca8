"""Job traces: the submissions of a real cluster, with arrival, duration and number of devices of each job.

Laws: jobs are in order of arrival, the first one at 0 or later; ties keep the order of the source; an unknown duration
is NaN, never 0; reading what was written gives equal records.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from interfere.data.parquet import read_rows, record_schema, records_of_rows, write_rows
from interfere.errors import InvalidInputError, TableError
from interfere.records import NAN
from interfere.records.checks import check, label_violations, number_violations, text_violations
from interfere.records.documents import to_document

TRACE_FILE, CLUSTERS_FILE = "trace.parquet", "clusters.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job that was submitted to a cluster. `duration_s` is its run time alone on its devices, without queueing."""

    job_id: str
    workload: str  # its name in measurement tables; empty where the source does not say
    arrival_s: float  # after the start of the trace
    gpus: int
    duration_s: float = NAN
    total_steps: float = NAN
    user: str = ""
    vc: str = ""  # virtual cluster: a share of the cluster with its own queue
    status: str = ""  # how it ended, in the words of the source

    def __post_init__(self) -> None:
        violations = text_violations(self, "job_id") + label_violations(self, "workload", "user", "vc", "status")
        violations += number_violations(self, "arrival_s", nan=False)
        violations += number_violations(self, "duration_s", "total_steps")
        check(violations + number_violations(self, "gpus", low=1.0, nan=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCluster:
    """The devices of one type of a virtual cluster: a share of the cluster with its own queue."""

    vc: str
    nodes: int
    gpus_per_node: int
    device_type: str = ""  # empty: that of the slowdowns

    def __post_init__(self) -> None:
        check(
            text_violations(self, "vc")
            + label_violations(self, "device_type")
            + number_violations(self, "nodes", "gpus_per_node", low=1.0, nan=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """The jobs of a trace in order of arrival, and the virtual clusters that the source describes.

    A virtual cluster with devices of several types has one record for each.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    start_s: float = NAN  # unix time of arrival 0
    clusters: tuple[VirtualCluster, ...] = ()

    def __post_init__(self) -> None:
        for previous, job in pairwise(self.jobs):
            if job.arrival_s < previous.arrival_s:
                raise InvalidInputError(
                    "a trace must be in order of arrival", value=job.job_id, remedy="sort the jobs by arrival_s"
                )
        job_ids = [job.job_id for job in self.jobs]
        vcs = [f"{cluster.vc} {cluster.device_type}".rstrip() for cluster in self.clusters]
        for noun, names in (("job", job_ids), ("virtual cluster", vcs)):
            if duplicates := sorted(name for name, count in Counter(names).items() if count > 1):
                raise InvalidInputError(
                    f"a {noun} is in the trace twice", value=duplicates[0], remedy="keep one of the two"
                )


def trace_of_jobs(
    name: str, jobs: Iterable[TraceJob], *, dated: bool, clusters: tuple[VirtualCluster, ...] = ()
) -> JobTrace:
    """Return the trace of jobs in any order; jobs of equal arrival keep their order.

    With `dated`, arrivals are unix times, which become seconds after the first arrival.
    """
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    start_s = ordered[0].arrival_s if ordered and dated else 0.0
    return JobTrace(
        name=name,
        jobs=tuple(replace(job, arrival_s=job.arrival_s - start_s) for job in ordered),
        start_s=start_s if dated else NAN,
        clusters=clusters,
    )


def write_trace(folder: Path, trace: JobTrace) -> None:
    """Write `trace.parquet` and `clusters.parquet` into `folder`, each whole or not at all."""
    start_s = None if math.isnan(trace.start_s) else trace.start_s
    write_rows(folder / CLUSTERS_FILE, list(map(to_document, trace.clusters)), record_schema(VirtualCluster))
    rows = [{**to_document(job), "start_s": start_s} for job in trace.jobs]
    write_rows(folder / TRACE_FILE, rows, trace_schema())


def trace_schema() -> Any:
    """Return the schema of `trace.parquet`: one row per TraceJob, and `start_s` of the whole trace in every row."""
    return record_schema(TraceJob, start_s=float)


def read_trace(folder: Path) -> JobTrace:
    """Return the trace in `folder`. Raises TableError, which names file and row."""
    if not (folder / TRACE_FILE).exists():
        raise TableError(
            f"no trace: {TRACE_FILE} is missing",
            value=folder,
            remedy="import one: interfere data import helios (or philly)",
        )
    rows = read_rows(folder / TRACE_FILE, trace_schema())
    jobs = records_of_rows(folder / TRACE_FILE, rows, TraceJob, derived=("start_s",))
    start_s = NAN if not rows or rows[0]["start_s"] is None else rows[0]["start_s"]
    cluster_rows = read_rows(folder / CLUSTERS_FILE, record_schema(VirtualCluster), optional=("device_type",))
    clusters = records_of_rows(folder / CLUSTERS_FILE, cluster_rows, VirtualCluster)
    try:
        return JobTrace(name=folder.resolve().name, jobs=jobs, start_s=start_s, clusters=clusters)
    except InvalidInputError as error:
        raise TableError(
            f"{TRACE_FILE}: {error.what}", value=f"{error.value} in {folder}", remedy=error.remedy
        ) from None
