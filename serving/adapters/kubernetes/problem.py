"""The cluster as one snapshot for `Match`, and what of its plan the nodes have room for. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from interfere.records import Action, ActionKind, Job, Snapshot
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.constraints import FreeResources, free_resources, pools
from interfere.serving.adapters.kubernetes.offers import (
    default_share,
    device_record,
    is_placed,
    job_record,
    number,
    offered_gpus,
)
from interfere.serving.adapters.kubernetes.records import Claim, ClusterState, Gpu, GpuSource, Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.problem import STARTS, Problem, first_reason, horizon

ONLY_TO_GATE = ("claim template", "other gates", "other scheduler")  # what would have been best is said all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProblem(Problem[Pod]):
    """The decision problem of one moment."""

    gpus: dict[str, Gpu]  # the GPUs of the snapshot, by id
    free: Mapping[str, FreeResources]  # what each node can still take


def _node_of(pod: Pod, now_s: float, settings: KubernetesSettings) -> str:
    """The node that a pod is on, or was sent to."""
    return pod.note(names.DEVICE).partition("/")[0] if is_placed(pod, now_s, settings) else pod.node


def within_free_resources(problem: ClusterProblem, actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions, of which those wait whose node has no CPU or host memory left beside the pods that the actions
    before them send there: matching knows GPUs alone, and a nodeSelector cannot be taken back."""
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
    state: ClusterState, settings: KubernetesSettings, now_s: float, hypothetical: frozenset[str] = frozenset()
) -> ClusterProblem:
    """The decision problem now. `hypothetical`: uids of bound pods that are treated as if they were still pending, to
    say where they would have been placed."""
    # 1. Who may be advised.
    claims, left, default_bytes = state.claims_by_key, Counter[str](), default_share(state.gpus).bytes
    advised: list[tuple[Pod, Job]] = []
    for pod in state.pods:
        if not (pod.pending or pod.uid in hypothetical) or not pod.workload or is_placed(pod, now_s, settings):
            continue
        reason = exclusion_reason(pod, claims.get(pod.claim_key), settings, now_s)
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
    records = tuple(
        device_record(gpu, residents, pool_of.get((gpu.node, gpu.source), "none")) for gpu, residents in devices
    )
    number_decided = horizon(records, settings)
    candidates, behind = able[:number_decided], able[number_decided:]
    snapshot = None
    if candidates:
        snapshot = Snapshot(pending=tuple(job for _, job in candidates), devices=records, scope=settings.cluster)
    return ClusterProblem(
        snapshot=snapshot,
        candidates=tuple(pod for pod, _ in candidates),
        behind=tuple(pod for pod, _ in behind) + tuple(pod for pod, job in fitting if job is None),
        left_out=+left,
        gpus={gpu.id: gpu for gpu, _ in devices},
        free=free,
    )


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
    return first_reason(checks)


def _in_pools(job: Job, allowed: tuple[str, ...]) -> Job | None:
    return replace(job, pools=allowed) if allowed else None
