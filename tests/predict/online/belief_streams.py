"""Streams of windows with a known truth: an exact table, noise, lying reporters, jobs that change."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from interfere.predict.online.belief import Belief, LearnedWindow
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.prior import default_prior

DOMAIN = ("gpu", "mps")
NOISE_OF_TRAINING = 0.024
LOG_LIE = math.log(5.0)
# The factor of the k-th window of a lying reporter's job, `progress` of the way through the stream.
LIES: dict[str, Callable[[int, float], float]] = {
    "times 5": lambda k, progress: LOG_LIE,
    "by 5": lambda k, progress: -LOG_LIE,
    "alternating": lambda k, progress: LOG_LIE * (-1.0) ** k,
    "growing": lambda k, progress: LOG_LIE * progress,
    "times 2": lambda k, progress: math.log(2.0),
    "alternating 2": lambda k, progress: math.log(2.0) * (-1.0) ** k,
    "growing 2": lambda k, progress: math.log(2.0) * progress,
}
ODD_JOBS = "odd jobs 2"  # doubled, but only of every second job
# Lies that are hard to see in a single window.
SUBTLE_LIES: dict[str, Callable[[int, float], float]] = {
    "clock 1.1": lambda k, progress: math.log(1.1),  # a clock that runs a tenth too fast
    "slow 2": lambda k, progress: math.log(2.0) * max(2.0 * progress - 1.0, 0.0),  # honest at first, then ever more
}
COPIES = "copies, then times 2"  # sends back what the server believes for half of the stream, then doubles the truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A site with a table of exact slowdowns, whose jobs have one reporter each unless they are shared."""

    noise: float
    seed: int = 0
    windows: int = 1500
    jobs: int = 24
    reporters: int = 4
    named: bool = True  # do reporters give their names?
    lie: str = ""
    liars: tuple[int, ...] = ()
    change: float = 1.0  # factor of job 0, from half of the stream on
    shared: bool = False  # does every reporter see every job?
    drifted: bool = False  # has the site drifted from the table, by a factor, a constant and effects of jobs?
    liar_first: int = 0  # windows at the beginning that the first reporter alone sends


@dataclass(slots=True, kw_only=True)
class StreamResult:
    """What the stream taught."""

    belief: Belief
    table: np.ndarray  # float64[jobs, jobs], log slowdown
    truth: np.ndarray
    honest_jobs: list[int]
    learned: list[tuple[int, LearnedWindow]] = field(default_factory=list)  # victim, and what its window taught
    is_lie: list[bool] = field(default_factory=list)  # of every window
    windows_to_learn_change: int = 0  # windows of job 0 after which its error was at most 10 %; 0: never

    def error(self, jobs: list[int]) -> float:
        """Mean relative error of the predictions of these victims beside all jobs."""
        errors = [
            abs(math.expm1(self.predicted(v, n) - self.truth[v, n])) for v in jobs for n in range(len(self.table))
        ]
        return float(np.mean(errors))

    def predicted(self, victim: int, neighbour: int) -> float:
        """Corrected log slowdown of a pair."""
        asked = observation(victim, neighbour, self.table[victim, neighbour], 0.0, "")
        return float(asked.log_predicted + self.belief.effects.expected(asked, self.belief.domain(DOMAIN)).mean)

    @property
    def honest_outliers(self) -> float:
        """Share of the windows of honest reporters that were told to be outliers."""
        honest = set(self.honest_jobs)
        return float(np.mean([window.is_outlier for sender, window in self.senders if sender in honest]))

    @property
    def senders(self) -> list[tuple[int, LearnedWindow]]:
        """Every window with its victim, or with the job -1 where a liar sent it."""
        return [
            (-1 if is_lie else victim, window)
            for (victim, window), is_lie in zip(self.learned, self.is_lie, strict=True)
        ]


def observation(
    victim: int, neighbour: int, log_predicted: float, log_observed: float, reporter: str
) -> PairObservation:
    """A window of a measured pair."""
    return PairObservation(
        victim=(f"w{victim}", *DOMAIN),
        neighbour=(f"w{neighbour}", *DOMAIN),
        log_predicted=log_predicted,
        log_observed=log_observed,
        measured=True,
        reporter=reporter,
    )


