"""Learns the log again beside the present model, and then replaces that model: no call waits for a long log.

Law 1: the lock of the writer is held only to learn the last few entries and to replace the model.
Law 2: where something changes again meanwhile, the log is learned again from its beginning.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from interfere.errors import CancelledError
from interfere.predict.residual import OnlineModel
from interfere.time_budget import interruptible
from serving.learning.log_fold import LogFold

_log = logging.getLogger(__name__)
FEW_ENTRIES = 200  # learned in 20 ms while the lock is held
PAUSE_S = 1e-4  # after every millisecond of learning: threads with answers to make get the interpreter
RETRY_S = 5.0  # where the store could not be read

Replace = Callable[[OnlineModel, int, int], None]
"""Takes (model, entry of the stored state that its fold began at, last entry that it learned)."""


class Relearning:
    """One thread that learns the log again, as long as that is due. Its methods are called with the lock held."""

    def __init__(
        self, fold: LogFold, writer: AbstractContextManager[bool], newest: Callable[[], int], replace: Replace
    ) -> None:
        """`writer` is the lock of whoever changes the log or the profiles; `newest` is the log's last entry, and
        `replace` is called with the lock held."""
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
        while not self._closed:
            generation = self._generation
            try:
                with interruptible(lambda: self._give_way(generation)):  # noqa: B023 - used in this round alone
                    model, start, last = self._learn()
            except CancelledError:
                continue
            except Exception:
                _log.exception("the log cannot be learned again; the next try follows in %g s", RETRY_S)
                time.sleep(RETRY_S)
                continue
            with self._writer:
                if generation == self._generation:
                    self._thread = None
                    self._replace(model, start, last)
                    return

    def _learn(self) -> tuple[OnlineModel, int, int]:
        """The model after all but the last few entries, the entry of the state that it began at, and its own last."""
        begin_s, last = time.monotonic(), self._newest()
        model, start = self._fold.model_after(last)
        while (newest := self._newest()) - last > FEW_ENTRIES:
            self._fold.extend(model, last, newest)
            last = newest
        _log.info("the log was learned again beside the present model: %.1f s", time.monotonic() - begin_s)
        return model, start, last

    def _give_way(self, generation: int) -> None:
        """Let other threads go on. Raises CancelledError where what is being learned is outdated."""
        if generation != self._generation:
            raise CancelledError("the log is to be learned anew")
        time.sleep(PAUSE_S)
