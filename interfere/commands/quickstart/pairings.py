"""Pairings of jobs, and how the chosen one compares: with a greedy one, a random one, and the mean over all pairings.

Laws: both sides of a comparison have all of their pairs, whatever was measured; a pair without a measurement stands in
by its prediction; where the 95 % interval of a difference holds zero, the comparison says that it cannot tell.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from interfere.commands.quickstart.estimates import Direction, Evidence, Interval, Knowledge, difference

HELD_OUT_SHARE = 1 / 3  # of the pairs of different jobs
SLOWDOWN_CAP = 1.5  # a victim above this has lost a third of its speed
LONGEST_IN_MINUTES = 120  # longer times are told in hours
LONGEST_RUN_S = 86400.0  # beyond a day nobody waits for a comparison

Pairing = tuple[tuple[str, str], ...]
"""A partition of jobs into pairs, by name."""


def all_pairings(names: Sequence[str]) -> Iterator[Pairing]:
    """Yield every partition of an even number of names into pairs: (n - 1)!! of them."""
    if not names:
        yield ()
        return
    first, others = names[0], list(names[1:])
    for k, partner in enumerate(others):
        for further_pairs in all_pairings(others[:k] + others[k + 1 :]):
            yield ((first, partner), *further_pairs)


def all_pairs(names: Sequence[str]) -> Pairing:
    """Return every pair of two different jobs. All pairs are in equally many pairings, so means over both are equal."""
    return tuple((a, b) for k, a in enumerate(names) for b in names[k + 1 :])


def directions(pairs: Sequence[tuple[str, str]]) -> list[Direction]:
    """Return (victim, neighbour) both ways round for every pair of jobs."""
    return [direction for a, b in pairs for direction in ((a, b), (b, a))]


def greedy_pairing(names: Sequence[str], slowdowns: Mapping[Direction, float]) -> Pairing:
    """Return the pairing that gives each job in turn the unpaired partner with the smallest sum of both slowdowns."""
    unpaired, pairs = list(names), []
    while unpaired:
        first = unpaired.pop(0)
        partner = min(unpaired, key=lambda job: slowdowns[first, job] + slowdowns[job, first])
        unpaired.remove(partner)
        pairs.append((first, partner))
    return tuple(pairs)


def choose_held_out(names: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Return a third of the unordered pairs of different jobs, drawn at random."""
    pairs = all_pairs(names)
    return sorted(random.Random(seed).sample(pairs, round(len(pairs) * HELD_OUT_SHARE)))  # noqa: S311 - no secret


def choose_random_pairing(names: Sequence[str], seed: int) -> Pairing:
    """Return a random pairing of the jobs."""
    return random.Random(seed + 1).choice(list(all_pairings(names)))  # noqa: S311 - no secret


def distinct_pairs(*pairings: Pairing) -> list[tuple[str, str]]:
    """Return the pairs of several pairings without repeats; the order of the two jobs makes no difference."""
    return list({frozenset(pair): pair for pairing in pairings for pair in pairing}.values())


# --- comparisons ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingScore:
    """The cost of a pairing to its jobs; for several pairings, the means of the figures."""

    mean_slowdown: Interval
    worst_victim: float  # the largest slowdown
    past_cap: float  # number of pairs in which a job is slowed more than `SLOWDOWN_CAP`


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """The score of a pairing, or of the mean over all pairings, by predictions and by measurements."""

    name: str
    pairing: Pairing  # empty where the row is a mean over pairings
    predicted: PairingScore
    measured: PairingScore
    stand_ins: tuple[Direction, ...] = ()  # not measured: their predictions count as measured
    slowdowns: int = 0  # how many the row is made of


class MeasuringTime(NamedTuple):
    """The seconds of measuring behind a comparison; 0 s for measurements that came with the program."""

    seconds: float = 0.0
    longer: int = 1  # what `--longer` was


