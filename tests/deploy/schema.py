"""Checks objects against the API's schema without a cluster: the official client's models carry it.

A field that the model does not know, a value of another type and a missing required field are findings.
"""

import re
from collections.abc import Iterator
from typing import Any

from kubernetes.client import models

# Kinds whose model is not named after the kind with V1 before it.
_MODELS = {("v1", "Event"): "CoreV1Event", ("resource.k8s.io/v1", "ResourceClaim"): "ResourceV1ResourceClaim"}
_PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}


def findings(document: dict[str, Any]) -> list[str]:
    """Everything wrong with an object; empty for a good one, and for kinds of other projects."""
    group, _, version = str(document["apiVersion"]).rpartition("/")
    if group.endswith("coreos.com") or group == "cert-manager.io":
        return []
    name = _MODELS.get((document["apiVersion"], document["kind"]), f"{version.capitalize()}{document['kind']}")
    model = getattr(models, name, None)
    if model is None:
        return [f"{document['apiVersion']} {document['kind']}: unknown kind"]
    return list(_object(document, model, document["kind"]))


def _object(value: Any, model: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: is no object"
        return
    fields = {json_name: field for field, json_name in model.attribute_map.items()}
    for key, inner in value.items():
        if key not in fields:
            yield f"{path}.{key}: unknown field"
        elif inner is not None:
            yield from _value(inner, model.openapi_types[fields[key]], f"{path}.{key}")
    try:
        known = {field: value[key] for key, field in fields.items() if value.get(key) is not None}
        model(**known)  # raises for a required field that is missing
    except ValueError as error:
        yield f"{path}: {error}"


def _value(value: Any, kind: str, path: str) -> Iterator[str]:
    inner = re.fullmatch(r"list\[(.*)\]", kind)
    if inner:
        if not isinstance(value, list):
            yield f"{path}: is no list"
            return
        for k, each in enumerate(value):
            yield from _value(each, inner[1], f"{path}[{k}]")
    elif mapping := re.fullmatch(r"dict\((\w+), (.*)\)", kind):
        if not isinstance(value, dict):
            yield f"{path}: is no mapping"
            return
        for key, each in value.items():
            yield from _value(each, mapping[2], f"{path}.{key}")
    elif kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {kind}"
    elif hasattr(models, kind):
        yield from _object(value, getattr(models, kind), path)
