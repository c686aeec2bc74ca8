"""Imports ParvaGPU's measurements (Lee et al., SC 2024): inference alone and as 1 to 5 copies inside MIG slices.

One file a model; a row gives the compute slices of the MIG instance, the batch size, the number of identical copies
that share the instance under MPS, the throughput of each copy in requests/s and the mean latency in s. A MIG instance
is a device type of its own: instances share nothing. Two copies of one model are a self pair, three to five are a
group: both become rows of the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, dropped, flagged
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.devices.gpus import mig_slice_name
from interfere.errors import TableError
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, GroupMeasurement, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode

COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Throughput", "Latency")
GPU = "a100-80gb"
COMPUTE_SLICES = (1, 2, 3, 4, 7)
INFEASIBLE_REASON = "zero throughput: does not fit or not run"
FORMAT_NOTES = (
    "throughput is that of one copy, in requests/s: step_time_s = batch size / throughput alone, one step is one batch",
    "a MIG instance is a device type: k compute slices of an A100 80 GB; mode mps: copies share it under MPS",
    "two copies: a self pair, three to five: a group; slowdown = throughput alone / throughput of each copy",
    "identical copies only: nothing here says how two different models slow each other down",
    "the latency is batch size / throughput, rounded to ms: not read",
)


class Configuration(NamedTuple):
    """Copies of a model that share one slice, each with requests of one batch size."""

    slice_size: int  # compute units, of 7
    batch: int
    copies: int


def read_model(path: Path) -> tuple[SourceFile, dict[Configuration, tuple[CsvRow, float]]]:
    """Return the file of a model, and the row and the throughput of one copy, in requests/s, of each configuration.

    Raises TableError, which names file, row and column.
    """
    file = read_csv(path, COLUMNS, final_line_end=False)
    found: dict[Configuration, tuple[CsvRow, float]] = {}
    for row in file.rows:
        size = row.integer("Mig instance", low=1)
        if size not in COMPUTE_SLICES:
            row.fail("Mig instance", "no size of a MIG instance", f"one of {', '.join(map(str, COMPUTE_SLICES))}")
        key = Configuration(size, row.integer("Batch size", low=1), row.integer("Workload Number", low=1))
        if key in found:
            problem = f"the same configuration as row {found[key][0].row_number}"
            row.fail("Workload Number", problem, "keep one row")
        found[key] = row, row.number("Throughput", low=0.0)
    return file.source, found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """A model at a batch size on a MIG instance: row and throughput of one copy by number of copies."""

    source: SourceFile
    family: str
    batch_size: int
    device_type: str
    rows: dict[int, tuple[CsvRow, float]] = field(default_factory=dict)

    @property
    def workload(self) -> str:
        """The name of the workload: the model at this batch size."""
        return f"{self.family} inference bs{self.batch_size}"

    def throughput(self, copies: int) -> float:
        """Return the throughput of one of so many copies in requests/s; 0 where it was not measured."""
        return self.rows[copies][1] if copies in self.rows else 0.0


def import_parvagpu(path: Path) -> ImportResult:
    """Import one file, or all of a folder. Raises TableError, which names file, row and column."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise TableError("no CSV file in the folder", value=path, remedy="give the folder with the files of the models")
    sources: list[SourceFile] = []
    found: dict[tuple[str, int, int], _Copies] = {}
    for file in files:
        source, rows = read_model(file)
        sources.append(source)
        for (size, batch, copies), row in rows.items():
            name = mig_slice_name(GPU, size)
            new = _Copies(source=source, family=file.stem, batch_size=batch, device_type=name)
            found.setdefault((file.stem, batch, size), new).rows[copies] = row
    alone = [each for each in found.values() if each.throughput(1) > 0]
    jobs = [
        JobProfile(
            workload=each.workload,
            device_type=each.device_type,
            step_time_s=each.batch_size / each.throughput(1),
            source="parvagpu",
            family=each.family,
        )
        for each in alone
    ]
    pairs = [PairMeasurement(neighbour=each.workload, **_shared_columns(each, 2)) for each in alone if 2 in each.rows]
    groups = [
        GroupMeasurement(company=(each.workload,) * (copies - 1), **_shared_columns(each, copies))
        for each in alone
        for copies in sorted(each.rows)
        if copies > 2
    ]
    return ImportResult(
        source_format="parvagpu",
        files=tuple(sources),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs),
        pairs=tuple(pairs),
        groups=tuple(groups),
        notices=tuple(_notices(list(found.values()), pairs, groups)),
    )


def _shared_columns(configuration: _Copies, copies: int) -> dict[str, Any]:
    """Return the columns that describe one copy beside the other copies, whatever their number."""
    row, shared = configuration.rows[copies]
    slowdown = configuration.throughput(1) / shared if shared else NAN
    if shared and not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
        problem = f"a slowdown of {slowdown:.3g}, outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
        row.fail("Throughput", problem, "check this throughput and the one of a single copy")
    return {
        "victim": configuration.workload,
        "device_type": configuration.device_type,
        "mode": SharingMode.MPS,
        "slowdown": slowdown,
        "passes": (slowdown,) if shared else (),
        "status": PairStatus.OK if shared else PairStatus.INFEASIBLE,
        "reason": "" if shared else INFEASIBLE_REASON,
        "source": "parvagpu",
        "campaign": f"parvagpu@{configuration.source.sha256[:12]}",
    }


def _notices(found: list[_Copies], pairs: list[PairMeasurement], groups: list[GroupMeasurement]) -> Iterator[Notice]:
    """Return the notices on infeasible, unexpected and dropped rows."""
    repeated = [
        f"{each.workload} on {each.device_type}"
        for each in found
        if any(rate > 0 and rate == each.throughput(copies - 1) for copies, (_, rate) in each.rows.items())
    ]
    without_solo = [each for each in found if not each.throughput(1) > 0]
    infeasible = sum(not group.feasible for group in groups)
    below_one = sum(pair.slowdown < 1 for pair in pairs) + sum(group.slowdown < 1 for group in groups)
    yield flagged(sum(not pair.feasible for pair in pairs), "infeasible self pairs", INFEASIBLE_REASON)
    yield flagged(infeasible, "infeasible groups of three to five copies", INFEASIBLE_REASON)
    yield flagged(
        below_one,
        "self pairs and groups with a slowdown below 1",
        "copies faster than one: noise of a single run",
    )
    yield flagged(
        len(repeated),
        "configurations in which one more copy has exactly the same throughput",
        f"copied, not measured: {'; '.join(repeated)}",
    )
    yield dropped(
        sum(len(each.rows) for each in without_solo),
        "rows of configurations without a throughput alone",
        f"a slowdown needs the time alone: {len(without_solo)} configurations",
    )
