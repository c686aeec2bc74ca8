"""Scores against hand-computed numbers."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.predict.acceptance.score import speed
from interfere.training.evaluation.scores import (
    PredictionInterval,
    ScoredRows,
    auc,
    coverage_and_width,
    mae,
    mae_se,
    mape,
    r2,
    regret,
    rmse,
    score,
    spearman,
    worst_tenth_coverage,
)


def answers(measured: list[float], predicted: list[float], victim: list[int], neighbour: list[int]) -> ScoredRows:
    return ScoredRows(
        measured_log=np.log(measured),
        predicted_log=np.log(predicted),
        victim=np.array(victim),
        neighbour=np.array(neighbour),
        comparison_group=np.zeros(len(victim), dtype=np.int64),
        choice_group=np.zeros(len(victim), dtype=np.int64),
    )


def test_speed_is_clipped_as_published_figures_are() -> None:
    assert speed(np.log([2.0, 0.5, 100.0])).tolist() == pytest.approx([0.5, 1.6, 0.05])


def test_mae_is_of_speed_and_mape_of_slowdown() -> None:
    two = answers([2.0, 1.0], [1.0, 1.25], [1, 2], [2, 1])
    assert mae(two) == pytest.approx((0.5 + 0.2) / 2)
    assert mape(two) == pytest.approx(100 * (0.5 + 0.25) / 2)


def test_r2_is_of_log_slowdown() -> None:
    e = np.e
    assert r2(answers([1.0, e, e**2], [1.0, e, e**2], [1, 1, 1], [1, 2, 3])) == pytest.approx(1)
    assert r2(answers([1.0, e, e**2], [e, e, e], [1, 1, 1], [1, 2, 3])) == pytest.approx(0)
    assert r2(answers([1.0, e, e**2], [1.0, e, e**3], [1, 1, 1], [1, 2, 3])) == pytest.approx(1 - 1 / 2)
    assert np.isnan(r2(answers([2.0, 2.0], [1.0, 3.0], [1, 1], [1, 2])))


def test_spearman_ranks_partners_of_each_victim_by_itself() -> None:
    # Victim 1: order kept. Victim 2: order turned round. Victim 3: two partners only, not counted.
    measured = [1.1, 1.2, 1.3, 1.1, 1.2, 1.3, 1.1, 1.2]
    predicted = [2.1, 2.2, 2.3, 1.9, 1.8, 1.7, 1.0, 5.0]
    mixed = answers(measured, predicted, [1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 3, 1, 2, 3, 1, 2])
    assert spearman(mixed) == pytest.approx(0.0)
    assert spearman(answers(measured[:3], predicted[:3], [1, 1, 1], [1, 2, 3])) == pytest.approx(1.0)


def test_spearman_shares_ranks_among_ties_and_gives_nothing_for_a_constant() -> None:
    # Ranks 1, 2, 3, 4 against 1.5, 1.5, 3.5, 3.5: correlation 2 / sqrt(5).
    tied = answers([1.1, 1.2, 1.3, 1.4], [1.0, 1.0, 2.0, 2.0], [1] * 4, [1, 2, 3, 4])
    assert spearman(tied) == pytest.approx(2 / 5**0.5)
    assert spearman(answers([1.1, 1.2, 1.3], [1.5, 1.5, 1.5], [1] * 3, [1, 2, 3])) == 0.0


def test_spearman_never_ranks_across_comparison_groups() -> None:
    split = answers([1.1, 1.2, 1.3], [1.3, 1.2, 1.1], [1] * 3, [1, 2, 3])
    apart = replace(split, comparison_group=np.array([0, 1, 2]))
    assert spearman(split) == pytest.approx(-1.0)
    assert np.isnan(spearman(apart))


def full(slowdown: dict[tuple[int, int], float], guess: dict[tuple[int, int], float]) -> ScoredRows:
    keys = list(slowdown)
    return answers([slowdown[k] for k in keys], [guess[k] for k in keys], [k[0] for k in keys], [k[1] for k in keys])


def test_regret_is_what_the_chosen_partner_costs() -> None:
    # Job 1 has partners 2, 3, 4 with both-way speeds 2.0, 1.5, 1.0; nobody else has three partners.
    values = {2: 1.0, 3: 0.75, 4: 0.5}
    measured = {(1, j): 1 / y for j, y in values.items()} | {(j, 1): 1 / y for j, y in values.items()}
    perfect = full(measured, measured)
    wrong = full(measured, {k: (1.0 if 3 in k else 2.0) for k in measured})  # takes 3: 1.5 of 2.0
    blind = full(measured, dict.fromkeys(measured, 1.3))  # any of the three: mean 1.5 of 2.0
    assert regret(perfect, perfect.choice_group) == pytest.approx(0)
    assert regret(wrong, wrong.choice_group) == pytest.approx(25)
    assert regret(blind, blind.choice_group) == pytest.approx(25)


def test_regret_needs_both_directions() -> None:
    one_way = full({(1, 2): 1.0, (1, 3): 1.1, (1, 4): 1.2}, {(1, 2): 1.0, (1, 3): 1.1, (1, 4): 1.2})
    assert np.isnan(regret(one_way, one_way.choice_group))


def test_rmse_and_the_ninetieth_percentile_are_of_speed() -> None:
    ten = answers([2.0] * 10, [2.0] * 8 + [1.0, 1.0], [1] * 10, list(range(10)))  # two of ten are off by 0.5
    assert rmse(ten) == pytest.approx((0.2 * 0.25) ** 0.5)
    assert score(ten).p90 == pytest.approx(0.5)


def test_the_standard_error_counts_victims_not_rows() -> None:
    # Errors 0.5, 0.5 for victim 1 and 0, 0 for victim 2: mean 0.25, sums of deviations +0.5 and -0.5.
    two = answers([2.0] * 4, [1.0, 1.0, 2.0, 2.0], [1, 1, 2, 2], [1, 2, 1, 2])
    assert mae_se(two) == pytest.approx((2 / 1 * (0.25 + 0.25)) ** 0.5 / 4)
    by_row = answers([2.0] * 4, [1.0, 1.0, 2.0, 2.0], [1, 2, 3, 4], [1, 2, 1, 2])
    assert mae_se(by_row) < mae_se(two)
    assert np.isnan(mae_se(answers([2.0, 1.0], [1.0, 1.0], [1, 1], [1, 2])))


def test_coverage_and_width_count_only_rows_with_an_interval() -> None:
    rows = answers([2.0, 2.0, 2.0], [2.0, 2.0, 2.0], [1, 2, 3], [1, 1, 1])
    low, high = np.log([1.0, 1.0, np.nan]), np.log([2.0, 1.6, np.nan])
    interval = PredictionInterval(low=low, high=high, subject=np.array([1, 2, 3]))
    coverage, width = coverage_and_width(rows, interval)
    assert coverage == pytest.approx(0.5)
    assert width == pytest.approx(((1 - 0.5) + (1 - 0.625)) / 2)
    nothing = PredictionInterval(low=low + np.nan, high=high, subject=interval.subject)
    assert np.isnan([*coverage_and_width(rows, nothing), *worst_tenth_coverage(rows, nothing)]).all()


def test_the_worst_tenth_is_of_the_tested_jobs() -> None:
    # 11 jobs, two rows each: the two worst are job 3 (none inside) and job 7 (one of two).
    subject = np.repeat(np.arange(11), 2)
    rows = answers([2.0] * 22, [2.0] * 22, [0] * 22, list(range(22)))
    high = np.log(np.full(22, 4.0))
    high[(subject == 3) | (np.arange(22) == 14)] = np.log(1.25)
    interval = PredictionInterval(low=np.zeros(22), high=high, subject=subject)
    coverage, width, tenth = worst_tenth_coverage(rows, interval)
    assert coverage == pytest.approx(1 / 4)
    assert tenth == pytest.approx(0.5)  # the eleven shares are 0, 1/2 and nine times 1
    assert width == pytest.approx((3 * (1 - 0.8) + 0.75) / 4)


def test_auc_by_hand() -> None:
    feasible = np.array([True, True, False, False])
    assert auc(np.array([0.9, 0.4, 0.4, 0.1]), feasible) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert np.isnan(auc(np.array([0.9, 0.4]), np.array([True, True])))


def test_score_holds_them_all() -> None:
    rows = answers([2.0, 1.0, 1.5], [2.0, 1.0, 1.5], [1, 1, 1], [1, 2, 3])
    off = np.array([0.1, 0.1, -0.1])
    interval = PredictionInterval(low=rows.measured_log - 1, high=rows.measured_log + off, subject=rows.victim)
    one = score(rows, interval)
    assert (one.rows, one.mae, one.rmse, one.p90, one.mape, one.r2) == (3, 0, 0, 0, 0, 1)
    assert one.coverage == one.worst_coverage == pytest.approx(2 / 3)
    assert one.spearman == pytest.approx(1)
    assert np.isnan([score(rows).coverage, score(rows).worst_width]).all()
