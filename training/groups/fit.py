"""Measured groups of jobs, and the group composition that is fitted to them.

A case is one victim in one measured group, with its measured slowdown and the slowdowns of its pairs. A group
composition predicts the slowdown of a case from those pairs.

Fit: growth and saturation minimise the mean relative error over a grid; so does the share weight where jobs were
measured on smaller slices. Ties, and parameters without effect on any case, keep their starting values.
Choice: the fitted composition replaces the present one of its domain where its error on held-out groups is smaller, and
not clearly larger on the held-out groups that were measured in a campaign. The second rule guards against wrong online
reports, which a fit to these reports would match.
Calibration: the interval errors are conformal. For each number of neighbours, 90 % of held-out cases with measured
pairs have a smaller error.
Law: a case with an unknown pair is left out; nothing is imputed.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.acceptance.score import speed
from interfere.predict.groups import (
    DEFAULT_COMPOSITION,
    MAX_FURTHER,
    CopyShares,
    GroupComposition,
    copy_shares,
    pair_excess,
)
from interfere.records import GroupMeasurement
from interfere.sharing_modes import SharingMode
from interfere.store.observed_table import SOURCE as OBSERVED
from interfere.training.dataset import METRIC, Dataset, RowColumns, known_profiles
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.gate import ERROR_TOLERANCE

GROWTHS = np.round(np.arange(0.0, 1.51, 0.05), 2)
SATURATIONS = np.round(np.arange(0.0, 8.1, 0.5), 1)
SHARE_WEIGHTS = np.round(np.arange(0.0, 1.01, 0.05), 2)
PAIR_SCALES = np.round(np.arange(0.05, 1.51, 0.05), 2)
MIN_CASES = 10  # of a kind, below which the parameters that describe it stay as they are
COVERED = 0.90  # share of cases that an interval holds
FOLDS = 5  # of whole groups, as many as hide unseen pairs
MIN_GROUPS = 2 * FOLDS  # distinct groups: with fewer, two parameters follow single groups

Floats = NDArray[np.float64]
DomainKey = tuple[str, SharingMode]
"""Device type and mode."""


class PairSlowdown(NamedTuple):
    """The slowdown of a pair with the ends of its interval."""

    median: float
    lower: float
    upper: float


FindPair = Callable[[str, str, DomainKey], PairSlowdown | None]
"""(victim, neighbour, domain) -> what is known of the pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCases(RowColumns):
    """The cases of measured groups, `g` in all. Each case is a victim with its two or more neighbours."""

    members: NDArray[np.object_]  # frozenset of the workloads of each group
    domain: NDArray[np.object_]  # `DomainKey` of each
    neighbours: NDArray[np.int64]  # int64[g]: two or more
    slowdown: Floats  # float64[g]: measured
    product: Floats  # float64[g]: of the slowdowns of the pairs
    excess: Floats  # float64[g]: Σ max(s - 1, 0) over the pairs
    below: Floats  # float64[g]: Σ of the squared distances of logarithms to the lower end of each pair
    above: Floats  # float64[g]: the same to the upper end
    copy_slowdown: Floats  # float64[g]: see `copies`
    beside_copies_alone: NDArray[np.bool_]
    observed: NDArray[np.bool_]  # reported by running jobs, not measured in a campaign: not trusted by itself

    def __len__(self) -> int:
        return len(self.neighbours)

    @property
    def copies(self) -> CopyShares:
        """Return what is known of each victim beside copies of itself."""
        return CopyShares(self.copy_slowdown, self.beside_copies_alone)

    def of_domain(self, domain: DomainKey) -> "GroupCases":
        """Return the cases of one domain."""
        return self.take(np.array([each == domain for each in self.domain], dtype=bool))

    def with_any(self, workloads: Collection[str]) -> NDArray[np.bool_]:
        """Return bool[g]: whether the group contains any of the workloads."""
        hidden = frozenset(workloads)
        return np.array([bool(members & hidden) for members in self.members], dtype=bool)

    def predicted(self, composition: GroupComposition) -> Floats:
        """Return float64[g]: the victim's slowdown that the composition predicts from its pairs."""
        return composition.slowdown(self.excess, self.neighbours, self.copies)

    def speed_errors(self, slowdown: Floats) -> Floats:
        """Return float64[g]: |predicted speed - measured speed|, clipped like the scores of pairs."""
        return np.asarray(np.abs(speed(np.log(slowdown)) - speed(np.log(self.slowdown))))


