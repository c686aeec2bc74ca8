"""Measured groups as cases: one victim in one group, with its measured slowdown and the slowdowns of its pairs.

Law: a case with an unknown pair is left out; nothing is imputed.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.groups import CopyShares, GroupComposition, pair_excess
from interfere.predict.groups.device_shares import copy_shares
from interfere.records import GroupMeasurement
from interfere.sharing_modes import SharingMode
from interfere.store.observed_table import SOURCE as OBSERVED
from interfere.training.dataset import METRIC, Dataset, known_profiles, speed
from interfere.training.evaluation.cross_validation import Evaluation, cross_fold_interval

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
class GroupCases:
    """g cases, each a victim with its neighbours in a measured group."""

    members: tuple[frozenset[str], ...]  # workloads of each group
    domain: tuple[DomainKey, ...]
    neighbours: NDArray[np.int64]  # int64[g]: two or more
    slowdown: Floats  # float64[g]: measured
    product: Floats  # float64[g]: of the slowdowns of the pairs
    excess: Floats  # float64[g]: Σ max(s - 1, 0) over the pairs
    below: Floats  # float64[g]: Σ of the squared distances of logarithms to the lower end of each pair
    above: Floats  # float64[g]: the same to the upper end
    copies: CopyShares  # of each
    observed: NDArray[np.bool_]  # reported by running jobs, not measured in a campaign: not trusted by itself

    def __len__(self) -> int:
        return len(self.neighbours)

    def take(self, index: NDArray[Any]) -> "GroupCases":
        """Select cases by an index array or a mask."""
        places = np.arange(len(self))[index].tolist()
        return GroupCases(
            members=tuple(self.members[k] for k in places),
            domain=tuple(self.domain[k] for k in places),
            neighbours=self.neighbours[places],
            slowdown=self.slowdown[places],
            product=self.product[places],
            excess=self.excess[places],
            below=self.below[places],
            above=self.above[places],
            copies=CopyShares(self.copies.slowdown[places], self.copies.alone[places]),
            observed=self.observed[places],
        )

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
    unknown = CopyShares(np.full(len(rows), np.nan), np.zeros(len(rows), dtype=bool))
    logs = [np.log(pairs) for pairs in pairs_of_row]
    return GroupCases(
        members=tuple(frozenset(row.members) for row in rows),
        domain=tuple((row.device_type, row.mode) for row in rows),
        neighbours=np.array([len(row.company) for row in rows], dtype=np.int64),
        slowdown=np.array([row.slowdown for row in rows], dtype=np.float64),
        product=np.array([np.exp(log[:, 0].sum()) for log in logs], dtype=np.float64),
        excess=np.array([pair_excess(pairs[:, 0]).sum() for pairs in pairs_of_row], dtype=np.float64),
        below=np.array([((log[:, 1] - log[:, 0]) ** 2).sum() for log in logs], dtype=np.float64),
        above=np.array([((log[:, 2] - log[:, 0]) ** 2).sum() for log in logs], dtype=np.float64),
        copies=copies or unknown,
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
    low, high = cross_fold_interval(
        dataset,
        evaluation.index,
        evaluation.predicted_log,
        evaluation.fold,
        novelty=evaluation.novelty,
        partners=evaluation.partners,
    )
    measured = measured_pairs(dataset)
    names = _names(dataset, evaluation.index)
    folds = []
    for fold in np.unique(evaluation.fold).tolist():
        predicted: dict[tuple[str, str, DomainKey], PairSlowdown] = {}
        tests = np.flatnonzero(evaluation.fold == fold).tolist()
        for k in tests:
            domain = dataset.domains[dataset.domain[evaluation.index[k]]]
            ends = np.exp([evaluation.predicted_log[k], low[k], high[k]])
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
