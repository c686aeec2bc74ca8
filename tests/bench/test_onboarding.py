"""The example's onboarding replayed on its recorded table: what it knows after 12 of 36 pairs, and what it publishes.

Beside it: random pairs, D-optimal ones, additive fits, the model that it starts from, and each pair predicted from all
35 others.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.transfer.first_predictions import log_predictions
from interfere.predict.transfer.pair_belief import OrderedPair, PairBelief, site_belief
from interfere.training.onboarding import measure_site, published_answers
from interfere.training.pipeline import train
from tests.bench.history import record
from tests.bench.test_pair_suggestions import SHOWN, additive_errors, errors, report
from tests.training.onboarding.recorded import SHIPPED_MODEL, recorded_table, replay_of, replayed_config

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
PAIRS, MAX_ERROR, MAX_RATIO, MIN_COVERAGE = 12, 0.06, 1.3, 0.85
CPU_TABLE = Path(__file__).parents[2] / "datasets" / "cpu"


def complete_belief(table: Table) -> PairBelief:
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    return site_belief(table, model, device_type="cpu-core", mode="timeslice")


def test_errors_after_so_many_pairs() -> None:
    table = recorded_table()
    values = {(row.victim, row.neighbour): row.slowdown for row in table.ok_pairs}
    complete = complete_belief(table)
    space, seeds = complete.posterior.space, {"suggested": range(1), "D-optimal": range(1), "random": range(10)}
    means = {
        choice: np.mean([errors(space, values, choice, random.Random(k), SHOWN[-1]) for k in of], axis=0)
        for choice, of in seeds.items()
    }
    means["additive, random"] = np.mean(
        [additive_errors(values, random.Random(k), SHOWN[-1]) for k in range(10)], axis=0
    )
    report("cpu-core", means)
    score = complete.hidden_pair_score()
    print(f"  each of all {score.pairs} pairs from the others: {score.speed_error:.3f}, coverage {score.coverage:.2f}")
    assert means["suggested"][PAIRS] <= min(MAX_ERROR, MAX_RATIO * score.speed_error, means["random"][PAIRS])


def test_the_belief_beside_the_model_that_is_published(tmp_path: Path) -> None:
    table = recorded_table()
    truth = {(row.victim, row.neighbour): row.slowdown for row in table.ok_pairs}
    measured = measure_site(replayed_config(tmp_path / "site", PAIRS), lambda _: None, print, replay_of(table))
    others = [pair for pair in truth if frozenset(pair) not in measured.known.tried]
    write_table(tmp_path / "site", measured.table)
    trained = train([CPU_TABLE, tmp_path / "site"], tmp_path / "work")
    answers = [
        each
        for each in published_answers(trained.folder, measured.known.jobs, "cpu-core", "timeslice")
        if each.source == "model"
    ]
    assert {(each.victim, each.neighbour) for each in answers} == set(others)
    inside = [each.lower <= truth[each.victim, each.neighbour] <= each.upper for each in answers]
    known = {(each.victim, each.neighbour): each.slowdown for each in measured.known.predict(others)}
    figures = {
        "belief": error(known, truth),
        "shipped model": error(model_predictions(SHIPPED_MODEL, table, others), truth),
        "published model": error({(each.victim, each.neighbour): each.slowdown for each in answers}, truth),
        "published model coverage": float(np.mean(inside)),
        "leave one pair out": complete_belief(table).hidden_pair_score().speed_error,
    }
    print(f"\nerror of speed on {len(others)} rows after {PAIRS} pairs:", figures)
    for comparison in trained.beliefs:
        print(comparison.text(trained.champion))
    record("onboarding", figures)
    assert max(figures["belief"], figures["published model"]) <= MAX_ERROR
    assert max(figures["belief"], figures["published model"]) <= MAX_RATIO * figures["leave one pair out"]
    assert figures["published model coverage"] >= MIN_COVERAGE


def model_predictions(folder: Path, table: Table, pairs: list[OrderedPair]) -> dict[OrderedPair, float]:
    """A model's own slowdowns, whatever its table measured."""
    jobs = sorted(table.jobs, key=lambda job: job.workload)
    matrix = np.exp(log_predictions(load_model(folder, FeatureEncoder()), jobs, "cpu-core", "timeslice"))
    index = {job.workload: k for k, job in enumerate(jobs)}
    return {(victim, neighbour): float(matrix[index[victim], index[neighbour]]) for victim, neighbour in pairs}


def error(predicted: dict[OrderedPair, float], truth: dict[OrderedPair, float]) -> float:
    """Mean absolute error of speed."""
    return float(np.mean([abs(1 / slowdown - 1 / truth[pair]) for pair, slowdown in predicted.items()]))
