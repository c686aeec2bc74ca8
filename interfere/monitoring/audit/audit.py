"""One audit: reads a span of time cell by cell, and makes the report. Nothing is written to what it reads."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from interfere.errors import UnfitError
from interfere.monitoring.audit.advice import NextPair, Repairing, best_repairing, next_pairs
from interfere.monitoring.audit.episodes import EpisodeLog
from interfere.monitoring.audit.report import (
    PairCost,
    SharedHours,
    Side,
    WorkloadCost,
    effects_by_device,
    pair_costs,
    sides_of,
    workload_costs,
)
from interfere.monitoring.audit.slowdowns import SlowdownEstimate, estimate_slowdowns
from interfere.monitoring.company_windows import read_span
from interfere.monitoring.reading import NotMeasured, SiteReading, read_cell
from interfere.monitoring.samples import SampleSource
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels, naming_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The cost of sharing devices at a site over a span of time."""

    start_s: float
    end_s: float
    devices: int
    jobs: int
    busy_hours: float  # device-hours with a job
    shared_hours: float  # device-hours with several
    series: int  # the most of one cell
    windows: int
    pairs: tuple[PairCost, ...]  # the worst first
    groups: tuple[Side, ...]  # workloads beside several others, the most hours first
    workloads: tuple[WorkloadCost, ...]  # the largest loss first
    estimates: tuple[SlowdownEstimate, ...]
    repairings: tuple[Repairing, ...]
    next_pairs: tuple[NextPair, ...]
    not_measured: tuple[tuple[NotMeasured, int], ...]  # sides of windows
    left_out: tuple[tuple[str, int], ...]  # series, over all cells
    progress: str  # what counted steps; empty where nothing did
    hint: str

    @property
    def lost_hours(self) -> float:
        """Job-hours lost in companies whose slowdown is known."""
        return sum(each.lost_hours for each in self.workloads)


class AuditSums:
    """Running sums over the cells that an audit has read."""

    def __init__(self) -> None:
        self.episodes = EpisodeLog()
        self._seconds: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        self._workload_of: dict[str, str] = {}
        self._devices: set[str] = set()
        self._recurring: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        self._series = 0

    def add(self, reading: SiteReading) -> None:
        """Add the data of one cell to the sums."""
        self.episodes.add(reading.windows)
        for shared in reading.shared:
            self._seconds[shared.device.type, shared.workloads] += shared.seconds
            self._devices.add(shared.device.id)
        self._workload_of |= reading.workload_of
        self._recurring |= dict(reading.recurring_labels)
        self._left_out += reading.left_out
        self._series = max(self._series, reading.series)

    def report(self, start_s: float, end_s: float, settings: MonitoringSettings) -> AuditReport:
        """The report of all cells. Raises UnfitError where no job was seen on a device."""
        if not self._seconds:
            raise UnfitError(
                "no job was seen on any device",
                value=f"{(end_s - start_s) / 3600:.1f} h, {self._series} series",
                remedy="dcgm-exporter must label pods (with shared GPUs: KUBERNETES_VIRTUAL_GPUS=true); else give --by",
            )
        estimates = estimate_slowdowns(self.episodes.episodes())
        shared = SharedHours(seconds=self._seconds, jobs=Counter(self._workload_of.values()))
        sides, effects = sides_of(shared, estimates), effects_by_device(estimates)
        pairs, workloads = pair_costs(shared, sides), workload_costs(shared, sides, estimates)
        alone_hours = {(each.device_type, each.workload): each.alone_hours for each in workloads}
        groups = sorted((side for side in sides.values() if len(side.company) > 1), key=lambda side: -side.hours)
        hint = naming_hint(self._workload_of, tuple(self._recurring.items()), settings.by)
        return AuditReport(
            start_s=start_s,
            end_s=end_s,
            devices=len(self._devices),
            jobs=len(self._workload_of),
            busy_hours=sum(self._seconds.values()) / 3600,
            shared_hours=sum(seconds for (_, names), seconds in self._seconds.items() if len(names) > 1) / 3600,
            series=self._series,
            windows=self.episodes.windows,
            pairs=pairs,
            groups=tuple(groups),
            workloads=workloads,
            estimates=estimates,
            repairings=best_repairing(pairs, sides, effects),
            next_pairs=next_pairs(pairs, sides, effects, alone_hours),
            not_measured=tuple(sorted(self.episodes.not_measured.items())),
            left_out=tuple(sorted(self._left_out.items())),
            progress=settings.progress,
            hint=hint,
        )


def audit(
    source: SampleSource,
    settings: MonitoringSettings,
    start_s: float,
    end_s: float,
    *,
    on_cell: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Audit a span of time. `on_cell` is told how many cells are done, of how many."""
    labels = SiteLabels(settings, source.device_label_names())
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
