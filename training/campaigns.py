"""Rows of a campaign on another software stack are translated to one stack before training.

Campaigns of one device type and sharing mode are compared on the pairs that both measured; where these are too few, on
what the older one predicts for the pairs of the newer. Where they agree, they are one stack and are pooled as they are.
Where they differ, the older row s of victim i beside neighbour j on device type d becomes

    log s' = log s + level[d] + slope[d] · (log s - mean) + family[i] + own[i] + own[d, i] + from[j] + from[d, j]

with zero-mean normal effects, whose variances and noise are learned: the differences are rows of the field
(`interfere.predict.field.gaussian`). A translated row weighs by the variance
of its translation; it trains, but it is never a test, never published as a measurement, and never trusted by the gate.
Measured rows that name no campaign are pooled with any other measured campaign.

What a server observed since a change of the stack, which its log shows (`training/evaluation/drift.py`), is translated
back to what was measured, never the other way: a model is published for the stack of its measurements, and the belief
of the server, which learns the same log with it, carries every pair to the present stack. So nothing that the belief
knows of a pair is lost by training again.
Law: with a single campaign, with campaigns that agree, or with rows that name none, the dataset is returned as it is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.field.gaussian import Posterior, additive_effects, learn_variances
from interfere.predict.field.terms import ABSENT, Rows, Term
from interfere.protocols import PairEncoder
from interfere.training.dataset import METRIC, NOISE_FLOOR, Dataset, Pair, build_dataset, hold_out, require_min_pairs

MIN_COMPARED = 20  # rows; as many calibrate a new device type
MAX_MEDIAN_DIFFERENCE = NOISE_FLOOR  # of log slowdown: campaigns that differ by less are of one stack
# Of the standard error of a difference, as intervals tell it: the median absolute value of a normal deviate, .6745, and
# a quarter of that, by which the median of `MIN_COMPARED` differences varies.
MAX_BY_INTERVALS = 1.25 * 0.6745
MAX_COMPARED = 1_000  # rows of the translation: a decomposition of a second
# Prior standard deviations of the effects; all together those of a campaign repeated two years later, .2 to .3 of log
# slowdown, as online learning assumes them too (`interfere.predict.online.shifts`).
PRIOR_SD = {
    "level": 0.3,
    "slope": 0.5,
    "family": 0.15,
    "own": 0.1,
    "own on device": 0.1,
    "from": 0.1,
    "from on device": 0.1,
}
PRIOR_NOISE = 0.06  # of log slowdown
PRIOR_GROUPS, ROUNDS = 3.0, 4  # of learning the variances from the compared rows
ADDITIVE_SHRINKAGE = 1.0  # ridge of the older campaign's own prediction, in rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Relation(StrEnum):
    """The relation of another campaign to the newest measured one."""

    SAME = "same stack"
    TRANSLATED = "translated"
    UNKNOWN = "cannot be compared"  # too few rows; pooled as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRelation:
    """How the rows of another campaign than the newest measured one enter a training."""

    campaign: str
    newest: str
    relation: Relation
    rows: int
    compared: int  # rows of the newest campaign that both know
    median_difference: float  # |log new - log old|; NaN where too few were compared
    noise: float = math.nan  # of the translation, standard deviation of log slowdown

    def text(self) -> str:
        """Return a line about the relation, for people."""
        beside = f"the newer {self.newest!r}" if self.newest else "what was measured without a campaign"
        names = f"campaign {self.campaign!r} ({self.rows} rows) beside {beside}"
        if self.relation is Relation.UNKNOWN:
            return f"{names}: pooled as it is, only {self.compared} pairs can be compared; measure {MIN_COMPARED} again"
        figures = f"median difference of {self.compared} pairs {math.expm1(self.median_difference):.1%}"
        if self.relation is Relation.SAME:
            return f"{names}: one stack, pooled; {figures}"
        return f"{names}: another stack, translated to that one, ± {math.expm1(self.noise):.1%}; {figures}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRows:
    """The rows of some tables as a training reads them."""

    measured: Dataset  # as measured, without the held-out rows
    held_out: Dataset
    fitted: Dataset  # the measured rows, translated to one stack
    campaigns: tuple[CampaignRelation, ...]


def training_rows(
    tables: Sequence[Table], encoder: PairEncoder, *, metric: str = METRIC, held_out: frozenset[Pair] = frozenset()
) -> TrainingRows:
    """Return the rows of the tables to fit and to hold out.

    Raises the errors of `build_dataset` and `hold_out`, and UnfitError for too few pairs.
    """
    measured, kept_apart = hold_out(build_dataset(tables, encoder, metric=metric), held_out)
    require_min_pairs(measured)
    fitted, campaigns = align_campaigns(measured)
    return TrainingRows(measured=measured, held_out=kept_apart, fitted=fitted, campaigns=campaigns)


def align_campaigns(dataset: Dataset) -> tuple[Dataset, tuple[CampaignRelation, ...]]:
    """Return the dataset with the other campaigns of each domain translated to its newest measured campaign.

    The second value tells how each of the others relates to that one.
    """
    newest_of_domain = {
        domain: order[-1] for domain in range(len(dataset.domains)) if (order := _by_age(dataset, domain))
    }
    relations = []
    result = dataset
    for older, name in enumerate(dataset.campaigns):
        rows = _rows_of(dataset, older)
        for newest in sorted(
            {c for d, c in newest_of_domain.items() if c != older and rows[dataset.domain == d].any()}
        ):
            if not name:
                continue
            domains = [d for d, c in newest_of_domain.items() if c == newest]
            result, relation = _align(dataset, result, older, newest, np.array(domains))
            relations.append(relation)
    if any(relation.relation is Relation.TRANSLATED for relation in relations):
        result = replace(result, weight=result.weight / result.weight.mean())
    return result, tuple(relations)


def _rows_of(dataset: Dataset, campaign: int) -> NDArray[np.bool_]:
    """Return bool[p]: the rows of a campaign. Observed rows that name none are of no older stack."""
    return np.asarray((dataset.campaign == campaign) & (bool(dataset.campaigns[campaign]) | ~dataset.observed))


def _by_age(dataset: Dataset, domain: int) -> list[int]:
    """Return the campaigns of a domain: those that running jobs reported, then the measured ones, each oldest first.

    A campaign is as old as its last measurement; without times, the order of the tables decides. Measured rows that
    name no campaign come before those that do.
    """

    def age(campaign: int) -> tuple[bool, bool, float, int]:
        rows = (dataset.domain == domain) & _rows_of(dataset, campaign)
        times_s = dataset.measured_at_s[rows]
        known_s = times_s[np.isfinite(times_s)]
        newest_s = float(known_s.max()) if len(known_s) else -math.inf
        is_measured = not dataset.observed[rows].all()
        return is_measured, bool(dataset.campaigns[campaign]), newest_s, int(np.flatnonzero(rows).max())

    in_domain = [int(c) for c in np.unique(dataset.campaign[dataset.domain == domain])]
    present = [c for c in in_domain if (_rows_of(dataset, c) & (dataset.domain == domain)).any()]
    return sorted(present, key=age)


def _align(
    dataset: Dataset, result: Dataset, older: int, newest: int, domains: Ints
) -> tuple[Dataset, CampaignRelation]:
    """Return `result` with one older campaign translated to a newer one in the given domains."""
    here = np.isin(dataset.domain, domains)
    old = np.flatnonzero(here & _rows_of(dataset, older))
    new = np.flatnonzero(here & _rows_of(dataset, newest))
    # 1. Compare what both know.
    expected, measured = _expected_by(dataset, old, new)
    known = np.isfinite(expected)
    decisive = known & measured if (known & measured).sum() >= MIN_COMPARED else known
    differences = np.abs(dataset.log_slowdown[new] - expected)[decisive]
    relation = CampaignRelation(
        campaign=dataset.campaigns[older],
        newest=dataset.campaigns[newest],
        relation=Relation.UNKNOWN,
        rows=len(old),
        compared=int(decisive.sum()),
        median_difference=float(np.median(differences)) if len(differences) else math.nan,
    )
    if relation.compared < MIN_COMPARED:
        return result, relation
    own_error = 0.0 if decisive is not known else _own_error(dataset, old)
    by_intervals = MAX_BY_INTERVALS * math.hypot(_row_error(dataset, old), _row_error(dataset, new))
    if relation.median_difference <= max(MAX_MEDIAN_DIFFERENCE, 1.5 * own_error, by_intervals):
        return result, replace(relation, relation=Relation.SAME)
    # 2. Fit the translation on them, and translate the older rows.
    fitted, centre = _fit(dataset, new[known], expected[known])
    shift, variance = _shift(fitted, centre, dataset, old)
    noise_var = float(fitted.rows.noise_var.mean())
    log_slowdown, weight, aligned = result.log_slowdown.copy(), result.weight.copy(), result.aligned.copy()
    log_slowdown[old] = dataset.log_slowdown[old] + shift
    weight[old] *= NOISE_FLOOR**2 / (NOISE_FLOOR**2 + variance + noise_var)
    aligned[old] = True
    lower, upper = result.lower.copy(), result.upper.copy()
    lower[old], upper[old] = dataset.lower[old] * np.exp(shift), dataset.upper[old] * np.exp(shift)
    result = replace(result, log_slowdown=log_slowdown, weight=weight, aligned=aligned, lower=lower, upper=upper)
    return result, replace(relation, relation=Relation.TRANSLATED, noise=math.sqrt(noise_var))


def _row_error(dataset: Dataset, rows: Ints) -> float:
    """Return the median standard error of the log slowdowns of rows, from their 95 % intervals; 0 without intervals."""
    return float(np.median(np.log(dataset.upper[rows] / dataset.lower[rows]))) / (2 * 1.96)


def _expected_by(dataset: Dataset, old: Ints, new: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the older campaign's log slowdowns for the newer rows, and whether each was measured.

    A pair that it did not measure is predicted; NaN where that is impossible.
    """
    keys = np.stack([dataset.domain, dataset.rows.victim, dataset.rows.neighbour], axis=1)
    measured_at = {tuple(key): value for key, value in zip(keys[old].tolist(), dataset.log_slowdown[old], strict=True)}
    measured = np.array([measured_at.get(tuple(key), np.nan) for key in keys[new].tolist()])
    predicted = np.full(len(new), np.nan)
    for domain in np.unique(dataset.domain[new]):
        predict = _additive(dataset, old[dataset.domain[old] == domain])
        in_domain = dataset.domain[new] == domain
        predicted[in_domain] = predict(new[in_domain])
    is_measured = np.isfinite(measured)
    return np.where(is_measured, measured, predicted), is_measured


