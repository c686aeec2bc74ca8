"""A stand-in for kube-scheduler and HAMi: binds pods as was seen on a real control plane (kube-scheduler 1.36).

Known to it: scheduling gates, nodeSelectors, claims with a CEL selector on a uuid and a request of capacity, HAMi's
annotation, replicas of NVIDIA's device plugin. Everything else is left out. Its facts, each checked in
test_stand_ins.py: a gated pod is not looked at; a pod without its claim waits, and is bound once it exists; a claim
consumes capacity of the device that its selector names, and the pod is refused where that is too little.
"""

import asyncio
import re
import time
from typing import Any

from serving.adapters.kubernetes import names
from serving.adapters.kubernetes.quantities import quantity, timestamp
from tests.serving.adapters.kubernetes.api_server import CLAIM, NODE, POD, SLICE, ApiServer, Row

_SELECTOR = re.compile(r'device\.driver == "([^"]+)" && device\.attributes\["\1"\]\.uuid == "([^"]+)"')


class StandInScheduler:
    """Binds pods one after the other, oldest first."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self.bound, self._task = api, list[tuple[str, str]](), None

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
        for pod in sorted(pods, key=lambda row: int(row["metadata"]["uid"][1:])):
            if pod["status"].get("phase", "Pending") == "Pending" and not pod["spec"].get("nodeName"):
                await self._schedule(pod)

    async def _schedule(self, pod: Row) -> None:
        if pod["spec"].get("schedulingGates"):
            await self._condition(pod, "SchedulingGated", "")
            return
        claims = pod["spec"].get("resourceClaims") or []
        if claims:
            await self._by_claim(pod, claims[0]["resourceClaimName"])
        else:
            await self._by_replicas(pod)

    async def _by_claim(self, pod: Row, name: str) -> None:
        metadata = pod["metadata"]
        rows = {(row["metadata"]["namespace"], row["metadata"]["name"]): row for row in self._api.now(CLAIM)}
        claim = rows.get((metadata["namespace"], name))
        if claim is None:
            await self._condition(pod, "Unschedulable", f'resourceclaim "{name}" not found')
            return
        exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
        wanted = quantity((exactly.get("capacity") or {}).get("requests", {}).get("memory", "0"))
        used = self._consumed(rows.values())
        for slice_row in self._api.now(SLICE):
            spec = slice_row["spec"]
            for device in spec["devices"]:
                key = spec["driver"], spec["pool"]["name"], device["name"]
                room = quantity(device["capacity"]["memory"]["value"]) - used.get(key, 0.0)
                selected = _selected(exactly, spec["driver"], device)
                if wanted <= room and selected and self._admits(pod, spec["nodeName"]):
                    await self._allocate(pod, claim, key, spec["nodeName"], wanted)
                    return
        await self._condition(pod, "Unschedulable", "cannot allocate all claims")

    def _consumed(self, claims: Any) -> dict[tuple[str, str, str], float]:
        running = {row["metadata"]["uid"] for row in self._api.now(POD) if row["status"].get("phase") != "Succeeded"}
        used: dict[tuple[str, str, str], float] = {}
        for claim in claims:
            status = claim.get("status") or {}
            if any(each["uid"] in running for each in status.get("reservedFor") or ()):
                for each in status["allocation"]["devices"]["results"]:
                    key = each["driver"], each["pool"], each["device"]
                    used[key] = used.get(key, 0.0) + quantity(each["consumedCapacity"]["memory"])
        return used

    async def _allocate(self, pod: Row, claim: Row, key: tuple[str, str, str], node: str, amount: float) -> None:
        driver, pool, device = key
        result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
        result |= {"shareID": f"share-{pod['metadata']['uid']}", "consumedCapacity": {"memory": str(int(amount))}}
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
        return all(labels.get(key) == value for key, value in (pod["spec"].get("nodeSelector") or {}).items())

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


def _selected(exactly: Row, driver: str, device: Row) -> bool:
    for selector in exactly.get("selectors") or ():
        found = _SELECTOR.fullmatch(selector["cel"]["expression"])
        assert found is not None, selector  # the stand-in knows no other expression
        if found.groups() != (driver, device["attributes"]["uuid"]["string"]):
            return False
    return True
