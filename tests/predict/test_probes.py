"""Which neighbours a new job should run beside first: laws of the choice, on a prior made by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.prior import ResidualPrior, RolePrior, default_prior
from interfere.predict.teaching import choose_probes

DOMAIN = ("gpu", "mps")
JOB = ("new", *DOMAIN)


def prior(signatures: dict[str, list[float]]) -> ResidualPrior:
    """Errors of the new job depend on a signature of two numbers of its partner; the second matters more."""
    unseen = np.diag([0.01, 0.0, 0.01, 0.09])
    role = RolePrior(unseen=unseen, seen=unseen / 10, new_family=unseen)
    known = {(name, *DOMAIN): np.array(z) for name, z in signatures.items()}
    return replace(default_prior(), as_victim=role, as_neighbour=role, signatures=known)


def pairs(logs: dict[str, float], observed: float | None = None) -> list[tuple[PairObservation, PairObservation]]:
    def one(victim: str, neighbour: str, log_predicted: float) -> PairObservation:
        return PairObservation(
            victim=(victim, *DOMAIN),
            neighbour=(neighbour, *DOMAIN),
            log_predicted=log_predicted,
            log_observed=log_predicted if observed is None else observed,
        )

    return [(one("new", name, log), one(name, "new", log)) for name, log in logs.items()]


def test_a_partner_like_many_others_teaches_more_than_one_like_none() -> None:
    belief = Belief(prior({"a": [0, 1], "b": [0, 1], "c": [0, 1], "odd": [1, 0]}), BeliefState())
    choice = choose_probes(belief.effects, pairs(dict.fromkeys(("odd", "a", "b", "c"), 0.3)), 2)
    assert choice.probes[0].candidate in (1, 2, 3)
    assert choice.probes[1].candidate == 0  # its like was asked: another one of them tells nothing new


@given(
    logs=st.lists(st.floats(0.0, 1.5), min_size=2, max_size=8),
    seed=st.integers(0, 1000),
    count=st.integers(1, 10),
)
def test_no_probe_raises_the_expected_error_none_comes_twice_and_gains_add_up_to_less_than_all(
    logs: list[float], seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    named = {f"p{k}": log for k, log in enumerate(logs)}
    belief = Belief(prior({name: rng.normal(size=2).tolist() for name in named}), BeliefState())
    choice = choose_probes(belief.effects, pairs(named), count)
    chosen = [probe.candidate for probe in choice.probes]
    assert len(set(chosen)) == len(chosen) == min(count, len(logs))
    errors = [choice.error_now, *(probe.error_after for probe in choice.probes)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(errors))
    assert 0.0 < sum(probe.gain for probe in choice.probes) < 1.0


def test_the_choice_does_not_depend_on_what_the_probes_would_measure() -> None:
    belief = Belief(prior({"a": [0, 1], "b": [1, 0], "c": [1, 1]}), BeliefState())
    logs = {"a": 0.2, "b": 0.4, "c": 0.3}
    assert choose_probes(belief.effects, pairs(logs), 3) == choose_probes(belief.effects, pairs(logs, 1.0), 3)


def test_learning_the_first_probe_leaves_what_the_choice_expected() -> None:
    belief = Belief(prior({"a": [0, 1], "b": [0.5, 1], "c": [1, 0]}), BeliefState())
    asked = pairs({"a": 0.3, "b": 0.3, "c": 0.3})
    before = choose_probes(belief.effects, asked, 3)
    first = before.probes[0].candidate
    for direction in asked[first]:
        belief.learn(replace(direction, log_observed=direction.log_predicted + 0.05))
    after = choose_probes(belief.effects, asked, 3)
    assert after.probes[0].candidate == before.probes[1].candidate
    assert after.error_now == pytest.approx(before.probes[0].error_after, rel=0.2)
    assert math.isfinite(after.error_now)
