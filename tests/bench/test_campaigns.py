"""A new campaign after an upgrade, pooled with the user's copy of Gavel's table: what the old rows are worth."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.profiling.static.profiles import attach_static
from interfere.training.campaigns import align_campaigns
from interfere.training.dataset import Dataset, build_dataset, unordered_pair
from interfere.training.models.gbdt import GbdtModel
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.predict.online.belief_streams import upgraded

pytestmark = pytest.mark.bench
SEEDS = range(5)
MAX_ERROR = {34: 0.09, 176: 0.06}  # by unordered pairs of the new campaign, of 351: a tenth, and half


def test_an_older_campaign_of_another_stack_helps_the_new_one() -> None:
    imported = import_gavel(public("gavel/oracle_throughputs.json"))
    pairs = tuple(pair for pair in imported.pairs if not math.isnan(pair.slowdown))
    old = Table(name="old", jobs=attach_static(imported.jobs).jobs, pairs=pairs)
    figures: dict[str, float] = {}
    for count, limit in MAX_ERROR.items():
        errors = np.array([_errors(old, count, seed) for seed in SEEDS])
        alone, pooled, translated = errors.mean(axis=0)
        print(
            f"{count} new pairs: alone {alone:.4f}, pooled as they are {pooled:.4f}, translated {translated:.4f}; "
            f"by seed {errors.round(4).tolist()}"
        )
        figures |= {f"alone {count}": alone, f"pooled {count}": pooled, f"translated {count}": translated}
        assert translated <= limit
        assert translated < alone < pooled
    record("campaigns", figures)


def _errors(old: Table, count: int, seed: int) -> tuple[float, float, float]:
    """MAE of speed on the pairs that the new campaign lacks: of a model of it alone, pooled, and pooled translated."""
    rows = [(pair.device_type, pair.victim, pair.neighbour, math.log(pair.slowdown)) for pair in old.pairs]
    truth, _ = upgraded(rows, {job.workload: job.family for job in old.jobs}, seed)
    names = sorted({unordered_pair(pair.victim, pair.neighbour) for pair in old.pairs})
    measured = {names[k] for k in np.random.default_rng(seed).permutation(len(names))[:count]}
    new = [
        replace(pair, slowdown=math.exp(log), lower=math.nan, upper=math.nan, passes=(), campaign="new")
        for pair, log in zip(old.pairs, truth, strict=True)
    ]
    known = [unordered_pair(pair.victim, pair.neighbour) in measured for pair in new]
    tables = [
        old,
        replace(old, name="new", pairs=tuple(p for p, is_known in zip(new, known, strict=True) if is_known)),
        replace(old, name="hidden", pairs=tuple(p for p, is_known in zip(new, known, strict=True) if not is_known)),
    ]
    dataset = build_dataset(tables, FeatureEncoder())
    hidden, pooled = dataset.take(dataset.table == 2), dataset.take(dataset.table <= 1)

    def error(training_set: Dataset) -> float:
        predicted = GbdtModel().fit(training_set, 0).predict(hidden.rows)
        return float(np.abs(speed(predicted) - speed(hidden.log_slowdown)).mean())

    return error(dataset.take(dataset.table == 1)), error(pooled), error(align_campaigns(pooled)[0])
