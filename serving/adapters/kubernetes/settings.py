"""The adapter's settings, from one TOML file and flags that override it.

server = "interfere:50051"
mode = "gate"          # default: observe

[device_types]         # product names as the cluster writes them → device types as the model knows them
"NVIDIA-A100-SXM4-80GB" = "a100"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from interfere.errors import Violation
from interfere.records import NAN
from interfere.records.checks import refused
from interfere.records.cluster import MAX_SEATS
from interfere.serving.adapters.kubernetes.names import is_label, is_subdomain
from interfere.serving.adapters.settings import AdapterSettings
from interfere.sharing_modes import SharingMode, set_sharing_mode

MAX_RATIO = 1000.0  # that a request may state


class Mode(StrEnum):
    """The actions that the adapter is allowed in the cluster."""

    OBSERVE = "observe"  # writes annotations and Events, never a pod's spec
    GATE = "gate"  # places gated pods


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(AdapterSettings):
    """All settings of the adapter. `window_s` limits the time that a pod is gated, even where server and controller are
    away."""

    mode: Mode = Mode.OBSERVE
    cluster: str = "kubernetes"
    namespace: str = "interfere"  # of the adapter itself: its Lease, Service and certificates
    device_types: Mapping[str, str] = field(default_factory=dict)  # product → device type; others keep their own name
    sharing_mode: SharingMode = SharingMode.TIMESLICE  # of GPUs whose node or driver names none
    seats: int = 2  # most pods on one GPU; a node that shares a GPU among fewer offers as many
    device_class: str = "gpu.nvidia.com"  # of the claims that the adapter creates
    evicts: bool = False  # pods that say what a stop costs them may be evicted for others of higher priority
    granule_gib: float = NAN  # unit of memory grants: a pod that holds more is evicted; absent: nothing is granted
    oversubscription_ratio: float = (
        1.0  # of the only GPU of a node of the device plugin; a node's annotation goes first
    )
    host_reserve_gib: float = (
        NAN  # of each such node, to back what that grants beyond its memory; absent: what it needs
    )
    request_name: str = "gpu"  # of the device request in such a claim
    window_s: float = 120.0
    timeout_s: float = 10.0
    writes_per_s: float = 50.0  # as kube-scheduler's clientConnection.qps
    burst: int = 100  # as kube-scheduler's clientConnection.burst
    stale_s: float = 30.0  # without news from the API server for that long no decision is made
    lease_s: float = 6.0  # pods wait for so long where the replica that decides has died
    prometheus: str = ""  # address of a Prometheus that counts the steps of pods; empty: sidecars alone
    progress: str = ""  # a counter of steps there (a selector), or an expression of steps per second
    prometheus_token_file: Path | None = None  # holds a bearer token
    metrics_port: int = 0  # 0: none

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = (
        *AdapterSettings.MAY_BE_ZERO,
        "metrics_port",
        "seats",
        "granule_gib",
        "host_reserve_gib",
    )

    @property
    def grants_memory(self) -> bool:
        """Whether pods hold memory grants."""
        return self.granule_gib > 0

    def device_type(self, product: str) -> str:
        """Return the device type of a product name; the product name itself where the settings name none."""
        return self.device_types.get(product, product)

    def own_violations(self) -> Sequence[Violation]:
        """Return the broken rules of sharing mode, seats, names for the API server, and Prometheus."""
        bad = list(set_sharing_mode(self, "sharing_mode"))
        if self.granule_gib <= 0:
            bad.append(refused(self, "granule_gib", "must be positive", "leave it out where nothing is granted"))
        if not 1 <= self.oversubscription_ratio <= MAX_RATIO:
            what = f"must be from 1 to {MAX_RATIO:g}"
            bad.append(refused(self, "oversubscription_ratio", what, "leave it out where no more memory is granted"))
        if self.oversubscription_ratio > 1 and not self.grants_memory:
            what = "needs granule_gib: what exceeds the memory is bounded by grants alone"
            bad.append(refused(self, "oversubscription_ratio", what, "add granule_gib = 1"))
        if self.host_reserve_gib < 0:
            bad.append(refused(self, "host_reserve_gib", "must not be negative", "leave it out for what is needed"))
        if not 1 <= self.seats <= MAX_SEATS:
            bad.append(refused(self, "seats", f"must be a whole number from 1 to {MAX_SEATS}", "leave it out for two"))
        for name, holds in (("device_class", is_subdomain), ("request_name", is_label), ("namespace", is_label)):
            if not holds(getattr(self, name)):
                what, remedy = "is no name that the API server takes", "lower case letters, digits, '-'"
                bad.append(refused(self, name, what, remedy))
        if bool(self.prometheus) != bool(self.progress):
            remedy = "set both: where the counter is, and which it is"
            values = f"prometheus {self.prometheus!r}, progress {self.progress!r}"
            bad.append(Violation(field="prometheus", what="needs progress", value=values, remedy=remedy))
        return bad
