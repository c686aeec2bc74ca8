"""Which pod ran on which GPU when, and the windows in which its company did not change. Pure functions and one memory.

A stay is cut where a co-located pod comes or goes, and at whole multiples of `report_every_s`. The API server's times
are whole seconds, so a second at either end of every window is left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.progress import Mark
from interfere.records import Progress
from interfere.serving.adapters.kubernetes.offers import gpu_index, place_of
from interfere.serving.adapters.kubernetes.records import ClusterState, Gpu, Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

GUARD_S = 1.0  # startedAt and finishedAt are whole seconds
SETTLE_S = 5.0  # marks are sent once a second, and a round sees a pod's end a moment later
LOOKBACK_S = 900.0  # windows and ended stays are remembered for that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One run of one pod on one GPU. Unix seconds; `end_s` is infinite while it runs."""

    pod: Pod
    gpu: Gpu
    start_s: float
    end_s: float = math.inf

    @property
    def key(self) -> tuple[str, int]:
        """A container that restarts begins a stay of its own."""
        return self.pod.uid, self.pod.restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationWindow:
    """A part of one stay in which the co-located pods did not change."""

    stay: Stay
    start_s: float
    end_s: float
    company: tuple[Stay, ...]

    def observation_id(self, cluster: str) -> str:
        """The same after a restart."""
        return f"kubernetes/{cluster}/{self.stay.pod.uid}.{self.stay.pod.restarts}/{self.start_s:.0f}"


class Stays:
    """Stays seen so far: the API server forgets pods that are deleted."""

    def __init__(self) -> None:
        self._stays: dict[tuple[str, int], Stay] = {}

    def see(self, state: ClusterState, now_s: float) -> None:
        """Take in the cluster of one moment."""
        index, claims, present = gpu_index(state.gpus), state.claims_by_key, set[tuple[str, int]]()
        for pod in state.pods:
            key = pod.uid, pod.restarts
            known = self._stays.get(key)
            gpu = place_of(pod, claims.get(f"{pod.namespace}/{pod.claim}") if pod.claim else None, index)
            gpu = gpu or (known.gpu if known else None)  # an ended pod's claim is free again
            if gpu is None or not pod.started_s or not pod.node:
                continue
            present.add(key)
            end_s = (pod.ended_s or now_s) if pod.ended else math.inf
            self._stays[key] = Stay(pod=pod, gpu=gpu, start_s=pod.started_s, end_s=end_s)
        for key, stay in self._stays.items():
            if key not in present and math.isinf(stay.end_s):  # deleted or restarted between two rounds
                self._stays[key] = replace(stay, end_s=now_s)
        self._stays = {key: stay for key, stay in self._stays.items() if stay.end_s > now_s - LOOKBACK_S}

    def all(self) -> tuple[Stay, ...]:
        """Every stay that is remembered."""
        return tuple(self._stays.values())


def colocation_windows(
    stays: Sequence[Stay], settings: KubernetesSettings, now_s: float
) -> tuple[ColocationWindow, ...]:
    """All windows that are complete, not too old, and whose co-located pods are known."""
    on_gpu: dict[str, list[Stay]] = {}
    for stay in stays:
        on_gpu.setdefault(stay.gpu.id, []).append(stay)
    windows: list[ColocationWindow] = []
    for stay in stays:
        if stay.pod.workload:
            others = [each for each in on_gpu[stay.gpu.id] if each.key != stay.key]
            windows += _windows(stay, others, settings, now_s)
    return tuple(windows)


def _windows(
    stay: Stay, others: Sequence[Stay], settings: KubernetesSettings, now_s: float
) -> Iterator[ColocationWindow]:
    end_s, every_s, oldest_s = min(stay.end_s, now_s), settings.report_every_s, now_s - LOOKBACK_S
    grid = range(math.ceil(max(stay.start_s, oldest_s) / every_s), math.floor(end_s / every_s) + 1)
    cuts = {
        stay.start_s,
        end_s,
        *(k * every_s for k in grid),
        *(t for each in others for t in (each.start_s, each.end_s)),
    }
    for start, end in pairwise(sorted(t for t in cuts if stay.start_s <= t <= end_s)):
        still_open = end == now_s and stay.end_s > now_s
        if still_open or end > now_s - SETTLE_S or start < oldest_s:
            continue
        company = tuple(each for each in others if each.start_s < end and each.end_s > start)
        if all(each.pod.workload for each in company) and end - start > 2 * GUARD_S:
            yield ColocationWindow(stay=stay, start_s=start + GUARD_S, end_s=end - GUARD_S, company=company)


def progress(
    window: ColocationWindow, marks: Sequence[Mark], company_marks: Sequence[Mark], settings: KubernetesSettings
) -> Progress | None:
    """Steps of the pod in the window; None where it has too few marks. Only the time in which a co-located pod marks
    steps counts, if it ever does: one that still loads its data slows nobody down."""
    begin_s, end_s = window.start_s, window.end_s
    if company_marks:
        times_s = [mark.unix_s for mark in company_marks if begin_s <= mark.unix_s <= end_s]
        begin_s, end_s = (times_s[0], times_s[-1]) if times_s else (math.inf, -math.inf)
    by_writer: dict[str, list[Mark]] = {}
    for mark in marks:
        if begin_s <= mark.unix_s <= end_s:
            by_writer.setdefault(mark.writer, []).append(mark)
    spans = [(span[-1].steps - span[0].steps, span[0], span[-1]) for span in by_writer.values()]
    steps, first, last = max(spans, key=lambda span: span[0], default=(0.0, None, None))
    if steps <= 0 or first is None or last is None or last.unix_s - first.unix_s < settings.least_window_s:
        return None
    try:
        return Progress(
            observation_id=window.observation_id(settings.cluster),
            job_id=window.stay.pod.id,
            workload=window.stay.pod.workload,
            device_type=window.stay.gpu.type,
            start_s=first.unix_s,
            end_s=last.unix_s,
            company=tuple(each.pod.workload for each in window.company),
            steps=steps,
            device_id=window.stay.gpu.id,
            mode=window.stay.gpu.mode,
        )
    except InvalidInputError:
        return None
