"""Learns the log again beside the present model, and then replaces that model: no call waits for a long log.

Law 1: the lock of the writer is held only to learn the last few entries and to replace the model.
Law 2: where something changes again meanwhile, the log is learned again from its beginning.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from interfere.errors import CancelledError, UnavailableError
from interfere.predict.residual import OnlineModel
from interfere.serving.learning.log_fold import LogFold
from interfere.time_budget import check_interruption, interruptible

_log = logging.getLogger(__name__)
FEW_ENTRIES = 200  # learned in 20 ms while the lock is held
PAUSE_S = 1e-4  # after every millisecond of learning: threads with answers to make get the interpreter
SWITCH_S = 1e-3  # that other threads wait for the interpreter meanwhile; usually Python lets them wait 5 ms
RETRY_S = 5.0  # where the store could not be read

Replace = Callable[[OnlineModel, int], None]
"""Takes (the model that learned the whole log, the entry of its newest stored state)."""


class Relearning:
    """A thread that learns the log again while that is due. Its methods must be called with the lock held."""

    def __init__(
        self, fold: LogFold, writer: AbstractContextManager[bool], newest: Callable[[], int], replace: Replace
    ) -> None:
        """Prepare the thread. `writer` is the lock of all changes to the log or the profiles.

        `newest` returns the log's last entry. `replace` is called with the lock held.
        """
        self._fold, self._writer, self._newest, self._replace = fold, writer, newest, replace
        self._generation = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def due(self) -> bool:
        """Whether the present model is to be replaced."""
        return self._thread is not None

    def begin(self) -> None:
        """Learn the log again; where that is under way, begin anew."""
        self._generation += 1
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="relearning", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give up. May be called twice."""
        self._closed = True
        self._generation += 1

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            self._learn_until_current()
        finally:
            sys.setswitchinterval(usual_s)

    def _learn_until_current(self) -> None:
        while not self._closed:
            generation = self._generation
            try:
                with interruptible(lambda: self._give_way(generation)):  # noqa: B023 - used in this round alone
                    model, stored, last = self._learn(generation)
                with self._writer:
                    if generation != self._generation:
                        continue
                    self._fold.extend(model, last, self._newest())
                    self._thread = None
                    self._replace(model, stored)
                    return
            except CancelledError:
                continue
            except Exception:
                if self._closed:  # and so is the store
                    return
                _log.exception("the log cannot be learned again; the next try follows in %g s", RETRY_S)
                time.sleep(RETRY_S)

    def _learn(self, generation: int) -> tuple[OnlineModel, int, int]:
        """The model after all but the last few entries, the entry of its stored state, and its own last."""
        self._fold.recent.release(check_interruption)
        begin_s, last, profiles = time.monotonic(), self._newest_entry(generation), self._fold.profiles
        model, stored = self._fold.model_after(last)
        while (newest := self._newest_entry(generation)) - last > FEW_ENTRIES:
            self._fold.extend(model, last, newest)
            last = newest
        check_interruption()
        with suppress(UnavailableError):  # on a full disk only workers and the next start take longer
            self._fold.store(model, last, profiles)
            stored = last
        _log.info("the log was learned again beside the present model: %.1f s", time.monotonic() - begin_s)
        return model, stored, last

    def _newest_entry(self, generation: int) -> int:
        """The log's last entry. Raises CancelledError where a rollback may be among the entries since the beginning."""
        with self._writer:
            if generation != self._generation:
                raise CancelledError("the log is to be learned anew")
            return self._newest()

    def _give_way(self, generation: int) -> None:
        """Let other threads go on. Raises CancelledError where what is being learned is outdated."""
        if generation != self._generation:
            raise CancelledError("the log is to be learned anew")
        time.sleep(PAUSE_S)
