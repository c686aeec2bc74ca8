"""The GPUs with a free seat, the jobs on each, and pods as jobs. Pure functions.

Law: a seat is offered once. A pod that was placed counts as a resident of its GPU until it is bound or has lost it.
Law: a GPU on which a pod of unknown workload runs is not offered.
Law: a claim holds its devices until its allocation is gone, also after its pod has ended, as kube-scheduler counts.
Law: a device that a claim holds of which no known pod explains the use has an unknown resident.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from interfere.records import NAN, Device, Job
from interfere.records.cluster import DEFAULT_SEATS
from interfere.serving.adapters import problem as shared
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.claims import claim_sizes, memory_bytes
from interfere.serving.adapters.kubernetes.objects.values import number
from interfere.serving.adapters.kubernetes.records import (
    AllocatedDevice,
    Claim,
    ClusterState,
    Gpu,
    GpuSource,
    Pod,
    PodState,
    SharedCounter,
)
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

NOT_GIVEN = "cannot allocate all claims"  # as kube-scheduler says it of a pod
NOT_GIVEN_S = 10.0  # in which kube-scheduler looks at a pod that lost its gate, and sees its claim
_TIMES = (names.MAX_WAIT_S, names.REMAINING_S, names.CHECKPOINT_S)  # annotations that are positive numbers
DeviceKey = tuple[str, str, str]  # driver, pool, name
GpuWithJobs = tuple[Gpu, tuple[Job, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The capacities that claims hold, by device."""

    consumed: Mapping[DeviceKey, Mapping[str, float]]  # of each capacity, in all
    ended: Mapping[DeviceKey, Sequence[AllocatedDevice]]  # held for pods that have ended
    unknown: Collection[DeviceKey]  # held by claims of several devices, or of pods that nobody knows


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """A cluster at one moment, as a decision sees it."""

    state: ClusterState
    settings: KubernetesSettings
    now_s: float
    hypothetical: frozenset[str] = frozenset()  # uids of bound pods that are treated as pending

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """The claims by namespace and name."""
        return self.state.claims_by_key

    @cached_property
    def default_bytes(self) -> float:
        """The memory of a pod that names none."""
        return claim_sizes(self.state.gpus).seat_bytes

    @cached_property
    def present_pods(self) -> list[Pod]:
        """The pods that have not ended, and that are not treated as pending."""
        return [pod for pod in self.state.pods if pod.uid not in self.hypothetical and not pod.ended]

    @cached_property
    def allocations(self) -> Allocations:
        """The allocations of all claims, except those of pods that are treated as pending."""
        running, ended, left_out = set[str](), set[str](), set[str]()
        for pod in self.state.pods:
            if pod.claim:
                claims = left_out if pod.uid in self.hypothetical else ended if pod.ended else running
                claims.add(pod.claim_key)
        amounts_of: dict[DeviceKey, Counter[str]] = {}
        of_ended: dict[DeviceKey, list[AllocatedDevice]] = {}
        unknown = set[DeviceKey]()
        for claim in self.state.claims:
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
        return Allocations(consumed=amounts_of, ended=of_ended, unknown=unknown)

    def is_placed(self, pod: Pod) -> bool:
        """Whether the pod was placed and may be bound at any moment."""
        placed = pod.pending and not pod.gated and pod.note(names.STATE) == PodState.PLACED
        is_due = self.now_s - number(pod.note(names.DECIDED_AT)) < self.settings.start_s
        return placed and is_due and not is_refused(pod, self.now_s, self.settings)

    def node_of(self, pod: Pod) -> str:
        """Return the node that a pod runs on, or that it was sent to."""
        return pod.note(names.DEVICE).partition("/")[0] if self.is_placed(pod) else pod.node

    def job(self, pod: Pod) -> Job | None:
        """Return a pod as a job; None where its workload or another annotation is invalid."""
        return job_record(pod, self.default_bytes, self.now_s, self.settings)

    @cached_property
    def pods_by_gpu(self) -> tuple[dict[str, list[Pod]], set[tuple[str, GpuSource]]]:
        """The pods on each GPU, and the (node, source) pairs where a pod holds an unknown GPU."""
        index, ids = gpu_index(self.state.gpus), {gpu.id for gpu in self.state.gpus}
        pods_on: dict[str, list[Pod]] = {}
        unclear: set[tuple[str, GpuSource]] = set()
        for pod in self.present_pods:
            gpu = place_of(pod, self.claims.get(pod.claim_key), index)
            if gpu is not None:
                pods_on.setdefault(gpu.id, []).append(pod)
            elif pod.node and pod.source in (GpuSource.HAMI, GpuSource.NODE):
                unclear.add((pod.node, pod.source))
            elif self.is_placed(pod) and pod.note(names.DEVICE) in ids:
                pods_on.setdefault(pod.note(names.DEVICE), []).append(pod)
        return pods_on, unclear

    def resident(self, pod: Pod, gpu: Gpu) -> Job | None:
        """Return the job of a pod on a GPU, with at least the memory that its claim holds or asks for; None where its
        annotations are invalid."""
        job, claim, held_bytes = self.job(pod), self.claims.get(pod.claim_key), NAN
        if claim is not None and claim.devices:
            held_bytes = dict(claim.devices[0].consumed).get(gpu.memory_name.rpartition("/")[2], NAN)
        elif claim is not None and claim.target == gpu.id:
            held_bytes = dict(claim.requested).get(gpu.memory_name, NAN)
        if job is None or math.isnan(held_bytes) or held_bytes <= job.memory_peak_bytes:
            return job
        return replace(job, memory_peak_bytes=held_bytes)


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


