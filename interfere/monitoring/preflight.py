"""Whether the options fit what is recorded: labels that exist, and a progress of jobs on devices that only rises.

A wrong name, labels that join nothing, and a gauge in place of a counter all give an audit full of numbers, and a
server full of observations; they would be about something else. Law: a counter whose jobs restart, are renamed or
stand still is a counter.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.errors import InvalidInputError
from interfere.monitoring.dcgm import NO_STEPS
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import DEVICE_LABELS, SiteLabels

# A counter falls when its process begins again. A gauge falls about as often as it rises.
MAX_FALLING = 0.1  # share of falls in the changes of a counter
MIN_CHANGES = 10  # below it a few restarts could be most of the changes
# Names of counters of time or energy, by Prometheus' rule that a name ends in its unit: they rise whether or not a job
# gets on.
NO_WORK = re.compile(r".*_(seconds|milliseconds|ms|joules|millijoules|mj)(_total|_sum)?")
CLOCK_RATES = (1e-3, 1.0, 1e3, 1e6, 1e9)  # per second, of counters of time in any unit
CLOCK_SERIES = 3  # of such a rate and of no other: fewer may be jobs of one step a second
CLOCK_ERROR = 0.005  # of the rate, by scrapes that are late
MIN_ONES = 0.95  # share of rises by one from sample to sample in a counter of the scrapes themselves
# Windows of two workloads side by side in which both have one rate: time has, or a counter of the whole site.
EQUAL_RATES = 0.03  # of the rate
MIN_COMPARED, MIN_EQUAL = 10, 0.9  # windows, and the share of them
MIN_FASTER = 3  # slowdowns below 1 of an expression, and more than those above 1: it tells seconds per step
MIN_RATE_CHANGES = 100  # of an expression: steps per second fall about as often as they rise
SHOWN = 3  # series shown as examples of labels


class PreflightError(InvalidInputError):
    """An option names nothing that is recorded, or the wrong thing. The command is a wrong one: it ends with status
    2."""

    exit_status = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressCounts:
    """What was seen of the progress series of a span of time; sums over spans."""

    series: int = 0
    joined: int = 0  # series of exactly one job on a device
    rises: int = 0  # from one sample to the next
    falls: int = 0
    clocks: int = 0  # joined series with the rate of a clock
    others: int = 0  # joined series with another rate
    unjoined: tuple[str, ...] = ()  # labels of some series that belong to no job on a device

    def __add__(self, other: "ProgressCounts") -> "ProgressCounts":
        return ProgressCounts(
            series=self.series + other.series,
            joined=self.joined + other.joined,
            rises=self.rises + other.rises,
            falls=self.falls + other.falls,
            clocks=self.clocks + other.clocks,
            others=self.others + other.others,
            unjoined=(*self.unjoined, *other.unjoined)[:SHOWN],
        )

    @property
    def changes(self) -> int:
        """The number of rises and falls."""
        return self.rises + self.falls

    @property
    def unjoined_frac(self) -> float:
        """The share of the series that belong to no job on a device, or to several; 0 without any series."""
        return 1 - self.joined / self.series if self.series else 0.0

    @property
    def falling(self) -> float:
        """The share of falls in all changes; 0 without any."""
        return self.falls / self.changes if self.falls else 0.0


def count_progress(joined: Sequence[SampleSeries], unjoined: Sequence[SampleSeries]) -> ProgressCounts:
    """Return the counts of the progress series of a span of time, by whether they belong to a job on a device."""
    changes = [np.diff(each.values) for each in joined]
    clocks = [_is_clock(each) for each in joined if len(each.values) > MIN_CHANGES]
    return ProgressCounts(
        series=len(joined) + len(unjoined),
        joined=len(joined),
        rises=sum(int((change > 0).sum()) for change in changes),
        falls=sum(int((change < 0).sum()) for change in changes),
        clocks=sum(clocks),
        others=len(clocks) - sum(clocks),
        unjoined=tuple(_labels(each) for each in unjoined[:SHOWN]),
    )


def check_labels(settings: MonitoringSettings, device_label_names: Collection[str]) -> None:
    """Raise PreflightError where `--by` or `--same-label` names a label that no device series carries.

    A source without any device series, and so without `device_label_names`, is not judged.
    """
    missing = SiteLabels(settings, device_label_names).missing_labels(device_label_names)
    if device_label_names and missing:
        raise PreflightError(
            "no series of a device has this label",
            value=", ".join(missing),
            remedy=f"name one of {', '.join(sorted(set(device_label_names) - DEVICE_LABELS)) or 'UUID, gpu'}",
        )


def check_progress(counts: ProgressCounts, settings: MonitoringSettings, job_labels: str) -> None:
    """Raise PreflightError where the named progress cannot be what jobs did. `job_labels`: those of one job's device
    series, for the text."""
    if not settings.progress:
        return
    name = settings.progress.partition("{")[0]
    if settings.progress_is_counter and (re.fullmatch(NO_STEPS, name) or NO_WORK.fullmatch(name.lower())):
        raise PreflightError(
            "this counts no work of a job, but time, energy or what an exporter tells of every process",
            value=settings.progress,
            remedy="name a counter of steps, samples, tokens or requests; if this is one: 'rate(NAME[1m])'",
        )
    if not counts.series:
        raise PreflightError(
            "nothing was recorded under this name", value=settings.progress, remedy="name a counter of the jobs' steps"
        )
    if not counts.joined:
        raise PreflightError(
            f"none of its {counts.series} series belongs to a job on a device",
            value=f"{settings.progress}{{{counts.unjoined[0] if counts.unjoined else ''}}}, jobs: {{{job_labels}}}",
            remedy="say which labels name the same job: --same-label label-of-DCGM=label-of-the-counter",
        )
    if not counts.changes:
        raise PreflightError(
            "it never changes", value=settings.progress, remedy="name a counter that rises with every step"
        )
    if settings.progress_is_counter and counts.clocks >= CLOCK_SERIES and not counts.others:
        raise PreflightError(
            f"this counts time or scrapes: it rises as a clock does in all {counts.clocks} series",
            value=settings.progress,
            remedy="name a counter of steps, samples, tokens or requests",
        )
    if settings.progress_is_counter and counts.changes >= MIN_CHANGES and counts.falling > MAX_FALLING:
        raise PreflightError(
            f"this is no counter: it falls in {counts.falling:.0%} of its changes",
            value=settings.progress,
            remedy="name a counter of steps; a gauge of steps per second is an expression, such as 'avg by (namespace, "
            "pod) (steps_per_second)'",
        )
    if not settings.progress_is_counter and counts.changes >= MIN_RATE_CHANGES and counts.falling < MAX_FALLING:
        raise PreflightError(
            f"these are no steps per second: it falls in {counts.falling:.0%} of its changes only, as a counter does",
            value=settings.progress,
            remedy="take its rate, such as 'sum by (namespace, pod) (rate(steps_total[1m]))'",
        )


def check_slowdowns(settings: MonitoringSettings, *, faster: int, slower: int) -> None:
    """Raise PreflightError where an expression shows jobs that are faster in company: time per step does so.

    `faster` and `slower` are the numbers of slowdowns whose interval lies below 1 and above 1.
    """
    if not settings.progress_is_counter and faster >= MIN_FASTER and faster > slower:
        raise PreflightError(
            f"these are no steps per second: {faster} slowdowns are below 1, and {slower} above",
            value=settings.progress,
            remedy="seconds per step are '1 / (...)' steps per second",
        )


def check_rates(settings: MonitoringSettings, ratios: Sequence[float], workloads: int) -> None:
    """Raise PreflightError where different workloads have the same rate whenever they are side by side.

    `ratios` of the rates of two workloads in one window; `workloads` that were compared. Two workloads alone may go in
    step, as the parts of one program do.
    """
    equal = sum(abs(ratio - 1) < EQUAL_RATES for ratio in ratios)
    if len(ratios) >= MIN_COMPARED and workloads >= CLOCK_SERIES and equal >= MIN_EQUAL * len(ratios):
        raise PreflightError(
            f"this counts no work of single jobs: two workloads side by side have one rate in {equal} of {len(ratios)} "
            "windows",
            value=settings.progress,
            remedy="name a counter of steps, samples, tokens or requests that every job counts for itself",
        )


def _is_clock(series: SampleSeries) -> bool:
    """Return whether most rises of a series are those of a clock in some unit, or by one a scrape: of a counter of
    requests in a job that answers nobody but Prometheus."""
    rises = np.diff(series.values)
    rate = float(np.median(rises / np.diff(series.times_s)))
    return bool(np.mean(rises == 1) >= MIN_ONES) or any(abs(rate / clock - 1) < CLOCK_ERROR for clock in CLOCK_RATES)


def _labels(series: SampleSeries) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in sorted(series.labels.items()) if name != "__name__")
