"""How fast pairs chosen by the belief teach, beside D-optimal and random ones: eight jobs of Gavel and of Lucid.

Before anything is measured every pair is expected at the mean of other jobs' pairs: no model and no facts help. Six
draws of eight jobs on each device type; the error is that of the speed of the pairs not measured yet.
"""

import random
from collections.abc import Callable

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.predict.transfer.pair_belief import OrderedPair, PairBelief, pair_belief, space_of_profiles
from interfere.predict.transfer.process import PairSpace, noise_variance, source_of_model
from interfere.records import NAN, JobProfile, PairStatus
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
DRAWS, JOBS, SHOWN = 6, 8, (0, 4, 8, 12, 16, 20)
Slowdowns = dict[OrderedPair, float]
Choose = Callable[[PairBelief, list[OrderedPair], random.Random], OrderedPair]


def suggested(known: PairBelief, left: list[OrderedPair], _: random.Random) -> OrderedPair:
    return known.suggest(1, among=left)[0].pair


def d_optimal(known: PairBelief, left: list[OrderedPair], _: random.Random) -> OrderedPair:
    """The pair whose two values together are least certain."""

    def log_volume(pair: OrderedPair) -> float:
        ways = list(dict.fromkeys((pair, pair[::-1])))
        index = [[known.jobs.index(name) for name in way] for way in ways]
        rows = np.array(index)[:, 0], np.array(index)[:, 1]
        noise = np.diag(noise_variance(np.array([each.slowdown for each in known.predict(ways)])))
        return float(np.linalg.slogdet(known.posterior.covariance(rows, rows) + noise)[1]) / len(ways)

    return max(left, key=log_volume)


def at_random(_: PairBelief, left: list[OrderedPair], rng: random.Random) -> OrderedPair:
    return rng.choice(left)


CHOICES: dict[str, Choose] = {"suggested": suggested, "D-optimal": d_optimal, "random": at_random}


def slowdowns(kind: str) -> dict[str, Slowdowns]:
    """Slowdowns by device type and ordered pair."""
    pairs = (
        import_gavel(public("gavel/oracle_throughputs.json")) if kind == "gavel" else import_lucid(public("lucid"))
    ).pairs
    by_type: dict[str, Slowdowns] = {}
    for pair in pairs:
        if pair.status is PairStatus.OK:
            by_type.setdefault(pair.device_type, {})[pair.victim, pair.neighbour] = min(max(pair.slowdown, 0.7), 20.0)
    return by_type


@pytest.mark.parametrize("kind", ["gavel", "lucid"])
def test_errors_after_so_many_pairs(kind: str) -> None:
    for device_type, values in slowdowns(kind).items():
        curves: dict[str, list[list[float]]] = {choice: [] for choice in CHOICES}
        for seed in range(DRAWS):
            rng = random.Random(seed)
            names = drawn_jobs(values, rng)
            space = space_without_facts(names, values)
            for choice in CHOICES:
                curves[choice].append(errors(space, values, choice, random.Random(seed), SHOWN[-1]))
        means = {choice: np.mean(curve, axis=0) for choice, curve in curves.items()}
        report(device_type, means)
        as_good = np.flatnonzero(means["suggested"] <= means["random"][-1])
        print(f"  suggested pairs reach the error of 20 random ones with {as_good[0] if len(as_good) else 'more'}")
        assert means["suggested"][12] <= means["random"][12]


def report(title: str, means: dict[str, np.ndarray]) -> None:
    """Print the curves and keep them."""
    print(f"\n{title}: error of speed after {', '.join(map(str, SHOWN))} pairs")
    for choice, mean in means.items():
        print(f"  {choice:16s} " + "  ".join(f"{mean[k]:.3f}" for k in SHOWN))
    figures = {f"{choice} {k}": float(mean[k]) for choice, mean in means.items() for k in SHOWN}
    record(f"pair suggestions {title}", figures)


def errors(space: PairSpace, values: Slowdowns, choice: str, rng: random.Random, pairs: int) -> list[float]:
    """The mean error of the speed of the pairs left after 0 to so many."""
    measured: Slowdowns = {}
    curve = []
    left = [(a, b) for k, a in enumerate(space.jobs) for b in space.jobs[k:]]
    for _ in range(pairs + 1):
        known = pair_belief(space, dict(measured))
        rest = [way for pair in left for way in dict.fromkeys((pair, pair[::-1]))]
        answers = known.predict(rest)
        curve.append(float(np.mean([abs(1 / a.slowdown - 1 / values[a.victim, a.neighbour]) for a in answers])))
        chosen = CHOICES[choice](known, left, rng)
        left.remove(chosen)
        measured |= {way: values[way] for way in (chosen, chosen[::-1])}
    return curve


def additive_errors(values: Slowdowns, rng: random.Random, pairs: int) -> list[float]:
    """The same of a ridge regression of speed on victim and neighbour, from random pairs."""
    names = sorted({name for pair in values for name in pair})
    left = [(a, b) for k, a in enumerate(names) for b in names[k:]]
    rng.shuffle(left)
    curve = []
    for k in range(pairs + 1):
        known, rest = ([w for p in part for w in dict.fromkeys((p, p[::-1]))] for part in (left[:k], left[k:]))
        rows = {
            way: np.array([*(name == way[0] for name in names), *(name == way[1] for name in names)], dtype=float)
            for way in (*known, *rest)
        }
        mean = np.mean([1 / values[way] for way in known]) if known else 1.0
        design = np.array([rows[way] for way in known]).reshape(-1, 2 * len(names))
        target = np.array([1 / values[way] - mean for way in known])
        effects = np.linalg.solve(design.T @ design + 0.5 * np.eye(2 * len(names)), design.T @ target)
        curve.append(float(np.mean([abs(mean + rows[way] @ effects - 1 / values[way]) for way in rest])))
    return curve


def space_without_facts(names: list[str], values: Slowdowns) -> PairSpace:
    """Jobs of which nothing is known but what pairs of other jobs cost on average."""
    guess = float(np.mean([np.log(value) for pair, value in values.items() if not set(pair) & set(names)]))
    profiles = [JobProfile(workload=name, device_type="any", step_time_s=NAN) for name in names]
    return space_of_profiles(profiles, [source_of_model("mean", np.full((len(names), len(names)), guess))])


def drawn_jobs(values: Slowdowns, rng: random.Random) -> list[str]:
    """Eight jobs whose pairs are all measured."""
    names = sorted({name for pair in values for name in pair})
    while True:
        drawn = sorted(rng.sample(names, JOBS))
        if all((a, b) in values for a in drawn for b in drawn):
            return drawn
