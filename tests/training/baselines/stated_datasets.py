"""Datasets whose encoded columns a test states explicitly."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.training.baselines import BASELINES, Baseline
from interfere.training.dataset import Dataset, build_dataset


def stated(tables: Sequence[Table], columns: Mapping[str, Sequence[float]] | None = None) -> Dataset:
    """Rows of the tables, all weights 1; of all encoded columns only `columns` are known: a value a workload each."""
    made = build_dataset(tables, FeatureEncoder())
    pairs = np.full_like(made.rows.pairs, np.nan)
    for name, values in (columns or {}).items():
        for role, ids in (("victim", made.rows.victim), ("neighbour", made.rows.neighbour)):
            pairs[:, made.pair_columns.index(f"{role}_{name}")] = np.array(values)[ids - 1]
    return replace(made, rows=replace(made.rows, pairs=pairs), weight=np.ones(len(made)))


def row_of(dataset: Dataset, victim: int, neighbour: int) -> int:
    """Index of the first row of workload `victim` beside `neighbour` (from 0)."""
    return int(np.flatnonzero((dataset.rows.victim == victim + 1) & (dataset.rows.neighbour == neighbour + 1))[0])


def named(name: str) -> Baseline:
    """The published baseline of that name."""
    return next(each for each in BASELINES if isinstance(each, Baseline) and each.name == name)
