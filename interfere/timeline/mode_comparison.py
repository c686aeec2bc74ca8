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

import numpy as np
from numpy.typing import NDArray

from interfere.devices import CPU_CORE
from interfere.errors import InvalidInputError
from interfere.records import NAN, JobProfile
from interfere.timeline.eevdf import FairSlices
from interfere.timeline.kernel_times import mistaken
from interfere.timeline.records import Span, Stream, Timeline
from interfere.timeline.replay_engine import SharingPolicy, replay
from interfere.timeline.sharing_modes import Exclusive, PriorityFilling, Queued, Spatial, TimeSlices
from interfere.timeline.timeline_builders import from_profile, rotated, with_gaps

HIGH, LOW = 1, 0
ENOUGH_LAUNCHES = 1_000  # of the high job; twice as many move Orion's speed-ups and completions by 1.2 % at most
MOST_S = 4.0  # of the high job alone, where one round is shorter: some thousand slices of a CPU core
MOST_LAUNCHES = 20_000  # of both, where one round of the high job has fewer: a second or so a mode
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


def policies(names: Sequence[str], device_type: str) -> tuple[SharingPolicy, ...]:
    """By name, or without names what the device type can do. Raises InvalidInputError for one that is unknown."""
    for name in names:
        if name not in POLICIES:
            raise InvalidInputError("no such way of sharing", value=name, remedy=f"one of {', '.join(POLICIES)}")
    # A core runs one process at a time; a GPU does not know Linux's slices.
    unfit = "spatial" if device_type == CPU_CORE.name else "fair"
    return tuple(POLICIES[name] for name in (names or [name for name in POLICIES if name != unfit]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Two jobs that meet. `believed`: what a planner thinks of high and low; default: the truth."""

    high: Timeline
    low: Timeline
    believed: tuple[Timeline | None, Timeline | None] = (None, None)
    # Hosts of high and low wait for each kernel: one that reads every result, a process that computes and sleeps.
    hosts_wait: tuple[bool, bool] = (False, False)
    rounds: int = 0  # of the high job; 0: enough

    @property
    def too_long(self) -> int:
        """Kernels of the low job that are longer than every gap of the high one.

        Launches keep their order, so by exact times such a kernel holds its job until the high one is over.
        """
        longest_s = max(kernel.gap_s for kernel in self.high.kernels)
        return sum(kernel.duration_s > longest_s for kernel in self.low.kernels)

    def streams(self, *, low_ends: bool) -> tuple[Stream, Stream]:
        """Both from the start; the low one has as much work alone, or no end."""
        rounds = self.rounds or _rounds(self.high, self.low)
        low_rounds = max(1, round(rounds * self.high.solo_s / self.low.solo_s)) if low_ends else None
        one, other = (
            Stream(timeline=timeline, priority=level, rounds=times, believed=believed, host_waits=waits)
            for timeline, level, times, believed, waits in zip(
                (self.high, self.low), (HIGH, LOW), (rounds, low_rounds), self.believed, self.hosts_wait, strict=True
            )
        )
        return one, other


def meeting_of(
    high: JobProfile,
    low: JobProfile,
    *,
    gap_share: float | None = None,
    gap_every: int = 1,
    error_frac: float = 0.0,
    seed: int = 0,
) -> Meeting:
    """From profiles; with drawn gaps of the high job and a mistaken planner where asked for."""
    one, other = from_profile(high), from_profile(low)
    if gap_share is not None:
        one = with_gaps(one, gap_share, seed, every=gap_every)
    on_core = high.device_type == CPU_CORE.name
    return Meeting(
        high=one,
        low=other,
        believed=(mistaken(one, error_frac, seed), mistaken(other, error_frac, seed + 1)),
        hosts_wait=(on_core, on_core),
    )


def compare(meeting: Meeting, modes: Sequence[SharingPolicy], *, keep_s: float = 0.0) -> tuple[ModeResult, ...]:
    """Each mode, in order, with its spans that begin before `keep_s`. Pure: equal input, equal output."""
    together, bounded = meeting.streams(low_ends=False), meeting.streams(low_ends=True)
    queued = Queued()
    base_high, base_low = replay(together, queued).outcomes
    base_low_s = replay(bounded, queued).outcomes[1].elapsed_s
    found: list[ModeResult] = []
    for policy in modes:
        steady = replay(together, policy, keep_s=keep_s)
        high, low = steady.outcomes
        low_s = replay(bounded, policy).outcomes[1].elapsed_s
        found.append(
            ModeResult(
                mode=policy.name,
                high_slowdown=high.slowdown,
                low_slowdown=low.slowdown,
                high_speedup=base_high.elapsed_s / high.elapsed_s,
                low_relative_rate=low.speed / base_low.speed if base_low.speed > 0 else NAN,
                low_completion=base_low_s / low_s,
                filled=low.filled,
                gap_use_frac=high.gap_used_s / high.gap_s if high.gap_s > 0 else NAN,
                overhang_frac=high.waited_s / high.alone_s,
                idle_frac=steady.idle_s / steady.end_s,
                spans=steady.spans,
            )
        )
    return tuple(found)


def _rounds(high: Timeline, low: Timeline) -> int:
    """Of the high job: enough launches of it, a whole round of the low one, not too many of both."""
    beside = high.solo_s / low.solo_s * len(low.kernels)  # launches of the low job in one round, if nobody waited
    enough = max(math.ceil(ENOUGH_LAUNCHES / len(high.kernels)), math.ceil(low.solo_s / high.solo_s))
    return max(1, min(enough, int(MOST_LAUNCHES / (len(high.kernels) + beside)), int(MOST_S / high.solo_s)))


def shared_slowdowns(
    profiles: Sequence[JobProfile], policy: SharingPolicy, *, until_s: float = 2.0
) -> NDArray[np.float64]:
    """float64[n, n]: slowdown of each job beside each, all of them endless, hosts that wait for each kernel.

    A job beside itself starts its twin in the middle of the round: equal timelines in step would never meet.
    """
    lines = [from_profile(profile) for profile in profiles]
    found = np.ones((len(lines), len(lines)))
    for i, victim in enumerate(lines):
        for k, neighbour in enumerate(lines[i:], start=i):
            twin = rotated(neighbour, len(neighbour.kernels) // 2) if i == k else neighbour
            streams = [Stream(timeline=one, rounds=None, host_waits=True) for one in (victim, twin)]
            one, other = replay(streams, policy, until_s=until_s).outcomes
            found[i, k], found[k, i] = one.slowdown, other.slowdown
            if i == k:
                found[i, i] = math.sqrt(one.slowdown * other.slowdown)
    return found
