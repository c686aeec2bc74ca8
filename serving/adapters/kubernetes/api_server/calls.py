"""Calls of the API server through the official client, as JSON objects.

The client's typed models are left out: reading a thousand pods into them takes seconds. Writes are bounded by a token
bucket. Errors are of this project: UnavailableError where the API server is away, ConflictError where an object has
changed or exists already, NotFoundError, UnfitError where a right is missing or the server fails at one object.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, cast

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3.exceptions import HTTPError

from interfere.errors import (
    ConflictError,
    InterfereError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnfitError,
)
from interfere.serving.adapters.kubernetes.records import JsonObject, PodState
from interfere.serving.adapters.kubernetes.writes import PodChange, Write, WriteKind, without_annotations
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import Rejection

_log = logging.getLogger("interfere.kubernetes")
TOO_MANY = "answered 429"  # of an eviction that a disruption budget does not allow
CLOCK_RESOLUTION_S = 2.0  # of the Date of an answer, and the time that the answer takes
PAGE = 500  # objects in one answer of a list, as kubectl and client-go ask for
MERGE = "application/merge-patch+json"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
SLICES, CLAIMS = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/resourceclaims"
VOLUMES, VOLUME_CLAIMS = "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"


class TokenBucket:
    """Bounds the rate of calls: `burst` at once, `per_s` in the long run."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, float(burst)
        self._tokens, self._at_s, self._lock = float(burst), time.monotonic(), threading.Lock()

    def take(self) -> None:
        """Wait until a call is allowed."""
        with self._lock:
            now_s = time.monotonic()
            self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s) - 1.0
            self._at_s = now_s
            wait_s = max(0.0, -self._tokens / self._per_s)
        if wait_s:
            time.sleep(wait_s)


