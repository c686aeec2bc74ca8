"""The field: its posterior is that of least squares with priors, its variances are found, and its laws hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.predict.field.gaussian import Posterior, condition, learn_variances, learned_scales
from interfere.predict.field.spaces import EffectSpace, RowSpace
from interfere.predict.field.terms import ABSENT, Rows, Term, indicator


def world(seed: int, rows: int = 40, jobs: int = 6) -> tuple[Rows, list[Term]]:
    """Random rows of pairs of jobs: a level, own and harm effects with slopes, and an effect of some rows alone."""
    rng = np.random.default_rng(seed)
    victims, neighbours = rng.integers(jobs, size=rows), rng.integers(jobs, size=rows)
    x = rng.uniform(0, 1, rows)
    slopes = np.array([[[0.09, 0.01], [0.01, 0.04]]])
    terms = [
        Term(
            name="level",
            groups=np.zeros(rows, dtype=np.int64),
            loadings=np.ones((rows, 1)),
            covariance=np.ones((1, 1, 1)),
        ),
        Term(
            name="own",
            groups=victims,
            loadings=np.column_stack([np.ones(rows), x]),
            covariance=np.repeat(slopes, jobs, axis=0),
            mean=rng.normal(0, 0.1, (jobs, 2)),
        ),
        Term(name="harm", groups=neighbours, loadings=np.ones((rows, 1)), covariance=np.full((jobs, 1, 1), 0.02)),
        Term(
            name="some",
            groups=np.where(x > 0.5, 0, ABSENT),
            loadings=np.ones((rows, 1)),
            covariance=np.full((1, 1, 1), 0.1),
            is_answer=False,
        ),
    ]
    return Rows(values=rng.normal(0, 1, rows), noise_var=rng.uniform(0.01, 0.1, rows), weights=np.ones(rows)), terms


def least_squares(rows: Rows, terms: list[Term]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means and covariances of every effect, by the normal equations in the space of the effects."""
    places, columns, precision, prior = {}, [], [], []
    for term in terms:
        groups, width = term.covariance.shape[:2]
        places[term.name] = (len(columns), groups, width)
        for g in range(groups):
            for d in range(width):
                columns.append(np.where(term.groups == g, term.loadings[:, d], 0.0))
                prior.append(0.0 if term.mean is None else term.mean[g, d])
            precision.append(np.linalg.inv(term.covariance[g]))
    size, at = len(columns), 0
    design, information = np.array(columns).T, np.zeros((size, size))
    for block in precision:
        information[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    weights = rows.weights / rows.noise_var
    covariance = np.linalg.inv(information + design.T @ (weights[:, None] * design))
    mean = covariance @ (information @ np.array(prior) + design.T @ (weights * rows.values))
    found = {}
    for name, (first, groups, width) in places.items():
        blocks = [slice(first + g * width, first + (g + 1) * width) for g in range(groups)]
        found[name] = np.array([mean[b] for b in blocks]), np.array([covariance[b, b] for b in blocks])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_it_is_least_squares_with_priors(seed: int) -> None:
    rows, terms = world(seed)
    posterior = condition(rows, terms)
    for name, (mean, covariance) in least_squares(rows, terms).items():
        found_mean, found_covariance = posterior.effects(name)
        assert found_mean == pytest.approx(mean, abs=1e-6)
        assert found_covariance == pytest.approx(covariance, abs=1e-6)


def asked(posterior: Posterior, k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {term.name: (term.groups[k : k + 1], term.loadings[k : k + 1]) for term in posterior.terms}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing_and_one_of_no_weight_neither(seed: int, order: object) -> None:
    rows, terms = world(seed, rows=12)
    mixed = list(range(12))
    order.shuffle(mixed)  # type: ignore[attr-defined]
    one = condition(rows, terms)
    other = condition(
        Rows(values=rows.values[mixed], noise_var=rows.noise_var[mixed], weights=rows.weights[mixed]),
        [
            Term(
                **{**{f: getattr(t, f) for f in t.__slots__}, "groups": t.groups[mixed], "loadings": t.loadings[mixed]}
            )
            for t in terms
        ],
    )
    for name in ("own", "harm"):
        assert other.effects(name)[0] == pytest.approx(one.effects(name)[0], abs=1e-8)
    weights = np.ones(12)
    weights[0] = 1e-12
    without = condition(Rows(values=rows.values, noise_var=rows.noise_var, weights=weights), terms)
    wild = rows.values.copy()
    wild[0] += 100.0
    with_wild = condition(Rows(values=wild, noise_var=rows.noise_var, weights=weights), terms)
    assert with_wild.effects("own")[0] == pytest.approx(without.effects("own")[0], abs=1e-6)


def test_an_exact_row_is_what_is_predicted_of_it_and_more_rows_never_widen() -> None:
    rows, terms = world(3, rows=12)
    for k in range(12):
        noise = rows.noise_var.copy()
        noise[k] = 1e-9
        posterior = condition(Rows(values=rows.values, noise_var=noise, weights=rows.weights), terms)
        mean, variance = posterior.predict(asked(posterior, k))
        assert mean[0] == pytest.approx(rows.values[k], abs=1e-3)
        assert variance[0] <= 1e-6
    few = condition(
        Rows(values=rows.values, noise_var=rows.noise_var, weights=np.where(np.arange(12) < 6, 1, 1e-12)), terms
    )
    many = condition(rows, terms)
    for k in range(12):
        assert many.predict(asked(many, k))[1][0] <= few.predict(asked(few, k))[1][0] + 1e-9


def test_variances_are_found_and_one_odd_group_does_not_move_the_others() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 8)
    effects = rng.normal(0, 0.1, 20)
    values = effects[groups] + rng.normal(0, 0.05, 160)
    rows = Rows(values=values, noise_var=np.full(160, 0.03**2), weights=np.ones(160))
    term = Term(
        name="job", groups=groups, loadings=np.ones((160, 1)), covariance=np.full((20, 1, 1), 0.02**2), prior_groups=3.0
    )
    posterior = learn_variances(rows, [term], rounds=20, sources=np.zeros(160, dtype=np.int64))
    assert learned_scales(posterior, [term])["job"] == pytest.approx(25.0, rel=0.5)  # .1² ÷ .02²
    assert float(posterior.rows.noise_var[0]) == pytest.approx(0.05**2, rel=0.3)
    # One group that is off by twenty standard deviations has its own variance; the others keep theirs.
    values[groups == 0] += 2.0
    own = Term(
        name="job",
        groups=groups,
        loadings=np.ones((160, 1)),
        covariance=np.full((20, 1, 1), 0.1**2),
        prior_groups=3.0,
        is_shared=False,
    )
    odd = learn_variances(Rows(values=values, noise_var=np.full(160, 0.05**2), weights=np.ones(160)), [own], rounds=20)
    assert odd.effects("job")[0][0, 0] == pytest.approx(2.0 + effects[0], abs=0.1)
    assert learned_scales(odd, [own])["job"] <= 1.5


def test_an_outlier_hardly_counts() -> None:
    rows, terms = world(1)
    wild = rows.values.copy()
    wild[0] += 50.0
    posterior = condition(Rows(values=wild, noise_var=rows.noise_var, weights=rows.weights), terms, robust_rounds=3)
    assert posterior.student[0] < 0.05
    assert float(np.median(posterior.student[1:])) > 0.5


@pytest.mark.parametrize("seed", range(4))
def test_the_space_of_rows_and_that_of_effects_tell_the_same(seed: int) -> None:
    rows, terms = world(seed, rows=60, jobs=5)
    terms.append(
        Term(  # a term of several effects, some of which are known to be 0
            name="nothing",
            groups=np.arange(60) % 3 - 1,
            loadings=np.ones((60, 2)),
            covariance=np.repeat(np.diag([0.1, 0.0])[None], 2, axis=0),
        )
    )
    noise, deviations = rows.noise_var, rows.values
    by_rows, by_effects = RowSpace(terms, noise, deviations), EffectSpace(terms, noise, deviations)
    assert by_effects.solved == pytest.approx(by_rows.solved, abs=1e-8)
    assert by_effects.diagonal() == pytest.approx(by_rows.diagonal(), abs=1e-8)
    assert by_effects.log_determinant == pytest.approx(by_rows.log_determinant, abs=1e-8)
    some = {name: (np.array([0, ABSENT, 1]), np.ones((3, 2))) for name in ("own", "nothing")}
    for one, other in (
        *((by_rows.effects(k), by_effects.effects(k)) for k in range(len(terms))),
        (by_rows.predict(some), by_effects.predict(some)),
    ):
        assert other[0] == pytest.approx(one[0], abs=1e-8)
        assert other[1] == pytest.approx(one[1], abs=1e-8)


def test_the_whole_covariance_of_effects_is_found() -> None:
    rng = np.random.default_rng(0)
    true = np.array([[0.04, 0.01], [0.01, 0.09]])
    groups, loadings = np.repeat(np.arange(300), 15), np.column_stack([np.ones(4500), rng.normal(size=4500)])
    effects = rng.multivariate_normal([0, 0], true, size=300)
    values = (loadings * effects[groups]).sum(axis=1) + rng.normal(0, 0.1, 4500)
    term = Term(
        name="job",
        groups=groups,
        loadings=loadings,
        covariance=np.repeat(0.1 * np.eye(2)[None], 300, axis=0),
        prior_groups=0.0,
        is_full=True,
    )
    rows = Rows(values=values, noise_var=np.full(4500, 0.1), weights=np.ones(4500))
    posterior = learn_variances(
        rows, [term], rounds=40, robust_rounds=0, sources=np.zeros(4500, dtype=np.int64), noise_rows=0.0
    )
    assert posterior.term("job").covariance[0] == pytest.approx(true, abs=0.015)
    assert float(posterior.rows.noise_var[0]) == pytest.approx(0.01, rel=0.05)


def test_rows_that_show_their_bound_tell_nothing_of_what_lies_below_it() -> None:
    """Effects of jobs of which every pair shows at least 0; a third of the pairs lie below, and one stands out."""
    rng, n = np.random.default_rng(0), 12
    own, harm = rng.normal(0.1, 0.3, n), rng.normal(0.0, 0.2, n)
    victims, neighbours = (each.ravel() for each in np.indices((n, n)))
    sums = own[victims] + harm[neighbours]
    values = np.maximum(sums, 0.0) + rng.normal(0, 0.02, n * n)
    odd = int(np.argmin(sums))
    values[odd] = 1.0
    one, weights = np.ones(n * n), np.ones(n * n)
    weights[odd] = 0.01
    terms = [
        replace(indicator("own", victims, n, 0.3**2), is_bounded=True),
        replace(indicator("harm", neighbours, n, 0.2**2), is_bounded=True),
        indicator("pair", np.arange(n * n), n * n, 0.01**2),
    ]
    rows = Rows(values=values, noise_var=0.02**2 * one, weights=weights, bounds=np.zeros(n * n))
    bounded, linear = (
        learn_variances(each, terms, rounds=4) for each in (rows, replace(rows, bounds=np.full(n * n, -np.inf)))
    )
    assert not linear.at_bound.any()
    assert not bounded.at_bound[odd], "a value that the bound does not explain"
    clear = (np.abs(sums) > 0.1) & (np.arange(n * n) != odd)
    assert np.array_equal(bounded.at_bound[clear], sums[clear] < 0.0)
    asked = {name: (groups, one[:, None]) for name, groups in (("own", victims), ("harm", neighbours))}
    error, error_of_linear = (
        float(np.abs(np.maximum(each.predict(asked)[0], 0.0) - np.maximum(sums, 0.0)).mean())
        for each in (bounded, linear)
    )
    assert error <= 0.02
    assert error <= 0.5 * error_of_linear
