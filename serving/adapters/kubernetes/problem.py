"""The cluster as one decision problem: who may be advised, where each may go, who is decided now. Pure functions.

Memory oversubscription: Kubernetes counts devices as wholes. Where a driver publishes memory (ResourceSlices, HAMi),
claims may come to what it publishes and to no more, so such a GPU grants its own memory whatever the ratio says. A GPU
of NVIDIA's device plugin has no memory that Kubernetes counts: grants alone bound it. It is oversubscribed where it is
the only one of its node, because only then the GPU of a pod is known, and a pod that exceeds its grant can be evicted.

Law 1: what a node reserves is at most what its annotation or the setting allows, and at most its allocatable memory.
Law 2: pods that are sent to a node leave that reserve free.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from interfere.records import NAN, Action, ActionKind, Device, Job, Snapshot
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.constraints import (
    FreeResources,
    Kind,
    admits,
    free_resources,
    pools,
    tolerated,
)
from interfere.serving.adapters.kubernetes.objects.gpus import consumed
from interfere.serving.adapters.kubernetes.objects.selectors import selects
from interfere.serving.adapters.kubernetes.objects.values import number
from interfere.serving.adapters.kubernetes.records import (
    Claim,
    ClusterState,
    DeviceRequest,
    Gpu,
    GpuSource,
    Node,
    Pod,
)
from interfere.serving.adapters.kubernetes.seats import (
    ClusterView,
    DeviceKey,
    device_record,
    held_gpus,
    offered_gpus,
)
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.problem import STARTS, Problem, first_reason, host_reserves, positions_decided
from interfere.serving.adapters.settings import GIB

ONLY_TO_GATE = ("claim template", "other gates", "other scheduler")  # what would have been best is said all the same
INVALID = f"its annotations {names.PREFIX}* are not valid"
SEVERAL = "a claim of several devices"
CLAIM_GRACE_S = 10.0  # after which a claim that a pod names, and nobody has made, is made


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProblem(Problem[Pod]):
    """The decision problem of a cluster at one moment."""

    gpus: dict[str, Gpu]  # the GPUs of the snapshot, by id
    residents: dict[str, tuple[Job, ...]]  # of each of them
    free: Mapping[str, FreeResources]  # what each node can still take
    unadmitted: tuple[Pod, ...]  # that no node with a free seat admits now
    impossible: tuple[Pod, ...]  # that no GPU of the cluster could take if it were empty
    default_bytes: float  # memory of a pod that names none


def within_free_resources(problem: ClusterProblem, actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return the actions with each start replaced by a wait where its node has too little free CPU or host memory.

    The actions are taken in order, and each start reduces the resources for later starts. The check is needed because
    matching considers GPUs alone, and because a nodeSelector cannot be taken back.
    """
    free, pods = dict(problem.free), problem.candidates_by_id
    kept = []
    for action in actions:
        if action.kind in STARTS:
            node, wanted = problem.gpus[action.device_id].node, pods[action.job_id].constraints
            if not free[node].fits(wanted):
                reason = f"no CPU or host memory is left on {node} beside the pods that go there first"
                kept.append(Action(kind=ActionKind.WAIT, job_id=action.job_id, reason=reason))
                continue
            free[node] = free[node].after(wanted)
        kept.append(action)
    return tuple(kept)


