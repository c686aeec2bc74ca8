"""One audit: reads a span of time cell by cell, and says what each pair and each workload lost by sharing.

Lost job-hours of a victim = hours in company · (1 - 1 / slowdown): the progress alone that it did not make. A slowdown
is measured, predicted from other pairs of the site, or unknown; an unknown one costs nothing here and is counted apart.
Law: nothing is written to what is read.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from interfere.errors import UnfitError
from interfere.monitoring.audit.advice import WEEK_S, NextPair, Separation, choose_separations, next_pairs
from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns, Origin, PairCost, VictimCost
from interfere.monitoring.audit.slowdowns import Company, EpisodeLog, SlowdownEstimate, estimate_slowdowns
from interfere.monitoring.company_windows import read_span
from interfere.monitoring.naming_hints import naming_hint
from interfere.monitoring.preflight import ProgressCounts, check_labels, check_progress, check_rates, check_slowdowns
from interfere.monitoring.reading import NotMeasured, SharedTime, SiteReading, read_cell
from interfere.monitoring.samples import SampleSource
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from interfere.records import NAN

HOUR_S = 3600.0
VictimKey = tuple[str, str, Company]  # device type, victim, company
HIDDEN_SHARE = 0.2  # of the counters' series: so many belong to no job where an exporter names one job a device
LOAD_SD = 0.10  # of log rate in one company: above it, input or load moves the rate as much as most neighbours do


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """The cost of sharing to one workload on one device type."""

    workload: str
    device_type: str
    alone_hours: float
    shared_hours: float
    lost_hours: float  # in companies whose slowdown is known
    lost_lower: float
    lost_upper: float
    unknown_hours: float  # in companies whose slowdown is not known
    jobs: int
    noise_sd: float  # of log rate in one company; NaN where not estimated

    DERIVED: ClassVar = ("moved_by_load",)

    @property
    def moved_by_load(self) -> bool:
        """Whether the rate varies so much beside the same neighbours that load or input confounds the slowdowns."""
        return self.noise_sd > LOAD_SD

    @property
    def is_any_known(self) -> bool:
        """Whether the cost of some of its hours in company is known, or it never had company."""
        return self.unknown_hours < self.shared_hours or self.shared_hours == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The cost of sharing devices at a site over a span of time."""

    start_s: float
    end_s: float
    devices: int
    jobs: int
    counted_jobs: int  # with a rate of steps in some window
    busy_hours: float  # device-hours with a job
    shared_hours: float  # device-hours with several
    series: int  # the most of one cell
    windows: int
    pairs: tuple[PairCost, ...]  # the worst first
    groups: tuple[VictimCost, ...]  # workloads beside several others, the most hours first
    workloads: tuple[WorkloadCost, ...]  # the largest loss first
    estimates: tuple[SlowdownEstimate, ...]
    separations: tuple[Separation, ...]  # to be made in this order
    next_pairs: tuple[NextPair, ...]
    not_measured: tuple[tuple[NotMeasured, int], ...]  # sides of windows
    left_out: tuple[tuple[str, int], ...]  # series, over all cells
    progress: str  # what counted steps; empty where nothing did
    hint: str
    hides_sharing: bool  # no device was shared, and counters of many jobs belong to none on a device
    shared_times: tuple[SharedTime, ...]  # in order of time on each device

    @property
    def lost_hours(self) -> float:
        """The job-hours lost in companies whose slowdown is known."""
        return sum(each.lost_hours for each in self.workloads)

    @property
    def weeks(self) -> float:
        """The length of the audited time."""
        return (self.end_s - self.start_s) / WEEK_S

    def facts(self) -> dict[str, Any]:
        """Return the report as a mapping for programs, without the times of single jobs."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "shared_times"}
        return values | {"lost_hours": self.lost_hours, "weeks": self.weeks}


class AuditSums:
    """Running sums over the cells that an audit has read."""

    def __init__(self) -> None:
        self.episodes = EpisodeLog()
        self._seconds: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)  # by (device type, workloads)
        self._workload_of: dict[str, str] = {}
        self._counted: set[str] = set()  # ids of jobs with a rate of steps in some window
        self._shared: dict[str, list[SharedTime]] = defaultdict(list)  # by device id
        self._rate_ratios: list[float] = []  # of two workloads in one window
        self._compared: set[str] = set()
        self._recurring: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        self._progress = ProgressCounts()
        self._series = 0

    def add(self, reading: SiteReading) -> None:
        """Add the windows and the shared time of a cell to the sums."""
        self.episodes.add(reading.windows)
        for window in reading.windows:
            self._counted |= {each.job.id for each in window.jobs if each.measured is not None}
            rates = {each.job.workload: each.measured.rate for each in window.jobs if each.measured is not None}
            if len(rates) == len(window.jobs) == 2:
                first, second = rates.values()
                self._rate_ratios.append(first / second)
                self._compared |= rates.keys()
        for shared in reading.shared:
            self._seconds[shared.device.type, shared.workloads] += shared.seconds
            before = self._shared[shared.device.id]
            if before and (before[-1].jobs, before[-1].end_s) == (shared.jobs, shared.start_s):  # cut by a cell
                before[-1] = replace(before[-1], end_s=shared.end_s)
            else:
                before.append(shared)
        self._workload_of |= reading.workload_of
        self._recurring |= dict(reading.recurring_labels)
        self._left_out += reading.left_out
        self._progress += reading.progress
        self._series = max(self._series, reading.series)

    def report(self, start_s: float, end_s: float, settings: MonitoringSettings) -> AuditReport:
        """Return the report of all cells that were added.

        Raises UnfitError where no job was seen on a device, PreflightError where what counts the jobs' steps is not
        found, joins no job or is no counter.
        """
        if not self._seconds:
            raise UnfitError(
                "no job was seen on any device",
                value=f"{(end_s - start_s) / 3600:.1f} h, {self._series} series",
                remedy="dcgm-exporter must label pods (with shared GPUs: KUBERNETES_VIRTUAL_GPUS=true); else give --by",
            )
        check_progress(self._progress, settings, f"such as {min(self._workload_of)}")
        check_rates(settings, self._rate_ratios, len(self._compared))
        estimates = estimate_slowdowns(self.episodes.episodes())
        faster, slower = (sum(each.upper < 1 for each in estimates), sum(each.lower > 1 for each in estimates))
        check_slowdowns(settings, faster=faster, slower=slower)
        known = KnownSlowdowns(estimates)
        sides = self._sides(known)
        pairs, workloads = self._pairs(sides), self._workloads(sides, estimates)
        hours = {company: seconds / HOUR_S for company, seconds in self._seconds.items()}
        alone_hours = {(each.device_type, each.workload): each.alone_hours for each in workloads}
        groups = sorted((side for side in sides.values() if len(side.company) > 1), key=lambda side: -side.hours)
        hint = naming_hint(self._workload_of, tuple(self._recurring.items()), settings.by)
        shared_hours = sum(each for (_, names), each in hours.items() if len(names) > 1)
        return AuditReport(
            start_s=start_s,
            end_s=end_s,
            devices=len(self._shared),
            jobs=len(self._workload_of),
            counted_jobs=len(self._counted),
            busy_hours=sum(self._seconds.values()) / HOUR_S,
            shared_hours=shared_hours,
            series=self._series,
            windows=self.episodes.windows,
            pairs=pairs,
            groups=tuple(groups),
            workloads=workloads,
            estimates=estimates,
            separations=choose_separations(hours, known),
            next_pairs=next_pairs(pairs, known, alone_hours),
            not_measured=tuple(sorted(self.episodes.not_measured.items())),
            left_out=tuple(sorted(self._left_out.items())),
            progress=settings.progress,
            hint=hint,
            hides_sharing=not shared_hours and self._progress.unjoined_frac > HIDDEN_SHARE,
            shared_times=tuple(each for of_device in self._shared.values() for each in of_device),
        )

    def _sides(self, known: KnownSlowdowns) -> dict[VictimKey, VictimCost]:
        """Return the hours and the slowdown of each workload beside each set of neighbours."""
        hours: dict[VictimKey, float] = defaultdict(float)
        for (device_type, workloads), seconds in self._seconds.items():
            if len(workloads) > 1:
                for k, victim in enumerate(workloads):
                    hours[device_type, victim, workloads[:k] + workloads[k + 1 :]] += seconds / HOUR_S
        return {key: known.cost(*key, each) for key, each in sorted(hours.items())}

    def _pairs(self, sides: Mapping[VictimKey, VictimCost]) -> tuple[PairCost, ...]:
        """Return all pairs that shared a device, in the order of `_rank`."""
        pairs = [
            PairCost(
                device_type=device_type,
                device_hours=seconds / HOUR_S,
                sides=(sides[device_type, names[0], names[1:]], sides[device_type, names[1], names[:1]]),
            )
            for (device_type, names), seconds in self._seconds.items()
            if len(names) == 2
        ]
        return tuple(sorted(pairs, key=_rank))

    def _workloads(
        self, sides: Mapping[VictimKey, VictimCost], estimates: Sequence[SlowdownEstimate]
    ) -> tuple[WorkloadCost, ...]:
        """Return the cost of sharing to each workload on each device type. The workload that lost most comes first."""
        alone: dict[tuple[str, str], float] = defaultdict(float)
        for (device_type, names), seconds in self._seconds.items():
            for name in names:
                alone[device_type, name] += seconds / HOUR_S if len(names) == 1 else 0.0
        jobs = Counter(self._workload_of.values())
        noise = {(each.device_type, each.victim): each.noise_sd for each in estimates}
        costs = []
        for (device_type, workload), alone_hours in alone.items():
            own = [side for (kind, victim, _), side in sides.items() if (kind, victim) == (device_type, workload)]
            known = [side for side in own if side.origin is not Origin.UNKNOWN]
            costs.append(
                WorkloadCost(
                    workload=workload,
                    device_type=device_type,
                    alone_hours=alone_hours,
                    shared_hours=sum(side.hours for side in own),
                    lost_hours=sum(side.lost_hours(side.slowdown) for side in known),
                    lost_lower=sum(side.lost_hours(side.lower) for side in known),
                    lost_upper=sum(side.lost_hours(side.upper) for side in known),
                    unknown_hours=sum(side.hours for side in own if side.origin is Origin.UNKNOWN),
                    jobs=jobs[workload],
                    noise_sd=noise.get((device_type, workload), NAN),
                )
            )
        return tuple(sorted(costs, key=lambda each: (-each.lost_hours, -each.shared_hours, each.workload)))


def _rank(pair: PairCost) -> tuple[float, float, tuple[str, str]]:
    """Return the sort key of a pair: by the lower end of its worst slowdown, with measured pairs before predicted
    ones."""
    lower = pair.worst_side.lower
    measured = any(side.origin is Origin.MEASURED for side in pair.sides)
    return -(lower if measured else 0.0 if math.isnan(lower) else lower / 100), -pair.device_hours, pair.names


def audit(
    source: SampleSource,
    settings: MonitoringSettings,
    start_s: float,
    end_s: float,
    *,
    on_cell: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a span of time. `on_cell` gets the number of cells that are done and the number of all
    cells."""
    label_names = source.device_label_names()
    check_labels(settings, label_names)
    labels = SiteLabels(settings, label_names)
    sums = AuditSums()
    first, last = math.floor(start_s / settings.cell_s), math.floor(end_s / settings.cell_s)
    for k in range(first, last + 1):
        cell = k * settings.cell_s, (k + 1) * settings.cell_s
        low, high = read_span(cell, settings.min_window_s)
        block = source.read(max(low, start_s), min(high, end_s))
        sums.add(read_cell(block, labels, settings, cell))
        if on_cell is not None:
            on_cell(k - first + 1, last - first + 1)
    return sums.report(start_s, end_s, settings)
