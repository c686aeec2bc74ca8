"""Decisions against every placement of 20,000 random clusters: no false claim, and at least 98 % proved best."""

import os

import pytest

from tests.policy.oracle.verdicts import MIN_OPTIMAL_SHARE, check_seeds

CLUSTERS = 400 * int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 20,000


@pytest.mark.timeout(1800)
def test_no_plan_claims_more_than_every_placement_shows() -> None:
    tally = check_seeds(range(1_000, 1_000 + CLUSTERS))
    print(tally)
    assert tally.faults == []
    assert tally.optimal_share >= MIN_OPTIMAL_SHARE
