"""The cluster as one snapshot for `Match`. Pure functions.

Law: a seat is offered once. A pod that was placed counts as a resident of its GPU until it is bound or has lost it.
Law: a GPU on which a pod of unknown workload runs is not offered.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError
from interfere.records import NAN, Device, Job, Snapshot
from interfere.records.cluster import DEFAULT_SEATS, HIGHEST_PRIORITY
from serving.adapters.kubernetes import names
from serving.adapters.kubernetes.constraints import free_resources, pools
from serving.adapters.kubernetes.records import Claim, ClusterState, Gpu, GpuSource, Pod, PodState
from serving.adapters.kubernetes.settings import GIB, KubernetesSettings, Mode

ONLY_TO_GATE = ("claim template", "other gates", "other scheduler")  # what would have been best is said all the same
MAX_PAIRS = 900_000  # possible pairs in one request: the server accepts a million


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The decision problem of one moment."""

    snapshot: Snapshot | None  # None when nothing can be decided
    candidates: tuple[Pod, ...]  # pending in the snapshot
    behind: tuple[Pod, ...]  # advised pods too far behind in the queue for the free seats
    left_to_kubernetes: Counter[str]  # number of pending pods that are not advised, by reason
    gpus: dict[str, Gpu]  # the GPUs of the snapshot, by id


def is_placed(pod: Pod, now_s: float, settings: KubernetesSettings) -> bool:
    """Whether the pod was placed and may be bound at any moment."""
    placed = pod.pending and not pod.gated and pod.note(names.STATE) == PodState.PLACED
    return placed and now_s - number(pod.note(names.DECIDED_AT)) < settings.start_s


def place_of(pod: Pod, claim: Claim | None, gpus: dict[tuple[str, ...], Gpu]) -> Gpu | None:
    """The GPU that a pod holds: by its claim's allocation, by HAMi's annotation, or the only one of its node."""
    if claim is not None and claim.devices:
        return gpus.get(claim.devices[0])
    if pod.node and pod.note(names.HAMI_ALLOCATED):
        uuid = pod.note(names.HAMI_ALLOCATED).lstrip(";").partition(",")[0].rpartition(":")[2]
        return gpus.get((pod.node, uuid))
    if pod.node and pod.source is GpuSource.HAMI and pod.note(names.HAMI_USE):
        return gpus.get((pod.node, pod.note(names.HAMI_USE)))
    return gpus.get((pod.node, "gpu-0")) if pod.node and pod.source is GpuSource.NODE else None


def gpu_index(gpus: Iterable[Gpu]) -> dict[tuple[str, ...], Gpu]:
    """GPUs by (driver, pool, device) where a ResourceSlice names them, and by (node, uuid)."""
    index: dict[tuple[str, ...], Gpu] = {}
    for gpu in gpus:
        index[gpu.node, gpu.uuid] = gpu
        if gpu.source is GpuSource.DRA:
            index[gpu.driver, gpu.dra_pool, gpu.dra_name] = gpu
    return index


def build(
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str] = frozenset()
) -> ClusterView:
    """The decision problem now. `hypothetical`: uids of bound pods that are treated as if they were still pending, to
    say where they would have been placed."""
    # 1. Who may be advised.
    claims, left, default_bytes = state.claims_by_key, Counter[str](), default_claim_bytes(state.gpus)
    advised: list[tuple[Pod, Job]] = []
    for pod in state.pods:
        if not (pod.pending or pod.uid in hypothetical) or not pod.workload or is_placed(pod, now_s, settings):
            continue
        reason = exclusion_reason(pod, claims.get(f"{pod.namespace}/{pod.claim}"), settings, now_s)
        record = None if reason else job_record(pod, default_bytes, now_s, settings)
        if record is None:
            left[reason or "annotations"] += 1
        else:
            advised.append((pod, record))
    advised.sort(key=lambda pair: (-pair[0].priority, pair[0].created_s, pair[0].id))
    # 2. The devices that have a free seat, and their residents.
    nameable = {node.name for node in state.nodes if dict(node.labels).get(names.HOSTNAME)}
    devices = [
        (gpu, residents)
        for gpu, residents in offered_gpus(state, settings, now_s, hypothetical)
        if gpu.source is GpuSource.DRA or gpu.node in nameable  # a nodeSelector names the node by its label
    ]
    # 3. Nodes of each pod as pools of devices.
    free = free_resources(state.nodes, (pod for pod in state.pods if pod.uid not in hypothetical))
    pool_of, allowed = pools(
        ((pod.source, pod.constraints) for pod, _ in advised), state.nodes, (gpu for gpu, _ in devices), free
    )
    fitting = [(pod, _in_pools(job, allowed[pod.source, pod.constraints])) for pod, job in advised]
    left["no node admits it"] += sum(job is None for _, job in fitting)
    able = [(pod, job) for pod, job in fitting if job is not None]
    # 4. As many pods as may be decided at once.
    seats = sum(gpu.seats - len(residents) for gpu, residents in devices)
    horizon = min(seats * settings.lookahead, _most_pods(sum(len(residents) == 1 for _, residents in devices)))
    candidates, behind = able[: max(0, horizon)], able[max(0, horizon) :]
    snapshot = None
    if candidates:
        snapshot = Snapshot(
            pending=tuple(job for _, job in candidates),
            devices=tuple(
                Device(
                    id=gpu.id,
                    type=gpu.type,
                    node=gpu.node,
                    memory_bytes=gpu.memory_bytes,
                    mode=gpu.mode,
                    residents=residents,
                    seats=None if gpu.seats == DEFAULT_SEATS else gpu.seats,
                    pool=pool_of.get((gpu.node, gpu.source), "none"),
                )
                for gpu, residents in devices
            ),
            scope=settings.cluster,
        )
    return ClusterView(
        snapshot=snapshot,
        candidates=tuple(pod for pod, _ in candidates),
        behind=tuple(pod for pod, _ in behind) + tuple(pod for pod, job in fitting if job is None),
        left_to_kubernetes=+left,
        gpus={gpu.id: gpu for gpu, _ in devices},
    )


