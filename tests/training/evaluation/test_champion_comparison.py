"""The published champion is read from its folder and compared with a challenger on the right rows."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import open_session
from interfere.training.dataset import Dataset, build_dataset, hold_out, pair_keys
from interfere.training.evaluation.champion import PublishedChampion, gate_verdict, read_champion
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.drift import Expectation, measure_drift
from interfere.training.evaluation.gate import unseen_predictions
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import champion_folder
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.worlds import additive, measurement, world

HIDDEN = 3  # unordered pairs that the champion was not fitted on


@pytest.fixture(scope="module")
def held_out(small: Table) -> frozenset[tuple[str, str]]:
    apart = sorted({tuple(sorted((p.victim, p.neighbour))) for p in small.ok_pairs if p.victim != p.neighbour})
    return frozenset((a, b) for a, b in apart[:HIDDEN])


@pytest.fixture(scope="module")
def folder(small_folder: Path, held_out: frozenset[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    train([small_folder], work, held_out=held_out, models=CHEAP_MODELS)
    return champion_folder(work)


@pytest.fixture(scope="module")
def champion(folder: Path, encoder: FeatureEncoder) -> PublishedChampion:
    return read_champion(7, "", folder, encoder)


def test_the_champion_knows_the_pairs_it_was_fitted_on_and_predicts_all(
    champion: PublishedChampion, small_dataset: Dataset, held_out: frozenset[tuple[str, str]]
) -> None:
    np.testing.assert_array_equal(champion.was_fitted_on(small_dataset), ~small_dataset.rows_of_pairs(held_out))
    predicted, known = champion.predict(small_dataset)
    assert known.all()
    fitted = CHEAP_MODELS[champion.model].fit(hold_out(small_dataset, held_out)[0], 0)
    np.testing.assert_allclose(predicted, fitted.predict(small_dataset.rows), atol=1e-5)


def test_the_champion_finds_workloads_by_name_whatever_their_identities(
    champion: PublishedChampion, small: Table, encoder: FeatureEncoder
) -> None:
    some = replace(small, jobs=small.jobs[3:])
    names = {job.workload for job in some.jobs}
    other = build_dataset(
        [replace(some, pairs=tuple(p for p in small.pairs if {p.victim, p.neighbour} <= names))], encoder
    )
    whole = build_dataset([small], encoder)
    at = {(whole.workloads[i - 1], whole.workloads[j - 1]): k for k, (i, j) in enumerate(ids(whole))}
    expected = champion.predict(whole)[0][[at[other.workloads[i - 1], other.workloads[j - 1]] for i, j in ids(other)]]
    np.testing.assert_allclose(champion.predict(other)[0], expected, atol=1e-6)


def ids(dataset: Dataset) -> list[tuple[int, int]]:
    return list(zip(dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), strict=True))


def test_the_champion_does_not_know_an_unseen_device_type_and_predicts_no_rows_as_none(
    champion: PublishedChampion, small_dataset: Dataset
) -> None:
    elsewhere = replace(small_dataset, domains=(replace(small_dataset.domains[0], device_type="a100"),))
    assert not champion.predict(elsewhere)[1].any()
    assert [len(found) for found in champion.predict(small_dataset.take(np.zeros(0, dtype=np.int64)))] == [0, 0]


def test_a_folder_that_must_not_be_served_leaves_the_model_type(
    folder: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "pair.onnx").write_bytes(b"half")
    found = read_champion(3, "additive", broken, encoder)
    assert (found.model, found.graph, found.fitted) == ("additive", None, frozenset())


def test_with_too_few_new_rows_the_published_champion_is_compared_on_trusted_rows_hidden_from_both(
    champion: PublishedChampion, small_dataset: Dataset, held_out: frozenset[tuple[str, str]]
) -> None:
    evaluations = evaluate_models(small_dataset, tuple(CHEAP_MODELS.values()))
    none = small_dataset.take(np.zeros(0, dtype=np.int64))
    trusted = int((~small_dataset.rows_of_pairs(held_out)).sum())
    for name in CHEAP_MODELS:
        fitted = CHEAP_MODELS[name].fit(small_dataset, 0)
        # whatever became of the champion's model type: its own published predictions are compared
        verdict = gate_verdict(fitted, replace(champion, model="gone"), small_dataset, none, evaluations, seed=0)
        assert verdict.against == f"champion version 7 on {trusted} trusted rows, each hidden from both"
        assert verdict.passed == (name == champion.model)
        assert {side.side.value for side in verdict.sides} == {"own", "others"}
        assert name == champion.model or all(side.error.challenger > side.error.champion for side in verdict.sides)
    untrusted = replace(small_dataset, observed=np.ones(len(small_dataset), dtype=bool))
    verdict = gate_verdict(fitted, champion, untrusted, none, evaluations, seed=0)
    assert verdict.against == f"champion version 7's model type ({champion.model}) on the same folds"


def test_a_model_of_wrong_observations_is_refused_although_it_predicts_them_better(
    champion: PublishedChampion, encoder: FeatureEncoder
) -> None:
    """Half of the pairs are trusted, the others come from a log in which four jobs are slowed too much, four too
    little: no label contradicts a measurement, none lies on one side, and the challenger beats the champion on them."""
    whole = world(additive, 8, name="base")
    trusted = [p for p in whole.pairs if (int(p.victim[1]) + int(p.neighbour[1])) % 2 == 0]
    factor = {job.workload: 1.5 if k < 4 else 1 / 1.3 for k, job in enumerate(whole.jobs)}
    wrong = [
        measurement(p.victim, p.neighbour, p.slowdown * factor[p.victim], source="observed")
        for p in whole.pairs
        if p not in trusted
    ]
    base = replace(whole, pairs=tuple(trusted))
    served = published(champion, build_dataset([base], encoder))
    poisoned = build_dataset([base, replace(whole, name="observed", pairs=tuple(wrong))], encoder)
    evaluations = evaluate_models(poisoned, tuple(CHEAP_MODELS.values()))
    none = poisoned.take(np.zeros(0, dtype=np.int64))
    verdict = gate_verdict(CHEAP_MODELS["additive"].fit(poisoned, 0), served, poisoned, none, evaluations, seed=0)
    assert verdict.against == f"champion version 7 on {len(wrong)} rows unseen by both"
    assert verdict.error.challenger < verdict.error.champion
    assert not verdict.passed
    assert "trusted rows, each hidden from both" in verdict.reason


def published(like: PublishedChampion, dataset: Dataset) -> PublishedChampion:
    """An additive champion of a dataset, as its folder would read."""
    assert like.manifest is not None
    evaluations = [e for e in evaluate_models(dataset, tuple(CHEAP_MODELS.values())) if e.model == "additive"]
    keys = pair_keys(dataset)
    return replace(
        like,
        manifest=replace(like.manifest, workloads=dataset.workloads, domains=dataset.domains),
        graph=open_session(CHEAP_MODELS["additive"].fit(dataset, 0).to_onnx()),
        fitted=frozenset(dataset.unordered_pairs),
        measured=dict(zip(keys, dataset.log_slowdown.tolist(), strict=True)),
        place={key: k for k, key in enumerate(keys)},
        unseen=unseen_predictions(dataset, evaluations),
    )


def test_without_published_predictions_both_model_types_are_compared_on_the_same_folds(
    champion: PublishedChampion, small_dataset: Dataset
) -> None:
    champion = replace(champion, unseen=None)  # as earlier releases published it
    evaluations = evaluate_models(small_dataset, tuple(CHEAP_MODELS.values()))
    none = small_dataset.take(np.zeros(0, dtype=np.int64))
    for name in CHEAP_MODELS:
        fitted = CHEAP_MODELS[name].fit(small_dataset, 0)
        verdict = gate_verdict(fitted, champion, small_dataset, none, evaluations, seed=0)
        assert verdict.against == f"champion version 7's model type ({champion.model}) on the same folds"
        assert verdict.passed == (name == champion.model)
    unknown = replace(champion, model="gone")
    verdict = gate_verdict(
        CHEAP_MODELS["additive"].fit(small_dataset, 0), unknown, small_dataset, none, evaluations, seed=0
    )
    assert (verdict.passed, verdict.against) == (True, "nothing to compare champion version 7 (gone) on")


def test_a_pair_without_earlier_measurement_is_compared_with_the_champion(
    champion: PublishedChampion, small: Table, held_out: frozenset[tuple[str, str]], encoder: FeatureEncoder
) -> None:
    hidden = [p for p in small.ok_pairs if tuple(sorted((p.victim, p.neighbour))) in held_out]
    kept = [p for p in small.ok_pairs if p not in hidden]
    base, new = replace(small, pairs=tuple(kept)), replace(small, pairs=(*hidden, kept[0]))
    drift = measure_drift([base], new, encoder, champion)
    assert drift.unexpected == 0
    assert sorted(p.source for p in drift.pairs) == [Expectation.MEASURED] + [Expectation.PREDICTED] * len(hidden)
    assert measure_drift([base], new, encoder, None).unexpected == len(hidden)
