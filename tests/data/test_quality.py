"""Figures against values computed by hand or published."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.additive_fit import fit_additive
from interfere.data.quality import (
    BESIDE_GANGS,
    BESIDE_JOBS,
    block_slowdowns,
    gang_excesses,
    icc,
    table_quality,
)
from interfere.data.tables import Table
from interfere.records import PairMeasurement
from tests.data.sample_table import JOBS, PAIR, PAIRS, TABLE


def test_icc_of_shrout_and_fleiss() -> None:
    # Table 2 of Shrout and Fleiss (1979): six subjects, four judges; ICC(1,1) = .17 in their Table 4.
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert icc(ratings) == pytest.approx(0.166, abs=0.001)


def test_icc_by_hand() -> None:
    # Rows (1, 1), (3, 3): all variance is between. Rows (1, 3), (3, 1): none is, and the estimate is (0 − 2)/(0 + 2).
    assert icc([[1, 1], [3, 3]]) == 1.0
    assert icc([[1, 3], [3, 1]]) == -1.0
    # Means 1.5, 3.5: MSB = 2·2/1 = 4, MSW = (0.5 + 0.5)/2 = 0.5.
    assert icc([[1, 2], [3, 4]]) == pytest.approx(3.5 / 4.5)


@pytest.mark.parametrize("passes", [[], [[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 1.0], [1.0, 1.0]]])
def test_icc_of_too_little_is_nan(passes: list[list[float]]) -> None:
    assert math.isnan(icc(passes))


def test_additive_fit_by_hand() -> None:
    victims, neighbours = ["a", "a", "b", "b"], ["a", "b", "a", "b"]
    assert fit_additive(victims, neighbours, [0.0, 1.0, 2.0, 3.0]).r2 == pytest.approx(1.0)
    # Pure interaction: no effect of either name explains anything.
    assert fit_additive(victims, neighbours, [1.0, -1.0, -1.0, 1.0]).r2 == pytest.approx(0.0)
    # 0, 1, 2, 7: the residual is ±1 in each cell (interaction 1); 1 − 4/29.
    assert fit_additive(victims, neighbours, [0.0, 1.0, 2.0, 7.0]).r2 == pytest.approx(1 - 4 / 29)
    assert math.isnan(fit_additive(victims, neighbours, [1.0] * 4).r2)


def test_a_self_pair_counts_once_per_block() -> None:
    self_pair = replace(PAIR, neighbour="a", passes=(1.0, 4.0, 3.0, 3.0))
    assert block_slowdowns(self_pair) == pytest.approx((2.0, 3.0))
    assert block_slowdowns(PAIR) == PAIR.passes


def test_quality_of_the_sample() -> None:
    figures = table_quality(TABLE)
    assert dict(figures.rows_by_status) == {"ok": 3, "unstable": 1, "infeasible": 0}
    assert figures.slowdown_median == 1.5
    assert figures.slowdown_max == 2.0
    assert figures.icc_rows == 3
    assert figures.over_two_frac == 0.0
    blocks = [[1.45, 1.55], [1.1, 1.3], [2.0, np.sqrt(1.9 * 2.1)]]
    assert figures.icc == pytest.approx(icc(np.log(blocks).tolist()))


def test_the_quality_of_an_empty_table_is_nan() -> None:
    figures = table_quality(Table(name="none", jobs=JOBS, pairs=()))
    assert math.isnan(figures.icc)
    assert math.isnan(figures.slowdown_median)
    assert len(PAIRS) == 4


def test_what_gangs_lose_is_compared_with_the_same_job_on_one_device_in_the_same_campaign() -> None:
    def row(victim: str, neighbour: str, slowdown: float, campaign: str = "1") -> PairMeasurement:
        return replace(
            PAIR, victim=victim, neighbour=neighbour, slowdown=slowdown, lower=1.0, upper=9.0, campaign=campaign
        )

    pairs = (
        *(row("a", "b", slowdown, campaign) for slowdown, campaign in ((2.0, "1"), (3.0, "2"))),
        row("a-gang", "b", 1.5),
        *(row("a-gang", "b-gang", slowdown, campaign) for slowdown, campaign in ((2.2, "1"), (4.0, "2"))),
        *(row("b", "a", 1.05), row("b-gang", "a-gang", 2.0)),  # loses too little
        row("c-gang", "a", 2.0),  # alone on one device: not measured
        replace(row("a-gang", "b", 9.0), metric="latency_p99"),
    )
    jobs, gangs = gang_excesses(replace(TABLE, pairs=pairs))
    assert (jobs.beside, jobs.rows, jobs.median) == (BESIDE_JOBS, 1, pytest.approx(0.5))
    assert (gangs.beside, gangs.rows, gangs.median) == (BESIDE_GANGS, 2, pytest.approx((1.2 + 1.5) / 2))
    assert gangs.p10 < gangs.median < gangs.p90
    assert gang_excesses(TABLE) == ()
