"""Laws of the gate, on predictions whose errors and matchings are known by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.training.evaluation.gate import PairedPredictions, SideComparison, compare, compare_side, judge
from interfere.training.evaluation.scores import Side

COUNT = 10


def contest(seed: int = 0, *, challenger: float, champion: float, count: int = COUNT) -> PairedPredictions:
    """All ordered pairs of `count` jobs; each model off by noise of the given size in log slowdown."""
    rng = np.random.default_rng(seed)
    i, j = (side.ravel() + 1 for side in np.indices((count, count)))
    measured = rng.uniform(0.05, 1.0, count * count)
    return PairedPredictions(
        domain=np.zeros(len(i), dtype=np.int64),
        victim=i,
        neighbour=j,
        measured=measured,
        challenger=measured + challenger * rng.standard_normal(len(i)),
        champion=measured + champion * rng.standard_normal(len(i)),
    )


def four(challenger: dict[tuple[int, int], float]) -> PairedPredictions:
    """Four jobs: 1+2 and 3+4 slow each other down by 1.2, every other pair by 1.5; the champion knows it."""
    i, j = np.array([(a, b) for a in range(1, 5) for b in range(1, 5) if a != b]).T
    near = np.isin(i + 10 * j, [21, 12, 43, 34])
    measured = np.log(np.where(near, 1.2, 1.5))
    guess = measured.copy()
    for (a, b), value in challenger.items():
        guess[(i == a) & (j == b)] = np.log(value)
    return PairedPredictions(
        domain=np.zeros(len(i), dtype=np.int64),
        victim=i,
        neighbour=j,
        measured=measured,
        challenger=guess,
        champion=measured,
    )


def test_regret_is_the_extra_cost_of_the_matching_by_predictions() -> None:
    misled = four({(1, 3): 0.7, (3, 1): 0.7})
    error, regret = compare([misled])
    assert error.challenger == pytest.approx(2 * (1 / 0.7 - 1 / 1.5) / 12)
    assert error.champion == 0
    assert regret.challenger == pytest.approx(100 * (1.5 / 1.2 - 1))
    assert regret.champion == 0


def test_a_pair_measured_in_one_direction_is_not_allowed_in_a_matching() -> None:
    misled = four({(1, 3): 0.7, (3, 1): 0.7})
    kept = ~((misled.victim == 3) & (misled.neighbour == 1))
    one_way = PairedPredictions(
        **{name: getattr(misled, name)[kept] for name in PairedPredictions.__dataclass_fields__}
    )
    _, regret = compare([one_way])
    assert regret.challenger == 0


def test_an_odd_job_runs_solo_and_domains_are_matched_separately() -> None:
    one = four({})
    kept = (one.victim != 4) & (one.neighbour != 4)
    three = PairedPredictions(**{name: getattr(one, name)[kept] for name in PairedPredictions.__dataclass_fields__})
    assert compare([three])[1].champion == 0
    # In domain 1 only 1+3 was measured: there is no other choice, however bad.
    far = np.isin(one.victim, [1, 3]) & np.isin(one.neighbour, [1, 3])
    apart = replace(one, domain=far.astype(np.int64))
    assert compare([apart])[1].champion == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_model_against_itself_passes(seed: int) -> None:
    one = contest(seed, challenger=0.3, champion=0.3)
    verdict = judge([replace(one, champion=one.challenger)], "itself", seed=seed)
    assert verdict.passed
    assert (verdict.error.low, verdict.error.high, verdict.regret.low, verdict.regret.high) == (0, 0, 0, 0)


def test_a_worse_model_is_refused_with_figures_and_the_better_one_passes() -> None:
    one = contest(3, challenger=0.4, champion=0.02, count=20)
    verdict = judge([one], "version 3")
    assert not verdict.passed
    assert verdict.reason.startswith("refused: worse than version 3 in error and regret; error of speed ")
    assert f"{verdict.error.challenger:.4f} against {verdict.error.champion:.4f}" in verdict.reason
    assert "\n" not in verdict.reason
    back = judge([replace(one, challenger=one.champion, champion=one.challenger)], "version 3")
    assert back.passed
    assert back.error.high < 0


def test_a_model_worse_in_decisions_alone_is_refused() -> None:
    """Close in error, but wrong about which pairs are the light ones."""
    parts = [four({(1, 3): 1.15, (3, 1): 1.15, (2, 4): 1.15, (4, 2): 1.15})]
    one = replace(parts[0], champion=parts[0].measured + np.log(1.2))  # all too high: bad error, right order
    verdict = judge([one], "version 1")
    assert verdict.error.challenger < verdict.error.champion
    assert not verdict.passed
    assert "worse than version 1 in regret;" in verdict.reason


def test_worse_than_a_baseline_is_refused_whoever_the_champion_is() -> None:
    poor = contest(challenger=0.3, champion=0.02)
    verdict = judge([], "first model", baselines=[("additive on job", poor)])
    assert not verdict.passed
    assert verdict.reason.startswith("refused: worse than additive on job, error of speed ")
    good = contest(challenger=0.02, champion=0.3)
    assert judge([], "first model", baselines=[("additive on job", good)]).passed
    assert np.isnan(judge([], "first model").error.low)


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(36)), seed=st.integers(0, 5))
def test_the_verdict_does_not_depend_on_row_order(order: list[int], seed: int) -> None:
    one = contest(seed, challenger=0.2, champion=0.15, count=6)
    other = PairedPredictions(**{name: getattr(one, name)[order] for name in PairedPredictions.__dataclass_fields__})
    first, second = judge([one], "x"), judge([other], "x")
    assert first.passed == second.passed
    for name in ("error", "regret"):
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(
            [a.challenger, a.champion, a.low, a.high], [b.challenger, b.champion, b.low, b.high], atol=1e-12
        )


def sides(coverage: float, champion_coverage: float, *, challenger: float = 0.1) -> list[SideComparison]:
    tests = contest(challenger=challenger, champion=0.1)
    return [compare_side(side, tests, coverage=coverage, champion_coverage=champion_coverage) for side in Side]


def test_each_side_of_new_jobs_counts() -> None:
    equal = [contest(challenger=0.1, champion=0.1)]
    assert judge(equal, "champion", sides=sides(0.9, 0.9)).passed
    worse = judge(equal, "champion", sides=sides(0.9, 0.9, challenger=0.4))
    assert not worse.passed
    assert "error of a new job's own slowdown" in worse.reason
    assert "error of what a new job does to others" in worse.reason
    assert [side.side for side in worse.sides] == list(Side)


@pytest.mark.parametrize(
    ("coverage", "champion", "passed"),
    [(0.70, 0.90, False), (0.86, 0.95, True), (0.70, 0.72, True), (0.7, np.nan, True)],
)
def test_coverage_of_a_side_may_not_fall(coverage: float, champion: float, passed: bool) -> None:
    verdict = judge([contest(challenger=0.1, champion=0.1)], "champion", sides=sides(coverage, champion))
    assert verdict.passed == passed
    assert passed or "coverage of what a new job does to others 0.700 against 0.900" in verdict.reason


def test_regret_of_a_side_is_the_extra_cost_of_the_preferred_partner() -> None:
    misled = four({(1, 3): 0.7})
    own, others = (compare_side(side, misled, coverage=0.9, champion_coverage=0.9).regret for side in Side)
    assert own.challenger == others.challenger == pytest.approx(100 * (1.5 - 1.2) / (4 * 1.2))
    assert own.champion == others.champion == 0
