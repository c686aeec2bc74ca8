"""Admission of pods as an API server does it: mutating webhooks are called over TLS, by their configuration.

Known: namespaceSelector and objectSelector with matchLabels, matchConditions, failurePolicy, timeoutSeconds,
clientConfig with a service or a url, admission.k8s.io/v1. Anything else is refused, so that nothing is overlooked.
"""

import base64
import copy
import http.client
import json
import socket
import ssl
import urllib.parse
import uuid
from collections.abc import Mapping
from typing import Any

from interfere.serving.adapters.kubernetes.objects.selectors import evaluate
from tests.serving.adapters.kubernetes.control_plane.api_server import NAMESPACE, POD, WEBHOOK, ApiServer, Row

KNOWN = {"name", "admissionReviewVersions", "sideEffects", "failurePolicy", "reinvocationPolicy", "timeoutSeconds"}
KNOWN |= {"clientConfig", "namespaceSelector", "objectSelector", "matchConditions", "rules"}
Services = Mapping[tuple[str, str], int]
"""Ports on this machine, by namespace and name of a Service."""


def create_pod(api: ApiServer, row: Row, services: Services) -> Row:
    """Create a pod as a client of the API server does; the pod as it was stored."""
    pod = copy.deepcopy(row) | {"apiVersion": "v1", "kind": "Pod"}
    for configuration in sorted(api.rows(WEBHOOK), key=lambda each: str(each["metadata"]["name"])):
        for webhook in configuration["webhooks"]:
            assert set(webhook) <= KNOWN, set(webhook) - KNOWN
            if _is_called(api, webhook, pod):
                pod = _called(webhook, pod, services)
    return api.add(POD, pod)


def _is_called(api: ApiServer, webhook: Row, pod: Row) -> bool:
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"], rule["apiGroups"]) == (["pods"], ["CREATE"], [""])
    labels = {row["metadata"]["name"]: row["metadata"].get("labels") or {} for row in api.rows(NAMESPACE)}
    namespace = labels.get(pod["metadata"]["namespace"], {})
    selected = _selects(webhook.get("namespaceSelector"), namespace) and _selects(
        webhook.get("objectSelector"), pod["metadata"].get("labels") or {}
    )
    return selected and all(_holds(each["expression"], pod) for each in webhook.get("matchConditions") or ())


def _holds(expression: str, pod: Row) -> bool:
    try:
        return evaluate(expression, "object", pod)
    except ValueError:
        return False  # failurePolicy Ignore: the webhook is left out


def _selects(selector: Row | None, labels: Mapping[str, str]) -> bool:
    assert set(selector or {}) <= {"matchLabels"}
    return all(labels.get(key) == value for key, value in ((selector or {}).get("matchLabels") or {}).items())


def _called(webhook: Row, pod: Row, services: Services) -> Row:
    """The pod after one webhook. Where it does not answer as it must, failurePolicy decides."""
    try:
        return _reviewed(webhook, pod, services)
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        if webhook.get("failurePolicy", "Fail") == "Ignore":
            return pod
        raise


def _reviewed(webhook: Row, pod: Row, services: Services) -> Row:
    uid = str(uuid.uuid4())
    kind, resource = {"group": "", "version": "v1", "kind": "Pod"}, {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "someone", "groups": ["system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    answer = _post(webhook["clientConfig"], json.dumps(review).encode(), services, webhook.get("timeoutSeconds", 10))
    response = answer["response"]
    if (answer["apiVersion"], answer["kind"], response["uid"]) != (review["apiVersion"], review["kind"], uid):
        raise ValueError("another version, kind or uid than was asked about")
    assert response["allowed"], "the webhook refuses no pod"
    if "patch" not in response:
        return pod
    if response["patchType"] != "JSONPatch":
        raise ValueError(response["patchType"])
    return patched(pod, json.loads(base64.b64decode(response["patch"], validate=True)))


def _post(client: Row, body: bytes, services: Services, timeout_s: float) -> Any:
    if "url" in client:
        parts = urllib.parse.urlsplit(client["url"])
        host, port, path = str(parts.hostname), int(parts.port or 443), parts.path
    else:
        service = client["service"]
        host, path = f"{service['name']}.{service['namespace']}.svc", service["path"]
        port = services[service["namespace"], service["name"]]
    context = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
    raw = socket.create_connection(("127.0.0.1", port), timeout_s)
    with context.wrap_socket(raw, server_hostname=host) as secured:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        connection.sock = secured
        connection.request("POST", path + f"?timeout={timeout_s}s", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        return json.loads(answer.read())


def patched(row: Row, patch: list[Row]) -> Row:
    """An object after a JSON patch (RFC 6902) of additions and replacements."""
    row = copy.deepcopy(row)
    for each in patch:
        assert each["op"] in ("add", "replace"), each
        *parents, last = (part.replace("~1", "/") for part in each["path"].removeprefix("/").split("/"))
        place: Any = row
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list) and each["op"] == "replace":
            place[int(last)] = each["value"]
        elif isinstance(place, list):
            place.append(each["value"])
        else:
            place[last] = each["value"]
    return row