def offered_gpus(view: ClusterView) -> list[GpuWithJobs]:
    """Return the GPUs with a free seat, reduced to their free capacity, and the jobs on each GPU."""
    usable = {node.name for node in view.state.nodes if node.usable}
    held, (pods_on, unclear) = view.allocations, view.pods_by_gpu
    offered: list[GpuWithJobs] = []
    for gpus, on_node in _nodes_of_several(view):
        if gpus[0].node in usable:
            offered += _kubelets_choice(gpus, on_node, list(map(view.job, on_node)))
    for gpu in (gpu for gpu in view.state.gpus if gpu.siblings == 1):
        pods = pods_on.get(gpu.id, [])
        residents = [view.resident(pod, gpu) for pod in pods]
        unknown = gpu.key in held.unknown or (gpu.node, gpu.source) in unclear or not all(residents)
        if gpu.node not in usable or unknown:
            continue
        claims = [view.claims.get(pod.claim_key) for pod in pods]
        rest = _remaining(gpu, held, len(residents), sum(claim is None or not claim.devices for claim in claims))
        if rest is not None and len(residents) < rest.seats:
            offered.append((rest, tuple(resident for resident in residents if resident)))
    in_use = {*held.consumed, *(gpu.key for gpu in view.state.gpus if gpu.id in pods_on)}
    return _with_counters(offered, in_use)


def _nodes_of_several(view: ClusterView) -> Iterator[tuple[list[Gpu], list[Pod]]]:
    """Yield the nodes on which the kubelet chooses among several GPUs: their GPUs, and the pods that have one or were
    sent there. A node with a pod of several GPUs is left out: which of them are left is not known."""
    gpus_on: dict[str, list[Gpu]] = {}
    for gpu in (gpu for gpu in view.state.gpus if gpu.siblings > 1):
        gpus_on.setdefault(gpu.node, []).append(gpu)
    pods_on: dict[str, list[Pod]] = {node: [] for node in gpus_on}
    for pod in view.present_pods if gpus_on else ():
        if pod.source is GpuSource.NODE and (node := view.node_of(pod)) in pods_on:
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


def held_gpus(view: ClusterView) -> list[GpuWithJobs]:
    """Return the GPUs whose pods are known, without a free seat, and the jobs on each: their grants are looked at."""
    pods_on, _ = view.pods_by_gpu
    found: list[GpuWithJobs] = []
    for gpu in (gpu for gpu in view.state.gpus if gpu.siblings == 1 and gpu.id in pods_on):
        residents = [view.resident(pod, gpu) for pod in pods_on[gpu.id]]
        if all(residents):
            found.append((replace(gpu, seats=len(residents)), tuple(job for job in residents if job)))
    return found


def device_record(gpu: Gpu, residents: tuple[Job, ...], pool: str, granule_bytes: float) -> Device:
    """Return a GPU as a device of a decision problem. `granule_bytes`: the unit of its grants; NaN: it grants none."""
    return Device(
        id=gpu.id,
        type=gpu.type,
        node=gpu.node,
        memory_bytes=gpu.memory_bytes,
        mode=gpu.mode,
        residents=residents,
        seats=None if gpu.seats == DEFAULT_SEATS and math.isnan(granule_bytes) else gpu.seats,
        granule_bytes=min(granule_bytes, gpu.memory_bytes) if granule_bytes > 0 else NAN,
        pool=pool,
    )


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


def _with_counters(offered: list[GpuWithJobs], in_use: set[DeviceKey]) -> list[GpuWithJobs]:
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
    try:
        wanted_bytes = memory_bytes(pod, default_bytes)
    except ValueError:
        return None
    ends = bool(pod.note(names.REMAINING_S))  # it says how long it takes alone, from its start
    elapsed_s = now_s - pod.started_s if pod.started_s else 0.0
    may_stop = settings.evicts and ends and bool(pod.note(names.CHECKPOINT_S))
    return shared.job_record(
        pod,
        settings,
        now_s,
        priority=pod.priority,
        submitted_s=pod.created_s,
        memory_bytes=wanted_bytes,
        max_slowdown=pod.note(names.MAX_SLOWDOWN),
        remaining_s=shared.remaining_s_of(number(pod.note(names.REMAINING_S)) if ends else NAN, elapsed_s, pod.lost_s),
        checkpoint_s=number(pod.note(names.CHECKPOINT_S)) if may_stop else NAN,
        since_s=pod.started_s if settings.evicts and pod.started_s else NAN,
    )
