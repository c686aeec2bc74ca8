"""Imports ParvaGPU's measurements (Lee et al., SC 2024): inference alone and as 1 to 5 copies inside MIG slices.

One file a model; a row gives the compute slices of the MIG instance, the batch size, the number of identical copies
that share the instance under MPS, the throughput of each copy in requests/s and the mean latency in s. A MIG instance
is a device type of its own: instances share nothing. Two copies of one model are a self pair, three to five are a
group: both become rows of the table.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.devices.mig import mig_slice_name
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """One model at one batch size on one MIG instance."""

    workload: str
    device_type: str


@dataclass(slots=True)
class _Measured:
    """The measured values of one configuration."""

    family: str
    batch_size: int
    source: SourceFile
    rows: dict[int, CsvRow] = field(default_factory=dict)  # by number of copies
    throughputs: dict[int, float] = field(default_factory=dict)  # requests/s of one copy


def import_parvagpu(path: Path) -> ImportResult:
    """Import one file, or all of a folder. Raises TableError, which names file, row and column."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise TableError("no CSV file in the folder", value=path, remedy="give the folder with the files of the models")
    sources: list[SourceFile] = []
    found: dict[_Configuration, _Measured] = {}
    for file in files:
        sheet = read_csv(file, COLUMNS, final_line_end=False)
        sources.append(sheet.source)
        for row in sheet.rows:
            _add_row(row, sheet.source, found)
    ran_alone = {key: each for key, each in found.items() if each.throughputs.get(1, 0.0) > 0}
    jobs = [_profile(key, each) for key, each in ran_alone.items()]
    pairs = [_pair(key, each) for key, each in ran_alone.items() if 2 in each.throughputs]
    groups = [_group(key, each, n) for key, each in ran_alone.items() for n in sorted(each.throughputs) if n > 2]
    return ImportResult(
        source_format="parvagpu",
        files=tuple(sources),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs),
        pairs=tuple(pairs),
        groups=tuple(groups),
        notices=_notices(found, pairs, groups),
    )


def _add_row(row: CsvRow, source: SourceFile, found: dict[_Configuration, _Measured]) -> None:
    compute_slices = row.integer("Mig instance", low=1)
    if compute_slices not in COMPUTE_SLICES:
        row.fail("Mig instance", "no size of a MIG instance", f"one of {', '.join(map(str, COMPUTE_SLICES))}")
    batch_size, copies = row.integer("Batch size", low=1), row.integer("Workload Number", low=1)
    throughput = row.number("Throughput", low=0.0)
    family = row.path.stem
    key = _Configuration(workload=f"{family} inference bs{batch_size}", device_type=mig_slice_name(GPU, compute_slices))
    measured = found.setdefault(key, _Measured(family=family, batch_size=batch_size, source=source))
    if copies in measured.throughputs:
        row.fail("Workload Number", f"the same configuration as row {measured.rows[copies].row_number}", "keep one row")
    measured.rows[copies], measured.throughputs[copies] = row, throughput


def _profile(key: _Configuration, measured: _Measured) -> JobProfile:
    return JobProfile(
        workload=key.workload,
        device_type=key.device_type,
        step_time_s=measured.batch_size / measured.throughputs[1],
        source="parvagpu",
        family=measured.family,
    )


def _pair(key: _Configuration, measured: _Measured) -> PairMeasurement:
    """The self pair of two copies."""
    return PairMeasurement(neighbour=key.workload, **_shared_columns(key, measured, 2))


def _group(key: _Configuration, measured: _Measured, copies: int) -> GroupMeasurement:
    """The group of three or more copies."""
    return GroupMeasurement(company=(key.workload,) * (copies - 1), **_shared_columns(key, measured, copies))


def _shared_columns(key: _Configuration, measured: _Measured, copies: int) -> dict[str, Any]:
    """Return the columns that describe one copy beside the other copies, whatever their number."""
    shared = measured.throughputs[copies]
    slowdown = measured.throughputs[1] / shared if shared else NAN
    if shared and not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
        problem = f"a slowdown of {slowdown:.3g}, outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
        measured.rows[copies].fail("Throughput", problem, "check this throughput and the one of a single copy")
    return {
        "victim": key.workload,
        "device_type": key.device_type,
        "mode": SharingMode.MPS,
        "slowdown": slowdown,
        "passes": (slowdown,) if shared else (),
        "status": PairStatus.OK if shared else PairStatus.INFEASIBLE,
        "reason": "" if shared else INFEASIBLE_REASON,
        "source": "parvagpu",
        "campaign": f"parvagpu@{measured.source.sha256[:12]}",
    }


def _notices(
    found: dict[_Configuration, _Measured], pairs: list[PairMeasurement], groups: list[GroupMeasurement]
) -> tuple[Notice, ...]:
    repeated = [
        f"{key.workload} on {key.device_type}"
        for key, each in found.items()
        if any(rate > 0 and rate == each.throughputs.get(n - 1) for n, rate in each.throughputs.items())
    ]
    without_solo = [each for each in found.values() if not each.throughputs.get(1, 0.0) > 0]
    return nonempty_notices(
        Notice(
            treatment=Treatment.FLAGGED,
            subject="infeasible self pairs",
            count=sum(not pair.feasible for pair in pairs),
            reason=INFEASIBLE_REASON,
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="infeasible groups of three to five copies",
            count=sum(not group.feasible for group in groups),
            reason=INFEASIBLE_REASON,
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="self pairs and groups with a slowdown below 1",
            count=sum(pair.slowdown < 1 for pair in pairs) + sum(group.slowdown < 1 for group in groups),
            reason="copies faster than one: noise of a single run",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="configurations in which one more copy has exactly the same throughput",
            count=len(repeated),
            reason=f"copied, not measured: {'; '.join(repeated)}",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="rows of configurations without a throughput alone",
            count=sum(len(each.throughputs) for each in without_solo),
            reason=f"a slowdown needs the time alone: {len(without_solo)} configurations",
        ),
    )
