"""Pods, nodes, claims and volumes of the API server as records. Pure functions.

Law: an object of any shape gives a record or raises nothing; what cannot be read is a pod that is left to Kubernetes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from interfere.records import NAN
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.claims import plain_request, requested_capacities
from interfere.serving.adapters.kubernetes.constraints import read_tolerations, selector_terms
from interfere.serving.adapters.kubernetes.objects.gpus import gpus_of_nodes, gpus_of_slices
from interfere.serving.adapters.kubernetes.objects.selectors import expressions_of
from interfere.serving.adapters.kubernetes.objects.values import (
    list_at,
    map_at,
    maps_at,
    quantity,
    unix_s,
)
from interfere.serving.adapters.kubernetes.records import (
    AllocatedDevice,
    Claim,
    ClusterState,
    Constraints,
    DeviceRequest,
    GpuSource,
    JsonObject,
    Node,
    Pod,
    SelectorTerms,
)
from interfere.serving.adapters.kubernetes.settings import MAX_RATIO, KubernetesSettings
from interfere.serving.adapters.settings import GIB
from interfere.serving.http_server import plain_address

_HAMI_NOTES = (names.HAMI_USE, names.HAMI_ALLOCATED)
ClaimSpecs = Mapping[tuple[str, str], JsonObject]
"""The spec of the claims that a template makes, by namespace and name of the template."""
VolumeTerms = Mapping[tuple[str, str], SelectorTerms]
"""Terms of the volume that a claim is bound to, by namespace and name of the claim."""
_HAMI_RESOURCES = ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")


def cluster_state(
    settings: KubernetesSettings,
    pods: Iterable[JsonObject],
    nodes: Iterable[JsonObject],
    slices: Iterable[JsonObject],
    claims: Iterable[JsonObject],
    volume_claims: Iterable[JsonObject] = (),
    volumes: Iterable[JsonObject] = (),
    classes: Iterable[JsonObject] = (),
    templates: Iterable[JsonObject] = (),
) -> ClusterState:
    """Return the records of all objects that a round reads. A GPU that a ResourceSlice publishes is not read from
    its node again."""
    nodes = list(nodes)
    records = tuple(map(read_node, nodes))
    published = gpus_of_slices(slices, settings, records)
    with_slices = {gpu.node for gpu in published}
    annotated = gpus_of_nodes((node for node in nodes if _name(node) not in with_slices), settings)
    gpus = (*published, *annotated)
    hami_nodes = {gpu.node for gpu in gpus if gpu.source is GpuSource.HAMI}
    terms, specs = terms_by_claim(volume_claims, volumes), specs_of_templates(templates)
    return ClusterState(
        pods=tuple(read_pod(pod, settings, hami=bool(hami_nodes), volume_terms=terms, templates=specs) for pod in pods),
        nodes=records,
        gpus=gpus,
        claims=tuple(map(read_claim, claims)),
        classes={_name(row): expressions_of(map_at(row, "spec")) for row in classes},
    )


def specs_of_templates(rows: Iterable[JsonObject]) -> ClaimSpecs:
    """Return the spec of the claims that each ResourceClaimTemplate makes, by its namespace and name."""
    return {(_namespace(row), _name(row)): map_at(row, "spec", "spec") for row in rows}


def read_pod(
    row: JsonObject,
    settings: KubernetesSettings,
    *,
    hami: bool = False,
    volume_terms: VolumeTerms = MappingProxyType({}),
    templates: ClaimSpecs = MappingProxyType({}),
) -> Pod:
    """Read one pod. `hami`: the cluster has HAMi's nodes, so that a plain request for a GPU counts as a request to
    HAMi."""
    metadata, spec, status = map_at(row, "metadata"), map_at(row, "spec"), map_at(row, "status")
    notes = map_at(metadata, "labels") | map_at(metadata, "annotations")
    claims = maps_at(spec, "resourceClaims")
    containers = [each for field in ("containers", "initContainers") for each in maps_at(spec, field)]
    resources = [map_at(each, "resources", "limits") for each in containers]
    source = _source(claims, resources, hami=hami)
    ended_s, reason, restarts, started_s = _ending(status)
    claim_spec = _claim_spec(notes, _namespace(row), templates, settings) if claims else None
    request = _device_request(plain_request(claim_spec))
    return Pod(
        namespace=_namespace(row),
        name=_name(row),
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        phase=str(status.get("phase") or "Pending"),
        node=str(spec.get("nodeName") or ""),
        gates=tuple(str(gate.get("name") or "") for gate in maps_at(spec, "schedulingGates")),
        notes=tuple(
            (name, str(text))
            for name, text in notes.items()
            if text is not None and (name.startswith(names.PREFIX) or name in _HAMI_NOTES)
        ),
        constraints=_constraints(spec, terms_of_pod(row, volume_terms) if volume_terms else ()),
        source=source,
        claim=_claim_name(claims[0], status) if len(claims) == 1 else "",
        claim_spec=claim_spec,
        request=request,
        claim_memory_bytes=next(
            (amount for name, amount in (request.capacities if request else ()) if name.rpartition("/")[2] == "memory"),
            NAN,
        ),
        hami_memory_bytes=max(
            (quantity(each["nvidia.com/gpumem"]) * 2**20 for each in resources if "nvidia.com/gpumem" in each),
            default=NAN,
        ),
        priority=_integer(spec.get("priority")),
        created_s=unix_s(metadata.get("creationTimestamp")),
        started_s=started_s,
        ended_s=ended_s,
        end_reason=reason,
        restarts=restarts,
        ips=() if spec.get("hostNetwork") else _addresses(status),
        deleting=bool(metadata.get("deletionTimestamp")),
        unschedulable=next(
            (
                str(each.get("message"))
                for each in maps_at(status, "conditions")
                if each.get("type") == "PodScheduled" and each.get("reason") == "Unschedulable"
            ),
            "",
        ),
        all_special=_special(spec, claims, source),
    )


def _claim_spec(
    notes: Mapping[str, Any], namespace: str, templates: ClaimSpecs, settings: KubernetesSettings
) -> JsonObject | None:
    """Return the spec of the claim that a pod gets late: its template's spec, or one device of its device class.

    None where that template is missing.
    """
    if template := str(notes.get(names.TEMPLATE) or ""):
        return templates.get((namespace, template))
    wanted = str(notes.get(names.DEVICE_CLASS) or "")  # a name that is none would leave it without a claim for ever
    device_class = wanted if names.is_subdomain(wanted) else settings.device_class
    return {"devices": {"requests": [{"name": settings.request_name, "exactly": {"deviceClassName": device_class}}]}}


def _device_request(asked: JsonObject) -> DeviceRequest | None:
    """Return what a claim for one device asks for; None for any other claim."""
    if not asked:
        return None
    return DeviceRequest(
        device_class=str(asked.get("deviceClassName")),
        selectors=expressions_of(asked),
        capacities=tuple((name, quantity(each)) for name, each in map_at(asked, "capacity", "requests").items()),
        tolerations=read_tolerations(asked),
    )


def read_node(row: JsonObject) -> Node:
    """Return the record of a node."""
    metadata, spec, status = map_at(row, "metadata"), map_at(row, "spec"), map_at(row, "status")
    conditions = {each.get("type"): each.get("status") for each in maps_at(status, "conditions")}
    allocatable = map_at(status, "allocatable")
    return Node(
        name=_name(row),
        labels=tuple(sorted((str(key), str(value)) for key, value in map_at(metadata, "labels").items())),
        taints=tuple(
            (str(taint.get("key") or ""), str(taint.get("value") or ""), str(taint.get("effect")))
            for taint in maps_at(spec, "taints")
            if taint.get("effect") in ("NoSchedule", "NoExecute")
        ),
        usable=not spec.get("unschedulable") and conditions.get("Ready", "True") == "True",
        cpu=quantity(allocatable.get("cpu")),
        memory_bytes=quantity(allocatable.get("memory")),
        pods=quantity(allocatable.get("pods")),
        oversubscription_ratio=_ratio(map_at(metadata, "annotations").get(names.RATIO)),
        host_reserve_bytes=quantity(map_at(metadata, "annotations").get(names.HOST_RESERVE_GIB)) * GIB,
    )


def _ratio(annotation: object) -> float:
    """Return the oversubscription ratio that an annotation states; NaN for none that a request may state."""
    ratio = quantity(annotation)
    return ratio if 1 <= ratio <= MAX_RATIO else NAN


def read_claim(row: JsonObject) -> Claim:
    """Return the record of a ResourceClaim."""
    metadata, status = map_at(row, "metadata"), map_at(row, "status")
    allocation = map_at(status, "allocation")
    results = maps_at(allocation, "devices", "results")
    used = [each for each in results if each.get("adminAccess") is not True]  # monitoring takes nothing from anybody
    owners = maps_at(metadata, "ownerReferences")
    return Claim(
        namespace=str(metadata.get("namespace") or "default"),
        name=_name(row),
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        ours=map_at(metadata, "labels").get(names.MANAGED_BY) == names.MANAGER,
        target=str(map_at(metadata, "annotations").get(names.CLAIM_FOR) or ""),
        owner_uid=next((str(each.get("uid")) for each in owners if each.get("kind") == "Pod"), ""),
        reserved=bool(allocation) or bool(list_at(status, "reservedFor")),
        deleting=bool(metadata.get("deletionTimestamp")),
        devices=tuple(map(_allocated, used)),
        requested=requested_capacities(map_at(row, "spec")),
    )


def _addresses(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the IP addresses of a pod, one of each family."""
    texts = [status.get("podIP"), *(each.get("ip") for each in maps_at(status, "podIPs"))]
    return tuple(dict.fromkeys(plain_address(str(text)) for text in texts if text))