class Verdict(StrEnum):
    """The conclusion from the difference of two pairings and its interval."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "the same pairs"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The mean slowdown of the chosen pairing minus the mean slowdown of another; a negative difference is better."""

    other: str
    chosen_run_again: bool  # otherwise both sides come from the first measurement
    difference: Interval
    time: MeasuringTime

    @property
    def verdict(self) -> Verdict:
        """Whether the chosen pairing is better, by the interval of the difference."""
        lower, upper = self.difference.lower, self.difference.upper
        if lower == upper == 0:
            return Verdict.SAME
        return Verdict.BETTER if upper < 0 else Verdict.WORSE if lower > 0 else Verdict.CANNOT_TELL

    def text(self) -> str:
        """Return the comparison of the two pairings as a sentence."""
        if self.verdict is Verdict.SAME:
            return f"chosen and {self.other} are the same pairs"
        conclusion = {
            Verdict.BETTER: "the chosen pairing is better",
            Verdict.WORSE: "the chosen pairing is NOT better, it is worse",
            Verdict.CANNOT_TELL: f"cannot tell which is better; {self._remedy()}",
        }[self.verdict]
        return (
            f"chosen{' (run again)' if self.chosen_run_again else ''} minus {self.other}: "
            f"{self.difference.value:+.3f} mean slowdown, 95 % interval "
            f"[{self.difference.lower:+.3f}, {self.difference.upper:+.3f}]: {conclusion}"
        )

    def _remedy(self) -> str:
        """Return how much longer to measure until the interval excludes zero: the width of an interval shrinks as
        1/√time."""
        if not self.time.seconds:
            return "measuring them again could"
        half_width, value = (self.difference.upper - self.difference.lower) / 2, self.difference.value
        seconds = self.time.seconds * (half_width / value) ** 2 if value else math.inf
        if seconds > LONGEST_RUN_S:
            return "not even a day of measuring could, so near are they"
        factor = max(2, math.ceil(seconds / self.time.seconds))
        minutes = math.ceil(factor * self.time.seconds / 60)
        time_text = f"{minutes} minutes" if minutes <= LONGEST_IN_MINUTES else f"{minutes / 60:.0f} hours"
        return (
            f"about {time_text} of measuring could, if the difference is what it seems: "
            f"interfere quickstart --longer {factor * self.time.longer}"
        )


def compare(
    names: Sequence[str],
    chosen: Pairing,
    greedy: Pairing,
    random_pairing: Pairing,
    knowledge: Knowledge,
    time: MeasuringTime,
) -> tuple[tuple[ComparisonRow, ...], tuple[Comparison, ...]]:
    """Return the rows of the table, and the comparisons with the mean over all pairings, a greedy and a random pairing.

    Where pairs were measured a second time, the comparisons use this second measurement. The first measurement chose
    the pairing, and a value chosen for being small is partly small by chance.
    """
    # 1. The rows of the first measurement, and those of the second where there is one.
    first, run = Evidence.FIRST, Evidence.AGAIN if knowledge.again else Evidence.FIRST
    every, measured = list(all_pairings(names)), knowledge.values(first)
    by_cost = sorted(every, key=lambda pairing: fmean(measured[pair] for pair in directions(pairing)))
    rows = [
        comparison_row("chosen by matching", [chosen], knowledge, first),
        comparison_row("greedy, in order", [greedy], knowledge, first),
        comparison_row(f"random (mean of {len(every):,})", every, knowledge, first),
        comparison_row("best possible", [by_cost[0]], knowledge, first),
        comparison_row("worst possible", [by_cost[-1]], knowledge, first),
    ]
    if run is Evidence.AGAIN:
        again = {"chosen, run again": chosen, "greedy, run again": greedy, "a random one, run": random_pairing}
        rows += [comparison_row(name, [pairing], knowledge, run) for name, pairing in again.items()]

    # 2. The differences.
    weights = knowledge.mean_weights(directions(chosen), run)
    others = {"random mean": (all_pairs(names), first), "greedy": (greedy, run), "a random one": (random_pairing, run)}
    comparisons = []
    for name, (pairs, evidence) in others.items():
        subtracted = knowledge.mean_weights(directions(pairs), evidence)
        interval = knowledge.interval(difference(weights, subtracted))
        is_again = run is Evidence.AGAIN
        comparisons.append(Comparison(other=name, chosen_run_again=is_again, difference=interval, time=time))
    return tuple(rows), tuple(comparisons)


def comparison_row(name: str, pairings: Sequence[Pairing], knowledge: Knowledge, run: Evidence) -> ComparisonRow:
    """Return the row of a pairing, or of the mean over several, as measured in a run."""
    wanted = list(dict.fromkeys(direction for pairing in pairings for direction in directions(pairing)))

    def score(evidence: Evidence) -> PairingScore:
        values = knowledge.values(evidence)
        worst = [[max(values[pair], values[pair[::-1]]) for pair in pairing] for pairing in pairings]
        return PairingScore(
            # Every pair is in equally many of all pairings, so the mean over these is the mean over all pairs.
            mean_slowdown=knowledge.interval(knowledge.mean_weights(wanted, evidence)),
            worst_victim=fmean(map(max, worst)),
            past_cap=fmean(sum(victim > SLOWDOWN_CAP for victim in victims) for victims in worst),
        )

    return ComparisonRow(
        name=name,
        pairing=pairings[0] if len(pairings) == 1 else (),
        predicted=score(Evidence.PREDICTED),
        measured=score(run),
        stand_ins=knowledge.stand_ins(wanted, run),
        slowdowns=len(wanted),
    )
