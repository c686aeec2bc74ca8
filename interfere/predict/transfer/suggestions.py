"""Chooses the pairs that teach most about all others: greedy reduction of the expected error of speed.

Each candidate is an unordered pair, and measuring it gives both directions (of a self pair, the one there is). The gain
of a candidate is how much it lowers the posterior variance of every ordered pair, in units of speed (A-optimality;
Krause, Singh and Guestrin 2008 show why greedy choice is near the best). Once something was measured, a pair that
likely matchings choose counts more than one that none would: an error there changes a decision. Before that, what
sources say of matchings counts for nothing: on Gavel, 12 pairs chosen with it err 0 to 7 % more. Of jobs that no source
measured, every one is taken once before any is taken again: jobs of which nothing is known are where a prior is most
often wrong. Jobs that other device types' tables measured are exempt: on Gavel, 12 pairs chosen so err 2 to 17 % less.
Where it is known how much each pair counts, as the GPU hours of a trace tell, these weights stand in for the matchings
and for that rule. Several are chosen without their measured values: the choice depends on where was measured, and what
is expected there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.pairs import match_pairs
from interfere.predict.field.spaces import root_of
from interfere.predict.teaching import UnknownPairs
from interfere.predict.transfer.process import (
    NOISE,
    Floats,
    Indices,
    Posterior,
    all_pairs,
    noise_variance,
    speed_slope,
    to_slowdown,
)

MAX_TARGETS = 2_500  # ordered pairs whose variance counts, drawn at random where there are more: 50 jobs
DRAWS = 48  # of all slowdowns from the posterior, each with its best matching
CHOSEN_WEIGHT = 3.0  # of a pair that every draw's matching chooses, beside 1 for any pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A pair to measure next, with its expected gain."""

    pair: tuple[str, str]
    error_now: float  # expected absolute error of its own two speeds
    gain: float  # by which the expected squared error of all pairs' speeds falls, as a share of what it is now
    chosen: float  # share of likely matchings in which these two share a device; NaN with weights of the caller


def suggest(
    posterior: Posterior,
    candidates: Sequence[tuple[int, int]],
    count: int,
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
) -> tuple[Suggestion, ...]:
    """The `count` candidates (unordered pairs of job indices) to measure, the most telling first.

    `weights`: float64[n, n], how much an error of each ordered pair's speed counts; None: by likely matchings.
    """
    names = posterior.space.jobs
    # 1. All ordered pairs, weighted by how much an error there matters for speed and for matchings.
    targets, weight, chosen = _weighted_targets(posterior, rng, weights)
    # 2. What is not known of targets and candidates.
    left = np.array(list(dict.fromkeys((min(pair), max(pair)) for pair in candidates)), dtype=np.int64).reshape(-1, 2)
    unknown = _unknown(posterior, targets, left)
    total = float(weight @ np.diag(posterior.covariance(targets, targets)))
    # 3. Take the best, condition on it, repeat.
    is_open = np.ones(len(left), dtype=bool)
    taken = np.minimum(np.bincount(np.concatenate(posterior.measured), minlength=len(names)), 1)
    # Jobs that no source measured are taken in turn; those measured so far count once.
    is_known = np.any([source.is_measured for source in posterior.space.sources], axis=0)
    suggestions: list[Suggestion] = []
    for _ in range(min(count, len(left))):
        is_next = is_open if weights is not None else is_open & _in_turn(np.where(is_known, -1, taken)[left], is_open)
        gain = np.where(is_next, unknown.gain(weight), -1.0)
        best = int(np.argmax(gain))
        a, b = left[best].tolist()
        suggestions.append(
            Suggestion(
                pair=(names[a], names[b]),
                error_now=unknown.error(best),
                gain=float(gain[best]) / total,
                chosen=float(chosen[a, b]),
            )
        )
        is_open[best] = False
        taken[np.unique([a, b])] += 1
        unknown.condition(best)
    return tuple(suggestions)


def _weighted_targets(
    posterior: Posterior, rng: np.random.Generator, weights: Floats | None
) -> tuple[tuple[Indices, Indices], Floats, Floats]:
    """(t ordered pairs, their weights float64[t], share of likely matchings that choose a pair, float64[n, n])."""
    jobs = len(posterior.space.jobs)
    targets, chosen = all_pairs(jobs), np.zeros((jobs, jobs))
    if jobs**2 > MAX_TARGETS:
        kept = rng.choice(jobs**2, MAX_TARGETS, replace=False)
        targets = targets[0][kept], targets[1][kept]
    elif weights is None and len(posterior.measured[0]):
        chosen = matching_frequency(posterior, rng)
    slopes = speed_slope(posterior.expected(targets)[0])
    if weights is not None:
        return targets, slopes**2 * weights[targets], np.full((jobs, jobs), np.nan)
    return targets, slopes**2 * (1.0 + CHOSEN_WEIGHT * chosen[targets]), chosen


def _in_turn(taken: Indices, is_open: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[c]: candidates that take no job again before others are taken; int64[c, 2] says how often each job of a
    candidate was taken, -1 for a job that may recur."""
    reuse = taken.max(axis=1)
    in_turn = is_open & (reuse >= 0)
    return np.asarray(reuse <= (reuse[in_turn].min() if in_turn.any() else -1))


def _unknown(posterior: Posterior, targets: tuple[Indices, Indices], candidates: Indices) -> UnknownPairs:
    directions = candidates.ravel(), candidates[:, ::-1].ravel()
    expected = posterior.expected(directions)[0]
    return UnknownPairs(
        cross=posterior.covariance(targets, directions),
        own=posterior.covariance(directions, directions),
        noise=noise_variance(to_slowdown(expected)),
        slopes=speed_slope(expected),
        is_self=candidates[:, 0] == candidates[:, 1],
    )


def matching_frequency(posterior: Posterior, rng: np.random.Generator) -> Floats:
    """float64[n, n], symmetric: in which share of draws from the posterior the best matching pairs two jobs."""
    jobs = len(posterior.space.jobs)
    every = all_pairs(jobs)
    expected, _ = posterior.expected(every)
    root = root_of(posterior.covariance(every, every) + NOISE**2 * np.eye(jobs**2))
    counts = np.zeros((jobs, jobs))
    for _ in range(DRAWS):
        slowdown = to_slowdown(expected + root @ rng.normal(size=jobs**2)).reshape(jobs, jobs)
        cost = slowdown + slowdown.T
        partner = match_pairs(cost, np.full(jobs, cost.max() + 1.0)).mate
        for i in np.flatnonzero(partner >= 0):
            if partner[i] != i:
                counts[i, partner[i]] += 1.0
    return counts / DRAWS
