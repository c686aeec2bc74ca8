"""The recorded jobs of a site once more, each begun on the device where Match puts it when the job starts."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise, zip_longest

import numpy as np

from interfere.monitoring.audit.advice import MatchReplay, company_change, is_known_company
from interfere.monitoring.audit.audit import AuditReport
from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns
from interfere.monitoring.reading import SharedTime
from interfere.monitoring.site_labels import JobIdentity
from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import decide
from interfere.records import Device, Job, JobProfile, Limits, ScopeLedger, Snapshot
from interfere.sim.beliefs import MatrixPredictor

HOUR_S = 3600.0
MAX_GAP_S = 3600.0  # of monitoring, during which a job that is there before and after was there
MAX_DECISIONS = 2000  # a decision takes some milliseconds
SCRAPE_S = 60.0  # the times of two stretches differ from the truth by less than that


def replay_with_match(report: AuditReport) -> MatchReplay | None:
    """Return what the recorded jobs would have lost if Match had chosen the device of each when the job started.

    A job runs in the time in which it ran, and is not moved; no more GPUs of a type are taken than were in use at that
    moment; Match knows the slowdowns of the report, and that any two jobs fit together. A time whose cost nobody knows
    is left out for the jobs that ran then. Of long times, the newest `MAX_DECISIONS` starts are replayed. None where no
    pair has a known slowdown.
    """
    # 1. The recorded times whose cost is known.
    known = KnownSlowdowns(report.estimates)
    gangs = _jobs_on_several_devices(report.shared_times)
    times = [
        each
        for each in _without_gaps(report.shared_times)
        if not gangs & {job.id for job in each.jobs} and is_known_company(each.device.type, each.workloads, known)
    ]
    stays = _stays(times)
    start_s = sorted((stay.start_s for stay in stays), reverse=True)[: MAX_DECISIONS + 1][-1] if stays else 0.0
    times = [replace(each, start_s=max(each.start_s, start_s)) for each in times if each.end_s > start_s]
    stays = [replace(stay, start_s=max(stay.start_s, start_s)) for stay in stays if stay.end_s > start_s]
    before: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    for each in times:
        before[each.device.type, each.workloads] += each.seconds / HOUR_S
    if not any(len(names) == 2 for _, names in before):
        return None
    # 2. The same stays, each begun where Match puts it.
    replayed = []
    for kind in sorted({stay.device_type for stay in stays}):
        names = sorted({stay.job.workload for stay in stays if stay.device_type == kind})
        replay = _MatchedDevices(kind, names, known)
        replay.run([stay for stay in stays if stay.device_type == kind], _devices_in_use(times, kind))
        replayed.append(replay)
    after = {key: seconds / HOUR_S for each in replayed for key, seconds in each.seconds.items()}
    change, waited_hours = company_change(before, after, known), sum(each.waited_s for each in replayed) / HOUR_S
    used_hours = sum(each.end_s - max(each.start_s, start_s) for each in report.shared_times if each.end_s > start_s)
    return MatchReplay(
        change=replace(change, lost_after=change.lost_after + waited_hours),
        start_s=max(start_s, report.start_s),
        end_s=report.end_s,
        decisions=sum(each.decisions for each in replayed),
        waited_hours=waited_hours,
        left_out_hours=max(0.0, used_hours / HOUR_S - sum(before.values())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stay:
    """A time in which a job was on one device, in company whose cost is known."""

    job: JobIdentity
    device_type: str
    start_s: float
    end_s: float


def _jobs_on_several_devices(times: Sequence[SharedTime]) -> frozenset[str]:
    """Return the ids of the jobs that held several devices at once."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in times:
        for job in each.jobs:
            spans[job.id].append((each.start_s, each.end_s))
    overlaps = {name: pairwise(sorted(of_job)) for name, of_job in spans.items()}
    return frozenset(name for name, of_job in overlaps.items() if any(b[0] < a[1] - SCRAPE_S for a, b in of_job))


def _without_gaps(times: Sequence[SharedTime]) -> Iterator[SharedTime]:
    """Yield the times of each device, each up to the next one; between two of them the jobs of both, where monitoring
    missed more than a scrape and less than `MAX_GAP_S`."""
    for each, later in zip_longest(times, times[1:]):
        gap_s = later.start_s - each.end_s if later is not None and later.device.id == each.device.id else math.inf
        both = tuple(job for job in each.jobs if job in later.jobs) if gap_s <= MAX_GAP_S else ()
        yield replace(each, end_s=later.start_s) if abs(gap_s) <= SCRAPE_S else each
        if both and gap_s > SCRAPE_S:
            yield replace(each, jobs=both, start_s=each.end_s, end_s=later.start_s)