def run_stream(stream: Stream, sent: Callable[[PairObservation], None] = lambda _: None) -> StreamResult:
    """Report windows of random pairs, one after another; each is given to `sent` too."""
    rng, n = np.random.default_rng(stream.seed), stream.jobs
    effects = 0.3 + rng.normal(0, 0.2, (n, 1)) + rng.normal(0, 0.15, (1, n)) + rng.normal(0, 0.1, (n, n))
    table = np.maximum(effects, 0.02)
    belief = Belief(replace(default_prior(), noise_var=NOISE_OF_TRAINING**2), BeliefState())
    honest = [job for job in range(n) if stream.shared or job % stream.reporters not in stream.liars]
    result = StreamResult(belief=belief, table=table, truth=table.copy(), honest_jobs=honest)
    if stream.drifted:
        effects = 0.15 + rng.normal(0, 0.1, (n, 1)) + rng.normal(0, 0.07, (1, n))
        result.truth = np.maximum(0.7 * table + effects, 0.0)
    counts = np.zeros(n, dtype=int)
    for k in range(stream.windows):
        victim, neighbour = int(rng.integers(n)), int(rng.integers(n))
        changed = stream.change != 1.0 and k >= stream.windows // 2
        if stream.change != 1.0 and k == stream.windows // 2:
            result.truth[0] += math.log(stream.change)
        reporter, observed = victim % stream.reporters, result.truth[victim, neighbour] + rng.normal(0, stream.noise)
        if stream.shared:
            reporter = 0 if k < stream.liar_first else int(rng.integers(stream.reporters))
        result.is_lie.append(reporter in stream.liars)
        progress = k / stream.windows
        if reporter in stream.liars and stream.lie == ODD_JOBS:
            observed += math.log(2.0) * (victim % 2)
        elif reporter in stream.liars and stream.lie == COPIES:
            observed = result.predicted(victim, neighbour) if progress < 0.5 else observed + math.log(2.0)
        elif reporter in stream.liars:
            observed += (LIES | SUBTLE_LIES)[stream.lie](int(counts[victim]), progress)
        counts[victim] += 1
        observed = min(max(observed, math.log(0.2)), math.log(100.0))
        name = f"r{reporter}" if stream.named else ""
        window = observation(victim, neighbour, table[victim, neighbour], observed, name)
        sent(window)
        learned = belief.learn(window)
        result.learned.append((victim, learned))
        if changed and victim == 0 and not result.windows_to_learn_change:
            late = sum(v == 0 for v, _ in result.learned[stream.windows // 2 :])
            result.windows_to_learn_change = late if result.error([0]) <= 0.10 else 0
    return result


def upgraded(
    rows: list[tuple[str, str, str, float]], family_of: dict[str, str], seed: int
) -> tuple[np.ndarray, np.random.Generator]:
    """Log slowdowns after an upgrade of the software stack, one per row (device, victim, neighbour, log slowdown).

    log s' = a_d · log s + b_family + c_victim + d_neighbour + ε with a_d ~ U(.5, 1.5) by device, b, c, d ~ N(0, .15),
    ε ~ N(0, .05), s' ≥ 1.
    """
    rng = np.random.default_rng(seed)
    devices, jobs = sorted({row[0] for row in rows}), sorted({name for row in rows for name in row[1:3]})
    factor = {device: rng.uniform(0.5, 1.5) for device in devices}
    family_shift = {family: rng.normal(0, 0.15) for family in sorted(set(family_of.values()))}
    own = {(device, job): rng.normal(0, 0.15) for device in devices for job in jobs}
    harm = {(device, job): rng.normal(0, 0.15) for device in devices for job in jobs}
    shifted = [
        factor[d] * log_s + family_shift[family_of[v]] + own[d, v] + harm[d, n] + rng.normal(0, 0.05)
        for d, v, n, log_s in rows
    ]
    return np.maximum(shifted, 0.0), rng


def upgraded_by_families(
    rows: list[tuple[str, str, str, float]], family_of: dict[str, str], seed: int
) -> tuple[np.ndarray, np.random.Generator]:
    """Log slowdowns after an upgrade that jobs feel by their families: log s' = a · log s + b + c_families, s' ≥ 1.

    a is .6 or 1.5 and b is -.2 or .2, the same on all devices, c ~ N(0, .15) of each two families.
    """
    rng = np.random.default_rng(seed)
    families = sorted(set(family_of.values()))
    of_families = {(one, two): rng.normal(0, 0.15) for one in families for two in families}
    factor, constant = rng.choice([0.6, 1.5]), rng.choice([-0.2, 0.2])
    shifted = [factor * log_s + constant + of_families[family_of[v], family_of[n]] for _, v, n, log_s in rows]
    return np.maximum(shifted, 0.0), rng


UPGRADES = {"devices and jobs": upgraded, "families": upgraded_by_families}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeResult:
    """Errors on the pairs that were not reported after an upgrade."""

    error: float  # of speed
    coverage: float  # of the 90 % intervals
    error_of_table: float


def run_upgrade(
    rows: list[tuple[str, str, str, float]],
    family_of: dict[str, str],
    share: float,
    seed: int,
    *,
    upgrade: str = "devices and jobs",
) -> UpgradeResult:
    """Report a random share of the rows once each, as one unnamed reporter; the table holds the old slowdowns."""
    truth, rng = UPGRADES[upgrade](rows, family_of, seed)
    order = rng.permutation(len(rows))
    reported, others = order[: int(share * len(rows))], order[int(share * len(rows)) :]
    belief = Belief(replace(default_prior(), noise_var=NOISE_OF_TRAINING**2), BeliefState())

    def window(k: int) -> PairObservation:
        device, victim, neighbour, log_s = rows[k]
        return PairObservation(
            victim=(victim, device, "mps"),
            neighbour=(neighbour, device, "mps"),
            log_predicted=log_s,
            log_observed=float(truth[k]),
            measured=True,
            families=(family_of[victim], family_of[neighbour]),
        )

    for k in reported.tolist():
        belief.learn(window(k))
    errors, inside, errors_of_table = [], [], []
    for k in others.tolist():
        domain = belief.domain((rows[k][0], "mps"))
        expected = belief.effects.expected(window(k), domain)
        predicted = rows[k][3] + expected.mean
        half_width = 1.645 * math.sqrt(expected.variance + domain.noise_var)
        errors.append(abs(math.exp(-predicted) - math.exp(-truth[k])))
        errors_of_table.append(abs(math.exp(-rows[k][3]) - math.exp(-truth[k])))
        inside.append(abs(predicted - truth[k]) <= half_width)
    return UpgradeResult(
        error=float(np.mean(errors)), coverage=float(np.mean(inside)), error_of_table=float(np.mean(errors_of_table))
    )
