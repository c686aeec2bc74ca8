"""What another pairing of the same jobs would have cost, and which pairs are worth measuring next. Pure functions.

The hours of all pairs on a device type are cut into equal units, each a job of its workload, and matched anew at the
least lost progress (`interfere.matching`). That says what these workloads would have lost if any of them could have run
beside any other at the same time: an upper bound of what re-pairing gains.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

import numpy as np

from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns, Origin, PairCost, VictimCost

MAX_WORKLOADS = 60  # of one device type, those with the most hours in pairs: all pairs of them are looked at
MAX_UNITS = 400  # of one device type: a quarter of a per cent of its hours each
NEXT_PAIRS = 3
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShift:
    """A pair that runs for other hours in the best pairing than it did."""

    names: Pair
    hours_before: float
    hours_after: float
    predicted: bool  # whether a slowdown of the pair is predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairing:
    """The pairing of the same job-hours on one device type that would have lost least progress."""

    device_type: str
    device_hours: float  # of pairs whose slowdowns are known, which were matched anew
    lost_before: float  # job-hours
    lost_after: float
    saved_sd: float
    shifts: tuple[PairShift, ...]  # the largest changes first


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


def best_repairing(pairs: Sequence[PairCost], known: KnownSlowdowns) -> tuple[Repairing, ...]:
    """Return the pairing of the same job-hours that would have lost least progress, for each device type.

    A device type needs two pairs with known slowdowns, and is left out where no other pairing saves anything. The
    result is empty where the libraries of the matching are missing (`can_match`).
    """
    if not can_match():
        return ()
    by_type: dict[str, list[PairCost]] = defaultdict(list)
    for pair in pairs:
        if pair.is_known:
            by_type[pair.device_type].append(pair)
    common = {device_type: _most_hours(of_type) for device_type, of_type in by_type.items()}
    by_type = {kind: [pair for pair in every if common[kind] >= set(pair.names)] for kind, every in by_type.items()}
    found = [
        _repair(device_type, of_type, known) for device_type, of_type in sorted(by_type.items()) if len(of_type) > 1
    ]
    return tuple(repairing for repairing in found if repairing is not None)


def _most_hours(pairs: Sequence[PairCost]) -> frozenset[str]:
    """Return the `MAX_WORKLOADS` workloads with the most hours in pairs."""
    hours: dict[str, float] = defaultdict(float)
    for pair in pairs:
        for name in pair.names:
            hours[name] += pair.device_hours
    return frozenset(sorted(hours, key=lambda name: -hours[name])[:MAX_WORKLOADS])


def can_match() -> bool:
    """Return whether the libraries that `interfere.matching` needs are installed. The bare install lacks them."""
    return find_spec("highspy") is not None


def _lost_together(
    device_type: str, first: str, second: str, known: KnownSlowdowns
) -> tuple[float, float, bool] | None:
    """Return the progress that two jobs together lose per hour, its standard deviation, and whether any part is
    predicted; None where the loss is unknown."""
    sides = known.cost(device_type, first, (second,)), known.cost(device_type, second, (first,))
    if any(side.origin is Origin.UNKNOWN for side in sides):
        return None
    lost = sum(1 - 1 / side.slowdown for side in sides)
    deviation = math.sqrt(sum((side.log_sd / side.slowdown) ** 2 for side in sides))
    return lost, deviation, any(side.origin is Origin.PREDICTED for side in sides)


def _repair(device_type: str, pairs: Sequence[PairCost], slowdowns: KnownSlowdowns) -> Repairing | None:
    """Return the pairing of one device type's pair hours that loses least progress; None where no other saves
    anything."""
    from interfere.matching.pairs import match_pairs

    # 1. Cut the hours of each pair into units of two jobs.
    total = sum(pair.device_hours for pair in pairs)
    unit = total / (MAX_UNITS / 2)
    jobs = [name for pair in pairs for _ in range(round(pair.device_hours / unit)) for name in pair.names]
    if len(jobs) < 4:
        return None
    # 2. Match the units at the least lost progress; what is not known cannot be chosen.
    names = sorted(set(jobs))
    index = np.array([names.index(name) for name in jobs])
    known = {(a, b): _lost_together(device_type, a, b, slowdowns) for a in names for b in names}
    table = np.array([[cost[0] if (cost := known[a, b]) else np.inf for b in names] for a in names])
    table = np.minimum(table, table.T)
    matching = match_pairs(table[np.ix_(index, index)])
    before = Counter(tuple(sorted((a, b))) for a, b in zip(jobs[::2], jobs[1::2], strict=True))
    after = Counter(tuple(sorted((jobs[k], jobs[mate]))) for k, mate in enumerate(matching.mate.tolist()) if k < mate)
    # 3. What changes.
    lost_before = sum(count * table[names.index(a), names.index(b)] for (a, b), count in before.items()) * unit
    lost_after = matching.cost * unit
    changed = [pair for pair in before | after if before[pair] != after[pair]]
    variance = sum(
        ((after[pair] - before[pair]) * unit * (known[pair] or (0.0, 0.0, True))[1]) ** 2 for pair in changed
    )
    if not lost_before - lost_after > 1e-9:
        return None
    shifts = [
        PairShift(
            names=(a, b),
            hours_before=before[a, b] * unit,
            hours_after=after[a, b] * unit,
            predicted=bool((known[a, b] or (0.0, 0.0, True))[2]),
        )
        for a, b in changed
    ]
    return Repairing(
        device_type=device_type,
        device_hours=total,
        lost_before=lost_before,
        lost_after=lost_after,
        saved_sd=math.sqrt(variance),
        shifts=tuple(sorted(shifts, key=lambda shift: (-abs(shift.hours_after - shift.hours_before), shift.names))),
    )


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
        common = _most_hours([pair for pair in pairs if pair.device_type == device_type])
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
