"""Two jobs by every sharing mode: what each pays, what filling gaps buys, and what it costs the other.

Definitions, for one mode. The high job runs `rounds` times, the low one all the while. slowdown = time beside the
other ÷ time alone of the same kernels. gap use = time in which the low job ran while the high one had nothing ready ÷
that time. overhang = time in which a kernel of the high job was ready and waited. speed-up = high time when queued ÷
high time. relative rate = low speed ÷ low speed when queued. completion = low time when queued ÷ low time, both jobs
started together with the same work alone (FIKIT's job completion times).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.errors import InvalidInputError
from interfere.records import NAN
from interfere.timeline.engine import SharingPolicy, replay
from interfere.timeline.fair import FairSlices
from interfere.timeline.policies import Exclusive, PriorityFilling, Queued, Spatial, TimeSlices
from interfere.timeline.records import Span, Stream, Timeline

HIGH, LOW = 1, 0
ENOUGH_LAUNCHES = 1_000  # of the high job: further rounds of Orion's timelines move its ratios by under 1 %
MOST_LAUNCHES = 10_000  # of both, where one round of the high job has fewer: some tenths of a second a mode
POLICIES: dict[str, SharingPolicy] = {
    one.name: one for one in (Exclusive(), TimeSlices(), FairSlices(), Spatial(), Queued(), PriorityFilling())
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """One mode; NaN where `queued` was not among the modes, or the job made no progress."""

    mode: str
    high_slowdown: float
    low_slowdown: float
    high_speedup: float
    low_relative_rate: float
    low_completion: float
    filled: int
    gap_use_frac: float
    overhang_frac: float  # of the time alone
    idle_frac: float  # of the device's time
    spans: tuple[Span, ...] = ()


def policies(names: Sequence[str]) -> tuple[SharingPolicy, ...]:
    """By name. Raises InvalidInputError for one that is unknown."""
    for name in names:
        if name not in POLICIES:
            raise InvalidInputError("no such way of sharing", value=name, remedy=f"one of {', '.join(POLICIES)}")
    return tuple(POLICIES[name] for name in names)


def compare(
    high: Timeline,
    low: Timeline,
    modes: Sequence[SharingPolicy],
    *,
    believed: tuple[Timeline | None, Timeline | None] = (None, None),
    rounds: int | None = None,
    keep_s: float = 0.0,
) -> tuple[ModeResult, ...]:
    """Each mode, in order. Pure: equal input, equal output."""
    rounds = rounds or _rounds(high, low)
    low_rounds = max(1, round(rounds * high.solo_s / low.solo_s))
    found: list[ModeResult] = []
    queued = Queued()
    base_high_s, base_rate, base_s = _figures(high, low, queued, believed, rounds, low_rounds)
    for policy in modes:
        steady = replay(_streams(high, low, believed, rounds, None), policy, keep_s=keep_s)
        one, other = steady.outcomes
        both = replay(_streams(high, low, believed, rounds, low_rounds), policy)
        found.append(
            ModeResult(
                mode=policy.name,
                high_slowdown=one.slowdown,
                low_slowdown=other.slowdown,
                high_speedup=base_high_s / one.elapsed_s,
                low_relative_rate=other.speed / base_rate if base_rate > 0 else NAN,
                low_completion=base_s / both.outcomes[1].elapsed_s,
                filled=other.filled,
                gap_use_frac=one.gap_used_s / one.gap_s if one.gap_s > 0 else NAN,
                overhang_frac=one.waited_s / one.alone_s,
                idle_frac=steady.idle_s / steady.end_s,
                spans=steady.spans,
            )
        )
    return tuple(found)


def _rounds(high: Timeline, low: Timeline) -> int:
    """Of the high job: enough launches of it, not too many of both."""
    beside = high.solo_s / low.solo_s * len(low.kernels)  # launches of the low job in one round, if nobody waited
    return max(1, min(math.ceil(ENOUGH_LAUNCHES / len(high.kernels)), int(MOST_LAUNCHES / (len(high.kernels) + beside))))


def _streams(
    high: Timeline, low: Timeline, believed: tuple[Timeline | None, Timeline | None], rounds: int, low_rounds: int | None
) -> tuple[Stream, Stream]:
    return (
        Stream(timeline=high, priority=HIGH, rounds=rounds, believed=believed[0]),
        Stream(timeline=low, priority=LOW, rounds=low_rounds, believed=believed[1]),
    )


def _figures(
    high: Timeline,
    low: Timeline,
    policy: SharingPolicy,
    believed: tuple[Timeline | None, Timeline | None],
    rounds: int,
    low_rounds: int,
) -> tuple[float, float, float]:
    """High time and low speed together, and low time to completion."""
    one, other = replay(_streams(high, low, believed, rounds, None), policy).outcomes
    both = replay(_streams(high, low, believed, rounds, low_rounds), policy).outcomes
    return one.elapsed_s, other.speed, both[1].elapsed_s
