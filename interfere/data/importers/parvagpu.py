"""Imports ParvaGPU's measurements (Lee et al., SC 2024): inference alone and as 1 to 5 copies inside MIG slices.

One file a model; a row gives the compute slices of the MIG instance, the batch size, the number of identical copies
that share the instance under MPS, the throughput of each copy in requests/s and the mean latency in s. A MIG instance
is a device type of its own: instances share nothing. Two copies of one model are a self pair, and become a row of the
table. Three and more are no pair: they are kept as extras, since a table has no place for groups yet.
"""

from dataclasses import dataclass, field
from pathlib import Path

from interfere.data.extra_facts import ExtraFact
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment, nonempty_notices
from interfere.data.importers.strict_reading import CsvRow, read_csv
from interfere.devices.mig import mig_slice_name
from interfere.errors import TableError
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, JobProfile, PairMeasurement, PairStatus

COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Throughput", "Latency")
GPU = "a100-80gb"
COMPUTE_SLICES = (1, 2, 3, 4, 7)
INFEASIBLE_REASON = "zero throughput: does not fit or not run"
FORMAT_NOTES = (
    "throughput is that of one copy, in requests/s: step_time_s = batch size / throughput alone, one step is one batch",
    "a MIG instance is a device type: k compute slices of an A100 80 GB; mode mps: copies share it under MPS",
    "two copies: a self pair, slowdown = throughput alone / throughput of each copy",
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
    """What the rows of one configuration say."""

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
    return ImportResult(
        source_format="parvagpu",
        files=tuple(sources),
        format_notes=FORMAT_NOTES,
        jobs=tuple(jobs),
        pairs=tuple(pairs),
        extras=tuple(_extras(found)),
        notices=_notices(found, ran_alone, pairs),
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
    shared = measured.throughputs[2]
    slowdown = measured.throughputs[1] / shared if shared else NAN
    if shared and not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
        problem = f"a slowdown of {slowdown:.3g}, outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
        measured.rows[2].fail("Throughput", problem, "check this throughput and the one of a single copy")
    return PairMeasurement(
        victim=key.workload,
        neighbour=key.workload,
        device_type=key.device_type,
        mode="mps",
        slowdown=slowdown,
        passes=(slowdown,) if shared else (),
        status=PairStatus.OK if shared else PairStatus.INFEASIBLE,
        reason="" if shared else INFEASIBLE_REASON,
        source="parvagpu",
        campaign=f"parvagpu@{measured.source.sha256[:12]}",
    )


def _extras(found: dict[_Configuration, _Measured]) -> list[ExtraFact]:
    """The throughputs of three and more copies."""
    return [
        ExtraFact(
            workload=key.workload,
            device_type=key.device_type,
            source="parvagpu",
            name=f"throughput of each of {copies} copies, requests/s",
            value=repr(throughput),
        )
        for key, each in found.items()
        for copies, throughput in each.throughputs.items()
        if copies > 2 and throughput > 0
    ]


def _notices(
    found: dict[_Configuration, _Measured],
    ran_alone: dict[_Configuration, _Measured],
    pairs: list[PairMeasurement],
) -> tuple[Notice, ...]:
    groups = [rate for each in found.values() for copies, rate in each.throughputs.items() if copies > 2]
    repeated = [
        f"{key.workload} on {key.device_type}"
        for key, each in found.items()
        if any(rate > 0 and rate == each.throughputs.get(n - 1) for n, rate in each.throughputs.items())
    ]
    return nonempty_notices(
        Notice(
            treatment=Treatment.FLAGGED,
            subject="infeasible self pairs",
            count=sum(not pair.feasible for pair in pairs),
            reason=INFEASIBLE_REASON,
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="self pairs with a slowdown below 1",
            count=sum(pair.slowdown < 1 for pair in pairs),
            reason="two copies faster than one: noise of a single run",
        ),
        Notice(
            treatment=Treatment.FLAGGED,
            subject="configurations in which one more copy has exactly the same throughput",
            count=len(repeated),
            reason=f"copied, not measured: {'; '.join(repeated)}",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="rows of three to five copies, measured",
            count=sum(rate > 0 for rate in groups),
            reason="groups, not pairs: a table has no place for them yet; their throughputs are in extras.parquet",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="rows of three to five copies, zero",
            count=sum(rate == 0 for rate in groups),
            reason=f"groups, not pairs; {INFEASIBLE_REASON}",
        ),
        Notice(
            treatment=Treatment.DROPPED,
            subject="configurations without a throughput alone",
            count=len(found) - len(ran_alone),
            reason="a slowdown needs the time alone",
        ),
    )
