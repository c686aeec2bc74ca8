"""Carries out changes of pods, and says which were lost or refused."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from interfere.errors import ConflictError, InterfereError, NotFoundError, UnavailableError
from serving.adapters.kubernetes.api_server.calls import ClusterApi
from serving.adapters.kubernetes.metrics import ControllerMetrics
from serving.adapters.kubernetes.records import JsonObject
from serving.adapters.kubernetes.writes import PodChange, Write, WriteKind

_log = logging.getLogger("interfere.kubernetes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedChange:
    """A change that was not carried out."""

    change: PodChange
    lost_race: bool  # the object had changed; else the API server refused it
    message: str


def apply(
    api: ClusterApi,
    changes: Iterable[PodChange],
    metrics: ControllerMetrics,
    *,
    may_write: Callable[[], bool] = lambda: True,
    written: Callable[[Write, JsonObject], None] = lambda *_: None,
) -> tuple[RejectedChange, ...]:
    """Carry out changes in order; stop where `may_write` says that another replica decides now.

    Raises UnavailableError where the API server is away: the next round reads what was done.
    """
    rejected: list[RejectedChange] = []
    for change in changes:
        if not may_write():
            _log.warning("another replica may decide now: the rest of this round is left out")
            break
        try:
            for write in change.writes:
                _write(api, write, written)
        except UnavailableError:
            metrics.add("races_total", "kind", "unavailable")
            raise
        except (ConflictError, NotFoundError) as error:
            rejected.append(_rejected(change, error, lost=True))
            metrics.add("races_total", "kind", "lost")
        except InterfereError as error:
            rejected.append(_rejected(change, error, lost=False))
            metrics.add("races_total", "kind", "refused")
            _log.warning("%s: %s", change.pod.key, rejected[-1].message)
        else:
            metrics.add("changes_total", "kind", change.state.value)
    return tuple(rejected)


def _write(api: ClusterApi, write: Write, written: Callable[[Write, JsonObject], None]) -> None:
    try:
        row = api.write(write)
    except NotFoundError:
        if write.kind is not WriteKind.DELETE_CLAIM:
            raise
        row = {}  # somebody deleted it: it is created anew
    except UnavailableError:
        raise
    except InterfereError as error:
        if write.kind is not WriteKind.EVENT:
            raise
        _log.warning("no Event: %s", " ".join(str(error).split()))  # nothing depends on it
        return
    written(write, row)


def _rejected(change: PodChange, error: InterfereError, *, lost: bool) -> RejectedChange:
    return RejectedChange(change=change, lost_race=lost, message=" ".join(str(error).split())[:200])
