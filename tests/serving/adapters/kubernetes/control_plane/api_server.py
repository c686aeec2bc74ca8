"""A stand-in for the API server: kmock's emulator with what it leaves out and a real one enforces.

Added: resourceVersions and conflicts, uids, field selectors, pages of lists, preconditions of deletions, and the rules
by which objects are refused (`api_rules`). It is no API server: it has no defaults, no garbage collection but of
claims, and no rights; every call is recorded as RBAC sees it.
"""

import asyncio
import copy
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp.test_utils
import aiohttp.web
import kmock
import yaml
from kmock._internal import parsing
from kmock._internal.k8s import KubernetesEmulator, KubernetesError

from interfere.serving.adapters.kubernetes.objects.values import timestamp
from tests.serving.adapters.kubernetes.control_plane.api_rules import WITH_VERSION, pod_patch_refusal, refusals
from tests.waiting import free_port

POD = kmock.resource("", "v1", "pods")
NODE = kmock.resource("", "v1", "nodes")
EVENT = kmock.resource("", "v1", "events")
SECRET = kmock.resource("", "v1", "secrets")
SLICE = kmock.resource("resource.k8s.io", "v1", "resourceslices")
CLAIM = kmock.resource("resource.k8s.io", "v1", "resourceclaims")
LEASE = kmock.resource("coordination.k8s.io", "v1", "leases")
WEBHOOK = kmock.resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VOLUME = kmock.resource("", "v1", "persistentvolumes")
VOLUME_CLAIM = kmock.resource("", "v1", "persistentvolumeclaims")
NAMESPACE = kmock.resource("", "v1", "namespaces")
CLASS = kmock.resource("resource.k8s.io", "v1", "deviceclasses")
TEMPLATE = kmock.resource("resource.k8s.io", "v1", "resourceclaimtemplates")
NAMES = {  # kind, singular, short names, whether it belongs to a namespace
    POD: ("Pod", "pod", ["po"], True),
    NODE: ("Node", "node", ["no"], False),
    EVENT: ("Event", "event", ["ev"], True),
    SECRET: ("Secret", "secret", [], True),
    VOLUME: ("PersistentVolume", "persistentvolume", ["pv"], False),
    VOLUME_CLAIM: ("PersistentVolumeClaim", "persistentvolumeclaim", ["pvc"], True),
    NAMESPACE: ("Namespace", "namespace", ["ns"], False),
    SLICE: ("ResourceSlice", "resourceslice", [], False),
    CLAIM: ("ResourceClaim", "resourceclaim", [], True),
    CLASS: ("DeviceClass", "deviceclass", [], False),
    TEMPLATE: ("ResourceClaimTemplate", "resourceclaimtemplate", [], True),
    LEASE: ("Lease", "lease", [], True),
    WEBHOOK: ("MutatingWebhookConfiguration", "mutatingwebhookconfiguration", [], False),
}
ALL_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
Row = dict[str, Any]
_WRITES = (kmock.action.CREATE, kmock.action.UPDATE, kmock.action.DELETE)
_VERBS = {kmock.action.LIST: "list", kmock.action.WATCH: "watch", kmock.action.FETCH: "get"}
_VERBS |= {kmock.action.CREATE: "create", kmock.action.UPDATE: "patch", kmock.action.DELETE: "delete"}


_parse_path = parsing.parse_path


def _path_of_namespaces(path: str) -> parsing.ParsedPath:
    """kmock reads no path that is about namespaces themselves."""
    parts = path.strip("/").split("/")
    if parts[:3] == ["api", "v1", "namespaces"] and len(parts) <= 4:
        return parsing.ParsedPath("", "v1", "namespaces", None, parts[3] if len(parts) == 4 else None)
    return _parse_path(path)


parsing.parse_path = _path_of_namespaces


class Call(NamedTuple):
    """A call as RBAC sees it; the name is empty where the path has none."""

    verb: str
    group: str
    resource: str
    name: str


def _field(row: Row, path: str) -> str:
    """A field that a selector names; a pod without a phase is pending."""
    value: Any = row
    for part in path.split("."):
        value = (value or {}).get(part)
    return str(value or ("Pending" if path == "status.phase" else ""))


def _typed(request: Any) -> tuple[str, str]:
    """The resource, and its group and version as an object writes them."""
    group, version = request.resource.group, request.resource.version
    return request.resource.plural, f"{group}/{version}" if group else version


