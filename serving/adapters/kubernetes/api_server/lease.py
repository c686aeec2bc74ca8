"""Leader election by a Lease (coordination.k8s.io/v1): one replica decides, the others stand by.

The rule is client-go's: whoever writes its name with the resourceVersion that it read holds the lease until
`lease_s` after its last renewal, by the clock of whoever looks. A leader stops deciding after two thirds of that.
"""

import logging
import time

from interfere.errors import ConflictError, InterfereError, NotFoundError
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.objects.values import timestamp
from interfere.serving.adapters.kubernetes.records import JsonObject

_log = logging.getLogger("interfere.kubernetes")


class Lease:
    """This replica's view of the lease."""

    def __init__(self, api: ClusterApi, namespace: str, name: str, holder: str, lease_s: float) -> None:
        self._api, self._holder, self._lease_s = api, holder, lease_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name, self._renewed_s = name, -1e18
        self._seen: tuple[str, str] = ("", "")  # holder and time of renewal that were last read
        self._seen_s = -1e18  # when they were first read, on the local clock

    @property
    def held(self) -> bool:
        """Whether this replica may decide."""
        return time.monotonic() - self._renewed_s < self._lease_s * 2 / 3

    def try_hold(self) -> bool:
        """Renew the lease, or take it where its holder is gone. Errors of the API server count as not held."""
        started_s = time.monotonic()
        try:
            if self._write():
                self._renewed_s = started_s
        except ConflictError:
            pass  # another replica was faster
        except InterfereError as error:
            _log.warning("the lease is not renewed: %s", " ".join(str(error).split()))
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
        """The lease in this replica's name; what others wrote of it stays, its resourceVersion too."""
        now, spec = timestamp(time.time()), row.get("spec") or {}
        is_renewal = spec.get("holderIdentity") == self._holder
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**(row.get("metadata") or {}), "name": self._name},
            "spec": {
                **spec,
                "holderIdentity": self._holder,
                "leaseDurationSeconds": max(1, round(self._lease_s)),
                "renewTime": now,
                "acquireTime": (spec.get("acquireTime") if is_renewal else None) or now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (bool(row) and not is_renewal),
            },
        }