def measured_groups(
    tables: Sequence[Table], without: Collection[tuple[DomainKey, str]] = ()
) -> tuple[GroupMeasurement, ...]:
    """Return the valid groups of the tables on which a published model predicts; the last of equal keys is kept.

    `without` names the domains and campaigns whose groups are left out.
    """
    rows = (
        row
        for table in tables
        for row in table.ok_groups
        if row.metric == METRIC and ((row.device_type, row.mode), row.campaign) not in without
    )
    return tuple({(row.victim, row.company, row.device_type, row.mode): row for row in rows}.values())


def group_cases(groups: Sequence[GroupMeasurement], tables: Sequence[Table], find_pair: FindPair) -> GroupCases:
    """Return a case for each measurement whose pairs are all known."""
    profiles = {(job.workload, job.device_type): job for job in known_profiles(tables).jobs}
    rows, pairs_of_row = [], []
    for row in groups:
        domain = row.device_type, row.mode
        known = {name: find_pair(row.victim, name, domain) for name in set(row.company)}
        if all(pair is not None for pair in known.values()):
            rows.append(row)
            pairs_of_row.append(np.array([known[name] for name in row.company], dtype=np.float64))
    jobs = [[profiles.get((name, row.device_type)) for name in (row.victim, *row.company)] for row in rows]
    copies = copy_shares(jobs, lambda workload, device_type: profiles.get((workload, device_type)))
    copies = copies or CopyShares(np.full(len(rows), np.nan), np.zeros(len(rows), dtype=bool))
    logs = [np.log(pairs) for pairs in pairs_of_row]
    return GroupCases(
        members=np.fromiter((frozenset(row.members) for row in rows), dtype=object),
        domain=np.fromiter(((row.device_type, row.mode) for row in rows), dtype=object),
        neighbours=np.array([len(row.company) for row in rows], dtype=np.int64),
        slowdown=np.array([row.slowdown for row in rows], dtype=np.float64),
        product=np.array([np.exp(log[:, 0].sum()) for log in logs], dtype=np.float64),
        excess=np.array([pair_excess(pairs[:, 0]).sum() for pairs in pairs_of_row], dtype=np.float64),
        below=np.array([((log[:, 1] - log[:, 0]) ** 2).sum() for log in logs], dtype=np.float64),
        above=np.array([((log[:, 2] - log[:, 0]) ** 2).sum() for log in logs], dtype=np.float64),
        copy_slowdown=copies.slowdown,
        beside_copies_alone=copies.alone,
        observed=np.array([row.source == OBSERVED for row in rows], dtype=bool),
    )


def translated_campaigns(dataset: Dataset) -> frozenset[tuple[DomainKey, str]]:
    """Return the (domain, campaign) whose pairs were rescaled to a newer software stack while their groups were not."""
    keys = {*zip(dataset.domain[dataset.aligned].tolist(), dataset.campaign[dataset.aligned].tolist(), strict=True)}
    domains = [(domain.device_type, domain.mode) for domain in dataset.domains]
    return frozenset((domains[domain], dataset.campaigns[campaign]) for domain, campaign in keys)


def measured_pairs(dataset: Dataset) -> FindPair:
    """Return a lookup of measured pair slowdowns, as a server answers known pairs."""
    latest = dataset.take(dataset.latest_index())
    found: dict[tuple[str, str, DomainKey], PairSlowdown] = {}
    for k, (victim, neighbour) in enumerate(_names(latest, np.arange(len(latest)))):
        domain = latest.domains[latest.domain[k]]
        slowdown = PairSlowdown(float(np.exp(latest.log_slowdown[k])), float(latest.lower[k]), float(latest.upper[k]))
        found[victim, neighbour, (domain.device_type, domain.mode)] = slowdown
    return lambda victim, neighbour, domain: found.get((victim, neighbour, domain))


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenJobs:
    """One fold of the `job` split: its hidden jobs and a lookup of pair slowdowns, predicted where a job is hidden."""

    jobs: frozenset[str]
    find_pair: FindPair  # predictions of pairs with one of them, measurements of all others


