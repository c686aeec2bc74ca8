"""The slowdown of one workload beside others: measured, predicted from other pairs of the site, or unknown.

Pairs that were not measured are predicted from those that were: their log slowdowns are rows of the field
(`interfere.predict.field`), with terms of the victim, of the neighbour and of the pair. A pair of which neither side
was measured is unknown, and so is everything where fewer than three rows are.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from interfere.monitoring.audit.slowdowns import Baseline, Company, SlowdownEstimate
from interfere.predict.field.gaussian import Posterior, condition
from interfere.predict.field.terms import Rows, indicator
from interfere.records import NAN

MIN_ROWS = 3  # fewer measured rows of a device type predict nothing
MAX_ROWS = 1000  # the surest: the work grows with their cube, and effects of one side are known well before
MIN_SD = 0.05  # of log slowdown between pairs: below it all pairs would be alike
# Shares of the variance of log slowdowns in published tables: additive R² .53 to .84 (`interfere data card`).
VICTIM_SHARE, NEIGHBOUR_SHARE, PAIR_SHARE = 0.35, 0.35, 0.3
MEAN_VARIANCE = 10.0  # of the mean of all pairs, times the variance between them: as good as unknown


class Origin(StrEnum):
    """The origin of a slowdown: measured, predicted or unknown."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"


