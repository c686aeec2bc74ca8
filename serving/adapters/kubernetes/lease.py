"""The lease by which one replica of the controller decides, and the time of its newest decision. Leader election.

The rule is client-go's (coordination.k8s.io/v1): whoever writes its name with the resourceVersion that it read holds
the lease until `lease_s` after its last renewal, by the clock of whoever looks. A leader stops deciding after two
thirds of that. An annotation of the lease says when the leader decided last: pods that it lets wait are not released
while it goes on deciding.
"""

import logging
import time
from collections.abc import Callable

from interfere.errors import ConflictError, InterfereError, NotFoundError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.objects.values import map_at, number, timestamp
from interfere.serving.adapters.kubernetes.records import JsonObject

_log = logging.getLogger("interfere.kubernetes")
LEASE_NAME = "interfere-controller"


def newest_decision_s(api: ClusterApi, namespace: str) -> float:
    """Return when a controller has decided last, in unix seconds; 0 where nobody knows."""
    try:
        row = api.call("GET", f"{_leases(namespace)}/{LEASE_NAME}")
    except InterfereError as error:
        if not isinstance(error, NotFoundError):
            _log.warning("waiting pods are released as if nobody decided: %s", error.one_line)
        return 0.0
    return number(str(map_at(row, "metadata", "annotations").get(names.DECIDED_AT)))


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Lease:
    """The lease of the controller (coordination.k8s.io/v1), as one replica sees it."""

    def __init__(
        self,
        api: ClusterApi,
        namespace: str,
        holder: str,
        lease_s: float,
        *,
        name: str = LEASE_NAME,
        decided_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Hold no lease yet. `decided_s` returns when this replica has decided last, in unix seconds, or 0."""
        self._api, self._holder, self._lease_s, self._decided_s = api, holder, lease_s, decided_s
        self._path = _leases(namespace)
        self._name, self._renewed_s = name, -1e18
        self._seen: tuple[str, str] = ("", "")  # holder and time of renewal that were last read
        self._seen_s = -1e18  # when they were first read, on the local clock

    @property
    def held(self) -> bool:
        """Whether this replica holds the lease, so that it may decide."""
        return time.monotonic() - self._renewed_s < self._lease_s * 2 / 3

    def try_hold(self) -> bool:
        """Renew the lease, or take it where its holder is gone. Returns whether this replica holds it; after an
        error it does not."""
        started_s = time.monotonic()
        try:
            if self._write():
                self._renewed_s = started_s
        except ConflictError:
            pass  # another replica was faster
        except InterfereError as error:
            _log.warning("the lease is not renewed: %s", error.one_line)
        return self.held

    def release(self) -> None:
        """Give the lease back, so that another replica need not wait for it to expire."""
        if not self.held:
            return
        try:
            row = self._api.call("GET", f"{self._path}/{self._name}")
            if row["spec"].get("holderIdentity") == self._holder:
                row["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._api.call("PUT", f"{self._path}/{self._name}", body=row)
        except InterfereError:
            pass  # it expires by itself
        self._renewed_s = -1e18

    def _write(self) -> bool:
        try:
            row = self._api.call("GET", f"{self._path}/{self._name}")
        except NotFoundError:
            self._api.call("POST", self._path, body=self._body({}))
            return True
        spec = row.get("spec") or {}
        holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or "")
        if (holder, renewed) != self._seen:
            self._seen, self._seen_s = (holder, renewed), time.monotonic()
        expired = time.monotonic() - self._seen_s > float(spec.get("leaseDurationSeconds") or self._lease_s)
        if holder not in ("", self._holder) and not expired:
            return False
        self._api.call("PUT", f"{self._path}/{self._name}", body=self._body(row))
        return True

    def _body(self, row: JsonObject) -> JsonObject:
        """Return the lease in this replica's name. Fields written by other clients and the resourceVersion are kept."""
        now, spec = timestamp(time.time()), row.get("spec") or {}
        is_renewal = spec.get("holderIdentity") == self._holder
        notes = map_at(row, "metadata", "annotations")
        if (decided_s := max(self._decided_s(), number(str(notes.get(names.DECIDED_AT))))) > 0:
            notes = notes | {names.DECIDED_AT: f"{decided_s:.3f}"}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**(row.get("metadata") or {}), "name": self._name, "annotations": notes},
            "spec": {
                **spec,
                "holderIdentity": self._holder,
                "leaseDurationSeconds": max(1, round(self._lease_s)),
                "renewTime": now,
                "acquireTime": (spec.get("acquireTime") if is_renewal else None) or now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (bool(row) and not is_renewal),
            },
        }
