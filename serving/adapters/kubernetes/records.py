"""Pods, nodes, GPUs and claims as records: what decisions read of the API server's objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from interfere.records import NAN
from interfere.serving.adapters.kubernetes import names
from interfere.sharing_modes import SharingMode

Labels = tuple[tuple[str, str], ...]
SelectorTerms = tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...]
"""A node fulfils any term, and of that term all (key, operator, values)."""
JsonObject = dict[str, Any]
"""An object as the API server writes it."""


class GpuSource(StrEnum):
    """How a cluster publishes a GPU. This also determines how a pod is sent to the GPU."""

    DRA = "dra"  # a ResourceSlice; the pod's claim selects the device
    HAMI = "hami"  # an annotation of the node; an annotation of the pod selects the device
    NODE = "node"  # NVIDIA's device plugin; a nodeSelector selects the node, and so the GPU where it has one


class PodState(StrEnum):
    """The adapter's state of a pod, written to the pod as an annotation."""

    WAITING = "waiting"
    PLACED = "placed"
    RELEASED = "released"  # left to Kubernetes
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """The devices that a claim may be given: those selected by its DeviceClass and by its own selectors."""

    device_class: str
    selectors: tuple[str, ...] = ()  # CEL expressions of the claim
    capacities: tuple[
        tuple[str, float], ...
    ] = ()  # by published name: a device that lacks one of them is not allocated
    tolerations: tuple[tuple[str, str, str, str], ...] = ()  # of taints of devices: key, operator, value, effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A capacity of a device other than memory, and the amount of it that one claim of the adapter consumes."""

    name: str  # without the driver's domain
    published_name: str  # as the ResourceSlice writes it
    value: float
    per_claim: float
    requested: bool  # a claim that does not name it would take more than a seat: it asks for its share
    policy: JsonObject = field(default_factory=dict, hash=False)  # which requests it allows


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCounter:
    """A counter that a device consumes together with other devices of its pool, as a GPU does with its partitions."""

    key: tuple[str, str]  # counter set and counter
    value: float
    amount: float  # that the device consumes
    others: tuple[tuple[str, float], ...]  # names of other devices, with what each consumes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of one node that pods may share."""

    id: str  # node/uuid, or node/uuid/name where devices share a uuid: the device's id in decisions
    node: str
    uuid: str
    source: GpuSource
    type: str
    memory_bytes: float = NAN
    share_bytes: float = NAN  # DRA: memory that a claim may request so that all seats fit
    memory_name: str = "memory"  # DRA: the capacity's name
    memory_policy: JsonObject = field(default_factory=dict, hash=False)  # DRA: which requests the capacity allows
    whole: tuple[tuple[str, str], ...] = ()  # DRA: capacities, as published, that a claim can ask for the whole of
    other_capacities: tuple[Capacity, ...] = ()  # DRA: beside the memory
    mode: SharingMode = SharingMode.TIMESLICE
    driver: str = ""  # DRA: the driver that publishes it, which is also the domain of its attributes
    dra_pool: str = ""
    dra_name: str = ""
    variable: JsonObject = field(default_factory=dict, hash=False)  # DRA: `device` of a selector
    unlike: tuple[str, ...] = ()  # DRA: CEL terms that are false for the other devices of its uuid
    counters: tuple[SharedCounter, ...] = ()  # DRA: that it consumes with other devices of its pool
    taints: tuple[tuple[str, str, str], ...] = ()  # DRA: key, value, effect of each that keeps new claims off it
    seats: int = 2  # pods that may be on it at once
    siblings: int = 1  # NODE: GPUs of its node; where there are several, the kubelet chooses which one a pod gets

    @property
    def key(self) -> tuple[str, str, str]:
        """Driver, pool and name, by which claims name it."""
        return self.driver, self.dra_pool, self.dra_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node: whether new pods may start there, and which resources it offers."""

    name: str
    labels: Labels = ()
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect of each that keeps new pods off the node
    usable: bool = True  # ready, and not cordoned
    cpu: float = NAN  # allocatable cores
    memory_bytes: float = NAN  # allocatable host memory
    pods: float = NAN  # allocatable number of pods
    oversubscription_ratio: float = NAN  # of its GPU, by its annotation
    host_reserve_bytes: float = NAN  # that may back it, by its annotation

    @property
    def hostname(self) -> str:
        """The value of the label by which a nodeSelector names the node."""
        return dict(self.labels).get(names.HOSTNAME, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The constraints that limit the nodes of a pod. Pods with equal constraints may go to the same nodes."""

    node_selector: Labels = ()
    affinity_terms: SelectorTerms = ()
    volume_terms: tuple[SelectorTerms, ...] = ()  # of each volume that only some nodes reach
    tolerations: tuple[tuple[str, str, str, str], ...] = ()  # key, operator, value, effect
    cpu: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as decisions see it. Times in unix seconds; 0 where there is none yet."""

    namespace: str
    name: str
    uid: str
    version: str = ""  # resourceVersion
    phase: str = "Pending"
    node: str = ""
    gates: tuple[str, ...] = ()
    notes: Labels = ()  # annotations of the adapter and of HAMi; labels of the same names below them
    constraints: Constraints = field(default_factory=Constraints)
    source: GpuSource | None = None  # how it asks for a GPU; None where it asks for none
    claim: str = ""  # DRA: the claim that it names
    claim_spec: JsonObject | None = field(default=None, hash=False)  # DRA: of its claim; None: its template is missing
    request: DeviceRequest | None = None  # DRA: the devices that it may be given; None where the claim asks for several
    claim_memory_bytes: float = NAN  # DRA: device memory that its template asks for
    hami_memory_bytes: float = NAN  # device memory that it asks HAMi for
    priority: int = 0
    created_s: float = 0.0
    started_s: float = 0.0
    ended_s: float = 0.0
    end_reason: str = ""
    restarts: int = 0
    lost_s: float = 0.0  # of its run to the pods beside it, as predicted
    ips: tuple[str, ...] = ()  # one of each family
    deleting: bool = False
    unschedulable: str = ""  # why kube-scheduler bound it nowhere when it looked last
    all_special: tuple[str, ...] = ()  # why the pod is not advised; empty for a plain pod

    @property
    def id(self) -> str:
        """The id of the pod as a job in decisions. It holds the uid, since a pod of the same name may come later."""
        return f"{self.namespace}/{self.name}/{self.uid}"

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def run_id(self) -> str:
        """The prefix of the ids of the pod's windows. It changes when a container restarts."""
        return f"{self.uid}.{self.restarts}"

    @property
    def history_id(self) -> str:
        """The prefix of the ids of the pod's outcomes."""
        return self.uid

    @property
    def claim_key(self) -> str:
        """Namespace and name of the claim that the pod names; empty where it names no claim."""
        return f"{self.namespace}/{self.claim}" if self.claim else ""

    def note(self, name: str) -> str:
        """Return the annotation of this name, or else the label of this name; empty where there is neither."""
        return dict(self.notes).get(name, "")

    @property
    def special(self) -> str:
        """The first reason why the pod is not advised; empty for a plain pod."""
        return next(iter(self.all_special), "")

    @property
    def workload(self) -> str:
        """The name of the workload, as the user of the pod gave it."""
        return self.note(names.WORKLOAD)

    @property
    def gated(self) -> bool:
        """Whether the adapter's scheduling gate holds the pod."""
        return names.GATE in self.gates

    @property
    def held(self) -> bool:
        """Whether a decision lets the pod wait behind the gate."""
        return self.gated and self.note(names.STATE) == PodState.WAITING

    @property
    def pending(self) -> bool:
        """Whether no node was chosen for the pod yet."""
        return self.phase == "Pending" and not self.node and not self.deleting

    @property
    def ended(self) -> bool:
        """Whether all containers of the pod have ended for good."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device that is allocated to a claim."""

    driver: str
    pool: str
    device: str
    consumed: tuple[tuple[str, float], ...] = ()  # capacities without the driver's domain, of a shared device

    @property
    def key(self) -> tuple[str, str, str]:
        """Driver, pool and name."""
        return self.driver, self.pool, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A ResourceClaim."""

    namespace: str
    name: str
    uid: str
    version: str
    ours: bool  # created by the adapter
    target: str = ""  # device id, or ANY_DEVICE, for claims of the adapter
    owner_uid: str = ""  # uid of the pod that it was created for
    reserved: bool = False  # allocated, or reserved for a pod
    deleting: bool = False
    devices: tuple[AllocatedDevice, ...] = ()  # without devices with admin access only
    requested: tuple[tuple[str, float], ...] = ()  # capacities that its one request asks for, by published name

    @property
    def is_selective(self) -> bool:
        """Whether the adapter made it for one GPU, and may still replace it."""
        return self.ours and not self.reserved and self.target != names.ANY_DEVICE

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """All records that a round reads, of one moment."""

    pods: tuple[Pod, ...]
    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]
    claims: tuple[Claim, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # CEL expressions of each DeviceClass

    @property
    def claims_by_key(self) -> dict[str, Claim]:
        """Claims by namespace and name."""
        return {claim.key: claim for claim in self.claims}

    def with_lost_time(self, lost_s: Callable[[str], float]) -> "ClusterState":
        """Return the state with what each pod lost to those beside it. `lost_s`: seconds by the id of a pod."""
        pods = (replace(pod, lost_s=lost_s(pod.id)) if lost_s(pod.id) else pod for pod in self.pods)
        return replace(self, pods=tuple(pods))
