"""The runs of jobs on devices, and the windows of time in which the co-located jobs did not change.

A run is cut where a co-located job comes or goes, and at whole multiples of `report_every_s`, but not just after a
cut: a short job stays whole. Schedulers write times in whole seconds, so a second is left out beside every start and
end of a co-located job; the job's own marks tell when it began and ended. Steps are counted between the first and the
last mark in a window. Where a co-located job marks steps too, only the time between its marks counts: a job that
still loads its data slows no other job down.

Law: the id of a window always stands for the same content, so an adapter that restarts reports nothing twice.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from interfere.errors import InvalidInputError
from interfere.progress import Mark
from interfere.records import Progress
from interfere.sharing_modes import SharingMode

GUARD_S = 1.0  # times at which others start and end are cut to whole seconds


class AdvisedJob(Protocol):
    """The properties that a round reads from a scheduler's own record of a job."""

    @property
    def id(self) -> str:
        """The job's id in decisions."""

    @property
    def workload(self) -> str:
        """The name of the workload, as the user of the job gave it; empty where the user gave none."""

    @property
    def run_id(self) -> str:
        """The prefix of the ids of the job's windows. It differs after each restart of the job."""

    @property
    def history_id(self) -> str:
        """The prefix of the ids of the job's outcomes."""


J = TypeVar("J", bound=AdvisedJob)


@dataclass(frozen=True, slots=True)
class Place:
    """One device, as windows name it. Without a known `device_type`, no progress on it is measured."""

    device_id: str
    device_type: str = ""
    mode: SharingMode = SharingMode.TIMESLICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[J]):
    """One run of a job as the scheduler shows it now. Unix seconds; `end_s` is infinite while it runs.

    Schedulers forget the device of a job when it ends. `places` is empty then, and the device is taken from an earlier
    round, else from `noted_places`. Where nobody knows the device, the job may be on any of `possible_places`.
    """

    job: J
    start_s: float
    end_s: float
    places: tuple[Place, ...]
    noted_places: tuple[Place, ...] = ()
    possible_places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency(Generic[J]):
    """One run of one job on one device. Unix seconds; `end_s` is infinite while it runs."""

    job: J
    place: Place
    start_s: float
    end_s: float = math.inf
    is_certain: bool = True  # else the job may have been on another device

    @property
    def workload(self) -> str:
        """The workload that certainly ran there; empty where it is unknown."""
        return self.job.workload if self.is_certain else ""