def _additive(dataset: Dataset, rows: Ints) -> Callable[[Ints], Floats]:
    """Return a function that predicts log slowdowns of rows as a sum of effects of victim and neighbour.

    The effects are fitted to `rows`. A job without a row there has NaN.
    """
    if not len(rows):
        return lambda index: np.full(len(index), np.nan)
    jobs, place = np.unique(
        np.concatenate([dataset.rows.victim[rows], dataset.rows.neighbour[rows]]), return_inverse=True
    )
    values = dataset.log_slowdown[rows]
    level, own, harm = additive_effects(
        values,
        place[: len(rows)],
        place[len(rows) :],
        jobs=len(jobs),
        shrinkage=ADDITIVE_SHRINKAGE,
        level=float(values.mean()),
    )

    def predict(asked: Ints) -> Floats:
        known = np.isin(dataset.rows.victim[asked], jobs) & np.isin(dataset.rows.neighbour[asked], jobs)
        victim, neighbour = (
            np.minimum(np.searchsorted(jobs, ids[asked]), len(jobs) - 1)
            for ids in (dataset.rows.victim, dataset.rows.neighbour)
        )
        return np.where(known, level + own[victim] + harm[neighbour], np.nan)

    return predict


def _own_error(dataset: Dataset, old: Ints) -> float:
    """Return the median error of the older campaign's predictions of its own rows."""
    errors = [
        np.abs(dataset.log_slowdown[rows] - _additive(dataset, rows)(rows))
        for domain in np.unique(dataset.domain[old])
        if len(rows := old[dataset.domain[old] == domain])
    ]
    return float(np.median(np.concatenate(errors)))


