"""What other company would have cost the same jobs: pairs to keep apart, and pairs to measure next. Pure functions.

Both sides of a comparison have the same job-hours. Its gain is in GPU hours: the progress that the jobs make more, in
hours of a job alone on a GPU, less the hours for which they hold more GPUs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns, Origin, PairCost, VictimCost

Floats = NDArray[np.float64]
Pair = tuple[str, str]
Hours = Mapping[tuple[str, tuple[str, ...]], float]
"""Device-hours by device type and the workloads on the device, sorted."""

WEEK_S = 604800.0
MAX_WORKLOADS = 60  # of one device type, those with the most hours in pairs: all pairs of them are looked at
NEXT_PAIRS = 3
MAX_SEPARATIONS = 5
MAX_CANDIDATES = 16  # pairs for the next separation
LEAST_SHARE = 0.05  # of the gain so far: a separation that adds less is not worth a rule
MAX_PASSES = 500  # of the iterative proportional fitting; hours that can be spread need about fifty
FITTED = 1e-6  # largest relative error of a workload's hours
NOBODY = ""  # beside a job that is alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShift:
    """A pair that has other hours after a change than before."""

    device_type: str
    names: Pair
    hours_before: float
    hours_after: float
    predicted: bool  # whether a slowdown of the pair is predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyChange:
    """The cost of the same job-hours in two ways of sharing devices."""

    lost_before: float  # job-hours
    lost_after: float
    device_hours_before: float
    device_hours_after: float
    sd: float  # of the gain
    shifts: tuple[PairShift, ...]  # the largest first

    DERIVED: ClassVar = ("gain", "lower", "upper")

    @property
    def gain(self) -> float:
        """GPU hours: the job-hours of progress that are lost less, minus the device-hours that are held more."""
        return self.lost_before - self.lost_after - (self.device_hours_after - self.device_hours_before)

    @property
    def lower(self) -> float:
        """The lower end of the 95 % interval of the gain."""
        return self.gain - 1.96 * self.sd

    @property
    def upper(self) -> float:
        """The upper end of the 95 % interval of the gain."""
        return self.gain + 1.96 * self.sd


def company_change(before: Hours, after: Hours, known: KnownSlowdowns) -> CompanyChange:
    """Return the change from one way of sharing devices to another, of devices with one job or with a known pair.

    The slowdowns of a victim share the error of its rate alone, so its part of the deviation is never less than that
    of errors that are all the same.
    """
    lost = {False: 0.0, True: 0.0}  # by whether it is after
    errors: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    shifts = []
    for key in sorted({*before, *after}):
        (device_type, names), hours = key, (before.get(key, 0.0), after.get(key, 0.0))
        if len(names) != 2:
            continue
        sides = _sides(device_type, (names[0], names[1]), known)
        for side in sides:
            for is_after in (False, True):
                lost[is_after] += hours[is_after] * (1 - 1 / side.slowdown)
            errors[device_type, side.victim][side.company[0]] += (hours[1] - hours[0]) * side.log_sd / side.slowdown
        if abs(hours[1] - hours[0]) > 1e-6:
            predicted = any(side.origin is Origin.PREDICTED for side in sides)
            shift = {"device_type": device_type, "names": (names[0], names[1]), "predicted": predicted}
            shifts.append(PairShift(**shift, hours_before=hours[0], hours_after=hours[1]))  # type: ignore[arg-type]
    terms = [list(of_victim.values()) for of_victim in errors.values()]
    return CompanyChange(
        lost_before=lost[False],
        lost_after=lost[True],
        device_hours_before=sum(before.values()),
        device_hours_after=sum(after.values()),
        sd=math.hypot(*(max(math.hypot(*of_victim), abs(sum(of_victim))) for of_victim in terms)),
        shifts=tuple(sorted(shifts, key=lambda each: (-abs(each.hours_after - each.hours_before), each.names))),
    )


def is_known_company(device_type: str, names: tuple[str, ...], known: KnownSlowdowns) -> bool:
    """Return whether the cost of these workloads on one device is known: of one alone, or of a pair."""
    if len(names) == 2:
        return all(side.origin is not Origin.UNKNOWN for side in _sides(device_type, (names[0], names[1]), known))
    return len(names) == 1


def _sides(device_type: str, names: Pair, known: KnownSlowdowns) -> tuple[VictimCost, VictimCost]:
    return known.cost(device_type, names[0], names[1:]), known.cost(device_type, names[1], names[:1])


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchReplay:
    """The loss of the same jobs if Match had chosen each job's device when the job started."""

    change: CompanyChange
    start_s: float
    end_s: float
    decisions: int
    waited_hours: float  # of jobs that Match found no place for; lost in full
    left_out_hours: float  # device-hours whose cost nobody knows, or with a job on several devices or three jobs

    DERIVED: ClassVar = ("weeks",)

    @property
    def weeks(self) -> float:
        """The length of the replayed time."""
        return (self.end_s - self.start_s) / WEEK_S