class _Emulator(KubernetesEmulator):
    """Requests with the rules of an API server."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for resource in NAMES:
            self.resources[resource] = {}
        self.counter, self.writes, self.turn = 1000, [], asyncio.Lock()
        self.calls: set[Call] = set()
        self.page = 0  # objects in a page of a list at most, whatever limit is asked for; 0: as asked for
        self.expired_tokens = False  # a continue token is answered by 410, as after a compaction of etcd
        self.lists: Counter[str] = Counter()  # full lists, by resource
        self.token = ""  # that requests must show; empty: none is looked at
        self.fault: Callable[[Any], int | None] = lambda request: None

    async def _handle(self, request: Any) -> Any:
        try:
            self._record(request)
            if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise KubernetesError(status=401, reason="Unauthorized", message="Unauthorized")
            status = self.fault(request)
            if status is not None:
                return self._failed(status)
            if request.action is kmock.action.LIST:
                return self._discovered(request) if request.resource.plural is None else self._listed(request)
            if request.method is kmock.method.PUT and request.name is not None:
                async with self.turn:
                    return await self._replaced(request)
            if request.action not in _WRITES or request.resource is None:
                return await super()._handle(request)
            async with self.turn:
                self._check(request)
                self.writes.append((str(request.method.value), request.url.path, copy.deepcopy(request.data)))
                return await self._written(request)
        except KubernetesError as error:
            return await self._render_error(error)

    async def _serve_watch(self, request: Any) -> Any:
        """A watch ends after its timeoutSeconds; the client begins the next."""
        stream, events, loop = super()._serve_watch(request), asyncio.Queue[Any](), asyncio.get_running_loop()
        end_s = loop.time() + float(request.params.get("timeoutSeconds") or 3600.0)

        async def follow() -> None:  # in one go: nothing may happen between its list and its stream
            async for event in stream:
                events.put_nowait(event)

        following = asyncio.create_task(follow())
        try:
            while True:
                yield await asyncio.wait_for(events.get(), end_s - loop.time())
        except TimeoutError:
            return
        finally:
            following.cancel()

    def _failed(self, status: int) -> Any:
        """The answer of a fault; 429 is that of API priority and fairness."""
        message = "a fault of the test"
        if status != 429:
            raise KubernetesError(status=status, reason="Fault", message=message)
        body = {"kind": "Status", "apiVersion": "v1", "code": 429, "reason": "TooManyRequests", "message": message}
        return aiohttp.web.json_response(body, status=429, headers={"Retry-After": "1"})

    def _record(self, request: Any) -> None:
        verb = "update" if request.method is kmock.method.PUT else _VERBS.get(request.action)
        if request.resource is not None and request.resource.plural and verb is not None:
            self.lists[request.resource.plural] += verb == "list"
            self.calls.add(Call(verb, request.resource.group, request.resource.plural, request.name or ""))

    async def _written(self, request: Any) -> Any:
        """A creation, patch or deletion. The emulator does the same, but looks at every request before it."""
        name = request.name or request.data["metadata"].get("name")
        key, exists = (request.resource, request.namespace, name), False
        if key in self.objects:
            exists = not self.objects[key].deleted
        if exists == (request.action is kmock.action.CREATE):
            status, reason = (409, "AlreadyExists") if exists else (404, "NotFound")
            raise KubernetesError(status=status, reason=reason, message=f"{name}: {reason}")
        if request.action is kmock.action.CREATE:
            self.objects[key] = request.data
            kind, row = "ADDED", request.data
        elif request.action is kmock.action.UPDATE:
            self.objects[key].patch(request.data)
            kind, row = "MODIFIED", self.objects[key].raw
        else:
            kind, row = "DELETED", self.objects[key].raw
            self.objects[key].delete()
        await self._buses[request.resource].put({"type": kind, "object": row})
        return aiohttp.web.json_response(row)

    async def _replaced(self, request: Any) -> Any:
        """PUT, which the emulator does not know: the object as a whole, unless it has changed."""
        key = (request.resource, request.namespace, request.name)
        if key not in self.objects or self.objects[key].deleted:
            raise KubernetesError(status=404, reason="NotFound", message="there is no such object")
        now, wanted = self.objects[key].raw["metadata"], request.data.setdefault("metadata", {})
        if wanted.get("resourceVersion") is None and request.resource.plural in WITH_VERSION:
            raise KubernetesError(status=422, reason="Invalid", message="metadata.resourceVersion: must be specified")
        if wanted.get("resourceVersion") not in (None, now["resourceVersion"]):
            raise KubernetesError(status=409, reason="Conflict", message="resourceVersion has changed")
        self._refuse(refusals(*_typed(request), request.data, request.namespace))
        self.counter += 1
        self.writes.append((str(request.method.value), request.url.path, copy.deepcopy(request.data)))
        kept = {field: now[field] for field in ("uid", "creationTimestamp", "namespace") if field in now}
        request.data["metadata"] = wanted | kept | {"resourceVersion": str(self.counter)}
        self.objects[key].delete()
        self.objects[key].create(request.data)
        await self._buses[request.resource].put({"type": "MODIFIED", "object": request.data})
        return aiohttp.web.json_response(request.data)

    def _listed(self, request: Any) -> Any:
        rows = [
            each.raw
            for (kind, namespace, _), each in self.objects.items()
            if kind == request.resource and not each.deleted and request.namespace in (None, namespace)
        ]
        for term in filter(None, request.params.get("fieldSelector", "").split(",")):
            path, _, value = term.partition("=")
            rows = [row for row in rows if _field(row, path) == value.removeprefix("=")]
        metadata = {"resourceVersion": str(self.counter)}
        token = request.params.get("continue")
        if token and self.expired_tokens:
            raise KubernetesError(status=410, reason="Expired", message="The provided continue parameter is too old")
        begin, limit = int(token or 0), int(request.params.get("limit") or 0)
        limit = min(filter(None, (limit, self.page if limit else 0)), default=0)
        if limit and begin + limit < len(rows):
            metadata |= {"continue": str(begin + limit)}
        rows = rows[begin : begin + limit] if limit else rows
        _, version = _typed(request)
        document = {"apiVersion": version, "kind": f"{NAMES[request.resource][0]}List", "metadata": metadata}
        return aiohttp.web.json_response(document | {"items": rows})

    def _discovered(self, request: Any) -> Any:
        """The resources of one group and version, as kubectl asks for them."""
        _, version = _typed(request)
        rows = [
            {
                "name": each.plural,
                "kind": kind,
                "singularName": singular,
                "shortNames": short_names,
                "verbs": ALL_VERBS,
                "namespaced": namespaced,
            }
            for each, (kind, singular, short_names, namespaced) in NAMES.items()
            if (each.group, each.version) == (request.resource.group, request.resource.version)
        ]
        document = {"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": version, "resources": rows}
        return aiohttp.web.json_response(document)

    def _refuse(self, reasons: list[str]) -> None:
        if reasons:
            raise KubernetesError(status=422, reason="Invalid", message="; ".join(reasons))

    def _check(self, request: Any) -> None:
        self.counter += 1
        if request.action is kmock.action.CREATE:
            self._refuse(refusals(*_typed(request), request.data, request.namespace))
            metadata = request.data.setdefault("metadata", {})
            metadata |= {"uid": f"u{self.counter}", "resourceVersion": str(self.counter)}
            metadata |= {"creationTimestamp": timestamp(time.time())[:19] + "Z"}
            _, version = _typed(request)
            request.data.update(apiVersion=version, kind=NAMES[request.resource][0])
            if request.namespace:
                metadata["namespace"] = request.namespace
            return
        key = (request.resource, request.namespace, request.name)
        if key not in self.objects or self.objects[key].deleted:
            return
        current = self.objects[key].raw
        wanted = (
            request.data if request.action is kmock.action.UPDATE else (request.data or {}).get("preconditions", {})
        )
        wanted = wanted.get("metadata", {}) if request.action is kmock.action.UPDATE else wanted
        for field in ("resourceVersion", "uid"):
            if wanted.get(field) not in (None, current["metadata"][field]):
                raise KubernetesError(status=409, reason="Conflict", message=f"{field} has changed")
        if request.action is kmock.action.UPDATE:
            if request.resource == POD:
                self._refuse([text for text in [pod_patch_refusal(current, request.data)] if text])
            if request.resource == CLAIM and "spec" in request.data:
                raise KubernetesError(status=422, reason="Invalid", message="spec: field is immutable")
            request.data.setdefault("metadata", {})["resourceVersion"] = str(self.counter)
        elif request.resource == CLAIM and current.get("status", {}).get("reservedFor"):
            raise KubernetesError(
                status=409, reason="Conflict", message="the claim is in use"
            )  # its finalizer holds it


class _ImpatientServer(aiohttp.test_utils.RawTestServer):
    """A server that cuts open watches when it stops."""

    async def _make_runner(self, **options: Any) -> Any:
        server = aiohttp.web.Server(self._handler, handler_cancellation=True)
        return aiohttp.web.ServerRunner(server, shutdown_timeout=0.05)


class ApiServer:
    """Runs the emulator in a thread; its objects may be read and changed from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._loop = folder, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.kmock: _Emulator = self._do(self._new())
        self._server: Any = None
        self.port = free_port()
        self.up()

    async def _new(self) -> _Emulator:
        emulator = _Emulator()
        await emulator.__aenter__()
        return emulator

    def up(self) -> None:
        """Listen, on the same port as before."""
        self._server = kmock.Server(self.kmock, port=self.port, server_cls=_ImpatientServer)
        self._do(self._server.__aenter__())

    def down(self) -> None:
        """Answer no longer, and cut all connections."""
        self._do(self._server.__aexit__(None, None, None))

    def close(self) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    async def _stop(self) -> None:
        await self._server.__aexit__(None, None, None)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def _do(self, act: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(120)

    @property
    def token_file(self) -> Path:
        """The file of the token that clients show."""
        return self.folder / "token"

    def rotate_token(self, token: str) -> None:
        """Another token, as the kubelet writes it: the old one is refused from now on."""
        self.token_file.write_text(token)
        self.kmock.token = token

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig that leads here."""
        path = self.folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"tokenFile": str(self.token_file)}}]
        if not self.token_file.exists():
            self.token_file.write_text("none")
        document = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": users}
        path.write_text(yaml.safe_dump(document | {"current-context": "c"}))
        return path

    # --- objects ---------------------------------------------------------------------------------------------------

    def add(self, kind: Any, row: Row) -> Row:
        """Create an object."""
        return self._do(self._add(kind, copy.deepcopy(row)))

    async def _add(self, kind: Any, row: Row) -> Row:
        async with self.kmock.turn:
            self.kmock.counter += 1
            metadata = row["metadata"]
            group = f"{kind.group}/{kind.version}" if kind.group else kind.version
            row |= {"apiVersion": group, "kind": NAMES[kind][0]}
            metadata.setdefault("uid", f"u{self.kmock.counter}")
            metadata.setdefault("creationTimestamp", timestamp(time.time())[:19] + "Z")
            metadata["resourceVersion"] = str(self.kmock.counter)
            self.kmock.objects[kind, metadata.get("namespace"), metadata["name"]] = row
            await self.kmock._buses[kind].put({"type": "ADDED", "object": row})
        return row

    def patch(self, kind: Any, namespace: str | None, name: str, changes: Row) -> None:
        """Change an object as a component of the cluster does."""
        self._do(self.patching(kind, namespace, name, changes))

    async def patching(self, kind: Any, namespace: str | None, name: str, changes: Row) -> None:
        async with self.kmock.turn:
            self.kmock.counter += 1
            metadata = {**changes.get("metadata", {}), "resourceVersion": str(self.kmock.counter)}
            known = self.kmock.objects[kind, namespace, name]
            known.patch({**changes, "metadata": metadata})
            await self.kmock._buses[kind].put({"type": "MODIFIED", "object": known.raw})

    def delete(self, kind: Any, namespace: str | None, name: str) -> None:
        """Delete an object."""
        self._do(self._delete(kind, namespace, name))

    async def _delete(self, kind: Any, namespace: str | None, name: str) -> None:
        async with self.kmock.turn:
            known = self.kmock.objects[kind, namespace, name]
            known.delete()
            await self.kmock._buses[kind].put({"type": "DELETED", "object": known.last.raw})

    def rows(self, kind: Any) -> list[Row]:
        """All objects of a kind, as they are now."""
        return self._do(self._rows(kind))

    async def _rows(self, kind: Any) -> list[Row]:
        return self.now(kind)

    def now(self, kind: Any) -> list[Row]:
        """As `rows`, for code that runs in the loop of the server."""
        return [copy.deepcopy(o.raw) for (k, _, _), o in self.kmock.objects.items() if k == kind and not o.deleted]

    def run(self, act: Any) -> Any:
        """Run a coroutine in the loop of the server."""
        return self._do(act)

    @property
    def calls(self) -> set[Call]:
        """Every call by a client."""
        return set(self.kmock.calls)

    @property
    def writes(self) -> list[tuple[str, str, Any]]:
        """Method, path and body of every write by a client."""
        return list(self.kmock.writes)