def _allocated(result: Mapping[str, Any]) -> AllocatedDevice:
    driver = str(result.get("driver"))
    return AllocatedDevice(
        driver=driver,
        pool=str(result.get("pool")),
        device=str(result.get("device")),
        consumed=tuple(
            (str(name).removeprefix(f"{driver}/"), quantity(amount))
            for name, amount in map_at(result, "consumedCapacity").items()
        ),
    )


def _claim_name(claim: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the name of the claim that a pod names, or that was made from its template; empty where there is none
    yet."""
    made = maps_at(status, "resourceClaimStatuses")
    of_template = next((each.get("resourceClaimName") for each in made if each.get("name") == claim.get("name")), "")
    return str(claim.get("resourceClaimName") or of_template or "")


def _source(
    claims: Sequence[Mapping[str, Any]], limits: Sequence[Mapping[str, Any]], *, hami: bool
) -> GpuSource | None:
    if claims:
        return GpuSource.DRA
    if not any(names.GPU_RESOURCE in each for each in limits):
        return None
    shares = any(name in each for each in limits for name in _HAMI_RESOURCES)
    return GpuSource.HAMI if shares or hami else GpuSource.NODE


def _special(
    spec: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]],
    source: GpuSource | None,
) -> tuple[str, ...]:
    """Return the reasons why a pod is left to Kubernetes."""
    affinity = map_at(spec, "affinity")
    several = total_of_pod(spec, "limits", names.GPU_RESOURCE) > 1
    checks = {
        "no GPU": source is None,
        "several GPUs": several or len(claims) > 1,
        "claim template": any(not claim.get("resourceClaimName") for claim in claims),
        "other scheduler": spec.get("schedulerName", "default-scheduler")
        not in ("", "default-scheduler", "hami-scheduler"),
        "pod affinity": bool(affinity.get("podAffinity")) or bool(affinity.get("podAntiAffinity")),
        "topology spread": any(
            each.get("whenUnsatisfiable") == "DoNotSchedule" for each in maps_at(spec, "topologySpreadConstraints")
        ),
        "host ports": any(
            port.get("hostPort")  # a second pod of the same port cannot start on the node
            for container in maps_at(spec, "containers")
            for port in maps_at(container, "ports")
        ),
        "pod group": bool(map_at(spec, "schedulingGroup") or map_at(spec, "workloadRef")),  # 1.36 and 1.35
        "other gates": any(gate.get("name") != names.GATE for gate in maps_at(spec, "schedulingGates")),
    }
    return tuple(reason for reason, holds in checks.items() if holds)


def _constraints(spec: Mapping[str, Any], volume_terms: tuple[SelectorTerms, ...]) -> Constraints:
    node_affinity = map_at(spec, "affinity", "nodeAffinity")
    return Constraints(
        node_selector=tuple(sorted((str(k), str(v)) for k, v in map_at(spec, "nodeSelector").items())),
        affinity_terms=selector_terms(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")),
        volume_terms=volume_terms,
        tolerations=read_tolerations(spec),
        cpu=total_of_pod(spec, "requests", "cpu"),
        memory_bytes=total_of_pod(spec, "requests", "memory"),
    )


def _ending(status: Mapping[str, Any]) -> tuple[float, str, int, float]:
    """Return the end time and end reason of all containers, the largest restart count, and the start of the newest
    container."""
    states = maps_at(status, "containerStatuses")
    restarts = sum(int(each.get("restartCount") or 0) for each in states)
    started_s = max((unix_s(map_at(each, "state", "running").get("startedAt")) for each in states), default=0)
    terminated = [map_at(each, "state", "terminated") for each in states]
    started_s = max([started_s, *(unix_s(each.get("startedAt")) for each in terminated)])
    if status.get("phase") not in ("Succeeded", "Failed"):
        return 0.0, "", restarts, started_s
    ended_s = max((unix_s(each.get("finishedAt")) for each in terminated), default=0.0)
    causes = [str(each.get("reason")) for each in terminated if each.get("reason") not in (None, "Completed")]
    reason = str(status.get("reason") or "") or next(iter(causes), "") or str(status.get("phase"))
    return ended_s, reason, restarts, started_s


def _name(row: JsonObject) -> str:
    return str(map_at(row, "metadata").get("name") or "")


def _namespace(row: JsonObject) -> str:
    return str(map_at(row, "metadata").get("namespace") or "default")


def _integer(value: object) -> int:
    """Return the value of an integer field; 0 for any other value. JSON's true is not an integer, although Python's
    bool is."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def terms_by_claim(claims: Iterable[JsonObject], volumes: Iterable[JsonObject]) -> VolumeTerms:
    """Return the node affinity of bound volumes, by the namespace and name of the claim that each is bound to.

    Such a volume is of one zone, or a disk of one node. A claim that is not bound yet leaves the choice to the
    scheduler. Source: kube-scheduler, VolumeBinding.
    """
    terms = {}
    for row in volumes:
        if found := selector_terms(map_at(row, "spec", "nodeAffinity", "required")):
            terms[str(map_at(row, "metadata").get("name"))] = found
    bound = {}
    for row in claims if terms else ():
        metadata, volume = map_at(row, "metadata"), str(map_at(row, "spec").get("volumeName") or "")
        if volume in terms:
            bound[str(metadata.get("namespace")), str(metadata.get("name"))] = terms[volume]
    return bound


def terms_of_pod(row: JsonObject, terms: VolumeTerms) -> tuple[SelectorTerms, ...]:
    """Return the node affinity of each volume of a pod that has one. The claim of an ephemeral volume is named after
    pod and volume."""
    metadata, found = map_at(row, "metadata"), []
    for volume in maps_at(row, "spec", "volumes"):
        name = str(map_at(volume, "persistentVolumeClaim").get("claimName") or "")
        if volume.get("ephemeral"):
            name = f"{metadata.get('name')}-{volume.get('name')}"
        if of_volume := terms.get((str(metadata.get("namespace")), name)):
            found.append(of_volume)
    return tuple(found)


def total_of_pod(spec: Mapping[str, Any], kind: str, resource: str) -> float:
    """Return the largest amount of resources that the whole pod uses at one time. `kind`: requests or limits.

    Init containers run one after the other before the main containers. Init containers with restartPolicy Always
    (sidecars) run beside the main containers. A figure stated for the pod replaces the sum over its containers. The
    overhead of the runtime class is added. Source: k8s.io/component-helpers, resource.PodRequests.
    """
    sidecars = peak = 0.0
    for container in maps_at(spec, "initContainers"):
        amount = _amount(container, kind, resource)
        peak = max(peak, sidecars + amount)
        if container.get("restartPolicy") == "Always":
            sidecars += amount
    together = sidecars + sum(_amount(each, kind, resource) for each in maps_at(spec, "containers"))
    own = quantity(map_at(spec, "resources", kind).get(resource))
    overhead = quantity(map_at(spec, "overhead").get(resource))
    total = max(peak, together) if math.isnan(own) else own
    return total + (0.0 if math.isnan(overhead) else overhead)


def _amount(container: Mapping[str, Any], kind: str, resource: str) -> float:
    amount = quantity(map_at(container, "resources", kind).get(resource))
    return 0.0 if math.isnan(amount) else amount
