"""The fitted prior of the online correction recovers known variances and speeds up learning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.online.belief_state import BeliefState
from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import PRIOR_FILE, ResidualPrior, default_prior, prior_arrays, read_prior
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.candidates import FAMILY_GROUPS
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.models.catalogue import MODELS
from interfere.training.publishing.residual_prior import (
    fit_random_effects,
    fit_residual_prior,
    job_signatures,
    out_of_fold_errors,
    residual_prior_file,
)
from tests.predict.online.streaming import Residual, Simple, curve, priors, streams
from tests.training.worlds import world


def test_the_variances_that_made_the_errors_are_found() -> None:
    rng = np.random.default_rng(0)
    true = np.array([[0.04, 0.01], [0.01, 0.09]])
    sets = []
    for _ in range(400):
        phi = np.column_stack([np.ones(20), rng.normal(size=20)])
        scale = rng.uniform(0.5, 2.0, size=20)
        effect = rng.multivariate_normal([0, 0], true)
        sets.append((phi, phi @ effect + rng.normal(size=20) * np.sqrt(0.01 * scale), scale))
    covariance, noise = fit_random_effects(sets)
    assert covariance == pytest.approx(true, abs=0.015)
    assert noise == pytest.approx(0.01, rel=0.05)


def test_jobs_that_behave_alike_have_one_signature(encoder: FeatureEncoder) -> None:
    table = world(lambda i, j: 1.5 if i % 2 and j % 2 else 1.1, 8)
    found = job_signatures(build_dataset([table], encoder), 3)
    even, odd = ([z for (name, *_), z in found.items() if int(name[1:]) % 2 == odd] for odd in (0, 1))
    assert {z.shape for z in found.values()} == {(3,)}
    for group in (even, odd):
        assert all(z == pytest.approx(group[0], abs=1e-9) for z in group)
    assert np.abs(even[0] - odd[0]).max() > 0.5


@pytest.fixture(scope="module")
def errors(dataset: Dataset) -> tuple[Evaluation, Evaluation]:
    """Of the trees, on unseen jobs and on unseen pairs of the shipped table."""
    job, pair = evaluate_models(dataset, [MODELS["gbdt"]], splits=("job", "pair"))
    return job, pair


@pytest.fixture(scope="module")
def prior(dataset: Dataset, errors: tuple[Evaluation, Evaluation]) -> ResidualPrior:
    job, pair = errors
    return fit_residual_prior(dataset, out_of_fold_errors(dataset, job), out_of_fold_errors(dataset, pair))


def test_a_job_of_training_has_a_smaller_prior_variance_than_a_new_one(prior: ResidualPrior) -> None:
    assert np.linalg.eigvalsh(prior.as_victim.unseen).min() >= 0
    assert prior.as_victim.seen[0, 0] < prior.as_victim.unseen[0, 0]
    assert prior.pair_var > 0
    assert prior.noise_var > 0
    assert len(prior.signatures) == 16


def test_an_unprofiled_job_starts_from_the_means_of_its_partners(prior: ResidualPrior, dataset: Dataset) -> None:
    where = dataset.domains[0].device_type, dataset.domains[0].mode
    said = {name: prior.unprofiled_log_slowdown("nobody knows it", name, *where) for name in dataset.workloads}
    assert min(said.values()) < prior.means[where] < max(said.values())
    assert np.isnan(prior.unprofiled_log_slowdown("a", "b", "tpu", "timeslice"))


def test_the_file_loses_nothing_and_a_broken_one_is_refused(prior: ResidualPrior, tmp_path: Path) -> None:
    (tmp_path / PRIOR_FILE).write_bytes(residual_prior_file(prior))
    again = prior_arrays(read_prior(tmp_path))
    assert {name: array.tolist() for name, array in again.items()} == {
        name: array.tolist() for name, array in prior_arrays(prior).items()
    }
    (tmp_path / PRIOR_FILE).write_bytes(b"not an archive")
    with pytest.raises(ModelError, match="publish the model again"):
        read_prior(tmp_path)
    (tmp_path / PRIOR_FILE).unlink()
    assert read_prior(tmp_path).width == default_prior().width


def test_errors_of_new_jobs_fall_faster_than_with_the_plain_mean_and_no_job_gets_worse(
    dataset: Dataset, errors: tuple[Evaluation, Evaluation]
) -> None:
    job, pair = errors
    found = list(streams(dataset, job, orders=1))
    fitted = priors(dataset, job, pair)
    where = dataset.domains[0]
    real = curve(found, lambda s, _: Residual(s, fitted[s.fold], (where.device_type, where.mode)))
    plain = curve(found, lambda s, _: Simple(s, "unshrunk mean"))
    assert real.own_mae(8) < real.own_mae(2) < real.own_mae(0)
    assert real.own_mae(1) < plain.own_mae(1)
    slack = real.neighbour_se(0, 1)
    assert all(real.neighbour_mae(k) <= real.neighbour_mae(0) + slack for k in (1, 2, 4, 8))


@pytest.mark.parametrize("groups", [None, FAMILY_GROUPS])
def test_the_unseen_jobs_are_those_of_the_folds_that_were_evaluated(dataset: Dataset, groups: int | None) -> None:
    """Training hides several families at a time: each test is of one job that its fold's training rows do not show."""
    dataset = replace(dataset, families=tuple(f"family {k % 7}" for k in range(len(dataset.workloads))))
    (family,) = evaluate_models(dataset, [MODELS["mean"]], splits=("family",), count=groups)
    errors = out_of_fold_errors(dataset, family)
    both, one = errors.new_victim & errors.new_neighbour, errors.new_victim ^ errors.new_neighbour
    assert (both == (errors.victim == errors.neighbour)).all()
    assert (one != both).all()
    unseen = np.where(errors.new_victim, errors.victim, errors.neighbour)
    family_of = np.array(dataset.families)[unseen - 1]
    hidden = [family.folds[k].hides for k in family.fold]
    assert all(name in hides.split(", ") for name, hides in zip(family_of, hidden, strict=True))


def test_a_job_of_a_family_that_training_never_saw_has_a_prior_of_its_own(
    dataset: Dataset, errors: tuple[Evaluation, Evaluation]
) -> None:
    job, pair = (out_of_fold_errors(dataset, each) for each in errors)
    dataset = replace(dataset, families=tuple(f"family {k % 4}" for k in range(len(dataset.workloads))))
    (family,) = evaluate_models(dataset, [MODELS["gbdt"]], splits=("family",))
    of_families = out_of_fold_errors(dataset, family)
    assert of_families.new_victim.any()
    prior = fit_residual_prior(dataset, job, pair, of_families)
    assert prior.families == frozenset(dataset.families)
    effects = Effects(prior, BeliefState())
    where = dataset.domains[0].device_type, dataset.domains[0].mode
    known_family = sorted(prior.families)[0]
    for family_name, covariance in (
        ("none of these", prior.as_victim.new_family),
        (known_family, prior.as_victim.unseen),
        ("", prior.as_victim.unseen),
    ):
        assert effects.prior_covariance(("new", *where), prior.as_victim, family_name) is covariance
    assert not np.allclose(prior.as_victim.new_family, prior.as_victim.unseen)
