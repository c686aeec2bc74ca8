"""How fast pairs chosen by the belief teach, beside D-optimal and random ones: eight jobs, Gavel and Lucid.

Before anything is measured every pair is expected at the mean of other jobs' pairs: no model helps. Twelve draws of
eight jobs on each device type; the error is that of the speed of the pairs not measured yet.
"""

import random
from collections.abc import Callable

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.predict.next_pairs.belief import OrderedPair, PairBelief, fitted_belief
from interfere.predict.next_pairs.suggestions import suggest_pairs
from interfere.predict.online.prior import default_prior
from interfere.records import PairStatus
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
DRAWS, JOBS, SHOWN = 12, 8, (0, 4, 8, 12, 16, 20)
Pair = tuple[str, str]
Choose = Callable[[PairBelief, list[Pair], random.Random], Pair]


def suggested(known: PairBelief, left: list[Pair], _: random.Random) -> Pair:
    n = len(known.names)
    every = {frozenset((known.names[i], known.names[j])) for i in range(n) for j in range(i, n)}
    return suggest_pairs(known, every - {frozenset(pair) for pair in left}, 1)[0].pair


def d_optimal(known: PairBelief, left: list[Pair], _: random.Random) -> Pair:
    """The pair whose two slowdowns together are least certain."""

    def log_volume(pair: Pair) -> float:
        at = known.rows(dict.fromkeys((pair, pair[::-1])))
        return float(np.linalg.slogdet(known.covariance[np.ix_(at, at)] + np.diag(known.noise_var[at]))[1]) / len(at)

    return max(left, key=log_volume)


def at_random(_: PairBelief, left: list[Pair], rng: random.Random) -> Pair:
    return rng.choice(left)


CHOICES: dict[str, Choose] = {"suggested": suggested, "D-optimal": d_optimal, "random": at_random}


def slowdowns(kind: str) -> dict[str, dict[Pair, float]]:
    """Log slowdowns by device type and ordered pair."""
    pairs = (
        import_gavel(public("gavel/oracle_throughputs.json")) if kind == "gavel" else import_lucid(public("lucid"))
    ).pairs
    by_type: dict[str, dict[Pair, float]] = {}
    for pair in pairs:
        if pair.status is PairStatus.OK:
            value = float(np.log(np.clip(pair.slowdown, 0.7, 20.0)))
            by_type.setdefault(pair.device_type, {})[pair.victim, pair.neighbour] = value
    return by_type


@pytest.mark.parametrize("kind", ["gavel", "lucid"])
def test_errors_after_so_many_pairs(kind: str) -> None:
    for device_type, values in slowdowns(kind).items():
        errors = {choice: np.mean([curve(values, seed, choice) for seed in range(DRAWS)], axis=0) for choice in CHOICES}
        print(f"\n{device_type}: error of speed after {', '.join(map(str, SHOWN))} pairs")
        for choice, means in errors.items():
            print(f"  {choice:10s} " + "  ".join(f"{means[k]:.3f}" for k in SHOWN))
        as_good = np.flatnonzero(errors["suggested"] <= errors["random"][-1])
        print(f"  suggested pairs reach the error of 20 random ones with {as_good[0] if len(as_good) else 'more'}")
        record(
            f"pair suggestions {device_type}",
            {f"{choice} {k}": float(means[k]) for choice, means in errors.items() for k in SHOWN},
        )
        assert errors["suggested"][12] <= errors["random"][12]


def curve(values: dict[Pair, float], seed: int, choice: str) -> np.ndarray:
    """float64[21]: the error of the pairs left after 0 to 20."""
    rng, measured, errors = random.Random(seed), dict[OrderedPair, float](), []
    names = drawn_jobs(values, rng)
    guess = np.mean([value for pair, value in values.items() if not set(pair) & set(names)])
    left = [(a, b) for k, a in enumerate(names) for b in names[k:]]
    for _ in range(21):
        prior = fitted_belief(names, np.full((JOBS, JOBS), guess), default_prior(), measured)
        known = prior.given(measured)
        rest = [way for a, b in left for way in dict.fromkeys(((a, b), (b, a)))]
        predicted = np.exp(-known.mean[known.rows(rest)])
        errors.append(np.mean(np.abs(predicted - np.exp([-values[way] for way in rest]))))
        chosen = CHOICES[choice](known, left, rng)
        left.remove(chosen)
        measured |= {way: values[way] for way in (chosen, chosen[::-1])}
    return np.array(errors)


def drawn_jobs(values: dict[Pair, float], rng: random.Random) -> list[str]:
    """Eight jobs whose pairs are all measured."""
    names = sorted({name for pair in values for name in pair})
    while True:
        drawn = sorted(rng.sample(names, JOBS))
        if all((a, b) in values for a in drawn for b in drawn):
            return drawn
