"""Learned states of the last entries of the log, in memory: a rollback, or a look back, folds only what came after one.

Law: a state is handed out only where no rollback, and no undoing of one, changed an entry before it.
"""

from collections.abc import Callable, Sequence

from interfere.predict.online.belief_state import BeliefState

EVERY = 200  # entries between two states; 200 windows are folded in 20 ms, and a state of 1,000 jobs is copied in 1 ms
MAX_STATES = 64  # the last 12,800 entries; values that did not change between two states are shared by them


class RecentStates:
    """The last states by the sequence number of the entry they end with. One writer adds; any thread finds."""

    def __init__(self) -> None:
        self._states: tuple[tuple[int, BeliefState], ...] = ()  # replaced as a whole, oldest first
        self._void: list[tuple[int, BeliefState]] = []  # forgotten, but not freed yet

    def add(self, sequence: int, state: BeliefState) -> None:
        """Keep a copy of the state after an entry, unless there is a recent enough one."""
        if not self._states or sequence - self._states[-1][0] >= EVERY:
            self._states = (*self._states[-MAX_STATES + 1 :], (sequence, state.copy()))

    def find(self, up_to: int, rewrites: Sequence[tuple[int, int]]) -> tuple[int, BeliefState] | None:
        """The newest state at most at an entry, and its sequence number; `rewrites` as in `ObservationRepository`."""
        for sequence, state in reversed(self._states):
            if sequence <= up_to and all(at <= sequence or sequence <= to for at, to in rewrites):
                return sequence, state
        return None

    def forget_before(self, sequence: int) -> None:
        """Forget the states after earlier entries: some of those that followed them are no longer in the log."""
        self._states = tuple(each for each in self._states if each[0] >= sequence)

    def clear(self) -> None:
        """Forget all states: what they were learned from has changed. `release` frees their memory."""
        self._void = [*self._void, *self._states]
        self._states = ()

    def release(self, pause: Callable[[], None]) -> None:
        """Free the memory of forgotten states, one after another: all of them at once take up to a tenth of a second,
        in which no other thread runs."""
        while self._void:
            self._void.pop()
            pause()