def _fit(dataset: Dataset, rows: Ints, expected: Floats) -> tuple[Posterior, float]:
    """Return what tells the labels of `rows` from what the older campaign `expected`, and where its slopes are 0."""
    kept = np.sort(np.random.default_rng(0).permutation(len(rows))[:MAX_COMPARED])
    rows, expected = rows[kept], expected[kept]
    centre = float(expected.mean())
    compared = Rows(
        values=dataset.log_slowdown[rows] - expected,
        noise_var=np.full(len(rows), PRIOR_NOISE**2),
        weights=np.ones(len(rows)),
    )
    everybody = np.zeros(len(rows), dtype=np.int64)
    return learn_variances(compared, _terms(dataset, rows, expected - centre), rounds=ROUNDS, sources=everybody), centre


def _shift(fitted: Posterior, centre: float, dataset: Dataset, rows: Ints) -> tuple[Floats, Floats]:
    """Return by how much the newer log slowdown of rows is larger than the older one, and its variance, noise apart."""
    terms = _terms(dataset, rows, dataset.log_slowdown[rows] - centre)
    return fitted.predict({term.name: (term.groups, term.loadings) for term in terms})


def _terms(dataset: Dataset, rows: Ints, centred: Floats) -> list[Term]:
    """Return the terms of the translation: effects of the domain, the family, and the jobs, also on one domain."""
    domains, jobs = len(dataset.domains), len(dataset.workloads)
    families = sorted(set(dataset.families) - {""})
    family = np.array([ABSENT, *(families.index(name) if name else ABSENT for name in dataset.families)])
    domain, victim, neighbour = dataset.domain[rows], dataset.rows.victim[rows] - 1, dataset.rows.neighbour[rows] - 1
    blocks = (
        ("level", domain, domains, np.ones(len(rows))),
        ("slope", domain, domains, centred),
        ("family", family[victim + 1], max(len(families), 1), np.ones(len(rows))),
        ("own", victim, jobs, np.ones(len(rows))),
        ("own on device", domain * jobs + victim, domains * jobs, np.ones(len(rows))),
        ("from", neighbour, jobs, np.ones(len(rows))),
        ("from on device", domain * jobs + neighbour, domains * jobs, np.ones(len(rows))),
    )
    return [
        Term(
            name=name,
            groups=groups,
            loadings=loadings[:, None],
            covariance=np.full((count, 1, 1), PRIOR_SD[name] ** 2),
            prior_groups=PRIOR_GROUPS,
        )
        for name, groups, count, loadings in blocks
    ]
