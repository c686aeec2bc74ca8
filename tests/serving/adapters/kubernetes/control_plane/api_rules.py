"""Rules by which an API server refuses an object that a client writes. Pure functions.

Source: kubernetes/kubernetes, pkg/apis/{core,resource,coordination}/validation and apimachinery's validation. Stricter
in one point: a real server drops fields that it does not know, here they are refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from interfere.serving.adapters.kubernetes.objects.selectors import DEVICE, compile_error
from interfere.serving.adapters.kubernetes.objects.values import quantity, unix_s
from tests.deploy.schema import findings

Row = dict[str, Any]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
MAX_ANNOTATIONS = 256 * 1024  # bytes of all annotations of an object
MAX_EXPRESSION = 10 * 1024
KINDS = {"pods": "Pod", "events": "Event", "secrets": "Secret", "leases": "Lease", "resourceclaims": "ResourceClaim"}
KINDS |= {"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "nodes": "Node", "namespaces": "Namespace"}
WITH_VERSION = ("leases", "mutatingwebhookconfigurations", "resourceclaims")  # no update without a resourceVersion


def refusals(resource: str, group_version: str, row: Row, namespace: str | None) -> list[str]:
    """Why an object cannot be stored; empty for a good one."""
    return list(_refusals(resource, group_version, row, namespace))


def _refusals(resource: str, group_version: str, row: Row, namespace: str | None) -> Iterator[str]:
    kind = KINDS[resource]
    if row.get("kind", kind) != kind or row.get("apiVersion", group_version) != group_version:
        yield f"{row.get('apiVersion')} {row.get('kind')} is not {group_version} {kind}"
        return
    known = {key: value for key, value in row.items() if key != "metadata"} | {"metadata": _metadata(row)}
    yield from findings(known | {"kind": kind, "apiVersion": group_version})
    yield from metadata_refusals(row.get("metadata") or {}, is_event=resource == "events")
    if resource == "events":
        yield from _event(row, namespace)
    elif resource == "leases":
        yield from _lease(row.get("spec") or {})
    elif resource == "resourceclaims":
        yield from _claim(row.get("spec") or {})


def _metadata(row: Row) -> Row:
    """Without removals, which only a patch has."""
    metadata = dict(row.get("metadata") or {})
    if isinstance(metadata.get("annotations"), dict):
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if value is not None}
    return metadata


def metadata_refusals(metadata: Mapping[str, Any], *, is_event: bool = False) -> Iterator[str]:
    """Names, labels and annotations."""
    name = metadata.get("name")
    if name is not None and (len(name) > 253 or not (is_event or _SUBDOMAIN.fullmatch(name))):
        yield f"metadata.name: {name!r}"
    if name is not None and (name in (".", "..") or "/" in name or "%" in name):
        yield f"metadata.name: {name!r}"
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_qualified(key):
            yield f"metadata.labels: the key {key!r}"
        if value is not None and value != "" and not _NAME.fullmatch(value):
            yield f"metadata.labels[{key}]: {value!r}"
    annotations = metadata.get("annotations") or {}
    yield from (f"metadata.annotations: the key {key!r}" for key in annotations if not _is_qualified(key.lower()))
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS:
        yield "metadata.annotations: too long"


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (not slash or (bool(_SUBDOMAIN.fullmatch(prefix)) and len(prefix) <= 253))


def _event(row: Row, namespace: str | None) -> Iterator[str]:
    if (row.get("involvedObject") or {}).get("namespace") != namespace:
        yield "involvedObject.namespace: does not match event.namespace"
    for field in ("firstTimestamp", "lastTimestamp"):
        if row.get(field) is not None and not _TIME.fullmatch(row[field]):
            yield f"{field}: {row[field]!r}"
    if row.get("eventTime") is None:
        return
    if not _MICRO_TIME.fullmatch(row["eventTime"]):
        yield f"eventTime: {row['eventTime']!r}"
    for field, longest in (("reportingComponent", 317), ("reportingInstance", 128), ("action", 128), ("reason", 128)):
        if not 0 < len(row.get(field) or "") <= longest:
            yield f"{field}: required, at most {longest} characters"
    if len(row.get("message") or "") > 1024:
        yield "message: can have at most 1024 characters"


def _lease(spec: Row) -> Iterator[str]:
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        yield "spec.leaseDurationSeconds: must be greater than 0"
    if (spec.get("leaseTransitions") or 0) < 0:
        yield "spec.leaseTransitions: must be greater than or equal to 0"
    for field in ("acquireTime", "renewTime"):
        text = spec.get(field)
        if text is not None and not (_MICRO_TIME.fullmatch(text) and unix_s(text)):
            yield f"spec.{field}: {text!r} is no MicroTime"


def _claim(spec: Row) -> Iterator[str]:
    requests = (spec.get("devices") or {}).get("requests") or []
    names = [request.get("name") for request in requests]
    if len(names) != len(set(names)) or len(names) > 32:
        yield "spec.devices.requests: names are not unique, or too many"
    for request in requests:
        where = f"spec.devices.requests[{request.get('name')}]"
        if not _LABEL.fullmatch(request.get("name") or ""):
            yield f"{where}: the name"
        if (request.get("exactly") is None) == (not request.get("firstAvailable")):
            yield f"{where}: exactly one of `exactly` or `firstAvailable` is required"
        alternatives = request.get("firstAvailable") or ()
        kinds = [each.get("name") for each in alternatives]
        if len(kinds) != len(set(kinds)) or len(kinds) > 8 or not all(_LABEL.fullmatch(each or "") for each in kinds):
            yield f"{where}.firstAvailable: at most eight, each with a name of its own"
        for device in (request["exactly"],) if request.get("exactly") is not None else alternatives:
            yield from _exactly(device, where)


def _exactly(exactly: Row, where: str) -> Iterator[str]:
    if not _SUBDOMAIN.fullmatch(exactly.get("deviceClassName") or ""):
        yield f"{where}.deviceClassName: {exactly.get('deviceClassName')!r}"
    if exactly.get("allocationMode", "ExactCount") not in ("ExactCount", "All") or exactly.get("count", 1) <= 0:
        yield f"{where}.allocationMode, count"
    for selector in exactly.get("selectors") or ():
        expression = selector["cel"]["expression"]
        wrong = compile_error(expression, DEVICE)
        if wrong or len(expression) > MAX_EXPRESSION:
            yield f"{where}.selectors: {wrong or 'too long'}"
    for name, amount in ((exactly.get("capacity") or {}).get("requests") or {}).items():
        if not _is_qualified(name) or not quantity(amount) >= 0:
            yield f"{where}.capacity.requests[{name}]: {amount!r}"


def pod_patch_refusal(current: Row, patch: Row) -> str:
    """What may change in a pod that is there: gates go, and selectors grow while a gate holds it."""
    spec, wanted = current["spec"], patch.get("spec") or {}
    for field in wanted:
        if field not in ("schedulingGates", "nodeSelector"):
            return f"spec.{field}: field is immutable"
    gates = {gate["name"] for gate in spec.get("schedulingGates") or ()}
    if "schedulingGates" in wanted and not {gate["name"] for gate in wanted["schedulingGates"] or ()} <= gates:
        return "spec.schedulingGates: only deletion is allowed"
    known = spec.get("nodeSelector") or {}
    if "nodeSelector" in wanted and not wanted["nodeSelector"] and known:
        return "spec.nodeSelector: only additions are allowed"
    for key, value in (wanted.get("nodeSelector") or {}).items():
        if not gates or known.get(key, value) != value:
            return "spec.nodeSelector: only additions are allowed, while gated"
    known_notes, notes = current["metadata"].get("annotations") or {}, patch.get("metadata", {}).get("annotations")
    merged = {key: value for key, value in (known_notes | (notes or {})).items() if value is not None}
    return next(metadata_refusals((patch.get("metadata") or {}) | {"annotations": merged}), "")
