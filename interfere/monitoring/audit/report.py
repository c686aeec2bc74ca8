"""The report of an audit: what each pair and each workload lost by sharing, as records. Pure functions.

Lost job-hours of a victim = hours in company · (1 - 1 / slowdown): the progress alone that it did not make. A slowdown
is measured, predicted from other pairs of the site, or unknown; an unknown one costs nothing here and is counted apart.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from interfere.monitoring.audit.episodes import Company
from interfere.monitoring.audit.pair_effects import PairEffects
from interfere.monitoring.audit.slowdowns import Baseline, SlowdownEstimate
from interfere.records import NAN

HOUR_S = 3600.0
LOAD_SD = 0.10  # of log rate in one company: above it, input or load moves the rate as much as most neighbours do


class Origin(StrEnum):
    """The origin of a slowdown."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """Whether a pair progresses faster together on one device than its jobs would one after the other."""

    KEEP = "sharing pays"
    SEPARATE = "separate"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The time that one workload lost beside one set of neighbours."""

    victim: str
    company: Company
    origin: Origin
    hours: float  # of the victim's jobs in this company
    slowdown: float = NAN
    lower: float = NAN  # of a 95 % interval
    upper: float = NAN
    log_sd: float = NAN
    baseline: Baseline | None = None  # None unless measured
    episodes: int = 0

    def lost_hours(self, slowdown: float) -> float:
        """Job-hours lost at a slowdown; NaN where it is unknown."""
        return self.hours * (1 - 1 / slowdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCost:
    """Two workloads that shared devices, and what it cost both."""

    device_type: str
    device_hours: float
    sides: tuple[Side, Side]

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two workloads."""
        return self.sides[0].victim, self.sides[1].victim

    @property
    def worst_side(self) -> Side:
        """The side that is slowed most."""
        return max(self.sides, key=lambda side: -1.0 if math.isnan(side.lower) else side.lower)

    @property
    def lost_hours(self) -> float:
        """Job-hours lost by the sides that are known."""
        sides = self.sides if self.names[0] != self.names[1] else self.sides[:1]  # it has the hours of both
        return sum(side.lost_hours(side.slowdown) for side in sides if side.origin is not Origin.UNKNOWN)

    @property
    def joint_throughput(self) -> float:
        """The progress of the pair together, over the progress of one job alone.

        Below 1, the jobs finish faster one after the other.
        """
        return sum(1 / side.slowdown for side in self.sides)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the pair, from the ends of both intervals."""
        if sum(1 / side.upper for side in self.sides) > 1:
            return Verdict.KEEP
        return Verdict.SEPARATE if sum(1 / side.lower for side in self.sides) < 1 else Verdict.UNSURE


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

    @property
    def moved_by_load(self) -> bool:
        """Whether the workload's rate varies so much beside the same neighbours that load or input confounds its
        slowdowns."""
        return self.noise_sd > LOAD_SD


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHours:
    """Device-hours of each company of workloads on each device type, and the jobs of each workload."""

    seconds: Mapping[tuple[str, tuple[str, ...]], float]  # by (device type, workloads)
    jobs: Mapping[str, int]  # number of jobs, by workload


def sides_of(shared: SharedHours, estimates: Sequence[SlowdownEstimate]) -> dict[tuple[str, str, Company], Side]:
    """Every workload in every company that it had, by (device type, victim, company)."""
    measured = {(each.device_type, each.victim, each.company): each for each in estimates}
    effects = effects_by_device(estimates)
    hours: dict[tuple[str, str, Company], float] = defaultdict(float)
    for (device_type, workloads), seconds in shared.seconds.items():
        if len(workloads) > 1:
            for k, victim in enumerate(workloads):
                hours[device_type, victim, workloads[:k] + workloads[k + 1 :]] += seconds / HOUR_S
    return {key: _side(key, each, measured.get(key), effects.get(key[0])) for key, each in sorted(hours.items())}


def effects_by_device(estimates: Sequence[SlowdownEstimate]) -> dict[str, PairEffects]:
    """Predictions for each device type, from its pairs."""
    pairs: dict[str, list[SlowdownEstimate]] = defaultdict(list)
    for each in estimates:
        if len(each.company) == 1:
            pairs[each.device_type].append(each)
    return {device_type: PairEffects(of_type) for device_type, of_type in pairs.items()}


def _side(
    key: tuple[str, str, Company], hours: float, estimate: SlowdownEstimate | None, effects: PairEffects | None
) -> Side:
    _, victim, company = key
    if estimate is not None:
        return Side(
            victim=victim,
            company=company,
            origin=Origin.MEASURED,
            hours=hours,
            slowdown=estimate.slowdown,
            lower=estimate.lower,
            upper=estimate.upper,
            log_sd=estimate.log_sd,
            baseline=estimate.baseline,
            episodes=estimate.episodes,
        )
    predicted = effects.predict(victim, company[0]) if effects and len(company) == 1 else None
    if predicted is None:
        return Side(victim=victim, company=company, origin=Origin.UNKNOWN, hours=hours)
    mean, sd = predicted
    return Side(
        victim=victim,
        company=company,
        origin=Origin.PREDICTED,
        hours=hours,
        slowdown=math.exp(mean),
        lower=math.exp(mean - 1.96 * sd),
        upper=math.exp(mean + 1.96 * sd),
        log_sd=sd,
    )


def pair_costs(shared: SharedHours, sides: Mapping[tuple[str, str, Company], Side]) -> tuple[PairCost, ...]:
    """Return all pairs that shared a device. The pair whose large slowdown is most certain comes first."""
    pairs = [
        PairCost(
            device_type=device_type,
            device_hours=seconds / HOUR_S,
            sides=(sides[device_type, names[0], names[1:]], sides[device_type, names[1], names[:1]]),
        )
        for (device_type, names), seconds in shared.seconds.items()
        if len(names) == 2
    ]
    return tuple(sorted(pairs, key=_rank))


def _rank(pair: PairCost) -> tuple[float, float, tuple[str, str]]:
    lower = pair.worst_side.lower
    measured = any(side.origin is Origin.MEASURED for side in pair.sides)
    return -(lower if measured else 0.0 if math.isnan(lower) else lower / 100), -pair.device_hours, pair.names


def workload_costs(
    shared: SharedHours,
    sides: Mapping[tuple[str, str, Company], Side],
    estimates: Sequence[SlowdownEstimate],
) -> tuple[WorkloadCost, ...]:
    """Return all workloads on each device type. The workload that lost most comes first."""
    alone: Counter[tuple[str, str]] = Counter()
    for (device_type, names), seconds in shared.seconds.items():
        for name in names:
            alone[device_type, name] += seconds / HOUR_S if len(names) == 1 else 0.0  # type: ignore[assignment]
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
                jobs=shared.jobs.get(workload, 0),
                noise_sd=noise.get((device_type, workload), NAN),
            )
        )
    return tuple(sorted(costs, key=lambda each: (-each.lost_hours, -each.shared_hours, each.workload)))
