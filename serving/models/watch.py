"""A thread that looks for newly published models: every few seconds, and at once where somebody asks (SIGHUP)."""

import logging
import threading

from interfere.serving.models.host import ModelHost

_log = logging.getLogger(__name__)


class ModelWatch:
    """Looks until it is closed."""

    def __init__(self, host: ModelHost, every_s: float) -> None:
        self._host, self._every_s = host, every_s
        self._asked, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._watch, name="model-watch", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Look at once, also at a model that was refused before. Safe in a signal handler."""
        self._asked.set()

    def close(self) -> None:
        """End the thread, unless it is in the middle of a change: that ends with the process."""
        self._closed = True
        self._asked.set()
        self._thread.join(timeout=0.2)

    def _watch(self) -> None:
        while True:
            asked = self._asked.wait(self._every_s)
            self._asked.clear()
            if self._closed:
                return
            try:
                self._host.take_newly_published(again=asked)
            except Exception:  # the watch goes on, whatever one look meets
                _log.exception("the published model could not be looked at")
