"""The cluster as one decision problem: the GPUs with a free seat, the jobs on each, and the pods to decide.

Pure functions.

Law: a seat is offered once. A pod that was placed counts as a resident of its GPU until it is bound or has lost it.
Law: a GPU on which a pod of unknown workload runs is not offered.
Law: a claim holds its devices until its allocation is gone, also after its pod has ended, as kube-scheduler counts.
Law: a device that a claim holds of which no known pod explains the use has an unknown resident.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from interfere.records import NAN, Action, ActionKind, Device, Job, Snapshot
from interfere.records.cluster import DEFAULT_SEATS
from interfere.serving.adapters import problem as shared
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.claims import claim_sizes, memory_bytes
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
from interfere.serving.adapters.kubernetes.records import (
    AllocatedDevice,
    Claim,
    ClusterState,
    DeviceRequest,
    Gpu,
    GpuSource,
    Pod,
    PodState,
    SharedCounter,
)
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.problem import STARTS, Problem, first_reason, horizon

ONLY_TO_GATE = ("claim template", "other gates", "other scheduler")  # what would have been best is said all the same
INVALID = f"its annotations {names.PREFIX}* are not valid"
SEVERAL = "a claim of several devices"
CLAIM_GRACE_S = 10.0  # after which a claim that a pod names, and nobody has made, is made
NOT_GIVEN = "cannot allocate all claims"  # as kube-scheduler says it of a pod
NOT_GIVEN_S = 10.0  # in which kube-scheduler looks at a pod that lost its gate, and sees its claim
_TIMES = (names.MAX_WAIT_S, names.REMAINING_S, names.CHECKPOINT_S)  # annotations that are positive numbers
DeviceKey = tuple[str, str, str]  # driver, pool, name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProblem(Problem[Pod]):
    """The decision problem of a cluster at one moment."""

    gpus: dict[str, Gpu]  # the GPUs of the snapshot, by id
    residents: dict[str, tuple[Job, ...]]  # of each of them
    free: Mapping[str, FreeResources]  # what each node can still take
    unadmitted: tuple[Pod, ...]  # that no node with a free seat admits now
    impossible: tuple[Pod, ...]  # that no GPU of the cluster could take if it were empty
    default_bytes: float  # memory of a pod that names none


def _node_of(pod: Pod, now_s: float, settings: KubernetesSettings) -> str:
    """Return the node that a pod runs on, or that it was sent to."""
    return pod.note(names.DEVICE).partition("/")[0] if is_placed(pod, now_s, settings) else pod.node


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
    claims, left, default_bytes = state.claims_by_key, Counter[str](), claim_sizes(state.gpus).seat_bytes
    advised: list[tuple[Pod, Job]] = []
    for pod in state.pods:
        if not (pod.pending or pod.uid in hypothetical) or not pod.workload or is_placed(pod, now_s, settings):
            continue
        reason = exclusion_reason(pod, claims.get(pod.claim_key), settings, now_s)
        record = None if reason else job_record(pod, default_bytes, now_s, settings)
        if record is None:
            left[reason or INVALID] += 1
        else:
            advised.append((pod, record))
    selected = _Selected(state, refused, read_allocations(state, hypothetical).consumed)
    impossible = _impossible(advised, state, _Selected(state)) if settings.mode is Mode.GATE else set[str]()
    possible = [(pod, job) for pod, job in advised if pod.uid not in impossible]
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].created_s, pair[0].id))
    # 2. The devices that have a free seat, and their residents.
    nameable = {node.name for node in state.nodes if dict(node.labels).get(names.HOSTNAME)}
    devices = [
        (gpu, residents)
        for gpu, residents in offered_gpus(state, settings, now_s, hypothetical)
        if gpu.source is GpuSource.DRA or gpu.node in nameable  # a nodeSelector names the node by its label
    ]
    # 3. Nodes of each pod as pools of devices.
    taken = (pod for pod in state.pods if pod.uid not in hypothetical and not pod.ended)
    free = free_resources(state.nodes, ((_node_of(pod, now_s, settings), pod.constraints) for pod in taken))
    pool_of, allowed = pools(
        (_kind(pod) for pod, _ in possible),
        state.nodes,
        ((gpu, bool(residents)) for gpu, residents in devices),
        free,
        selected.requests,
    )
    pooled = [(pod, replace(job, pools=allowed[_kind(pod)])) for pod, job in possible]
    able = [(pod, job) for pod, job in pooled if job.pools]
    left["no node admits it"] += len(pooled) - len(able)
    # 4. As many pods as may be decided at once.
    records = tuple(device_record(gpu, residents, pool_of.get(gpu.id, "none")) for gpu, residents in devices)
    number_decided = horizon(records, settings)
    candidates, behind = able[:number_decided], able[number_decided:]
    snapshot = None
    if candidates:
        snapshot = Snapshot(
            pending=tuple(job for _, job in candidates),
            devices=records,
            scope=settings.cluster,
            now_s=now_s if settings.evicts else NAN,
        )
    return ClusterProblem(
        snapshot=snapshot,
        candidates=tuple(pod for pod, _ in candidates),
        behind=tuple(pod for pod, _ in behind),
        unadmitted=tuple(pod for pod, job in pooled if not job.pools),
        impossible=tuple(pod for pod, _ in advised if pod.uid in impossible),
        default_bytes=default_bytes,
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


class _Selected:
    """Which requests of a cluster's pods select which GPUs, each pair looked at once."""

    def __init__(
        self,
        state: ClusterState,
        refused: Collection[tuple[str, DeviceRequest]] = (),
        consumed: Mapping[DeviceKey, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        self._classes, self._refused, self._consumed = state.classes, refused, consumed
        self._requests = tuple(dict.fromkeys(pod.request for pod in state.pods if pod.request is not None))
        self._known: dict[str, frozenset[DeviceRequest]] = {}

    def requests(self, gpu: Gpu) -> frozenset[DeviceRequest]:
        """Return the requests that a GPU of a ResourceSlice may be given for."""
        if gpu.source is not GpuSource.DRA:
            return frozenset()
        if gpu.id not in self._known:
            self._known[gpu.id] = frozenset(each for each in self._requests if self._selects(each, gpu))
        return self._known[gpu.id]

    def _selects(self, request: DeviceRequest, gpu: Gpu) -> bool:
        of_class = self._classes.get(request.device_class)
        if of_class is None or (gpu.id, request) in self._refused:
            return False
        if not all(tolerated(*taint, request.tolerations) for taint in gpu.taints):
            return False
        if not _has_capacities(gpu, request, self._consumed.get(gpu.key, {})):
            return False
        return selects((*of_class, *request.selectors), gpu.variable)


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


def _impossible(advised: Iterable[tuple[Pod, Job]], state: ClusterState, selected: _Selected) -> set[str]:
    """Return the uids of the pods that no GPU of the cluster could take if it were empty."""
    nodes, full = {node.name: replace(node, usable=True) for node in state.nodes}, free_resources(state.nodes, ())
    largest: dict[Kind, float] = {}  # memory of the largest GPU that may be used; -1 without one
    for kind in {_kind(pod) for pod, _ in advised}:
        admitting = {n for n, node in nodes.items() if full[n].fits(kind.wanted) and admits(node, kind.wanted)}
        memories = [
            math.inf if math.isnan(gpu.memory_bytes) else gpu.memory_bytes
            for gpu in state.gpus
            if gpu.source is kind.source and gpu.node in admitting
            if kind.may_use(gpu, selected.requests(gpu), in_use=False)
        ]
        largest[kind] = max(memories, default=-1.0)
    return {pod.uid for pod, job in advised if largest[_kind(pod)] < 0 or job.memory_peak_bytes > largest[_kind(pod)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The capacities that claims hold, by device."""

    consumed: Mapping[DeviceKey, Mapping[str, float]]  # of each capacity, in all
    ended: Mapping[DeviceKey, tuple[AllocatedDevice, ...]]  # held for pods that have ended
    unknown: frozenset[DeviceKey]  # held by claims of several devices, or of pods that nobody knows


def read_allocations(state: ClusterState, ignored: Collection[str] = frozenset()) -> Allocations:
    """Return the allocations of all claims, except those of pods whose uids are in `ignored`."""
    running, ended, left_out = set[str](), set[str](), set[str]()
    for pod in state.pods:
        if pod.claim:
            claims = left_out if pod.uid in ignored else ended if pod.ended else running
            claims.add(pod.claim_key)
    amounts_of: dict[DeviceKey, Counter[str]] = {}
    of_ended: dict[DeviceKey, list[AllocatedDevice]] = {}
    unknown = set[DeviceKey]()
    for claim in state.claims:
        if claim.key in left_out - running:
            continue
        for device in claim.devices:
            amounts = amounts_of.setdefault(device.key, Counter())
            for name, amount in device.consumed:
                amounts[name] += amount  # type: ignore[assignment]  # a Counter of floats
            if claim.key in ended - running:
                of_ended.setdefault(device.key, []).append(device)
            elif claim.key not in running or len(claim.devices) > 1:
                unknown.add(device.key)
    return Allocations(
        consumed=amounts_of,
        ended={key: tuple(devices) for key, devices in of_ended.items()},
        unknown=frozenset(unknown),
    )


def is_placed(pod: Pod, now_s: float, settings: KubernetesSettings) -> bool:
    """Whether the pod was placed and may be bound at any moment."""
    placed = pod.pending and not pod.gated and pod.note(names.STATE) == PodState.PLACED
    is_due = now_s - number(pod.note(names.DECIDED_AT)) < settings.start_s
    return placed and is_due and not is_refused(pod, now_s, settings)


def is_refused(pod: Pod, now_s: float, settings: KubernetesSettings) -> bool:
    """Whether kube-scheduler says that it does not give the pod the device that its claim selects.

    What it said of an earlier claim may still stand there when a pod was placed anew: then it has `start_s`.
    """
    since_s = now_s - number(pod.note(names.DECIDED_AT))
    patience_s = NOT_GIVEN_S if number(pod.note(names.TRIES)) <= 1 else settings.start_s
    waits = pod.pending and not pod.gated and pod.note(names.STATE) == PodState.PLACED
    return waits and NOT_GIVEN in pod.unschedulable and since_s >= min(settings.start_s, patience_s)


def place_of(pod: Pod, claim: Claim | None, gpus: dict[tuple[str, ...], Gpu]) -> Gpu | None:
    """Return the GPU that a pod holds: the GPU of its claim, or of HAMi's annotation, or the only GPU of its node; None
    where the GPU is unknown."""
    if claim is not None and claim.devices:
        return gpus.get(claim.devices[0].key)
    if pod.node and pod.note(names.HAMI_ALLOCATED):
        uuid = pod.note(names.HAMI_ALLOCATED).lstrip(";").partition(",")[0].rpartition(":")[2]
        return gpus.get((pod.node, uuid))
    if pod.node and pod.source is GpuSource.HAMI and pod.note(names.HAMI_USE):
        return gpus.get((pod.node, pod.note(names.HAMI_USE)))
    gpu = gpus.get((pod.node, "gpu-0")) if pod.node and pod.source is GpuSource.NODE else None
    return gpu if gpu is not None and gpu.siblings == 1 else None


def gpu_index(gpus: Iterable[Gpu]) -> dict[tuple[str, ...], Gpu]:
    """Return the GPUs by (node, uuid), and those of ResourceSlices by (driver, pool, device) too."""
    index: dict[tuple[str, ...], Gpu] = {}
    for gpu in gpus:
        index[gpu.node, gpu.uuid] = gpu
        if gpu.source is GpuSource.DRA:
            index[gpu.key] = gpu
    return index


def offered_gpus(
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str] = frozenset()
) -> list[tuple[Gpu, tuple[Job, ...]]]:
    """Return the GPUs with a free seat, reduced to their free capacity, and the jobs on each GPU."""
    usable = {node.name for node in state.nodes if node.usable}
    default_bytes, held = claim_sizes(state.gpus).seat_bytes, read_allocations(state, hypothetical)
    pods_on, unclear = _pods_by_gpu(state, settings, now_s, hypothetical)
    offered: list[tuple[Gpu, tuple[Job, ...]]] = []
    for gpus, on_node in _nodes_of_several(state, settings, now_s, hypothetical):
        if gpus[0].node in usable:
            jobs = [job_record(pod, default_bytes, now_s, settings) for pod in on_node]
            offered += _kubelets_choice(gpus, on_node, jobs)
    for gpu in (gpu for gpu in state.gpus if gpu.siblings == 1):
        pods = pods_on.get(gpu.id, [])
        residents = [_resident(pod, gpu, claim, default_bytes, now_s, settings) for pod, claim in pods]
        unknown = gpu.key in held.unknown or (gpu.node, gpu.source) in unclear or not all(residents)
        if gpu.node not in usable or unknown:
            continue
        rest = _remaining(gpu, held, len(residents), sum(claim is None or not claim.devices for _, claim in pods))
        if rest is not None and len(residents) < rest.seats:
            offered.append((rest, tuple(resident for resident in residents if resident)))
    in_use = {*held.consumed, *(gpu.key for gpu in state.gpus if gpu.id in pods_on)}
    return _with_counters(offered, in_use)


def _nodes_of_several(
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str]
) -> Iterator[tuple[list[Gpu], list[Pod]]]:
    """Yield the nodes on which the kubelet chooses among several GPUs: their GPUs, and the pods that have one or were
    sent there. A node with a pod of several GPUs is left out: which of them are left is not known."""
    gpus_on: dict[str, list[Gpu]] = {}
    for gpu in (gpu for gpu in state.gpus if gpu.siblings > 1):
        gpus_on.setdefault(gpu.node, []).append(gpu)
    pods_on: dict[str, list[Pod]] = {node: [] for node in gpus_on}
    for pod in state.pods if gpus_on else ():
        node = _node_of(pod, now_s, settings)
        if node in pods_on and pod.source is GpuSource.NODE and not pod.ended and pod.uid not in hypothetical:
            pods_on[node].append(pod)
    for node, gpus in gpus_on.items():
        if not any("several GPUs" in pod.all_special for pod in pods_on[node]):
            yield gpus, pods_on[node]


def _kubelets_choice(
    gpus: Sequence[Gpu], pods: Sequence[Pod], jobs: Sequence[Job | None]
) -> Iterator[tuple[Gpu, tuple[Job, ...]]]:
    """Yield the seats that a node offers to one more pod when the kubelet, not we, chooses the GPU.

    The device plugin gives the GPU that the fewest pods share. So with fewer pods than GPUs an idle one is sure, and
    each counts as one seat. Otherwise a pod joins as many others as the least shared GPU has, and which ones is not
    known: those of the most frequent workloads stand for them, with the memory of the largest. No company is offered
    where a pod of the node has a cap, or says not what it runs.
    Source: NVIDIA/k8s-device-plugin, internal/rm/allocate.go, distributedAlloc.
    """
    on_each, left = divmod(len(pods), len(gpus))
    free = list(gpus[left:])
    if not on_each:
        yield from ((replace(gpu, seats=1), ()) for gpu in free)
        return
    known = [job for job in jobs if job is not None]
    if on_each >= gpus[0].seats or len(known) < len(jobs) or any(pod.note(names.MAX_SLOWDOWN) for pod in pods):
        return
    often, largest_bytes = Counter(job.workload for job in known), max(job.memory_peak_bytes for job in known)
    ordered = sorted(known, key=lambda job: (-often[job.workload], job.workload, job.id))
    for k, gpu in enumerate(free):
        company = ordered[k * on_each : (k + 1) * on_each]
        residents = tuple(replace(job, memory_peak_bytes=largest_bytes) for job in company)
        yield replace(gpu, seats=on_each + 1), residents


def device_record(gpu: Gpu, residents: tuple[Job, ...], pool: str = "") -> Device:
    """Return a GPU with a free seat as a device of a decision problem."""
    return Device(
        id=gpu.id,
        type=gpu.type,
        node=gpu.node,
        memory_bytes=gpu.memory_bytes,
        mode=gpu.mode,
        residents=residents,
        seats=None if gpu.seats == DEFAULT_SEATS else gpu.seats,
        pool=pool,
    )


def _pods_by_gpu(
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str]
) -> tuple[dict[str, list[tuple[Pod, Claim | None]]], set[tuple[str, GpuSource]]]:
    """Return the pods on each GPU with their claims, and the (node, source) pairs where a pod holds an unknown GPU."""
    claims, index = state.claims_by_key, gpu_index(state.gpus)
    ids = {gpu.id for gpu in state.gpus}
    pods_on: dict[str, list[tuple[Pod, Claim | None]]] = {}
    unclear: set[tuple[str, GpuSource]] = set()
    for pod in state.pods:
        if pod.uid in hypothetical or pod.ended:
            continue
        claim = claims.get(pod.claim_key)
        gpu = place_of(pod, claim, index)
        if gpu is not None:
            pods_on.setdefault(gpu.id, []).append((pod, claim))
        elif pod.node and pod.source in (GpuSource.HAMI, GpuSource.NODE):
            unclear.add((pod.node, pod.source))
        elif is_placed(pod, now_s, settings) and pod.note(names.DEVICE) in ids:
            pods_on.setdefault(pod.note(names.DEVICE), []).append((pod, claim))
    return pods_on, unclear


def _resident(
    pod: Pod, gpu: Gpu, claim: Claim | None, default_bytes: float, now_s: float, settings: KubernetesSettings
) -> Job | None:
    """Return the job of a pod on a GPU, with at least the memory that its claim holds; None where its annotations
    are invalid."""
    job = job_record(pod, default_bytes, now_s, settings)
    amounts = dict(claim.devices[0].consumed) if claim is not None and claim.devices else {}
    held_bytes = amounts.get(gpu.memory_name.rpartition("/")[2], NAN)
    if job is None or math.isnan(held_bytes) or held_bytes <= job.memory_peak_bytes:
        return job
    return replace(job, memory_peak_bytes=held_bytes)


def _remaining(gpu: Gpu, held: Allocations, residents: int, unallocated: int) -> Gpu | None:
    """Return the GPU reduced by the capacity that claims of ended pods still hold, with the seats that its capacities
    allow.

    None where nothing is left. `unallocated`: residents whose claims are not allocated yet.
    """
    ended = held.ended.get(gpu.key, ())
    seats, memory_name = gpu.seats - len(ended), gpu.memory_name.rpartition("/")[2]
    memory_bytes = gpu.memory_bytes - sum(dict(device.consumed).get(memory_name, 0.0) for device in ended)
    amounts = held.consumed.get(gpu.key, {})
    for capacity in gpu.other_capacities:
        if capacity.per_claim > 0:
            free = capacity.value - amounts.get(capacity.name, 0.0) - unallocated * capacity.per_claim
            seats = min(seats, residents + max(0, math.floor(free / capacity.per_claim)))
    if seats < 1 or memory_bytes < 1:
        return None
    return gpu if seats == gpu.seats and not ended else replace(gpu, seats=seats, memory_bytes=memory_bytes)


def _with_counters(
    offered: list[tuple[Gpu, tuple[Job, ...]]], in_use: set[DeviceKey]
) -> list[tuple[Gpu, tuple[Job, ...]]]:
    """Return the devices that can be allocated together with those in use, where partitions of one GPU share counters.

    Devices in use come first, then those with most memory.
    """
    chosen, taken = set[str](), set(in_use)
    for gpu, _ in sorted(offered, key=lambda pair: (pair[0].key not in in_use, -pair[0].memory_bytes)):
        if gpu.key in in_use or all(_is_left(counter, gpu, taken) for counter in gpu.counters):
            chosen.add(gpu.id)
            taken.add(gpu.key)
    return [pair for pair in offered if pair[0].id in chosen]


def _is_left(counter: SharedCounter, gpu: Gpu, taken: Collection[DeviceKey]) -> bool:
    others = (amount for name, amount in counter.others if (gpu.driver, gpu.dra_pool, name) in taken)
    return counter.amount <= counter.value - sum(others)


def job_record(pod: Pod, default_bytes: float, now_s: float, settings: KubernetesSettings) -> Job | None:
    """Return a pod as a job; None where its workload or another annotation is invalid."""
    if pod.note(names.DEVICE_CLASS) and not names.is_subdomain(pod.note(names.DEVICE_CLASS)):
        return None
    if any(pod.note(name) and not number(pod.note(name)) > 0 for name in _TIMES):
        return None
    remaining_s, checkpoint_s = _stop_times(pod, now_s) if settings.evicts else (NAN, NAN)
    try:
        wanted_bytes = memory_bytes(pod, default_bytes)
    except ValueError:
        return None
    return shared.job_record(
        pod,
        settings,
        now_s,
        priority=pod.priority,
        submitted_s=pod.created_s,
        memory_bytes=wanted_bytes,
        max_slowdown=pod.note(names.MAX_SLOWDOWN),
        remaining_s=remaining_s,
        checkpoint_s=checkpoint_s,
        since_s=pod.started_s if settings.evicts and pod.started_s else NAN,
    )


def _stop_times(pod: Pod, now_s: float) -> tuple[float, float]:
    """Return the remaining time of a pod and the cost of stopping it; NaN unless its annotations state both."""
    if not (pod.note(names.REMAINING_S) and pod.note(names.CHECKPOINT_S)):
        return NAN, NAN
    elapsed_s = now_s - pod.started_s if pod.started_s else 0.0
    return max(1.0, number(pod.note(names.REMAINING_S)) - elapsed_s), number(pod.note(names.CHECKPOINT_S))


def number(text: str) -> float:
    """Return a number that the adapter wrote into an annotation; 0 for any other text."""
    try:
        return float(text)
    except ValueError:
        return 0.0
