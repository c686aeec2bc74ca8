"""What the oracle says of a plan: legal or not, and whether what it claims of each level is true."""

import math
from collections import Counter
from dataclasses import dataclass, field

from interfere.policy.solve.planner import plan_pending_jobs
from interfere.records import Plan, SolveStatus
from tests.policy.oracle.exhaustive import IllegalPlanError, LevelKey, Oracle
from tests.policy.oracle.random_clusters import RandomCluster

TOLERANCE = 1e-7  # relative, of the value of a level: within it a plan may claim to be optimal
MIN_OPTIMAL_SHARE = 0.98


@dataclass(kw_only=True)
class Tally:
    """What was found over many clusters; `faults` holds the seed and the fault in words."""

    clusters: int = 0
    undecided: int = 0  # rounding decides a rule: nothing can be said
    optimal: int = 0
    truly_optimal: int = 0
    faults: list[tuple[int, str]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def optimal_share(self) -> float:
        """Of the plans that claim to be optimal."""
        return self.optimal / max(1, self.clusters - self.undecided)

    def __str__(self) -> str:
        return (
            f"{self.clusters} clusters, {self.undecided} undecided, {100 * self.optimal_share:.2f} % claimed optimal, "
            f"{self.truly_optimal} truly optimal, faults: {dict(self.kinds)}"
        )


def check_seeds(seeds: range, cluster: type[RandomCluster] = RandomCluster, oracle_of: type[Oracle] = Oracle) -> Tally:
    """Plan the cluster of each seed and compare the plan with every placement."""
    tally = Tally()
    for seed in seeds:
        drawn = cluster(seed)
        oracle = oracle_of(drawn)
        tally.clusters += 1
        if oracle.costs.is_near:
            tally.undecided += 1
            continue
        plan = plan_pending_jobs(drawn.context())
        tally.optimal += plan.status is SolveStatus.OPTIMAL
        faults = faults_of(oracle, plan)
        tally.faults += [(seed, f"{kind}: {text}") for kind, text in faults]
        tally.kinds.update({kind for kind, _ in faults})
        tally.truly_optimal += not faults and _is_best(oracle, plan)
    return tally


def faults_of(oracle: Oracle, plan: Plan) -> list[tuple[str, str]]:
    """(kind, description) of everything that is wrong with a plan and its claims."""
    try:
        levels = oracle.levels_of(plan)
    except IllegalPlanError as error:
        return [("illegal", str(error))]
    best, slack = oracle.best(), oracle.tolerances()
    worse = first_difference(levels, best, slack)
    faults = []
    if worse is not None and levels[worse] < best[worse] and not _tolerated_above(levels, best, worse):
        faults.append(("oracle", f"the plan {levels} is better than the best {best}"))
    if plan.status is SolveStatus.OPTIMAL and worse is not None and levels[worse] > best[worse]:
        faults.append(("false optimal", f"{oracle.keys[worse]}: {levels} where {best} is best"))
    return faults + _bound_faults(oracle, plan, levels, best) + _reported_faults(oracle, plan, levels)


def first_difference(levels: tuple[float, ...], best: tuple[float, ...], slack: tuple[float, ...]) -> int | None:
    """The first level at which two placements differ by more than the tolerance; None where they do nowhere."""
    for k, (value, other) in enumerate(zip(levels, best, strict=True)):
        if abs(value - other) > TOLERANCE * max(abs(value), abs(other)) + slack[k]:
            return k
    return None


def _tolerated_above(levels: tuple[float, ...], best: tuple[float, ...], k: int) -> bool:
    """Is a level above a little worse than the best, within the tolerance? Then a lower one may be better."""
    return levels[:k] != best[:k]


def _is_best(oracle: Oracle, plan: Plan) -> bool:
    levels, best = oracle.levels_of(plan), oracle.best()
    worse = first_difference(levels, best, oracle.tolerances())
    return worse is None or levels[worse] < best[worse]


def _bound_faults(
    oracle: Oracle, plan: Plan, levels: tuple[float, ...], best: tuple[float, ...]
) -> list[tuple[str, str]]:
    """Lower bounds that some placement undercuts: of the levels that the plan states, else of the plan itself.

    A level's bound holds among the placements that are as good as the plan at all levels above.
    """
    slack, stated = oracle.tolerances(), stated_levels(oracle, plan)
    bounds = {key: bound for key, (_, bound) in stated.items()}
    if not stated and not oracle.costs.is_weighted:
        objective = next(key for key in oracle.keys if key.kind != "waiting_weight")
        bounds = {objective: plan.lower_bound}  # one bound for one level
    faults = []
    for k, key in enumerate(oracle.keys):
        if key not in bounds:
            continue
        least = best[k] if levels[:k] == best[:k] else _least(oracle, levels, k)
        if bounds[key] > least + TOLERANCE * abs(least) + slack[k]:
            faults.append(("bound", f"{key}: {bounds[key]} where {least} is possible"))
    return faults


def _least(oracle: Oracle, levels: tuple[float, ...], k: int) -> float:
    """The smallest value of level k among the placements that are as good at all levels above."""
    as_good = (
        other[k] for other in oracle.all_levels() if all(a <= b for a, b in zip(other[:k], levels[:k], strict=True))
    )
    return min(as_good)


def _reported_faults(oracle: Oracle, plan: Plan, levels: tuple[float, ...]) -> list[tuple[str, str]]:
    """Values of levels that the plan states wrongly."""
    slack = oracle.tolerances()
    own = dict(zip(oracle.keys, zip(levels, slack, strict=True), strict=True))
    return [
        ("reported", f"{key}: stated {value}, its actions come to {own[key][0]}")
        for key, (value, _) in stated_levels(oracle, plan).items()
        if math.isfinite(own[key][0]) and abs(value - own[key][0]) > TOLERANCE * abs(value) + own[key][1]
    ]


def stated_levels(oracle: Oracle, plan: Plan) -> dict[LevelKey, tuple[float, float]]:
    """(value, lower bound) of each level that a plan states; empty for plans without levels."""
    stated = {}
    for level in getattr(plan, "levels", ()):
        key = LevelKey(kind=str(level.kind), priority=level.priority)
        if key not in oracle.keys:
            key = LevelKey(kind=str(level.kind))
        if key in oracle.keys:
            stated[key] = (level.value, level.lower_bound)
    return stated
