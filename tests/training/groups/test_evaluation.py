"""Fitting the composition of groups: it finds the parameters that made the groups, and tells honest intervals."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.errors import UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition, composed_slowdown
from interfere.predict.onnx import load_model
from interfere.records import GroupMeasurement, JobProfile, PairMeasurement
from interfere.training.campaigns import Relation, align_campaigns
from interfere.training.dataset import SourceTables, build_dataset, read_source_tables
from interfere.training.evaluation.candidates import train_candidates
from interfere.training.groups.evaluation import NONE_PRESENT, published_compositions, read_group_tables
from interfere.training.groups.fit import (
    CompositionChoice,
    PairSlowdown,
    calibrate,
    choose_composition,
    covered,
    fit_composition,
    group_cases,
    measured_groups,
    relative_error,
    translated_campaigns,
)
from interfere.training.publishing.publication import (
    Publication,
    build_publication,
    publish,
)
from tests.training.cheap_models import CHEAP_MODELS

NAMES = tuple(f"job{k}" for k in range(9))
DOMAIN = "cpu-core", "timeslice"
TRUTH = GroupComposition(growth=0.8, saturation=2.0)


def slowdown(victim: str, neighbour: str) -> float:
    i, j = NAMES.index(victim), NAMES.index(neighbour)
    return 1.0 + (0.1 + 0.1 * i) * (0.2 + 0.1 * j)


def table(noise: float, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    common = {"device_type": DOMAIN[0], "mode": DOMAIN[1]}
    groups = [
        GroupMeasurement(
            victim=victim,
            company=tuple(name for name in group if name != victim),
            slowdown=composed_slowdown([slowdown(victim, name) for name in group if name != victim], TRUTH)
            * float(np.exp(rng.normal(0, noise))),
            **common,
        )
        for size in (3, 4)
        for group in list(combinations(NAMES, size))[:: 2 if size == 3 else 4]
        for victim in group
    ]
    pairs = [PairMeasurement(victim=i, neighbour=j, slowdown=slowdown(i, j), **common) for i in NAMES for j in NAMES]
    jobs = [JobProfile(workload=name, device_type=DOMAIN[0], step_time_s=1.0) for name in NAMES]
    return Table(name="made", jobs=tuple(jobs), pairs=tuple(pairs), groups=tuple(groups))


def known(victim: str, neighbour: str, domain: tuple[str, str]) -> PairSlowdown | None:
    assert domain == DOMAIN
    return PairSlowdown(*[slowdown(victim, neighbour)] * 3)


def test_the_parameters_that_made_the_groups_are_found() -> None:
    made = table(noise=0.02)
    cases = group_cases(measured_groups([made]), [made], known)
    assert len(cases) == len(made.groups)
    fitted = fit_composition(cases)
    assert (fitted.growth, fitted.saturation) == pytest.approx((TRUTH.growth, TRUTH.saturation), abs=0.15)
    assert relative_error(cases, fitted) < relative_error(cases, GroupComposition())


def test_a_case_with_an_unknown_pair_is_left_out() -> None:
    made = table(noise=0.0)

    def without_job0(victim: str, neighbour: str, domain: tuple[str, str]) -> PairSlowdown | None:
        return None if NAMES[0] in (victim, neighbour) else known(victim, neighbour, domain)

    cases = group_cases(measured_groups([made]), [made], without_job0)
    assert 0 < len(cases) < len(made.groups)
    assert not cases.with_any([NAMES[0]]).any()


def test_intervals_cover_what_was_held_out() -> None:
    fitted_on, held_out = (
        group_cases(measured_groups([made]), [made], known) for made in (table(0.1), table(0.1, seed=1))
    )
    predicted = held_out.predicted(TRUTH)
    told = calibrate(TRUTH, fitted_on, fitted_on.predicted(TRUTH), with_pairs=None)
    assert 0.85 <= covered(held_out, predicted, told).mean() <= 0.95
    narrow = replace(told, errors=(0.0, 0.0, 0.0))
    assert covered(held_out, predicted, narrow).mean() < 0.1


def test_intervals_cover_where_the_pairs_become_better_known_than_they_were() -> None:
    fitted_on, held_out = (
        group_cases(measured_groups([made]), [made], known) for made in (table(0.1), table(0.1, seed=1))
    )
    of_two_blocks = replace(fitted_on, below=np.full(len(fitted_on), 1.0), above=np.full(len(fitted_on), 1.0))
    told = calibrate(TRUTH, of_two_blocks, fitted_on.predicted(TRUTH), with_pairs=None)
    assert 0.85 <= covered(held_out, held_out.predicted(TRUTH), told).mean() <= 0.95


def published(
    folder: Path,
    made: Table,
    *,
    present: Mapping[tuple[str, str], GroupComposition] = NONE_PRESENT,
    beside: SourceTables | None = None,
) -> Publication:
    """What a training on the table publishes, into `folder`."""
    (folder / "made").mkdir()
    write_table(folder / "made", made)
    source, encoder = read_source_tables([folder / "made"]), FeatureEncoder()
    dataset = build_dataset(source.tables, encoder)
    candidates = train_candidates(dataset, dataset.take(np.zeros(len(dataset), dtype=bool)), CHEAP_MODELS, seed=0)
    compositions = published_compositions(candidates, source, encoder, present=present, beside=beside)
    publication = build_publication(candidates, source, encoder, compositions=compositions)
    publish(folder / "model", publication)
    return publication


def test_a_table_with_groups_publishes_how_they_are_composed(tmp_path: Path) -> None:
    publication = published(tmp_path, table(noise=0.02))
    served = load_model(tmp_path / "model", FeatureEncoder())
    told = served.composition(*DOMAIN)
    assert (told.growth, told.saturation) == pytest.approx((TRUTH.growth, TRUTH.saturation), abs=0.15)
    assert served.composition(DOMAIN[0], "mps") == DEFAULT_COMPOSITION
    (fitted,) = publication.compositions
    assert fitted.composition == told
    assert [score.size for score in fitted.scores] == [3, 4, 0]
    assert all(score.mae < score.mae_product for score in fitted.scores)
    assert 0.8 <= fitted.scores[-1].coverage <= 0.98
    assert "## Groups of three and more" in publication.card_text


def test_the_refit_replaces_the_champions_composition_only_where_it_errs_less(tmp_path: Path) -> None:
    cases = group_cases(measured_groups([(made := table(noise=0.1))]), [made], known)
    kept = choose_composition(cases, TRUTH)
    assert kept.error >= kept.present_error
    assert not kept.refitted
    assert kept.fit(cases) == TRUTH
    far_off = GroupComposition(growth=0.0)
    refitted = choose_composition(cases, far_off)
    assert refitted.error < refitted.present_error
    assert (refitted.fit(cases).growth, refitted.fit(cases).saturation) == pytest.approx((0.8, 2.0), abs=0.5)

    (fitted,) = published(tmp_path, made, present={DOMAIN: TRUTH}).compositions
    assert (fitted.composition.growth, fitted.composition.saturation) == (TRUTH.growth, TRUTH.saturation)
    assert "kept as it was" in fitted.text()
    assert 0.8 <= fitted.scores[-1].coverage <= 0.98, "its intervals are those of these groups"


def test_wrong_reports_do_not_outvote_measured_groups() -> None:
    """Many observed groups tell of a composition that the measured ones contradict."""
    made = table(noise=0.02)
    measured = [row for row in made.groups if len(row.company) == 2][::3]
    told = {(row.victim, row.company) for row in measured}
    others = [row for row in made.groups if (row.victim, row.company) not in told]
    wrong = [replace(row, slowdown=min(1.6 * row.slowdown, 90.0), source="observed") for row in others]
    assert len(wrong) > 2 * len(measured)

    def choice(rows: list[GroupMeasurement]) -> CompositionChoice:
        return choose_composition(group_cases(rows, [made], known), TRUTH)

    without_measured, with_measured = choice(wrong), choice([*measured, *wrong])
    assert without_measured.refitted, "nothing contradicts the reports"
    assert with_measured.error < with_measured.present_error
    assert not with_measured.refitted
    assert "of measured groups alone" in with_measured.text()


def test_a_table_beside_without_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs").mkdir()
    write_table(tmp_path / "pairs", replace(table(noise=0.0), groups=()))
    with pytest.raises(UnfitError, match=r"holds no group(.|\n)*pairs(.|\n)*--group-data"):
        read_group_tables([tmp_path / "pairs"])
    assert read_group_tables([]) is None


def test_without_groups_the_champions_composition_stays(tmp_path: Path) -> None:
    publication = published(tmp_path, replace(table(noise=0.02), groups=()), present={DOMAIN: TRUTH})
    assert [each.composition for each in publication.compositions] == [TRUTH]
    assert load_model(tmp_path / "model", FeatureEncoder()).composition(*DOMAIN) == TRUTH
    assert "kept as it was" in publication.card_text


def test_groups_of_a_table_beside_teach_without_its_pairs(tmp_path: Path) -> None:
    made = table(noise=0.02)
    (tmp_path / "other-machine").mkdir()
    slower = [replace(pair, slowdown=1.2 * pair.slowdown) for pair in made.pairs]
    of_slower = {(pair.victim, pair.neighbour): pair.slowdown for pair in slower}
    groups = [
        replace(row, slowdown=composed_slowdown([of_slower[row.victim, name] for name in row.company], TRUTH))
        for row in made.groups
    ]
    write_table(tmp_path / "other-machine", replace(made, pairs=tuple(slower), groups=tuple(groups)))
    beside = read_source_tables([tmp_path / "other-machine"])
    publication = published(tmp_path, replace(made, groups=()), beside=beside)
    served = load_model(tmp_path / "model", FeatureEncoder())
    told = served.composition(*DOMAIN)
    assert (told.growth, told.saturation) == pytest.approx((TRUTH.growth, TRUTH.saturation), abs=0.15)
    assert (told.errors, told.pair_scale) == (DEFAULT_COMPOSITION.errors, DEFAULT_COMPOSITION.pair_scale)
    assert "of table `other-machine`, whose pairs the model has not learned" in publication.card_text
    assert [each.table for each in publication.trained_on] == ["made"]
    # Groups of the training's own tables go before those beside.
    (tmp_path / "own").mkdir()
    own = published(tmp_path / "own", made, beside=beside)
    assert [each.table for each in own.compositions] == [""]


def test_groups_of_a_translated_campaign_are_left_out() -> None:
    """Their pairs are those of another software stack now."""
    old = table(noise=0.0)
    pairs = tuple(replace(pair, campaign="driver 1", measured_at_s=1.0) for pair in old.pairs)
    groups = tuple(replace(row, campaign="driver 1", measured_at_s=1.0) for row in old.groups)
    newer = tuple(replace(p, campaign="driver 2", measured_at_s=2.0, slowdown=1.5 * p.slowdown) for p in old.pairs)
    tables = [replace(old, pairs=pairs, groups=groups), replace(old, name="new", pairs=newer, groups=())]
    dataset, (relation,) = align_campaigns(build_dataset(tables, FeatureEncoder()))
    assert relation.relation is Relation.TRANSLATED
    assert translated_campaigns(dataset) == {(DOMAIN, "driver 1")}
    assert measured_groups(tables, translated_campaigns(dataset)) == ()
    assert len(measured_groups(tables)) == len(groups)


def test_too_few_groups_keep_the_default_composition(tmp_path: Path) -> None:
    made = table(noise=0.02)
    (fitted,) = published(tmp_path, replace(made, groups=made.groups[:3])).compositions
    assert "fewer than 10 measured groups" in fitted.text()
    assert fitted.composition == DEFAULT_COMPOSITION
    assert load_model(tmp_path / "model", FeatureEncoder()).composition(*DOMAIN) == DEFAULT_COMPOSITION


def test_without_groups_nothing_is_said_of_them(tmp_path: Path) -> None:
    publication = published(tmp_path, replace(table(noise=0.02), groups=()))
    assert publication.compositions == ()
    assert "Groups" not in publication.card_text
    assert "groups" not in json.loads((tmp_path / "model" / "manifest.json").read_text())