def build(
    state: ClusterState,
    settings: KubernetesSettings,
    now_s: float,
    hypothetical: frozenset[str] = frozenset(),
    *,
    refused: Collection[tuple[str, DeviceRequest]] = (),
) -> ClusterProblem:
    """Return the present decision problem.

    `hypothetical`: uids of bound pods that are treated as pending, so that the plan says where they would have been
    placed. `refused`: devices that kube-scheduler does not give for a request.
    """
    # 1. Who may be advised.
    view, left = ClusterView(state=state, settings=settings, now_s=now_s, hypothetical=hypothetical), Counter[str]()
    advised: list[tuple[Pod, Job]] = []
    for pod in state.pods:
        if not (pod.pending or pod.uid in hypothetical) or not pod.workload or view.is_placed(pod):
            continue
        reason = exclusion_reason(pod, view.claims.get(pod.claim_key), settings, now_s)
        record = None if reason else view.job(pod)
        if record is None:
            left[reason or INVALID] += 1
        else:
            advised.append((pod, record))
    impossible = _impossible(advised, state) if settings.mode is Mode.GATE else set[str]()
    possible = [(pod, job) for pod, job in advised if pod.uid not in impossible]
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].created_s, pair[0].id))
    # 2. The devices that have a free seat, and their residents.
    nameable = {node.name for node in state.nodes if dict(node.labels).get(names.HOSTNAME)}
    devices = [
        (gpu, residents)
        for gpu, residents in offered_gpus(view)
        if gpu.source is GpuSource.DRA or gpu.node in nameable  # a nodeSelector names the node by its label
    ]
    # 3. Nodes of each pod as pools of devices.
    nodes = _without_reserves(state.nodes, state.gpus, settings)
    free = free_resources(nodes, ((view.node_of(pod), pod.constraints) for pod in view.present_pods))
    pool_of, allowed = pools(
        (_kind(pod) for pod, _ in possible),
        state.nodes,
        ((gpu, bool(residents)) for gpu, residents in devices),
        free,
        _selected(state, refused, view.allocations.consumed),
    )
    pooled = [(pod, replace(job, pools=allowed[_kind(pod)])) for pod, job in possible]
    able = [(pod, job) for pod, job in pooled if job.pools]
    left["no node admits it"] += len(pooled) - len(able)
    # 4. As many pods as may be decided at once.
    granule_bytes = settings.granule_gib * GIB
    if settings.grants_memory:
        offered = {gpu.id for gpu, _ in devices}
        devices += [each for each in held_gpus(view) if each[0].id not in offered]
    plain = (device_record(gpu, residents, pool_of.get(gpu.id, "none"), granule_bytes) for gpu, residents in devices)
    records = _oversubscribed(plain, state.gpus, state.nodes, settings)
    decided = set(positions_decided([job for _, job in able], records, settings))
    candidates = [pair for k, pair in enumerate(able) if k in decided]
    behind = [pair for k, pair in enumerate(able) if k not in decided]
    snapshot = None
    if candidates or (settings.grants_memory and any(residents for _, residents in devices)):
        snapshot = Snapshot(
            pending=tuple(job for _, job in candidates),
            devices=records,
            scope=settings.cluster,
            now_s=now_s if settings.evicts or settings.grants_memory else NAN,
        )
    return ClusterProblem(
        snapshot=snapshot,
        candidates=tuple(pod for pod, _ in candidates),
        behind=tuple(pod for pod, _ in behind),
        unadmitted=tuple(pod for pod, job in pooled if not job.pools),
        impossible=tuple(pod for pod, _ in advised if pod.uid in impossible),
        default_bytes=view.default_bytes,
        left_out=+left,
        gpus={gpu.id: gpu for gpu, _ in devices},
        residents={gpu.id: residents for gpu, residents in devices},
        free=free,
    )


def exclusion_reason(pod: Pod, claim: Claim | None, settings: KubernetesSettings, now_s: float) -> str:
    """Return the reason why a pod with a workload gets no advice; empty where it gets advice."""
    gating = settings.mode is Mode.GATE
    is_placeable = pod.source is GpuSource.DRA and bool(pod.claim) and (claim is None or not claim.reserved)
    is_awaited = claim is None and now_s - pod.created_s < CLAIM_GRACE_S  # its user may be about to create it
    is_fixed = not pod.gated and (not is_placeable or is_awaited)
    checks = {
        "opted out": pod.note(names.OPT_OUT) == "true",
        pod.special: bool(pod.special) and (gating or pod.special not in ONLY_TO_GATE),
        "its claim template is missing": gating and bool(pod.claim) and pod.claim_spec is None,
        SEVERAL: gating and is_of_several(pod),
        "own claim": gating and claim is not None and not claim.ours,
        "claim of another pod": gating and claim is not None and claim.owner_uid not in ("", pod.uid),
        "claim in use": gating and claim is not None and claim.reserved,
        "tried too often": gating and number(pod.note(names.TRIES)) >= settings.most_tries,
        "not gated": gating and is_fixed,  # its place can no longer be changed
        "window over": gating and pod.gated and not pod.held and now_s - pod.created_s >= settings.window_s,
        "max-wait over": gating and pod.gated and waited_long(pod, now_s),
    }
    return first_reason(checks)


def is_of_several(pod: Pod) -> bool:
    """Return whether a pod's late claim asks for several devices, or for any number of them."""
    return bool(pod.claim) and pod.claim_spec is not None and pod.request is None


def waited_long(pod: Pod, now_s: float) -> bool:
    """Return whether a pod has waited for as long as its annotation allows. Without one it may wait for ever."""
    longest_s = number(pod.note(names.MAX_WAIT_S))
    return longest_s > 0 and now_s - pod.created_s >= longest_s


def _kind(pod: Pod) -> Kind:
    return Kind(pod.source, pod.constraints, pod.request, bool(pod.note(names.MAX_SLOWDOWN)))


