"""Campaigns of one stack are pooled; one of another stack is translated to the newest, and never tested or trusted."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.measured import read_measured_table
from interfere.records import PairMeasurement
from interfere.training.campaigns import Relation, align_campaigns
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.candidates import table_contributions
from interfere.training.evaluation.champion import read_champion
from interfere.training.evaluation.splits import folds
from interfere.training.models.additive import AdditiveModel
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import promote
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.worlds import additive, crossed, measurement, world

JOBS = 10


def campaign(
    name: str,
    label: Callable[[PairMeasurement], float],
    *,
    kept: Callable[[PairMeasurement], bool] = lambda _: True,
    **fields: Any,
) -> Table:
    """The crossed world measured under another name; `label(pair)` is its slowdown."""
    table = world(crossed, JOBS, name=name)
    pairs = tuple(
        replace(measurement(p.victim, p.neighbour, label(p)), campaign=name, **fields) for p in table.pairs if kept(p)
    )
    return replace(table, pairs=pairs)


def number(workload: str) -> int:
    return int(workload.removeprefix("w"))


def upgraded(pair: PairMeasurement) -> float:
    """Another stack: a slope, and effects of both jobs."""
    shift = 0.25 * math.sin(3 * number(pair.victim)) + 0.2 * math.cos(5 * number(pair.neighbour))
    return math.exp(0.7 * math.log(pair.slowdown) + 0.15 + shift)


def half(pair: PairMeasurement) -> bool:
    return (number(pair.victim) * 7 + number(pair.neighbour) * 3) % 10 < 5


OLD = campaign("old", lambda pair: pair.slowdown)
NEW = campaign("new", upgraded, kept=half)


@pytest.fixture(scope="module")
def both(encoder: FeatureEncoder) -> Dataset:
    return build_dataset([OLD, NEW], encoder)


def test_one_campaign_and_campaigns_that_agree_are_left_as_they_are(encoder: FeatureEncoder) -> None:
    one = build_dataset([OLD], encoder)
    assert align_campaigns(one)[0] is one
    rng = np.random.default_rng(0)
    again = campaign("again", lambda pair: pair.slowdown * math.exp(rng.normal(0, 0.03)))
    pooled = build_dataset([OLD, again], encoder)
    same, (relation,) = align_campaigns(pooled)
    assert same is pooled
    assert (relation.relation, relation.campaign, relation.newest) == (Relation.SAME, "old", "again")
    assert "one stack, pooled" in relation.text()


def test_campaigns_that_differ_by_no_more_than_their_intervals_say_are_of_one_stack(encoder: FeatureEncoder) -> None:
    rng = np.random.default_rng(0)

    def noisy(name: str) -> Table:
        made = campaign(name, lambda pair: pair.slowdown * math.exp(rng.normal(0, 0.15)))
        width = math.exp(1.96 * 0.15)
        pairs = (replace(p, lower=p.slowdown / width, upper=p.slowdown * width) for p in made.pairs)
        return replace(made, pairs=tuple(pairs))

    once, twice = noisy("once"), noisy("twice")
    dataset = build_dataset([once, twice], encoder)
    assert align_campaigns(dataset)[1][0].relation is Relation.SAME
    certain = (
        replace(t, pairs=tuple(replace(p, lower=math.nan, upper=math.nan) for p in t.pairs)) for t in (once, twice)
    )
    assert align_campaigns(build_dataset(list(certain), encoder))[1][0].relation is Relation.TRANSLATED


def test_an_older_campaign_of_another_stack_is_translated_to_the_newest(both: Dataset) -> None:
    aligned, (relation,) = align_campaigns(both)
    assert relation.relation is Relation.TRANSLATED
    assert relation.compared == len(NEW.pairs)
    np.testing.assert_array_equal(aligned.aligned, both.table == 0)
    truth = np.array([math.log(upgraded(pair)) for pair in OLD.pairs])
    unmeasured = np.array([not half(pair) for pair in OLD.pairs])

    def error(dataset: Dataset) -> float:
        return float(np.abs(dataset.log_slowdown[dataset.table == 0] - truth)[unmeasured].mean())

    assert error(aligned) < 0.15 * error(both)
    np.testing.assert_array_equal(aligned.log_slowdown[both.table == 1], both.log_slowdown[both.table == 1])
    assert aligned.weight[both.table == 0].mean() < aligned.weight[both.table == 1].mean()
    assert aligned.weight.mean() == pytest.approx(1.0)
    assert all(not aligned.aligned[fold.test].any() for split in ("pair", "job") for fold in folds(aligned, split, 0))
    assert not aligned.latest_rows().aligned[np.isin(aligned.latest_rows().group, both.group[both.table == 1])].all()


def test_the_last_measurement_tells_which_campaign_is_newest_else_the_last_table(encoder: FeatureEncoder) -> None:
    dated = [
        campaign("old", lambda p: p.slowdown, measured_at_s=1e9),
        campaign("new", upgraded, kept=half, measured_at_s=2e9),
    ]
    for tables in (dated, dated[::-1]):
        _, (relation,) = align_campaigns(build_dataset(tables, encoder))
        assert (relation.campaign, relation.newest) == ("old", "new")
    _, (relation,) = align_campaigns(build_dataset([NEW, OLD], encoder))
    assert (relation.campaign, relation.newest) == ("new", "old")


def test_campaigns_with_too_few_pairs_to_compare_are_pooled_and_that_is_said(encoder: FeatureEncoder) -> None:
    few = replace(NEW, pairs=NEW.pairs[:7])
    dataset = build_dataset([OLD, few], encoder)
    same, (relation,) = align_campaigns(dataset)
    assert same is dataset
    assert (relation.relation, relation.compared) == (Relation.UNKNOWN, 7)
    assert "only 7 pairs can be compared" in relation.text()


def test_pairs_that_only_the_newer_campaign_has_are_compared_with_what_the_older_predicts(
    encoder: FeatureEncoder,
) -> None:
    older = replace(OLD, pairs=tuple(pair for pair in OLD.pairs if not half(pair)))
    aligned, (relation,) = align_campaigns(build_dataset([older, NEW], encoder))
    assert relation.relation is Relation.TRANSLATED
    truth = np.array([math.log(upgraded(pair)) for pair in older.pairs])
    before = np.array([math.log(pair.slowdown) for pair in older.pairs])
    after = aligned.log_slowdown[aligned.table == 0]
    assert np.abs(after - truth).mean() < 0.4 * np.abs(before - truth).mean()


def test_observed_pairs_without_a_campaign_never_translate_what_was_measured(encoder: FeatureEncoder) -> None:
    wrong = campaign("log 1-500", lambda pair: 1 + 0.55 * (pair.slowdown - 1), source="observed")
    dataset = build_dataset([OLD, wrong], encoder)
    same, relations = align_campaigns(dataset)
    assert same is dataset
    assert relations == ()


@pytest.mark.journey
def test_translated_rows_are_trained_on_and_never_published_as_measurements(
    encoder: FeatureEncoder, tmp_path: Path
) -> None:
    for table in (OLD, NEW):
        write_table(tmp_path / table.name, table)
    train([tmp_path / "old"], tmp_path / "work", models=CHEAP_MODELS)
    lines: list[str] = []
    made = train([tmp_path / "old", tmp_path / "new"], tmp_path / "work", models=CHEAP_MODELS, report=lines.append)
    assert made.verdict.reason.startswith("refused: ")
    assert "pairs measured before were translated to another software stack (campaign new)" in made.verdict.reason
    assert "by force" in made.verdict.reason
    assert any("another stack, translated to that one" in line for line in lines)
    champion = read_champion(1, "", made.folder, encoder)
    assert champion.manifest is not None
    measured = read_measured_table(made.folder, champion.manifest)
    assert {(key.victim, key.neighbour) for key in measured} == {(p.victim, p.neighbour) for p in NEW.pairs}
    assert {each.table: each.tests for each in made.tables} == {"old": len(NEW.pairs), "new": 0}
    assert made.tables[1].effect.startswith("cannot be judged")
    promote(tmp_path / "work", encoder.fingerprint, number=2, force="the driver was upgraded")
    again = train([tmp_path / "old", tmp_path / "new"], tmp_path / "work", models=CHEAP_MODELS, seed=1)
    assert again.verdict.passed, "the champion is of the new stack now"


def test_pooling_a_translated_campaign_is_better_than_the_new_pairs_alone(
    both: Dataset, encoder: FeatureEncoder
) -> None:
    hidden = build_dataset([campaign("new", upgraded, kept=lambda pair: not half(pair))], encoder)
    model = AdditiveModel()

    def error(dataset: Dataset) -> float:
        predicted = model.fit(dataset, 0).predict(hidden.rows)
        return float(np.abs(speed(predicted) - speed(hidden.log_slowdown)).mean())

    alone, pooled, translated = error(both.take(both.table == 1)), error(both), error(align_campaigns(both)[0])
    assert translated < alone < pooled


def test_a_table_of_the_same_world_helps_and_one_of_wrong_labels_harms(encoder: FeatureEncoder) -> None:
    whole = world(additive, JOBS, name="base")
    rng = np.random.default_rng(1)
    part = [pair for pair in whole.pairs if rng.random() < 0.35]
    base = replace(whole, pairs=tuple(part))
    more = replace(whole, name="more", pairs=tuple(pair for pair in whole.pairs if pair not in part))
    wrong = replace(
        more,
        name="wrong",
        pairs=tuple(measurement(p.victim, p.neighbour, p.slowdown * rng.uniform(0.6, 3.0)) for p in more.pairs),
    )

    def effects(*tables: Table) -> dict[str, str]:
        names = [table.name for table in tables]
        made = build_dataset(tables, encoder)
        return {each.table: each.effect for each in table_contributions(made, names, AdditiveModel(), 0)}

    assert effects(base, more)["more"] == "helps"
    assert effects(base, wrong)["wrong"] == "harms"
    assert effects(base) == {}