def _most_pods(singles: int) -> int:
    """The largest n whose pairs, with one another and with the residents of half-full GPUs, fit into one request:
    n²/2 + n * singles ≤ MAX_PAIRS."""
    return int(math.sqrt(singles**2 + 2 * MAX_PAIRS)) - singles


def exclusion_reason(pod: Pod, claim: Claim | None, settings: KubernetesSettings, now_s: float) -> str:
    """Why a pod with a workload is not advised; empty where it is."""
    gating = settings.mode is Mode.GATE
    is_fixed = not pod.gated and (pod.source is not GpuSource.DRA or claim is None or claim.reserved)
    checks = {
        "opted out": pod.note(names.OPT_OUT) == "true",
        pod.special: bool(pod.special) and (gating or pod.special not in ONLY_TO_GATE),
        "own claim": gating and claim is not None and not claim.ours,
        "claim of another pod": gating and claim is not None and claim.owner_uid not in ("", pod.uid),
        "claim in use": gating and claim is not None and claim.reserved,
        "tried too often": gating and number(pod.note(names.TRIES)) >= settings.most_tries,
        "not gated": gating and is_fixed,  # its place can no longer be changed
        "window over": gating and pod.gated and now_s - pod.created_s >= settings.window_s,
    }
    return next((reason for reason, holds in checks.items() if holds), "")


def offered_gpus(
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str] = frozenset()
) -> list[tuple[Gpu, tuple[Job, ...]]]:
    """The GPUs with a free seat, and the jobs on each."""
    claims, index = state.claims_by_key, gpu_index(state.gpus)
    usable = {node.name for node in state.nodes if node.usable}
    by_id, default_bytes = {gpu.id: gpu for gpu in state.gpus}, default_claim_bytes(state.gpus)
    pods_on: dict[str, list[Pod]] = {}
    unclear: set[tuple[str, GpuSource]] = set()  # nodes where a pod holds an unknown GPU
    explained: set[str] = set()  # claims of one device, of pods that are known
    for pod in state.pods:
        claim = claims.get(f"{pod.namespace}/{pod.claim}") if pod.claim else None
        if claim is not None and (len(claim.devices) == 1 or pod.ended):
            explained.add(claim.key)
        if pod.uid in hypothetical or pod.ended:
            continue
        gpu = place_of(pod, claim, index)
        if gpu is not None:
            pods_on.setdefault(gpu.id, []).append(pod)
        elif pod.node and pod.source in (GpuSource.HAMI, GpuSource.NODE):
            unclear.add((pod.node, pod.source))
        elif is_placed(pod, now_s, settings) and pod.note(names.DEVICE) in by_id:
            pods_on.setdefault(pod.note(names.DEVICE), []).append(pod)
    taken = _taken(state, index, explained)
    devices = []
    for gpu in state.gpus:
        residents = [job_record(pod, default_bytes, now_s, settings) for pod in pods_on.get(gpu.id, ())]
        known = all(residents) and len(residents) < gpu.seats and (gpu.node, gpu.source) not in unclear
        if gpu.node in usable and known and gpu.id not in taken:
            devices.append((gpu, tuple(resident for resident in residents if resident)))
    return devices


def _taken(state: ClusterState, index: dict[tuple[str, ...], Gpu], explained: set[str]) -> set[str]:
    """GPUs that are allocated to claims of several devices, or of pods that nobody knows."""
    unexplained = [claim for claim in state.claims if claim.key not in explained]
    return {index[device].id for claim in unexplained for device in claim.devices if device in index}


def default_claim_bytes(gpus: Iterable[Gpu]) -> float:
    """Memory that a claim asks for where its pod names none: a seat's share of the smallest GPU, so that all seats of
    every GPU can be taken. NaN where no ResourceSlice states the memory."""
    shares = [gpu.share_bytes for gpu in gpus if gpu.source is GpuSource.DRA]
    return min((share for share in shares if not math.isnan(share)), default=NAN)


def memory_bytes(pod: Pod, default_bytes: float) -> float:
    """Device memory of a pod: as annotated, as HAMi grants it, as its claim will ask for. Raises ValueError."""
    if pod.note(names.MEMORY_GIB):
        return float(pod.note(names.MEMORY_GIB)) * GIB
    return default_bytes if pod.source is GpuSource.DRA else pod.hami_memory_bytes


def job_record(pod: Pod, default_bytes: float, now_s: float, settings: KubernetesSettings) -> Job | None:
    """The pod as a job; None where it names no valid workload."""
    cap = pod.note(names.MAX_SLOWDOWN)
    level = min(HIGHEST_PRIORITY, int(pod.priority // settings.priority_unit)) if settings.priority_unit else 0
    try:
        return Job(
            id=pod.id,
            workload=pod.workload,
            memory_peak_bytes=memory_bytes(pod, default_bytes),
            max_slowdown=float(cap) if cap else NAN,
            priority=max(0, level),
            elapsed_s=max(0.0, now_s - pod.created_s) if pod.created_s else NAN,
        )
    except (InvalidInputError, ValueError):
        return None


def _in_pools(job: Job, allowed: tuple[str, ...]) -> Job | None:
    return replace(job, pools=allowed) if allowed else None


def number(text: str) -> float:
    """A number that the adapter wrote; 0 for anything else."""
    try:
        return float(text)
    except ValueError:
        return 0.0
