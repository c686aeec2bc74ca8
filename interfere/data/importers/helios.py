"""Job traces of SenseTime's Helios clusters (Hu et al., SC 2021) and of Lucid's evaluation on their Venus cluster.

One CSV row a submission: `job_id, user, vc, gpu_num, state, submit_time, duration`; Lucid's adds `dataset, model,
batchsize, amp`, which name a configuration of its pairs. `vc_config.csv` gives the nodes of each virtual cluster.
"""

from datetime import UTC, datetime
from pathlib import Path

from interfere.data.importers.import_result import Fate, Imported, Notice, notices, unsorted
from interfere.data.importers.lucid import workload
from interfere.data.importers.strict_reading import CsvFile, Row, read_csv
from interfere.data.traces import JobTrace, TraceCluster, TraceJob

COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
CONFIGURATION = ("dataset", "model", "batchsize", "amp")
GPUS_PER_NODE = 8  # Helios, SC 2021, table 1: Venus has 133 nodes and 1,064 GPUs
TIME = "%Y-%m-%d %H:%M:%S"
FACTS = (
    "arrival_s counts from the first submission; submit_time is read as UTC, the file names no zone",
    "duration_s is the run time, queueing excluded; ties of arrival keep the order of the file",
    "jobs that were cancelled or failed ran as long as it says: they are kept, with their status",
)


def import_helios(
    path: Path, *, vc_config: Path | None = None, gpus_per_node: int = GPUS_PER_NODE, name: str = "helios"
) -> Imported:
    """The trace. Raises TableError that names file, row and column."""
    file = read_csv(path, COLUMNS)
    named = all(column in file.columns for column in CONFIGURATION)
    config = read_csv(vc_config, ("vc", "num")) if vc_config else None
    clusters = _clusters(config, gpus_per_node) if config else ()
    arrivals = {row.row: _time(row) for row in file.rows}
    on_gpus = [row for row in file.rows if row.whole("gpu_num")]
    start_s = min((arrivals[row.row] for row in on_gpus), default=0.0)
    ids: set[str] = set()
    jobs = []
    for row in on_gpus:
        if row.text("job_id") in ids:
            row.fail("job_id", "a second row of this job", "keep one of the two rows")
        ids.add(row.text("job_id"))
        jobs.append(_job(row, arrivals[row.row] - start_s, named=named))
    arrived = [job.arrival_s for job in jobs]
    capacity = {cluster.vc: cluster.nodes * cluster.gpus_per_node for cluster in clusters}
    return Imported(
        kind="helios",
        files=(file.source, *((config.source,) if config else ())),
        facts=FACTS,
        trace=JobTrace(
            name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)), start_s=start_s, clusters=clusters
        ),
        notices=notices(
            Notice(
                fate=Fate.DROPPED,
                what="jobs without a GPU",
                count=len(file.rows) - len(on_gpus),
                why="they share no device",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="jobs without a named configuration",
                count=0 if named else len(jobs),
                why=f"the file lacks {', '.join(CONFIGURATION)}: `workload` is empty",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="jobs in the same second as an earlier one",
                count=len(jobs) - len(set(arrived)),
                why="their order is that of the file; it moves first-come-first-served by per cents",
            ),
            unsorted(arrived),
            Notice(
                fate=Fate.FLAGGED,
                what="jobs of a virtual cluster that the configuration lacks",
                count=sum(job.vc not in capacity for job in jobs) if clusters else 0,
                why="no devices are known for them",
            ),
            Notice(
                fate=Fate.FLAGGED,
                what="jobs that ask for more devices than their virtual cluster has",
                count=sum(job.gpus > capacity.get(job.vc, job.gpus) for job in jobs),
                why="they never fit as configured",
            ),
            Notice(
                fate=Fate.DROPPED,
                what=f"columns: {', '.join(file.unread(*COLUMNS, *CONFIGURATION))}",
                count=len(file.unread(*COLUMNS, *CONFIGURATION)),
                why="not part of a trace",
            ),
        ),
    )


def _job(row: Row, arrival_s: float, *, named: bool) -> TraceJob:
    return TraceJob(
        job_id=row.text("job_id"),
        workload=workload(row) if named else "",
        arrival_s=arrival_s,
        gpus=row.whole("gpu_num", low=1),
        duration_s=row.number("duration", low=0.0),
        user=row.text("user"),
        vc=row.text("vc"),
        status=row.text("state").lower(),
    )


def _time(row: Row) -> float:
    try:
        return datetime.strptime(row.fields["submit_time"], TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        row.fail("submit_time", "a time such as 2020-09-01 00:14:58 expected", "give year-month-day hour:minute:second")


def _clusters(config: CsvFile, gpus_per_node: int) -> tuple[TraceCluster, ...]:
    clusters: dict[str, TraceCluster] = {}
    for row in config.rows:
        vc = row.text("vc")
        if vc in clusters:
            row.fail("vc", "a second row of this virtual cluster", "keep one of the two rows")
        clusters[vc] = TraceCluster(vc=vc, nodes=row.whole("num", low=1), gpus_per_node=gpus_per_node)
    return tuple(clusters.values())