# --- keeping apart ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """Two workloads to keep apart, given the separations before it in the list."""

    device_type: str
    victim: str  # the one that is slowed more
    neighbour: str
    device_hours: float  # together
    change: CompanyChange  # from the separations before it to those and this one
    total: CompanyChange  # from none to those and this one, on all device types

    DERIVED: ClassVar = ("is_certain",)

    @property
    def is_certain(self) -> bool:
        """Whether the 95 % interval of its gain excludes 0."""
        return self.change.lower > 0


class _Separated(NamedTuple):
    """A pair kept apart beside those before it, the hours that follow, and the gain."""

    pair: tuple[str, Pair]
    after: dict[tuple[str, tuple[str, ...]], float]
    change: CompanyChange


def choose_separations(hours: Hours, known: KnownSlowdowns) -> tuple[Separation, ...]:
    """Return the pairs to keep apart: each gains most, once those before it are kept apart.

    Only gains whose interval excludes 0 are chosen, until one adds less than `LEAST_SHARE` of those before it. Where
    none is certain, the best one that is not is returned alone.
    """
    # 1. The hours whose cost is known, of the workloads with the most hours.
    before = {key: each for key, each in hours.items() if is_known_company(*key, known)}
    common = {
        kind: _most_hours((names, each) for (other, names), each in before.items() if other == kind)
        for kind, _ in before
    }
    before = {(kind, names): each for (kind, names), each in before.items() if common[kind] >= set(names)}
    # 2. One separation after the other.
    now, chosen, apart = before, list[Separation](), list[tuple[str, Pair]]()
    while len(chosen) < MAX_SEPARATIONS:
        options = [
            _Separated(pair, after, company_change(now, after, known))
            for pair in _candidates(now, known)
            if (after := hours_apart(before, (*apart, pair)))
        ]
        best = max(options, key=lambda each: (each.change.lower > 0, each.change.gain), default=None)
        gained = chosen[-1].total.gain if chosen else 0.0
        if best is None or best.change.gain <= LEAST_SHARE * gained or (chosen and best.change.lower <= 0):
            break
        chosen.append(_separation(best, now, company_change(before, best.after, known), known))
        apart.append(best.pair)
        now = best.after
        if not chosen[-1].is_certain:
            break
    return tuple(chosen)


def _separation(best: _Separated, now: Hours, total: CompanyChange, known: KnownSlowdowns) -> Separation:
    device_type, names = best.pair
    first, second = _sides(device_type, names, known)
    worst, other = (first, second) if first.slowdown >= second.slowdown else (second, first)
    return Separation(
        device_type=device_type,
        victim=worst.victim,
        neighbour=other.victim,
        device_hours=now[best.pair],
        change=best.change,
        total=total,
    )


def _candidates(hours: Hours, known: KnownSlowdowns) -> list[tuple[str, Pair]]:
    """Return the pairs that lose most more than their workloads would beside others, of additive losses of both."""
    total, lost = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
    loss = {
        (kind, (names[0], names[1])): sum(1 - 1 / side.slowdown for side in _sides(kind, (names[0], names[1]), known))
        for kind, names in hours
        if len(names) == 2
    }
    for (kind, names), each in hours.items():
        for name in (*names, ""):
            total[kind, name] += each
            lost[kind, name] += each * (loss[kind, (names[0], names[1])] if len(names) == 2 else 0.0)
    mean = {key: lost[key] / each for key, each in total.items()}
    excess = {
        (kind, names): hours[kind, names] * (each + mean[kind, ""] - sum(mean[kind, name] for name in names))
        for (kind, names), each in loss.items()
    }
    return sorted(excess, key=lambda pair: (-excess[pair], pair))[:MAX_CANDIDATES]


