"""The cluster as one snapshot for `Match`, and what of its plan the nodes have room for. Pure functions."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from interfere.records import Action, ActionKind, Device, Job, Snapshot
from interfere.records.cluster import DEFAULT_SEATS
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.constraints import FreeResources, free_resources, pools
from interfere.serving.adapters.kubernetes.offers import default_share, is_placed, job_record, number, offered_gpus
from interfere.serving.adapters.kubernetes.records import Claim, ClusterState, Gpu, GpuSource, Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode

ONLY_TO_GATE = ("claim template", "other gates", "other scheduler")  # what would have been best is said all the same
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)
MAX_PAIRS = 900_000  # possible pairs in one request: the server accepts a million


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The decision problem of one moment."""

    snapshot: Snapshot | None  # None when nothing can be decided
    candidates: tuple[Pod, ...]  # pending in the snapshot
    behind: tuple[Pod, ...]  # advised pods too far behind in the queue for the free seats
    left_to_kubernetes: Counter[str]  # number of pending pods that are not advised, by reason
    gpus: dict[str, Gpu]  # the GPUs of the snapshot, by id
    free: Mapping[str, FreeResources]  # what each node can still take


def _node_of(pod: Pod, now_s: float, settings: KubernetesSettings) -> str:
    """The node that a pod is on, or was sent to."""
    return pod.note(names.DEVICE).partition("/")[0] if is_placed(pod, now_s, settings) else pod.node


def within_free_resources(problem: ClusterView, actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions, of which those wait whose node has no CPU or host memory left beside the pods that the actions
    before them send there: matching knows GPUs alone, and a nodeSelector cannot be taken back."""
    free, pods = dict(problem.free), {pod.id: pod for pod in problem.candidates}
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
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str] = frozenset()
) -> ClusterView:
    """The decision problem now. `hypothetical`: uids of bound pods that are treated as if they were still pending, to
    say where they would have been placed."""
    # 1. Who may be advised.
    claims, left, default_bytes = state.claims_by_key, Counter[str](), default_share(state.gpus).bytes
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
    taken = (pod for pod in state.pods if pod.uid not in hypothetical and not pod.ended)
    free = free_resources(state.nodes, ((_node_of(pod, now_s, settings), pod.constraints) for pod in taken))
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
        free=free,
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


def _in_pools(job: Job, allowed: tuple[str, ...]) -> Job | None:
    return replace(job, pools=allowed) if allowed else None