def _selected(
    state: ClusterState,
    refused: Collection[tuple[str, DeviceRequest]] = (),
    used: Mapping[DeviceKey, Mapping[str, float]] = MappingProxyType({}),
) -> Callable[[Gpu], frozenset[DeviceRequest]]:
    """Return a function that returns the requests of a cluster's pods that a GPU of a ResourceSlice may be given for.

    `refused`: devices that are not given for a request. `used`: amounts of capacities by device.
    """
    requests = tuple(dict.fromkeys(pod.request for pod in state.pods if pod.request is not None))

    def may_be_given(gpu: Gpu, request: DeviceRequest) -> bool:
        of_class = state.classes.get(request.device_class)
        if of_class is None or (gpu.id, request) in refused:
            return False
        if not all(tolerated(*taint, request.tolerations) for taint in gpu.taints):
            return False
        if not _has_capacities(gpu, request, used.get(gpu.key, {})):
            return False
        return selects((*of_class, *request.selectors), gpu.variable)

    def of_gpu(gpu: Gpu) -> frozenset[DeviceRequest]:
        return frozenset(each for each in requests if gpu.source is GpuSource.DRA and may_be_given(gpu, each))

    known: dict[str, frozenset[DeviceRequest]] = {}
    return lambda gpu: known[gpu.id] if gpu.id in known else known.setdefault(gpu.id, of_gpu(gpu))


def _has_capacities(gpu: Gpu, request: DeviceRequest, used: Mapping[str, float]) -> bool:
    """Return whether a GPU has every capacity that a request names, and so much of it left."""
    rows = {each.published_name: (each.value, each.policy) for each in gpu.other_capacities}
    if not math.isnan(gpu.memory_bytes):
        rows[gpu.memory_name] = gpu.memory_bytes, gpu.memory_policy
    for name, amount in request.capacities:
        value, policy = rows.get(name, (NAN, {}))
        if not consumed({"requestPolicy": policy}, amount) <= value - used.get(name.rpartition("/")[2], 0.0):
            return False
    return True


def _impossible(advised: Iterable[tuple[Pod, Job]], state: ClusterState) -> set[str]:
    """Return the uids of the pods that no GPU of the cluster could take if it were empty."""
    requests = _selected(state)
    nodes, full = {node.name: replace(node, usable=True) for node in state.nodes}, free_resources(state.nodes, ())
    largest: dict[Kind, float] = {}  # memory of the largest GPU that may be used; -1 without one
    for kind in {_kind(pod) for pod, _ in advised}:
        admitting = {n for n, node in nodes.items() if full[n].fits(kind.wanted) and admits(node, kind.wanted)}
        memories = [
            math.inf if math.isnan(gpu.memory_bytes) else gpu.memory_bytes
            for gpu in state.gpus
            if gpu.source is kind.source and gpu.node in admitting
            if kind.may_use(gpu, requests(gpu), in_use=False)
        ]
        largest[kind] = max(memories, default=-1.0)
    return {pod.uid for pod, job in advised if largest[_kind(pod)] < 0 or job.memory_peak_bytes > largest[_kind(pod)]}


# --- memory oversubscription ------------------------------------------------------------------------------------------


def _oversubscribed(
    devices: Iterable[Device], gpus: Iterable[Gpu], nodes: Iterable[Node], settings: KubernetesSettings
) -> tuple[Device, ...]:
    """Return the devices, those that grant more than their memory with their ratio and the host memory behind it."""
    may_exceed, node_of = {gpu.id for gpu in gpus if _may_exceed(gpu)}, {node.name: node for node in nodes}
    return tuple(
        _with_ratio(device, node_of[device.node], settings)
        if device.id in may_exceed and device.granule_bytes > 0 and device.node in node_of
        else device
        for device in devices
    )


def _without_reserves(nodes: Iterable[Node], gpus: Iterable[Gpu], settings: KubernetesSettings) -> tuple[Node, ...]:
    """Return the nodes without the host memory that they reserve for their GPUs."""
    gpu_of: Mapping[str, Gpu] = {gpu.node: gpu for gpu in gpus if _may_exceed(gpu)}
    return tuple(
        replace(node, memory_bytes=node.memory_bytes - _reserve_bytes(gpu_of[node.name], node, settings))
        if node.name in gpu_of and settings.grants_memory
        else node
        for node in nodes
    )


def _may_exceed(gpu: Gpu) -> bool:
    return gpu.source is GpuSource.NODE and gpu.siblings == 1 and gpu.memory_bytes > 0


def _reserve_bytes(gpu: Gpu, node: Node, settings: KubernetesSettings) -> float:
    device = _with_ratio(Device(id=gpu.id, type=gpu.type, memory_bytes=gpu.memory_bytes), node, settings)
    return device.host_reserve_bytes if device.oversubscription_ratio > 1 else 0.0


def _with_ratio(device: Device, node: Node, settings: KubernetesSettings) -> Device:
    """Return a device with the ratio of its node, and with what the node can reserve of what that needs."""
    ratio = node.oversubscription_ratio if node.oversubscription_ratio >= 1 else settings.oversubscription_ratio
    if ratio <= 1:
        return device
    allowed_bytes = node.host_reserve_bytes if node.host_reserve_bytes >= 0 else settings.host_reserve_gib * GIB
    limits = [limit for limit in (allowed_bytes, node.memory_bytes) if limit >= 0]  # an absent one is NaN
    needed_bytes = (ratio - 1.0) * device.memory_bytes
    (backed,) = host_reserves([replace(device, oversubscription_ratio=ratio)], min([needed_bytes, *limits]))
    return backed