class ClusterApi:
    """Calls the Kubernetes API server. Thread-safe."""

    def __init__(self, timeout_s: float, writes_per_s: float, burst: int, *, configuration: Any = None) -> None:
        """Connect to the API server. `configuration`: that of the official client; None reads the service account, else
        the kubeconfig."""
        self._reads_configuration = configuration is None
        self._client = _client(configuration or _configuration())
        self._timeout_s, self._bucket = timeout_s, TokenBucket(writes_per_s, burst)
        self._ahead_s: float | None = None  # how far the API server's clock is ahead of this one; None before an answer

    def time_s(self) -> float:
        """Return the time by the API server's clock, in unix seconds: ages of pods count from what it wrote, and clocks
        of replicas differ."""
        if self._ahead_s is None:
            with contextlib.suppress(InterfereError):
                self.call("GET", "/version", patient=False)
        return time.time() + (self._ahead_s or 0.0)

    def list(self, path: str, *, fields: str = "") -> tuple[list[JsonObject], str]:
        """Return all objects of a collection and the resourceVersion of the list.

        A collection that the cluster does not serve is empty. `fields`: a field selector. Where the continue token of a
        page has expired, the whole list is read again as one page.
        """
        selection = {"fieldSelector": fields} if fields else {}
        rows: list[JsonObject] = []
        token = ""
        while True:
            query: dict[str, Any] = {"limit": PAGE} | ({"continue": token} if token else {}) | selection
            try:
                page = self.call("GET", path, query=query)
            except NotFoundError:
                return [], ""
            except UnavailableError:
                if not token:
                    raise
                rows, page = [], self.call("GET", path, query=selection)
            rows += page.get("items") or []
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return rows, str(metadata.get("resourceVersion") or "")

    def watch(self, path: str, version: str, seconds: int) -> Iterator[JsonObject]:
        """Yield the events of a collection after a resourceVersion, for at most `seconds` seconds."""
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        response = self._request("GET", path, query, None, None, (self._timeout_s, seconds + self._timeout_s))
        rest = b""
        try:
            for chunk in response.stream(2**16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
        except (HTTPError, OSError, ValueError) as error:
            raise UnavailableError("the watch ended", value=path, remedy="none needed: it begins anew") from error
        finally:
            response.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, Any] | None = None,
        content: str | None = None,
        patient: bool = True,
    ) -> JsonObject:
        """Make one call and return the answer as an object. `patient`: wait as long as an overloaded API server asks
        for."""
        response = self._request(method, path, query or {}, body, content, self._timeout_s, patient=patient)
        try:
            return cast(JsonObject, json.loads(response.data or b"{}"))
        except ValueError as error:
            raise UnavailableError("the API server's answer is no JSON", value=path, remedy="is it one?") from error

    def write(self, write: Write) -> JsonObject:
        """Carry out one write, not faster than the rate limit allows. Returns the object that the API server
        answered with."""
        self._bucket.take()
        claims = f"/apis/resource.k8s.io/v1/namespaces/{write.namespace}/resourceclaims"
        if write.kind is WriteKind.CREATE_CLAIM:
            return self.call("POST", claims, body=write.body)
        if write.kind is WriteKind.DELETE_CLAIM:
            return self.call("DELETE", f"{claims}/{write.name}", body=write.body)
        if write.kind is WriteKind.EVENT:
            events = f"/api/v1/namespaces/{write.namespace}/events"
            return self.call("POST", events, body=write.body, patient=False)  # nothing depends on it
        path = f"/api/v1/namespaces/{write.namespace}/pods/{write.name}"
        if write.kind is WriteKind.EVICT:
            return self._evict(f"{path}/eviction", write.body)
        return self.call("PATCH", path, body=write.body, content=MERGE)

    def _evict(self, path: str, body: JsonObject) -> JsonObject:
        try:
            return self.call("POST", path, body=body, patient=False)
        except UnavailableError as error:
            if TOO_MANY not in error.one_line:
                raise
            raise UnfitError("a disruption budget keeps the pod", value=path, remedy="tried again later") from None

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, Any],
        body: Any,
        content: str | None,
        timeout: Any,
        *,
        patient: bool = True,
    ) -> Any:
        """Make one call and return its response. An overloaded server (429, 503 with Retry-After) is asked again,
        for at most the time limit of a call, as client-go does."""
        until_s = time.monotonic() + (self._timeout_s if patient else 0.0)
        is_known = not self._reads_configuration
        while True:
            try:
                response = self._request_once(method, path, query, body, content, timeout)
                self._see_time(response.headers.get("Date"))
                return response
            except ApiException as error:
                if error.status == 401 and not is_known:  # the token was rotated: it is read again
                    is_known, self._client = True, _client(_configuration())
                    continue
                wait_s = _retry_after_s(error)
                if not wait_s or time.monotonic() + wait_s > until_s:
                    raise _error(error, method, path) from None
            except (HTTPError, OSError) as error:
                raise UnavailableError(
                    f"the API server does not answer ({type(error).__name__})",
                    value=path,
                    remedy="kubectl get --raw /readyz",
                ) from error
            time.sleep(wait_s)

    def _see_time(self, date: str | None) -> None:
        """Note how far the API server's clock is ahead, by the Date of an answer, which has no fractions."""
        if not date:
            return
        with contextlib.suppress(ValueError, TypeError):
            ahead_s = parsedate_to_datetime(date).timestamp() + 0.5 - time.time()
            self._ahead_s = ahead_s if abs(ahead_s) > CLOCK_RESOLUTION_S else 0.0

    def _request_once(
        self, method: str, path: str, query: dict[str, Any], body: Any, content: str | None, timeout: Any
    ) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "interfere"}
        if body is not None:
            headers["Content-Type"] = content or "application/json"
        return self._client.call_api(
            path,
            method,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _preload_content=False,
            _request_timeout=timeout,
        )


def _client(configuration: Any) -> Any:
    configuration.retries = False
    return client.ApiClient(configuration)


def _retry_after_s(error: ApiException) -> float:
    """Return how long the API server asks to wait before the same call is repeated; 0 where it does not ask."""
    text = str((error.headers or {}).get("Retry-After") or "") if error.status in (429, 503) else ""
    return float(text) if text.isdecimal() else 0.0


