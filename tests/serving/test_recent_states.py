"""States of recent entries shorten a fold, and are never handed out where a rollback changed an entry before them."""

from interfere.predict.online.belief_state import BeliefState
from interfere.serving.learning.log_fold import EVERY, MAX_STATES, RecentStates


def states(count: int) -> RecentStates:
    recent = RecentStates()
    for k in range(count):
        recent.add(EVERY * k, BeliefState(observation_count=EVERY * k))
    return recent


def test_the_newest_state_before_an_entry_is_found() -> None:
    recent = states(5)
    found = recent.find(3 * EVERY + 7, ())
    assert found is not None
    assert (found[0], found[1].observation_count) == (3 * EVERY, 3 * EVERY)
    recent.add(4 * EVERY + 1, BeliefState())  # too soon
    assert recent.find(9 * EVERY, ())[0] == 4 * EVERY  # type: ignore[index]
    recent.clear()
    assert recent.find(9 * EVERY, ()) is None


def test_a_rollback_voids_what_it_forgets_but_not_what_came_later() -> None:
    recent = states(5)
    rollback = (3 * EVERY + 5, EVERY + 5)  # at entry, last entry left as it was
    assert recent.find(3 * EVERY + 5, (rollback,))[0] == EVERY  # type: ignore[index]
    assert recent.find(4 * EVERY, (rollback,))[0] == 4 * EVERY  # type: ignore[index]
    assert recent.find(3 * EVERY, ())[0] == 3 * EVERY  # type: ignore[index]


def test_only_the_last_states_are_kept_and_later_learning_does_not_reach_them() -> None:
    recent, live = RecentStates(), BeliefState()
    recent.add(1, live)
    live.observation_count, live.reporter_weights["r"] = 9, 0.5
    assert recent.find(1, ())[1] == BeliefState()  # type: ignore[index]
    assert states(MAX_STATES + 3).find(2 * EVERY, ()) is None