def hours_apart(hours: Hours, apart: Sequence[tuple[str, Pair]]) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the device-hours with some pairs kept apart; every workload keeps its hours on each device type.

    The hours are spread over the company that the same workloads had otherwise, being alone included, in the same
    proportions as far as sums allow: iterative proportional fitting (Deming and Stephan 1940) of a symmetric table.
    Where no company is left, the two jobs of the last pair run one after the other, on a device of their own each.
    """
    spread = dict(hours)
    for device_type in {kind for kind, _ in apart}:
        of_type = {names: each for (kind, names), each in hours.items() if kind == device_type}
        kept: list[Pair] = []
        fitted = of_type
        for pair in (pair for kind, pair in apart if kind == device_type):
            found = _fitted(of_type, (*kept, pair))
            if found is None:
                together = of_type.pop(pair, 0.0)
                for name in pair:
                    of_type[name,] = of_type.get((name,), 0.0) + together
                found = (_fitted(of_type, kept) or of_type) if kept else of_type
            else:
                kept.append(pair)
            fitted = found
        spread = {key: each for key, each in spread.items() if key[0] != device_type}
        spread |= {(device_type, names): each for names, each in fitted.items()}
    return {key: each for key, each in spread.items() if each > 0}


def _fitted(hours: Mapping[tuple[str, ...], float], apart: Sequence[Pair]) -> dict[tuple[str, ...], float] | None:
    """Return the device-hours of one device type without some pairs; None where the workloads' hours cannot be kept."""
    # 1. Hours of each workload's jobs beside each other workload, or beside nobody.
    names = sorted({NOBODY, *(name for company in hours for name in company)})
    index = {name: k for k, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for company, each in hours.items():
        i, j = index[company[0]], index[company[1] if len(company) == 2 else NOBODY]
        table[i, j] += each
        table[j, i] += each
    wanted = table.sum(axis=1)
    for first, second in apart:
        table[index[first], index[second]] = table[index[second], index[first]] = 0.0
    # 2. Scale rows and columns alike until every workload has its hours again.
    rows = wanted > 0
    scale = np.ones(len(names))
    for _ in range(MAX_PASSES):
        sums = table @ scale
        if (sums[rows] * scale[rows] <= 0).any():
            return None
        error = np.abs(scale[rows] * sums[rows] / wanted[rows] - 1).max()
        if error < FITTED:
            break
        scale[rows] = np.sqrt(scale[rows] * wanted[rows] / sums[rows])
    else:
        return None
    table = table * scale[:, None] * scale
    spread = dict.fromkeys(hours, 0.0)
    for company in hours:
        i, j = index[company[0]], index[company[1] if len(company) == 2 else NOBODY]
        spread[company] = float(table[i, j]) / (2 if i == j else 1)
    return spread


def _most_hours(hours: Iterable[tuple[Sequence[str], float]]) -> frozenset[str]:
    """Return the `MAX_WORKLOADS` workloads with the most hours in pairs, of hours by the workloads on a device."""
    of_name: dict[str, float] = defaultdict(float)
    for names, each in hours:
        for name in names if len(names) == 2 else ():
            of_name[name] += each
    return frozenset(sorted(of_name, key=lambda name: (-of_name[name], name))[:MAX_WORKLOADS])


# --- measuring next ---------------------------------------------------------------------------------------------------


class Reason(StrEnum):
    """The reason why a pair should be measured."""

    NEVER_ALONE = "a job of it was never seen alone"
    NEVER_TOGETHER = "never seen together, and it may be better than what is paired now"
    UNCERTAIN = "its interval is wide for the hours that it runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPair:
    """A pair that is worth measuring, the reason, and the job-hours that the measurement may save."""

    device_type: str
    names: Pair
    reason: Reason
    never_alone: tuple[str, ...]  # the workloads of the pair that must be run alone as well
    hours_at_stake: float  # job-hours that its uncertainty is worth


def next_pairs(
    pairs: Sequence[PairCost],
    known: KnownSlowdowns,
    alone_hours: Mapping[tuple[str, str], float],
) -> tuple[NextPair, ...]:
    """Return the pairs whose measurement is worth most: the uncertainty of their lost progress times the hours
    concerned.

    `alone_hours` holds the hours of each workload alone by (device type, workload).
    """
    shared_hours: dict[tuple[str, str], float] = defaultdict(float)
    together: dict[tuple[str, Pair], float] = {}
    for pair in pairs:
        first, second = sorted(pair.names)
        together[pair.device_type, (first, second)] = pair.device_hours
        for side in pair.sides:
            shared_hours[pair.device_type, side.victim] += side.hours / (2 if first == second else 1)
    found = []
    for device_type in sorted({key[0] for key in shared_hours}):
        common = _most_hours((pair.names, pair.device_hours) for pair in pairs if pair.device_type == device_type)
        names = sorted(name for kind, name in shared_hours if kind == device_type and name in common)
        for a, b in ((a, b) for k, a in enumerate(names) for b in names[k:]):
            hours = together.get((device_type, (a, b)))
            concerned = (
                hours if hours is not None else min(shared_hours[device_type, a], shared_hours[device_type, b]) / 2
            )
            never_alone = tuple(
                name for name in dict.fromkeys((a, b)) if alone_hours.get((device_type, name), 0.0) <= 0
            )
            at_stake = concerned * sum(
                _uncertainty(known.cost(device_type, one, (other,))) for one, other in ((a, b), (b, a))
            )
            reason = Reason.NEVER_ALONE if never_alone else Reason.UNCERTAIN
            found.append(
                NextPair(
                    device_type=device_type,
                    names=(a, b),
                    reason=reason if hours is not None else Reason.NEVER_TOGETHER,
                    never_alone=never_alone,
                    hours_at_stake=at_stake,
                )
            )
    return tuple(sorted(found, key=lambda each: (-each.hours_at_stake, each.names))[:NEXT_PAIRS])


def _uncertainty(side: VictimCost) -> float:
    """Return half the width of the 95 % interval of the lost share of progress; 0.5 where the slowdown is unknown."""
    return 0.5 if side.origin is Origin.UNKNOWN else min(0.5, 1.96 * side.log_sd / side.slowdown)