class PairVerdict(StrEnum):
    """The verdict on sharing: whether two jobs progress faster together on a device than one after the other."""

    KEEP = "sharing pays"
    SEPARATE = "separate"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimCost:
    """The slowdown of a workload beside one set of neighbours, and the hours that the workload's jobs spent there."""

    victim: str
    company: Company
    origin: Origin
    hours: float  # of the victim's jobs in this company
    slowdown: float = NAN
    lower: float = NAN  # of a 95 % interval
    upper: float = NAN
    log_sd: float = NAN
    baseline: Baseline | None = None  # None unless measured
    episodes: int = 0

    def lost_hours(self, slowdown: float) -> float:
        """Return the job-hours lost at a slowdown; NaN for an unknown slowdown."""
        return self.hours * (1 - 1 / slowdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCost:
    """Two workloads that shared devices, and the progress that both lost by sharing."""

    device_type: str
    device_hours: float
    sides: tuple[VictimCost, VictimCost]

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two workloads."""
        return self.sides[0].victim, self.sides[1].victim

    @property
    def worst_side(self) -> VictimCost:
        """The cost of the victim that is slowed most."""
        return max(self.sides, key=lambda side: -1.0 if math.isnan(side.lower) else side.lower)

    @property
    def lost_hours(self) -> float:
        """The job-hours lost by the victims whose slowdown is known."""
        sides = self.sides if self.names[0] != self.names[1] else self.sides[:1]  # it has the hours of both
        return sum(side.lost_hours(side.slowdown) for side in sides if side.origin is not Origin.UNKNOWN)

    @property
    def joint_throughput(self) -> float:
        """The progress of both jobs together over the progress of one job alone; below 1, running one after the other
        is faster."""
        return sum(1 / side.slowdown for side in self.sides)

    @property
    def verdict(self) -> PairVerdict:
        """Whether sharing pays for the pair, from the ends of both slowdowns' intervals."""
        if sum(1 / side.upper for side in self.sides) > 1:
            return PairVerdict.KEEP
        return PairVerdict.SEPARATE if sum(1 / side.lower for side in self.sides) < 1 else PairVerdict.UNSURE

    @property
    def is_known(self) -> bool:
        """Whether the slowdowns of both jobs are measured or predicted."""
        return all(side.origin is not Origin.UNKNOWN for side in self.sides)

    def facts(self) -> dict[str, Any]:
        """Return the pair, its verdict and its lost hours as a mapping for programs."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        verdict = self.verdict.value if self.is_known else "unknown"
        return values | {"lost_hours": self.lost_hours, "joint_throughput": self.joint_throughput, "verdict": verdict}


class KnownSlowdowns:
    """The slowdown of any workload in any company, by device type: measured, else predicted from other pairs, else
    unknown."""

    def __init__(self, estimates: Sequence[SlowdownEstimate]) -> None:
        self._measured = {(each.device_type, each.victim, each.company): each for each in estimates}
        pairs: dict[str, list[SlowdownEstimate]] = defaultdict(list)
        for each in estimates:
            if len(each.company) == 1:
                pairs[each.device_type].append(each)
        self._effects = {device_type: PairEffects(of_type) for device_type, of_type in pairs.items()}

    def cost(self, device_type: str, victim: str, company: Company, hours: float = 0.0) -> VictimCost:
        """Return the slowdown of a workload in a company; `hours` are the hours that the workload's jobs spent in the
        company."""
        estimate = self._measured.get((device_type, victim, company))
        if estimate is not None:
            names = ("slowdown", "lower", "upper", "log_sd", "baseline", "episodes")
            values = {name: getattr(estimate, name) for name in names}
            return VictimCost(victim=victim, company=company, origin=Origin.MEASURED, hours=hours, **values)
        effects = self._effects.get(device_type) if len(company) == 1 else None
        predicted = effects.predict(victim, company[0]) if effects else None
        if predicted is None:
            return VictimCost(victim=victim, company=company, origin=Origin.UNKNOWN, hours=hours)
        mean, sd = predicted
        return VictimCost(
            victim=victim,
            company=company,
            origin=Origin.PREDICTED,
            hours=hours,
            slowdown=math.exp(mean),
            lower=math.exp(mean - 1.96 * sd),
            upper=math.exp(mean + 1.96 * sd),
            log_sd=sd,
        )


class PairEffects:
    """Predicts slowdowns of pairs of workloads on one device type from the pairs that were measured there."""

    def __init__(self, measured: Sequence[SlowdownEstimate]) -> None:
        """Fit the effects to `measured`, the slowdowns beside one neighbour."""
        measured = sorted(measured, key=lambda each: each.log_sd)[:MAX_ROWS]
        self._predicted: dict[str, tuple[list[float], list[float]]] = {}  # means and deviations by victim
        self._posterior: Posterior | None = None
        if len(measured) < MIN_ROWS:
            return
        pairs = [(each.victim, each.company[0]) for each in measured]
        # The group after those of the names is that of all others, of which nothing was measured.
        self._victims = {name: k for k, name in enumerate(dict.fromkeys(victim for victim, _ in pairs))}
        self._neighbours = {name: k for k, name in enumerate(dict.fromkeys(neighbour for _, neighbour in pairs))}
        self._pairs = {pair: k for k, pair in enumerate(dict.fromkeys(pairs))}
        y = np.array([math.log(each.slowdown) for each in measured])
        self._mean, variance = float(y.mean()), max(float(y.var()), MIN_SD**2)
        self._posterior = condition(
            Rows(
                values=y - self._mean,
                noise_var=np.array([each.log_sd**2 for each in measured]),
                weights=np.ones(len(y)),
            ),
            [
                indicator(name, np.array(groups), count + 1, share * variance)
                for name, groups, count, share in (
                    ("mean", [0] * len(y), 0, MEAN_VARIANCE),
                    ("victim", [self._victims[victim] for victim, _ in pairs], len(self._victims), VICTIM_SHARE),
                    ("neighbour", [self._neighbours[n] for _, n in pairs], len(self._neighbours), NEIGHBOUR_SHARE),
                    ("pair", [self._pairs[pair] for pair in pairs], len(self._pairs), PAIR_SHARE),
                )
            ],
        )

    def predict(self, victim: str, neighbour: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of the log slowdown of a pair; None where no measured pair shares a job
        with the pair in the same role."""
        if self._posterior is None or not (victim in self._victims or neighbour in self._neighbours):
            return None
        known = victim if victim in self._victims else ""  # all others are alike
        if known not in self._predicted:
            self._predicted[known] = self._beside_all(known, self._posterior)
        mean, sd = self._predicted[known]
        place = self._neighbours.get(neighbour, len(self._neighbours))
        return mean[place], sd[place]

    def _beside_all(self, victim: str, posterior: Posterior) -> tuple[list[float], list[float]]:
        """Return mean and deviation of a victim beside each measured neighbour, and at last beside any other."""
        names = [*self._neighbours, ""]
        groups = {
            "mean": [0] * len(names),
            "victim": [self._victims.get(victim, len(self._victims))] * len(names),
            "neighbour": list(range(len(names))),
            "pair": [self._pairs.get((victim, name), len(self._pairs)) for name in names],
        }
        mean, variance = posterior.predict(
            {name: (np.array(of_rows), np.ones((len(names), 1))) for name, of_rows in groups.items()}
        )
        return (self._mean + mean).tolist(), np.sqrt(np.maximum(variance, 1e-6)).tolist()
