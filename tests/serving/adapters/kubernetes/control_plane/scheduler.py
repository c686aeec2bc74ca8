"""A stand-in for kube-scheduler, the controller of ResourceClaims and HAMi: binds pods as kube-scheduler 1.36 does.

Known to it: scheduling gates, nodeSelectors, claims with CEL selectors and requests of capacity, HAMi's annotation,
replicas of NVIDIA's device plugin. Everything else is left out. Its facts, each checked in test_stand_ins.py: a gated
pod is not looked at; a pod without its claim, or whose claim names a DeviceClass that is not there, waits; a claim
consumes each capacity of its device by that capacity's policy, until its allocation is gone, and the pod is refused
where that is too little; an error in a selector on any device that is looked at fails the allocation. A claim is
deallocated once all pods that it is reserved for have ended. Source: k8s.io/dynamic-resource-allocation/structured.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.gpus import consumed
from interfere.serving.adapters.kubernetes.objects.selectors import DEVICE, device_variable, evaluate
from interfere.serving.adapters.kubernetes.objects.values import quantity, timestamp
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    CLAIM,
    CLASS,
    NODE,
    POD,
    SLICE,
    TEMPLATE,
    VOLUME,
    VOLUME_CLAIM,
    ApiServer,
    Row,
)

Key = tuple[str, str, str]  # driver, pool, device


class StandInScheduler:
    """Binds pods one after the other, oldest first."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self.bound, self._task = api, list[tuple[str, str]](), None
        self.deallocates = True  # else the controller of ResourceClaims is away

    def once(self) -> None:
        """One look at every pod."""
        self._api.run(self._look())

    def start(self, every_s: float = 0.05) -> None:
        """Look again and again."""

        async def begin() -> Any:
            return asyncio.ensure_future(self._loop(every_s))

        self._task = self._api.run(begin())

    async def _loop(self, every_s: float) -> None:
        while True:
            await self._look()
            await asyncio.sleep(every_s)

    async def _look(self) -> None:
        pods = self._api.now(POD)
        if self.deallocates:
            await self._deallocate(pods)
        await self._make_claims(pods)
        pods = self._api.now(POD)
        for pod in sorted(pods, key=lambda row: int(row["metadata"]["uid"][1:])):
            if pod["status"].get("phase", "Pending") == "Pending" and not pod["spec"].get("nodeName"):
                await self._schedule(pod)

    async def _make_claims(self, pods: list[Row]) -> None:
        """As the controller of ResourceClaims: claims of templates, each with its pod."""
        specs = {(r["metadata"]["namespace"], r["metadata"]["name"]): r["spec"] for r in self._api.now(TEMPLATE)}
        for pod in pods:
            metadata, statuses = pod["metadata"], list(pod["status"].get("resourceClaimStatuses") or ())
            for entry in pod["spec"].get("resourceClaims") or ():
                spec = specs.get((metadata["namespace"], entry.get("resourceClaimTemplateName")))
                if spec is None or entry["name"] in {each["name"] for each in statuses}:
                    continue
                name = f"{metadata['name']}-{entry['name']}-made"
                row = {"metadata": {"name": name, "namespace": metadata["namespace"]}, "spec": spec["spec"]}
                await self._api._add(CLAIM, row)
                statuses.append({"name": entry["name"], "resourceClaimName": name})
                changes = {"status": {"resourceClaimStatuses": statuses}}
                await self._api.patching(POD, metadata["namespace"], metadata["name"], changes)

    async def _deallocate(self, pods: list[Row]) -> None:
        """Free the claims that no running pod is left of."""
        phases = {row["metadata"]["uid"]: row["status"].get("phase", "Pending") for row in pods}
        for claim in self._api.now(CLAIM):
            reserved = (claim.get("status") or {}).get("reservedFor") or []
            if reserved and all(phases.get(each["uid"], "Failed") in ("Succeeded", "Failed") for each in reserved):
                metadata, status = claim["metadata"], {"allocation": None, "reservedFor": None}
                await self._api.patching(CLAIM, metadata["namespace"], metadata["name"], {"status": status})

    async def _schedule(self, pod: Row) -> None:
        if pod["spec"].get("schedulingGates"):
            await self._condition(pod, "SchedulingGated", "")
            return
        claims = pod["spec"].get("resourceClaims") or []
        if claims:
            made = {
                each["name"]: each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses") or ()
            }
            await self._by_claim(pod, claims[0].get("resourceClaimName") or made.get(claims[0]["name"], ""))
        else:
            await self._by_replicas(pod)

    async def _by_claim(self, pod: Row, name: str) -> None:
        metadata = pod["metadata"]
        rows = {(row["metadata"]["namespace"], row["metadata"]["name"]): row for row in self._api.now(CLAIM)}
        claim = rows.get((metadata["namespace"], name))
        if claim is None:
            await self._condition(pod, "Unschedulable", f'resourceclaim "{name}" not found')
            return
        (request,) = claim["spec"]["devices"]["requests"]
        classes = {row["metadata"]["name"]: row["spec"] for row in self._api.now(CLASS)}
        for alternative in request.get("firstAvailable") or [request["exactly"]]:
            if alternative["deviceClassName"] not in classes:
                await self._condition(
                    pod, "Unschedulable", f"device class {alternative['deviceClassName']} does not exist"
                )
                return
            try:
                found = self._device_for(pod, alternative, classes[alternative["deviceClassName"]], rows)
            except ValueError as error:
                await self._condition(pod, "Unschedulable", f"selector #0: CEL runtime error: {error}")
                return
            if found is not None:
                await self._allocate(pod, claim, *found)
                return
        await self._condition(pod, "Unschedulable", "cannot allocate all claims")

    def _device_for(
        self, pod: Row, exactly: Row, device_class: Row, claims: dict[Any, Row]
    ) -> tuple[Key, str, dict[str, float] | None] | None:
        """The first device that a request may have, its node, and what is consumed of it. Raises ValueError."""
        used, slices = self._consumed(claims.values()), self._api.now(SLICE)
        domains = {row["spec"]["driver"] for row in slices}
        selectors = [
            each["cel"]["expression"] for request in (device_class, exactly) for each in request.get("selectors") or ()
        ]
        for node, spec, device in self._reachable(pod, slices):
            key = spec["driver"], spec["pool"]["name"], device["name"]
            if not _selected(selectors, spec["driver"], device, domains) or _is_tainted(device, exactly):
                continue
            is_shared = bool(device.get("allowMultipleAllocations"))
            if key in used and not is_shared:
                continue
            amounts = _amounts(exactly, device, used.get(key, {}))
            if amounts is not None and (key in used or not _counters_missing(key, spec, device, slices, used)):
                return key, node, amounts if is_shared else None
        return None

    def _reachable(self, pod: Row, slices: list[Row]) -> Iterator[tuple[str, Row, Row]]:
        """The devices that nodes for the pod reach, each with its node and slice."""
        for node in self._api.now(NODE):
            name = node["metadata"]["name"]
            for spec in _current(slices) if self._admits(pod, name) else ():
                for device in spec.get("devices") or ():
                    if _reaches(device if spec.get("perDeviceNodeSelection") else spec, node):
                        yield name, spec, device

    def _consumed(self, claims: Any) -> dict[Key, dict[str, float]]:
        used: dict[Key, dict[str, float]] = {}
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for each in (allocation.get("devices") or {}).get("results") or ():
                if not each.get("adminAccess"):
                    of_device = used.setdefault((each["driver"], each["pool"], each["device"]), {})
                    for name, amount in (each.get("consumedCapacity") or {}).items():
                        of_device[name] = of_device.get(name, 0.0) + quantity(amount)
        return used

    async def _allocate(self, pod: Row, claim: Row, key: Key, node: str, amounts: dict[str, float] | None) -> None:
        """`amounts`: consumed of a device that several claims may hold; None of a device for one claim."""
        driver, pool, device = key
        result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
        if amounts is not None:
            capacity = {name: str(int(amount)) for name, amount in amounts.items()}
            result |= {"shareID": f"share-{pod['metadata']['uid']}", "consumedCapacity": capacity}
        reserved = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        metadata = claim["metadata"]
        await self._api.patching(CLAIM, metadata["namespace"], metadata["name"], {"status": status})
        await self._bind(pod, node, {})

    async def _by_replicas(self, pod: Row) -> None:
        """A GPU of the node that HAMi's annotation names, else the first with a free share."""
        pods = self._api.now(POD)
        for node in self._api.now(NODE):
            name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
            held = [p for p in pods if p["spec"].get("nodeName") == name and p["status"].get("phase") != "Succeeded"]
            register = annotations.get(names.HAMI_REGISTER)
            if not self._admits(pod, name):
                continue
            if register:
                wanted = (pod["metadata"].get("annotations") or {}).get(names.HAMI_USE, "")
                for part in filter(None, register.split(":")):
                    uuid, count = part.split(",")[0], int(part.split(",")[1])
                    on_it = [p for p in held if uuid in p["metadata"]["annotations"].get(names.HAMI_ALLOCATED, "")]
                    if wanted in ("", uuid) and len(on_it) < count:
                        given = {names.HAMI_ALLOCATED: f"{uuid},NVIDIA,8192,0:;"}
                        await self._bind(pod, name, given)
                        return
            elif len(held) < int(node["status"]["allocatable"].get(names.GPU_RESOURCE, "0")):
                await self._bind(pod, name, {})
                return
        await self._condition(pod, "Unschedulable", "0 nodes are available: insufficient nvidia.com/gpu")

    def _admits(self, pod: Row, node: str) -> bool:
        (row,) = [each for each in self._api.now(NODE) if each["metadata"]["name"] == node]
        labels = row["metadata"]["labels"]
        selected = all(labels.get(key) == value for key, value in (pod["spec"].get("nodeSelector") or {}).items())
        on_node = [each for each in self._api.now(POD) if each["spec"].get("nodeName") == node]
        wanted_cpu = sum(_cpu(each) for each in (pod, *on_node) if each["status"].get("phase") != "Succeeded")
        fits = wanted_cpu <= quantity(row["status"]["allocatable"]["cpu"])
        return selected and fits and all(_reaches(volume, row) for volume in self._bound_volumes(pod))

    def _bound_volumes(self, pod: Row) -> Iterator[Row]:
        """The node affinity of the pod's volumes that have one."""
        affinities = {
            row["metadata"]["name"]: row["spec"].get("nodeAffinity", {}).get("required")
            for row in self._api.now(VOLUME)
        }
        names_of_claims = [each["persistentVolumeClaim"]["claimName"] for each in pod["spec"].get("volumes") or ()]
        for claim in self._api.now(VOLUME_CLAIM):
            if claim["metadata"]["name"] in names_of_claims and affinities.get(claim["spec"].get("volumeName")):
                yield {"nodeSelector": affinities[claim["spec"]["volumeName"]]}

    async def _bind(self, pod: Row, node: str, annotations: dict[str, str]) -> None:
        metadata = pod["metadata"]
        started = timestamp(time.time())[:19] + "Z"
        status = {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"restartCount": 0, "state": {"running": {"startedAt": started}}}],
        }
        changes = {"spec": {"nodeName": node}, "status": status, "metadata": {"annotations": annotations}}
        self.bound.append((metadata["uid"], node))
        await self._api.patching(POD, metadata["namespace"], metadata["name"], changes)

    async def _condition(self, pod: Row, reason: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if (pod["status"].get("conditions") or [{}])[0] != condition:
            metadata = pod["metadata"]
            changes = {"status": {"conditions": [condition]}}
            await self._api.patching(POD, metadata["namespace"], metadata["name"], changes)


def _cpu(pod: Row) -> float:
    requests = [(each.get("resources") or {}).get("requests") or {} for each in pod["spec"].get("containers") or ()]
    return sum(quantity(each.get("cpu", "0")) for each in requests)


def _reaches(place: Row, node: Row) -> bool:
    """Whether a slice, or a device that selects for itself, is reachable from a node."""
    if place.get("nodeName"):
        return bool(place["nodeName"] == node["metadata"]["name"])
    if place.get("allNodes"):
        return True
    terms = (place.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    labels = node["metadata"]["labels"]
    expressions = [each for term in terms for each in term.get("matchExpressions") or ()]
    assert all(each["operator"] == "In" for each in expressions), "nothing else is known here"
    return bool(expressions) and all(labels.get(each["key"]) in each["values"] for each in expressions)


def _current(slices: list[Row]) -> Iterator[Row]:
    """The slices of the newest generation of each pool that is complete and has no name twice (GatherPools)."""
    pools: dict[tuple[str, str], list[Row]] = {}
    for spec in (row["spec"] for row in slices):
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    for members in pools.values():
        newest = max(spec["pool"]["generation"] for spec in members)
        current = [spec for spec in members if spec["pool"]["generation"] == newest]
        device_names = [device["name"] for spec in current for device in spec.get("devices") or ()]
        is_complete = len(current) == current[0]["pool"]["resourceSliceCount"]
        if is_complete and len(device_names) == len(set(device_names)):
            yield from current


def _is_tainted(device: Row, exactly: Row) -> bool:
    """Whether a taint keeps a request off a device (taintPreventsAllocation, ToleratesTaint)."""
    return any(
        taint["effect"] in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in exactly.get("tolerations") or ())
        for taint in device.get("taints") or ()
    )


def _tolerates(toleration: Row, taint: Row) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]) or toleration.get("key", "") not in ("", taint["key"]):
        return False
    is_equal = toleration.get("value", "") == taint.get("value", "")
    return is_equal or toleration.get("operator", "Equal") == "Exists"


