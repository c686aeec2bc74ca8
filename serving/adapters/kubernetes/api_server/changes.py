"""Carries out changes of pods, and says which were lost or refused.

Law: one pod that the API server cannot change keeps no other from being changed.
Law: a gate whose time is over is removed even where the pod's claim cannot be created, or its annotations are refused.
Law: an Event that is lost changes nothing.
"""

import logging
from collections.abc import Callable, Sequence

from interfere.errors import (
    ConflictError,
    InterfereError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnfitError,
)
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.records import JsonObject, PodState
from interfere.serving.adapters.kubernetes.writes import PodChange, Write, WriteKind, without_annotations
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import Rejection

_log = logging.getLogger("interfere.kubernetes")
MAX_FAILURES = 3  # changes in a row without an answer, after which the API server counts as away
CLAIM_WRITES = (WriteKind.CREATE_CLAIM, WriteKind.DELETE_CLAIM)


def apply(
    api: ClusterApi,
    changes: Sequence[PodChange],
    metrics: AdapterMetrics,
    *,
    may_write: Callable[[], bool] = lambda: True,
    written: Callable[[Write, JsonObject], None] = lambda *_: None,
) -> tuple[Rejection, ...]:
    """Carry out changes in order. Stop where `may_write` returns False, because another replica decides now.

    Raises UnavailableError after `MAX_FAILURES` changes without an answer: the next round reads what was done. A single
    pod can fail in the same way because a third party's admission webhook is down; such a pod is left out.
    """
    rejected: list[Rejection] = []
    failures = 0
    for change in changes:
        if not may_write():
            _log.warning("another replica may decide now: the rest of this round is left out")
            break
        try:
            _carry_out(api, change, written)
        except UnavailableError as error:
            metrics.add("races_total", "kind", "unavailable")
            failures += 1
            if failures >= min(MAX_FAILURES, len(changes)):
                raise
            rejected.append(_rejected(change, error, lost=True))
            continue
        except (ConflictError, NotFoundError) as error:
            rejected.append(_rejected(change, error, lost=True))
            metrics.add("races_total", "kind", "lost")
        except InterfereError as error:
            rejected.append(_rejected(change, error, lost=False))
            metrics.add("races_total", "kind", "refused")
            _log.warning("%s: %s", change.pod.key, rejected[-1].message)
        else:
            metrics.add("changes_total", "kind", change.state.value)
        failures = 0
    return tuple(rejected)


def _carry_out(api: ClusterApi, change: PodChange, written: Callable[[Write, JsonObject], None]) -> None:
    """The writes of one change. Raises InterfereError with what was not carried out; the rest is left out then."""
    without_claim = False
    for write in change.writes:
        if without_claim and write.kind in CLAIM_WRITES:
            continue
        try:
            _write(api, write, written)
        except InterfereError as error:
            if change.state is not PodState.RELEASED or not change.pod.gated:
                raise
            if write.kind in CLAIM_WRITES:
                without_claim = True
                _log.warning("%s is released without its claim: %s", change.pod.key, " ".join(str(error).split()))
            elif isinstance(error, InvalidInputError | UnfitError):  # too many annotations, or somebody's policy
                _log.warning("%s is released without annotations: %s", change.pod.key, " ".join(str(error).split()))
                _write(api, without_annotations(write), written)
            else:
                raise


def _write(api: ClusterApi, write: Write, written: Callable[[Write, JsonObject], None]) -> None:
    try:
        row = api.write(write)
    except InterfereError as error:
        if write.kind is WriteKind.EVENT:
            _log.warning("no Event: %s", " ".join(str(error).split()))
            return
        if write.kind is not WriteKind.DELETE_CLAIM or not isinstance(error, NotFoundError):
            raise
        row = {}  # somebody deleted it: it is created anew
    written(write, row)


def _rejected(change: PodChange, error: InterfereError, *, lost: bool) -> Rejection:
    return Rejection(job_id=change.pod.id, lost_race=lost, message=" ".join(str(error).split())[:200])
