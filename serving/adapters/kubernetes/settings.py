"""The adapter's settings, from one TOML file and flags that override it.

server = "interfere:50051"
mode = "gate"          # default: observe

[device_types]         # product names as the cluster writes them → device types as the model knows them
"NVIDIA-A100-SXM4-80GB" = "a100"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from interfere.errors import InvalidInputError, Violation
from interfere.records.cluster import MAX_SEATS
from interfere.serving.adapters.kubernetes.names import is_label, is_subdomain
from interfere.sharing_modes import SharingMode, set_sharing_mode

GIB = float(2**30)


class Mode(StrEnum):
    """How far the adapter goes."""

    OBSERVE = "observe"  # writes annotations and Events, never a pod's spec
    GATE = "gate"  # places gated pods


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """All settings of the adapter."""

    server: str = "127.0.0.1:50051"
    mode: Mode = Mode.OBSERVE
    cluster: str = "kubernetes"  # scope of the decisions and prefix of observation ids
    namespace: str = "interfere"  # of the adapter itself: its Lease, Service and certificates
    device_types: Mapping[str, str] = field(default_factory=dict)  # product → device type; others keep their own name
    sharing_mode: SharingMode = SharingMode.TIMESLICE  # of GPUs whose node or driver names none
    seats: int = 2  # most pods on one GPU; a node that shares a GPU among fewer offers as many
    device_class: str = "gpu.nvidia.com"  # of the claims that the adapter creates
    request_name: str = "gpu"  # of the device request in such a claim
    interval_s: float = 2.0
    window_s: float = 120.0  # the longest time that a pod is gated, whatever happens
    timeout_s: float = 10.0  # of each call of the API server and of the policy server
    start_s: float = 60.0  # a placed pod that is not bound by then has lost its place
    most_tries: int = 3  # placements of one pod; then Kubernetes places it
    lookahead: int = 3  # pods, in order of priority and age, that compete for one free seat
    patience_s: float = 300.0  # a waiting pod counts once more each time this has passed
    priority_unit: float = 0.0  # of spec.priority, makes one strict level of 0 to 9; 0: all are equal
    allow_extrapolation: bool = False
    writes_per_s: float = 50.0  # as kube-scheduler's clientConnection.qps
    burst: int = 100  # as kube-scheduler's clientConnection.burst
    stale_s: float = 30.0  # without news from the API server for that long no decision is made
    lease_s: float = 15.0  # as kube-scheduler's leaderElection.leaseDuration
    report_every_s: float = 60.0  # a longer co-location is reported in parts
    least_window_s: float = 5.0  # shortest time between two marks from which steps are counted
    prometheus: str = ""  # address of a Prometheus that counts the steps of pods; empty: sidecars alone
    progress: str = ""  # a counter of steps there (a selector), or an expression of steps per second
    prometheus_token_file: Path | None = None  # holds a bearer token
    journal: Path | None = None  # JSON lines of decisions and measurements, which `report` sums up
    metrics_port: int = 0  # 0: none

    def device_type(self, product: str) -> str:
        """The model's name of a product."""
        return self.device_types.get(product, product)

    def __post_init__(self) -> None:
        bad = [
            Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
            for name in _POSITIVE
            if not (value := getattr(self, name)) > 0
        ]
        bad += set_sharing_mode(self, "sharing_mode")
        if not 1 <= self.seats <= MAX_SEATS:
            what = f"must be a whole number from 1 to {MAX_SEATS}"
            bad.append(Violation(field="seats", what=what, value=repr(self.seats), remedy="leave it out for two"))
        for name, holds in (("device_class", is_subdomain), ("request_name", is_label), ("namespace", is_label)):
            if not holds(value := getattr(self, name)):
                what, remedy = "is no name that the API server takes", "lower case letters, digits, '-'"
                bad.append(Violation(field=name, what=what, value=repr(value), remedy=remedy))
        if bool(self.prometheus) != bool(self.progress):
            remedy = "set both: where the counter is, and which it is"
            values = f"prometheus {self.prometheus!r}, progress {self.progress!r}"
            bad.append(Violation(field="prometheus", what="needs progress", value=values, remedy=remedy))
        if not bad and self.interval_s > self.window_s / 4:
            remedy = "look more often, or gate for longer"
            what = "must be at most a quarter of window_s"
            bad.append(Violation(field="interval_s", what=what, value=repr(self.interval_s), remedy=remedy))
        if bad:
            raise InvalidInputError.from_violations(bad)


_POSITIVE = (
    "interval_s",
    "window_s",
    "timeout_s",
    "start_s",
    "most_tries",
    "lookahead",
    "patience_s",
    "writes_per_s",
    "burst",
    "stale_s",
    "lease_s",
    "report_every_s",
    "least_window_s",
)
_KINDS = {each.name: each.type for each in fields(KubernetesSettings)}


def load(path: Path | None, given: Mapping[str, object]) -> KubernetesSettings:
    """Settings from a file and from flags that override it. Raises InvalidInputError with every broken rule."""
    document: dict[str, object] = {}
    if path is not None:
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"the settings cannot be read ({error})", value=path, remedy="a TOML file; see the Kubernetes guide"
            ) from None
    document |= {name: value for name, value in given.items() if value is not None}
    bad = list[Violation]()
    values = {name: _value(name, value, bad) for name, value in document.items()}
    if bad:
        raise InvalidInputError.from_violations(bad)
    return KubernetesSettings(**values)  # type: ignore[arg-type]  # typed one by one


def _value(name: str, value: object, bad: list[Violation]) -> object:
    kind = _KINDS.get(name)
    what, remedy = "", ""
    if kind is None:
        near = get_close_matches(name, _KINDS, n=1)
        what, remedy = "unknown setting", f"did you mean {near[0]}?" if near else f"one of {', '.join(_KINDS)}"
    elif kind in (float, int):
        if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != int(value)):
            what, remedy = "must be a whole number" if kind is int else "must be a number", "drop the quotes"
    elif kind is bool and not isinstance(value, bool):
        what, remedy = "must be true or false", "no quotes"
    elif kind is Mode:
        if value in list(Mode):
            return Mode(str(value))
        what, remedy = "unknown mode", f"one of {', '.join(Mode)}"
    elif name == "device_types":
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            what, remedy = "must map names to names", '"NVIDIA-A100-SXM4-80GB" = "a100"'
    elif name in ("journal", "prometheus_token_file"):
        return Path(str(value))
    elif kind is str and not isinstance(value, str):
        what, remedy = "must be text", "put it in quotes"
    if what:
        bad.append(Violation(field=name, what=what, value=repr(value), remedy=remedy))
    return value
