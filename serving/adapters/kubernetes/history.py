"""Which pod ran on which GPU when, and what became of pods with a decision. Pure functions."""

import math
from collections.abc import Iterator

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.offers import gpu_index, number, place_of
from interfere.serving.adapters.kubernetes.records import ClusterState, Pod, PodState
from interfere.serving.adapters.observations import Fate
from interfere.serving.adapters.windows import Place, Run

_END_REASONS = {"Succeeded": "completed", "OOMKilled": "out of memory", "Evicted": "evicted", "Error": "failed"}


def runs(state: ClusterState, now_s: float) -> Iterator[Run[Pod]]:
    """All runs of pods on GPUs. The claim of an ended pod is free again, so its GPU is known from earlier rounds."""
    index, claims = gpu_index(state.gpus), state.claims_by_key
    for pod in state.pods:
        if pod.started_s and pod.node:
            gpu = place_of(pod, claims.get(pod.claim_key), index)
            yield Run(
                job=pod,
                start_s=pod.started_s,
                end_s=(pod.ended_s or now_s) if pod.ended else math.inf,
                places=(Place(gpu.id, gpu.type, gpu.mode),) if gpu else (),
            )


def fates(state: ClusterState, now_s: float) -> Iterator[Fate[Pod]]:
    """What became of pods with a decision."""
    for pod in state.pods:
        if pod.note(names.DECISION):
            yield Fate(
                job=pod,
                decision_id=pod.note(names.DECISION),
                device_id=pod.note(names.DEVICE) if pod.note(names.STATE) == PodState.PLACED else "",
                ended_s=(pod.ended_s or number(pod.note(names.DECIDED_AT)) or now_s) if pod.ended else 0.0,
                end_reason=end_reason(pod),
            )


def end_reason(pod: Pod) -> str:
    """Why a pod ended, in the words of the other adapters."""
    return _END_REASONS.get(pod.end_reason, pod.end_reason.lower() or "ended")[:200]
