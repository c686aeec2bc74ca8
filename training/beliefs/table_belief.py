"""Posterior beliefs about the pairs of a table that `onboard` measured, from its rows and earlier predictions.

Such a table has few measured pairs; it comes with a model's predictions from before any measurement
(`first_predictions`). A Gaussian process combines both into a belief about every pair of the table's jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.transfer.first_predictions import read_first_predictions
from interfere.predict.transfer.pair_belief import PairBelief, pair_belief, site_profiles, site_space
from interfere.predict.transfer.process import PairSpace
from interfere.sharing_modes import SharingMode
from interfere.training.dataset import METRIC, Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBelief:
    """The jobs of one table on one domain, and the prior belief about their pairs."""

    table: str
    device_type: str
    mode: SharingMode
    space: PairSpace

    def domain(self, dataset: Dataset) -> int:
        """Return the index of the table's domain in the dataset, or -1 where no row has this domain."""
        places = [(domain.device_type, domain.mode, domain.metric) for domain in dataset.domains]
        own = (self.device_type, self.mode, METRIC)
        return places.index(own) if own in places else -1

    def rows(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return bool[p]: which dataset rows measure a pair of the table's jobs on its domain."""
        own = np.array([False, *(name in self.space.jobs for name in dataset.workloads)])
        between = own[dataset.rows.victim] & own[dataset.rows.neighbour]
        return np.asarray(between & (dataset.domain == self.domain(dataset)) & ~dataset.aligned)

    def after(self, dataset: Dataset) -> PairBelief:
        """Return the belief that the dataset's rows of this table lead to."""
        rows = dataset.take(self.rows(dataset)).latest_rows()
        names = zip(rows.rows.victim.tolist(), rows.rows.neighbour.tolist(), strict=True)
        pairs = [(dataset.workloads[victim - 1], dataset.workloads[neighbour - 1]) for victim, neighbour in names]
        return pair_belief(self.space, dict(zip(pairs, np.exp(rows.log_slowdown).tolist(), strict=True)))


def read_table_beliefs(paths: Sequence[Path], tables: Sequence[Table]) -> tuple[TableBelief, ...]:
    """Return a belief for each table that has first predictions. Raises TableError for a damaged prediction file."""
    beliefs = []
    for path, table in zip(paths, tables, strict=True):
        if (first := read_first_predictions(path)) is None:
            continue
        profiled = {job.workload for job in table.jobs if job.device_type == first.device_type}
        known = [name for name in first.jobs if name in profiled]
        if len(known) < 2:  # the table was replaced by one of other jobs
            continue
        space = site_space(site_profiles(table, first.device_type, known), first)
        beliefs.append(TableBelief(table=table.name, device_type=first.device_type, mode=first.mode, space=space))
    return tuple(beliefs)


def job_places(dataset: Dataset, jobs: Sequence[str]) -> NDArray[np.int64]:
    """Return int64[N + 1]: the place of each identity among the jobs, counted from 1; 0 for any other identity."""
    return np.array([0, *(jobs.index(name) + 1 if name in jobs else 0 for name in dataset.workloads)], dtype=np.int64)