class Residencies(Generic[J]):
    """Remembers the residencies of all runs seen so far, as long as windows may be cut from them."""

    def __init__(self, lookback_s: float) -> None:
        self._lookback_s = lookback_s
        self._residencies: dict[str, tuple[Residency[J], ...]] = {}

    def see(self, runs: Iterable[Run[J]], now_s: float) -> None:
        """Take in all runs of one moment. A run that was seen before, had not ended, and is missing now counts as
        ended now."""
        current: dict[str, tuple[Residency[J], ...]] = {}
        for run in runs:
            earlier = tuple(
                residency.place for residency in self._residencies.get(run.job.run_id, ()) if residency.is_certain
            )
            places = run.places or earlier or run.noted_places
            residencies = tuple(
                Residency(job=run.job, place=place, start_s=run.start_s, end_s=run.end_s, is_certain=bool(places))
                for place in places or run.possible_places
            )
            if residencies:
                current[run.job.run_id] = residencies
        for run_id, residencies in self._residencies.items():
            if run_id not in current:
                current[run_id] = tuple(
                    replace(residency, end_s=min(residency.end_s, now_s)) for residency in residencies
                )
        oldest_s = now_s - self._lookback_s
        self._residencies = {
            run_id: residencies for run_id, residencies in current.items() if residencies[0].end_s > oldest_s
        }

    def all(self) -> tuple[Residency[J], ...]:
        """Return all residencies that are remembered."""
        return tuple(residency for residencies in self._residencies.values() for residency in residencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRules:
    """The rules by which runs are cut into windows."""

    report_every_s: float  # a longer co-location is reported in parts
    least_window_s: float  # shortest time between two marks from which steps are counted
    lookback_s: float  # older windows are not reported
    settle_s: float  # marks reach the adapter at most so late
    max_company: float = math.inf  # co-located jobs of a window that is reported

    @property
    def lead_s(self) -> float:
        """The time after a change of company in which no window is cut, so that a short co-location stays whole."""
        return 2 * GUARD_S + self.least_window_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationWindow(Generic[J]):
    """A part of one residency in which the co-located jobs did not change."""

    residency: Residency[J]
    start_s: float
    end_s: float
    company: tuple[Residency[J], ...]

    def observation_id(self, prefix: str) -> str:
        """Return the id of the observation that the window becomes. It is the same after a restart of the adapter."""
        return f"{prefix}/{self.residency.job.run_id}/{self.start_s:.0f}"


def colocation_windows(
    residencies: Sequence[Residency[J]], rules: WindowRules, now_s: float
) -> tuple[ColocationWindow[J], ...]:
    """Return all windows that are complete, recent enough, and of which all co-located jobs are known.

    A job on several devices has no windows.
    """
    devices_of = Counter(residency.job.run_id for residency in residencies)
    on_device: dict[str, list[Residency[J]]] = {}
    for residency in residencies:
        on_device.setdefault(residency.place.device_id, []).append(residency)
    windows: list[ColocationWindow[J]] = []
    for residency in residencies:
        if residency.workload and devices_of[residency.job.run_id] == 1:
            others = [each for each in on_device[residency.place.device_id] if each.job.run_id != residency.job.run_id]
            windows += _windows_of_residency(residency, others, rules, now_s)
    return tuple(windows)


def _windows_of_residency(
    residency: Residency[J], others: Sequence[Residency[J]], rules: WindowRules, now_s: float
) -> Iterator[ColocationWindow[J]]:
    end_s, every_s, oldest_s = min(residency.end_s, now_s), rules.report_every_s, now_s - rules.lookback_s
    grid = range(math.ceil(max(residency.start_s, oldest_s) / every_s), math.floor(end_s / every_s) + 1)
    others_s = {t for each in others for t in (each.start_s, each.end_s)}
    changes = {residency.start_s, end_s, *others_s}
    for since, until in pairwise(sorted(t for t in changes if residency.start_s <= t <= end_s)):
        cuts = [k * every_s for k in grid if since + rules.lead_s < k * every_s < until]
        for start, end in pairwise([since, *cuts, until]):
            still_open = end == now_s and residency.end_s > now_s
            is_old = start < oldest_s + rules.lead_s  # an adapter that started later may not know the change before it
            begin_s, until_s = start + GUARD_S * (start in others_s), end - GUARD_S * (end in others_s)
            if still_open or end > now_s - rules.settle_s or is_old or until_s <= begin_s:
                continue
            company = tuple(each for each in others if each.start_s < end and each.end_s > start)
            if all(each.workload for each in company) and len(company) <= rules.max_company:
                yield ColocationWindow(residency=residency, start_s=begin_s, end_s=until_s, company=company)


class MarkSource(Protocol[J]):
    """A source of progress marks: each mark states how many steps a job has made by some time."""

    def marks(self, residency: Residency[J], now_s: float) -> Sequence[Mark]:
        """Return the recent marks of a residency, oldest first; none where nothing is known."""

    def complete_until_s(self, now_s: float) -> float:
        """Return the time up to which all marks were read. A window that ends later is not measured yet."""


class CombinedMarks(Generic[J]):
    """Several mark sources as one. For each residency, the first source with any marks counts. Implements
    MarkSource."""

    def __init__(self, *sources: MarkSource[J]) -> None:
        self._sources = sources

    def marks(self, residency: Residency[J], now_s: float) -> Sequence[Mark]:
        """Return the marks of a residency from the first source that has any."""
        return next(filter(None, (source.marks(residency, now_s) for source in self._sources)), ())

    def complete_until_s(self, now_s: float) -> float:
        """Return the time until which the marks of all sources are complete; now where there is no source."""
        return min((source.complete_until_s(now_s) for source in self._sources), default=now_s)


def progress(
    window: ColocationWindow[J], source: MarkSource[J], rules: WindowRules, prefix: str, now_s: float
) -> Progress | None:
    """Return the progress of the job in the window; None where it has too few marks.

    The processes of one job step together, so the writer with the most steps represents the job.
    """
    begin_s, end_s, place = window.start_s, window.end_s, window.residency.place
    if company_marks := [mark for each in window.company for mark in source.marks(each, now_s)]:
        times_s = [mark.unix_s for mark in company_marks if begin_s <= mark.unix_s <= end_s]
        begin_s, end_s = (times_s[0], times_s[-1]) if times_s else (math.inf, -math.inf)
    by_writer: dict[str, list[Mark]] = {}
    for mark in source.marks(window.residency, now_s):
        if begin_s <= mark.unix_s <= end_s:
            by_writer.setdefault(mark.writer, []).append(mark)
    spans = [(marks[-1].steps - marks[0].steps, marks[0], marks[-1]) for marks in by_writer.values()]
    steps, first, last = max(spans, key=lambda span: span[0], default=(0.0, None, None))
    if steps <= 0 or first is None or last is None or last.unix_s - first.unix_s < rules.least_window_s:
        return None
    try:
        return Progress(
            observation_id=window.observation_id(prefix),
            job_id=window.residency.job.id,
            workload=window.residency.workload,
            device_type=place.device_type,
            start_s=first.unix_s,
            end_s=last.unix_s,
            company=tuple(each.workload for each in window.company),
            steps=steps,
            device_id=place.device_id,
            mode=place.mode,
        )
    except InvalidInputError:
        return None