def hidden_jobs(dataset: Dataset, evaluation: Evaluation) -> tuple[HiddenJobs, ...]:
    """Return each fold of an evaluation on the `job` split. A pair of two hidden jobs is unknown."""
    measured = measured_pairs(dataset)
    names = _names(dataset, evaluation.index)
    folds = []
    for fold in np.unique(evaluation.fold).tolist():
        predicted: dict[tuple[str, str, DomainKey], PairSlowdown] = {}
        tests = np.flatnonzero(evaluation.fold == fold).tolist()
        for k in tests:
            domain = dataset.domains[dataset.domain[evaluation.index[k]]]
            ends = np.exp([evaluation.predicted_log[k], evaluation.low[k], evaluation.high[k]])
            predicted[(*names[k], (domain.device_type, domain.mode))] = PairSlowdown(*ends.tolist())
        hidden = frozenset(dataset.workloads[evaluation.subject[k] - 1] for k in tests)
        folds.append(HiddenJobs(jobs=hidden, find_pair=_of_fold(hidden, predicted, measured)))
    return tuple(folds)


def _of_fold(
    hidden: frozenset[str], predicted: dict[tuple[str, str, DomainKey], PairSlowdown], measured: FindPair
) -> FindPair:
    def find(victim: str, neighbour: str, domain: DomainKey) -> PairSlowdown | None:
        if victim in hidden or neighbour in hidden:
            return predicted.get((victim, neighbour, domain))
        return measured(victim, neighbour, domain)

    return find


