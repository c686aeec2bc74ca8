"""Decisions about pairs and groups against every placement of 20,000 random clusters: no false claim, 98 % proved."""

import os

import pytest

from interfere.policy.solve import builder
from tests.policy.oracle.seats import FewKindsCluster, GroupOracle, SeatedCluster
from tests.policy.oracle.verdicts import MIN_OPTIMAL_SHARE, check_seeds

CLUSTERS = 400 * int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 20,000


@pytest.mark.timeout(1800)
def test_no_plan_claims_more_than_every_placement_shows() -> None:
    tally = check_seeds(range(1_000, 1_000 + CLUSTERS))
    print(tally)
    assert tally.faults == []
    assert tally.optimal_share >= MIN_OPTIMAL_SHARE


@pytest.mark.timeout(1800)
def test_no_plan_claims_more_than_every_placement_of_groups_shows() -> None:
    tally = check_seeds(range(1_000, 1_000 + CLUSTERS), SeatedCluster, GroupOracle)
    print(tally)
    assert tally.faults == []
    assert tally.optimal_share >= MIN_OPTIMAL_SHARE


@pytest.mark.timeout(1800)
def test_no_plan_of_patterns_claims_more_than_every_placement_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_LISTED_JOBS", 4)
    tally = check_seeds(range(1_000, 1_000 + CLUSTERS), FewKindsCluster, GroupOracle)
    print(tally)
    assert tally.faults == []
