"""Runs rounds until a signal: one instance by a lock file; a failed round does not end the loop."""

import fcntl
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interfere.errors import InterfereError, InvalidInputError, UnavailableError, UnfitError
from interfere.serving.adapters.slurm.advisor import Advisor, Round
from interfere.serving.adapters.slurm.metrics import AdvisorMetrics
from interfere.serving.adapters.slurm.settings import SlurmSettings

_log = logging.getLogger("interfere.slurm")


@contextmanager
def one_instance(path: Path) -> Iterator[None]:
    """Hold the lock file. Raises UnfitError when another running advisor holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnfitError(
            f"the lock file cannot be opened ({error.strerror})",
            value=path,
            remedy="set lock to a folder you may write",
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnfitError(
                "another advisor is running", value=path, remedy="one a cluster: stop it, or give this one another lock"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def run_forever(
    advisor: Advisor, settings: SlurmSettings, metrics: AdvisorMetrics, report: Callable[[Round], None]
) -> None:
    """Run rounds until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    while not stop.is_set():
        start_s = time.monotonic()
        done = one_round(advisor, metrics)
        if done is not None:
            report(done)
        metrics.set("round_seconds", time.monotonic() - start_s)
        if settings.metrics:
            try:
                metrics.write(settings.metrics)
            except UnfitError as error:  # advice goes on without
                _log.warning("%s", " ".join(str(error).split()))
        stop.wait(max(0.0, settings.interval_s - (time.monotonic() - start_s)))


def one_round(advisor: Advisor, metrics: AdvisorMetrics) -> Round | None:
    """The report of one round; None when it failed: the loop goes on, and Slurm places jobs by itself."""
    try:
        done = advisor.round()
    except UnavailableError as error:
        _failed(metrics, "unavailable", error)
    except InvalidInputError as error:
        _failed(metrics, "invalid", error)
    except InterfereError as error:
        _failed(metrics, "refused", error)
    except Exception:  # a bug of the advisor must not end the advice
        metrics.add("rounds_total", "result", "bug")
        _log.exception("a round failed; the loop goes on")
    else:
        metrics.add("rounds_total", "result", "ok")
        metrics.set("last_success_timestamp_seconds", done.at_s)
        metrics.clear("left_to_slurm")
        for reason, count in done.left_to_slurm.items():
            metrics.set("left_to_slurm", count, "reason", reason)
        return done
    return None


def _failed(metrics: AdvisorMetrics, result: str, error: InterfereError) -> None:
    metrics.add("rounds_total", "result", result)
    _log.warning("no advice in this round: %s", " ".join(str(error).split()))