def _counters_missing(key: Key, spec: Row, device: Row, slices: list[Row], used: dict[Key, Any]) -> bool:
    """Whether the device, which nobody holds, needs counters that other devices of its pool hold."""
    members = [row["spec"] for row in slices if row["spec"]["pool"]["name"] == spec["pool"]["name"]]
    free = {
        (counter_set["name"], name): quantity(counter["value"])
        for member in members
        for counter_set in member.get("sharedCounters") or ()
        for name, counter in counter_set["counters"].items()
    }
    for each in (each for member in members for each in member.get("devices") or ()):
        if (*key[:2], each["name"]) in used or each is device:
            for consumption in each.get("consumesCounters") or ():
                for name, counter in consumption["counters"].items():
                    free[consumption["counterSet"], name] -= quantity(counter["value"])
    return any(amount < 0 for amount in free.values())


def _selected(selectors: list[str], driver: str, device: Row, domains: set[str]) -> bool:
    """Whether all selectors, of the class and of the claim, hold. Raises ValueError for an error in one of them."""
    variable = device_variable(driver, device, domains)
    return all(evaluate(expression, DEVICE, variable) for expression in selectors)


def _amounts(exactly: Row, device: Row, used: dict[str, float]) -> dict[str, float] | None:
    """What the claim would consume of each capacity; None where the device has not that much, or not that capacity."""
    wanted = (exactly.get("capacity") or {}).get("requests") or {}
    if not set(wanted) <= set(device["capacity"]):
        return None
    amounts: dict[str, float] = {}
    for name, capacity in device["capacity"].items():
        requested = quantity(wanted[name]) if name in wanted else None
        amounts[name] = consumed(capacity, requested)
        if math.isnan(amounts[name]) or used.get(name, 0.0) + amounts[name] > quantity(capacity["value"]):
            return None
    return amounts