def _names(dataset: Dataset, index: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return (victim, neighbour) of the given rows of a dataset."""
    rows = dataset.rows
    return [
        (dataset.workloads[victim - 1], dataset.workloads[neighbour - 1])
        for victim, neighbour in zip(rows.victim[index].tolist(), rows.neighbour[index].tolist(), strict=True)
    ]


# --- fit and calibration ----------------------------------------------------------------------------------------------


def fit_composition(cases: GroupCases, start: GroupComposition = DEFAULT_COMPOSITION) -> GroupComposition:
    """Return the composition of least mean relative error over the cases, with the interval errors of `start`."""
    best = start
    by_share = np.isfinite(cases.copies.slowdown) & cases.copies.alone
    if (~by_share).sum() >= MIN_CASES:
        rest = cases.take(~by_share)
        choices = [replace(best, growth=float(g), saturation=float(s)) for g in GROWTHS for s in SATURATIONS]
        best = min([best, *choices], key=lambda choice: relative_error(rest, choice))
    if by_share.sum() >= MIN_CASES:
        copies = cases.take(by_share)
        choices = [replace(best, share_weight=float(weight)) for weight in SHARE_WEIGHTS]
        best = min([best, *choices], key=lambda choice: relative_error(copies, choice))
    return best


def relative_error(cases: GroupCases, composition: GroupComposition) -> float:
    """Return the mean of |predicted ÷ measured - 1|."""
    return float(np.abs(cases.predicted(composition) / cases.slowdown - 1).mean())


def calibrate(
    composition: GroupComposition, cases: GroupCases, predicted: Floats, *, with_pairs: tuple[GroupCases, Floats] | None
) -> GroupComposition:
    """Return the composition with interval errors from held-out `cases` and a scale of the pairs' own intervals.

    `predicted` float64[g] is each case's prediction by a composition fitted without it. `with_pairs` has cases whose
    pairs are predictions for jobs never seen; the scale is the smallest that makes their intervals cover.
    """
    by_share = np.isfinite(cases.copies.slowdown) & cases.copies.alone
    residual = np.log(cases.slowdown / predicted)
    composition = replace(
        composition,
        errors=_errors(cases, residual, ~by_share, composition.errors),
        share_errors=_errors(cases, residual, by_share, composition.share_errors),
    )
    if with_pairs is None or len(with_pairs[0]) < MIN_CASES:
        return composition
    unseen, predicted = with_pairs
    choices = [replace(composition, pair_scale=float(scale)) for scale in PAIR_SCALES]
    enough = [choice for choice in choices if covered(unseen, predicted, choice).mean() >= COVERED]
    return enough[0] if enough else choices[-1]


def covered(cases: GroupCases, predicted: Floats, composition: GroupComposition) -> NDArray[np.bool_]:
    """Return bool[g]: whether the interval around each prediction contains the measured slowdown."""
    residual = np.log(cases.slowdown / predicted)
    squared = np.where(residual < 0, cases.below, cases.above)
    reach = composition.log_distance(squared, cases.neighbours, copies=cases.copies)
    return np.asarray(np.abs(residual) <= reach)


def _errors(
    cases: GroupCases, residual: Floats, kind: NDArray[np.bool_], default: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Return for each number of neighbours the log error that 90 % of the cases do not exceed. Errors never decrease.

    The intervals of the pairs are not subtracted: those of two measured blocks are wide, and online windows narrow
    them.
    """
    errors: list[float] = []
    for further in range(1, MAX_FURTHER + 1):
        of_size = kind & (np.minimum(cases.neighbours - 1, MAX_FURTHER) == further)
        if of_size.sum() < MIN_CASES:
            errors.append(default[further - 1] if not errors else max(errors[-1], default[further - 1]))
            continue
        level = min(COVERED * (1 + 1 / of_size.sum()), 1.0)
        errors.append(max([float(np.quantile(np.abs(residual[of_size]), level)), *errors[-1:]]))
    return errors[0], errors[1], errors[2]


# --- choice between the present composition and a fitted one ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositionChoice:
    """The errors, in speed = 1 / slowdown, of both compositions on the groups of a domain."""

    present: GroupComposition  # of the registry's champion, else the default one
    refitted: bool  # whether the fitted one takes its place
    cases: int  # victims in groups that were held out
    error: float  # MAE of speed of the fitted one, each group held out; NaN where too few groups were measured
    present_error: float
    trusted_error: float  # the same of the groups that were measured in a campaign; NaN where these are too few
    trusted_present_error: float

    def fit(self, cases: GroupCases) -> GroupComposition:
        """Return the chosen composition; a fitted one is fitted to these cases alone."""
        return fit_composition(cases, self.present) if self.refitted else self.present

    def text(self) -> str:
        """Return the choice and its errors as one line of text."""
        if not np.isfinite(self.error):
            return f"kept as it was: fewer than {MIN_GROUPS} measured groups with known pairs"
        verdict = "fitted anew" if self.refitted else "kept as it was"
        figures = f"{self.error:.4f} fitted anew, {self.present_error:.4f} as it was"
        if self.trusted_error > self.trusted_present_error:
            figures += f"; of measured groups alone {self.trusted_error:.4f}, {self.trusted_present_error:.4f}"
        return f"{verdict}; error of speed of {self.cases} victims, groups held out: {figures}"


def choose_composition(cases: GroupCases, present: GroupComposition = DEFAULT_COMPOSITION) -> CompositionChoice:
    """Return the choice for the cases of one domain."""
    fitted = predict_held_out(cases, present)
    error = present_error = trusted_error = trusted_present_error = float("nan")
    if fitted is not None:
        errors, present_errors = cases.speed_errors(fitted), cases.speed_errors(cases.predicted(present))
        error, present_error = float(errors.mean()), float(present_errors.mean())
        trusted = ~cases.observed
        if group_folds(cases.take(trusted)) is not None:
            trusted_error, trusted_present_error = float(errors[trusted].mean()), float(present_errors[trusted].mean())
    return CompositionChoice(
        present=present,
        refitted=error < present_error and not trusted_error > trusted_present_error + ERROR_TOLERANCE,
        cases=0 if fitted is None else len(cases),
        error=error,
        present_error=present_error,
        trusted_error=trusted_error,
        trusted_present_error=trusted_present_error,
    )


def predict_held_out(cases: GroupCases, start: GroupComposition = DEFAULT_COMPOSITION) -> Floats | None:
    """Return float64[g]: each case's prediction fitted without its group; None with fewer than `MIN_GROUPS` groups."""
    fold = group_folds(cases)
    if fold is None:
        return None
    predicted = np.full(len(cases), np.nan)
    for k in range(FOLDS):
        held_out = fold == k
        predicted[held_out] = cases.take(held_out).predicted(fit_composition(cases.take(~held_out), start))
    return predicted


def group_folds(cases: GroupCases) -> NDArray[np.int64] | None:
    """Return int64[g]: the random fold of each case; None with fewer than `MIN_GROUPS` groups.

    Groups of the same workloads, in whatever number of copies, share a fold.
    """
    groups = sorted({tuple(sorted(members)) for members in cases.members})
    if len(groups) < MIN_GROUPS:
        return None
    fold_of = dict(zip(groups, (np.random.default_rng(0).permutation(len(groups)) % FOLDS).tolist(), strict=True))
    return np.array([fold_of[tuple(sorted(members))] for members in cases.members], dtype=np.int64)