def _configuration() -> Any:
    """Return the configuration of a pod with a service account, else that of the kubeconfig (KUBECONFIG,
    ~/.kube/config)."""
    configuration = client.Configuration()
    try:
        if "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
        else:
            load_kube_config(config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration)
    except ConfigException as error:
        remedy = "run in a pod with a service account, or set KUBECONFIG"
        raise UnfitError("there is no way to the API server", value=str(error)[:200], remedy=remedy) from None
    return configuration


def _message(body: object) -> str:
    """Return the message of a Status of the API server, or the text of any other answer."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split())[:300]


def _error(error: ApiException, method: str, path: str) -> InterfereError:
    where, body = f"{method} {path}", _message(error.body)
    if error.status == 404:
        remedy = "create its namespace" if method == "POST" else "none needed if it was deleted"
        return NotFoundError("the API server knows no such object", value=f"{where}: {body}", remedy=remedy)
    if error.status == 409:
        return ConflictError("the object exists or has changed", value=where, remedy="none needed: it is read again")
    if error.status == 410:
        return UnavailableError("the resourceVersion is too old", value=where, remedy="none needed: it is listed anew")
    if error.status in (401, 403, 500):  # 500: mostly an admission webhook of somebody else that is away
        what = "the API server fails at it" if error.status == 500 else "the API server forbids it"
        remedy = "see its message" if error.status == 500 else "check the ClusterRole"
        return UnfitError(what, value=f"{where}: {body}", remedy=remedy)
    if error.status in (400, 422):
        return InvalidInputError("the API server refuses it", value=f"{where}: {body}", remedy="see its message")
    return UnavailableError(f"the API server answered {error.status}", value=f"{where}: {body}", remedy="tried again")


# --- changes of pods --------------------------------------------------------------------------------------------------

MAX_FAILURES = 3  # changes in a row without an answer, after which the API server counts as away
CLAIM_WRITES = (WriteKind.CREATE_CLAIM, WriteKind.DELETE_CLAIM)


def apply_changes(
    api: ClusterApi,
    changes: Sequence[PodChange],
    metrics: AdapterMetrics,
    *,
    may_write: Callable[[], bool] = lambda: True,
    written: Callable[[Write, JsonObject], None] = lambda *_: None,
) -> tuple[Rejection, ...]:
    """Carry out changes of pods in order. Returns the changes that were lost or refused.

    Stops where `may_write` returns False, because another replica decides now. Raises UnavailableError after
    `MAX_FAILURES` changes without an answer: the next round reads what was done. A single pod can fail in the same way
    because a third party's admission webhook is down; such a pod is left out.

    Law: one pod that the API server cannot change keeps no other from being changed.
    Law: a gate whose time is over is removed even where the pod's claim cannot be created, or its annotations are
    refused.
    Law: an Event that is lost changes nothing.
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
    """Carry out the writes of one change, in order. Raises InterfereError for the first write that fails; the rest
    is left out."""
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
                _log.warning("%s is released without its claim: %s", change.pod.key, error.one_line)
            elif isinstance(error, InvalidInputError | UnfitError):  # too many annotations, or somebody's policy
                _log.warning("%s is released without annotations: %s", change.pod.key, error.one_line)
                _write(api, without_annotations(write), written)
            else:
                raise


def _write(api: ClusterApi, write: Write, written: Callable[[Write, JsonObject], None]) -> None:
    try:
        row = api.write(write)
    except InterfereError as error:
        if write.kind is WriteKind.EVENT:
            _log.warning("no Event: %s", error.one_line)
            return
        if write.kind is not WriteKind.DELETE_CLAIM or not isinstance(error, NotFoundError):
            raise
        row = {}  # somebody deleted it: it is created anew
    written(write, row)


def _rejected(change: PodChange, error: InterfereError, *, lost: bool) -> Rejection:
    return Rejection(job_id=change.pod.id, lost_race=lost, message=error.one_line[:200])