def _stays(times: Sequence[SharedTime]) -> list[_Stay]:
    """Return the stays of all jobs; times of one job on one device that touch are one stay."""
    last: dict[tuple[str, str], _Stay] = {}  # by job and device
    found = []
    for each in times:
        for job in each.jobs:
            key = job.id, each.device.id
            stay = last.get(key)
            if stay is not None and stay.end_s == each.start_s:
                last[key] = replace(stay, end_s=each.end_s)
                continue
            found += [stay] if stay is not None else []
            last[key] = _Stay(job=job, device_type=each.device.type, start_s=each.start_s, end_s=each.end_s)
    return [*found, *last.values()]


def _devices_in_use(times: Sequence[SharedTime], device_type: str) -> dict[float, int]:
    """Return how many more devices of a type are in use from each moment on."""
    changes: Counter[float] = Counter()
    for each in times:
        if each.device.type == device_type:
            changes[each.start_s] += 1
            changes[each.end_s] -= 1
    return changes


class _MatchedDevices:
    """The devices of one type, on which Match puts each job when it starts."""

    def __init__(self, device_type: str, names: Sequence[str], known: KnownSlowdowns) -> None:
        self.seconds: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(
            float
        )  # by the workloads on a device
        self.waited_s, self.decisions = 0.0, 0
        self._type = device_type
        self._residents: dict[str, list[_Stay]] = {}  # by device
        self._waiting: list[_Stay] = []
        self._labels = {name: f"workload-{k}" for k, name in enumerate(names)}  # a decision refuses unprintable names
        slowdowns = [[known.cost(device_type, victim, (other,)).slowdown for other in names] for victim in names]
        self._profiles = {
            (label, device_type): JobProfile(workload=label, device_type=device_type, step_time_s=1.0, source="replay")
            for label in self._labels.values()
        }
        self._predictor = MatrixPredictor(
            version="audit",
            device_types=(device_type,),
            index={label: k for k, label in enumerate(self._labels.values())},
            slowdown=np.array(slowdowns, dtype=np.float64),
            profiles=self._profiles,
        )

    def run(self, stays: Sequence[_Stay], devices_in_use: Mapping[float, int]) -> None:
        """Replay the stays, on as many devices as `devices_in_use` adds up to at each moment."""
        starts: dict[float, list[_Stay]] = defaultdict(list)
        for stay in stays:
            starts[stay.start_s].append(stay)
        devices, before_s = 0, -math.inf
        for now_s in sorted({*starts, *(stay.end_s for stay in stays), *devices_in_use}):
            self._advance(now_s - before_s)
            self._end(now_s)
            devices += devices_in_use.get(now_s, 0)
            self._waiting += sorted(starts.get(now_s, ()), key=lambda stay: stay.job.id)
            if self._waiting:
                self._start(devices)
            before_s = now_s

    def _advance(self, seconds: float) -> None:
        for residents in self._residents.values():
            self.seconds[self._type, tuple(sorted(stay.job.workload for stay in residents))] += seconds
        self.waited_s += len(self._waiting) * seconds if self._waiting else 0.0

    def _end(self, now_s: float) -> None:
        """Remove the jobs that have ended from their devices."""
        on = {device: [stay for stay in stays if stay.end_s > now_s] for device, stays in self._residents.items()}
        self._residents = {device: stays for device, stays in on.items() if stays}
        self._waiting = [stay for stay in self._waiting if stay.end_s > now_s]

    def _start(self, devices: int) -> None:
        """Let Match decide on the waiting jobs; it may take empty devices until `devices` are in use."""

        def jobs(place: str, stays: Sequence[_Stay]) -> tuple[Job, ...]:
            return tuple(
                Job(id=f"{place}/{k}", workload=self._labels[stay.job.workload]) for k, stay in enumerate(stays)
            )

        names = [device for device, residents in self._residents.items() if len(residents) == 1]
        free = (f"{self._type}-{k}" for k in count() if f"{self._type}-{k}" not in self._residents)
        names += islice(free, max(0, devices - len(self._residents)))
        snapshot = Snapshot(
            pending=jobs("waiting", self._waiting),
            devices=tuple(
                Device(id=name, type=self._type, residents=jobs(name, self._residents.get(name, ()))) for name in names
            ),
            limits=Limits.of(min_joint_throughput=0.0),  # a job that ran is to run, whatever it costs
        )
        catalogue = ProfileLookup(profiles=lambda job, kind: self._profiles.get((job.workload, kind)))
        self.decisions += 1
        context = PlanningContext(snapshot=snapshot, predictor=self._predictor, catalogue=catalogue)
        plan = decide(context, ScopeLedger(scope=snapshot.scope)).plan
        place_of = {action.job_id: action.places[0] for action in plan.actions if action.places}
        places = [place_of.get(each.id, "") for each in snapshot.pending]
        for stay, place in zip(self._waiting, places, strict=True):
            if place:
                self._residents.setdefault(place, []).append(stay)
        self._waiting = [stay for stay, place in zip(self._waiting, places, strict=True) if not place]
