"""`verify` finds every kind of false claim."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.matching.exact import match_pairs
from interfere.matching.records import Matching
from interfere.matching.verify import verify
from interfere.records import SolveStatus
from tests.matching.families import real

COST = real(60, 1)
SOLO = np.full(60, 4.0)
FOUND = match_pairs(COST, SOLO)


def swapped(matching: Matching) -> Matching:
    """Two pairs with their partners exchanged: allowed, but dearer."""
    mate = matching.mate.copy()
    a, b = np.flatnonzero(mate > np.arange(60))[:2]
    p, q = mate[a], mate[b]
    mate[[a, q, b, p]] = [q, a, p, b]
    cost = sum(COST[i, j] if i < j else SOLO[i] for i, j in enumerate(mate) if i <= j)
    return replace(matching, mate=mate, cost=float(cost), lower_bound=float(cost))


def test_a_true_claim_has_no_problems_and_its_prices_prove_almost_all() -> None:
    checked = verify(COST, SOLO, FOUND)
    assert checked.problems == ()
    assert checked.cost == pytest.approx(FOUND.cost)
    assert FOUND.cost * 0.99 < checked.bound <= FOUND.cost + 1e-9


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (replace(FOUND, cost=FOUND.cost - 1), "its cost is"),
        (replace(FOUND, lower_bound=FOUND.cost + 1), "lies above"),
        (replace(FOUND, y=FOUND.y * 1.5), "possible|wrong|prices"),
        (replace(FOUND, mate=np.roll(FOUND.mate, 1)), "no partition"),
        (replace(FOUND, solo_price=1.0), "no limit of devices"),
        (swapped(FOUND), "called optimal"),
        (replace(swapped(FOUND), status=SolveStatus.BOUNDED), "claims"),
    ],
)
def test_a_false_claim_is_found(claim: Matching, said: str) -> None:
    problems = "; ".join(verify(COST, SOLO, claim).problems)
    if said == "possible|wrong|prices":
        assert verify(COST, SOLO, claim).bound < FOUND.cost - 1  # such prices prove less
    else:
        assert said in problems


def test_what_is_not_allowed_is_found() -> None:
    away = COST.copy()
    i = int(np.flatnonzero(FOUND.mate != np.arange(60))[0])
    away[i, FOUND.mate[i]] = away[FOUND.mate[i], i] = np.inf
    assert "may not share" in verify(away, SOLO, FOUND).problems[0]
    alone = replace(FOUND, mate=np.arange(60))
    assert "may not run solo" in verify(COST, None, alone).problems[0]
    assert "devices of 20" in verify(COST, SOLO, FOUND, max_devices=20).problems[0]
    assert verify(COST, None, match_pairs(np.full((3, 3), np.inf))).problems == ()
