"""The mutating webhook: adds the gate, and where wanted the claim, to pods that opted in. Pure functions.

Law: it never refuses a pod. Law: mutating twice is mutating once.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from interfere.errors import InvalidInputError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.https.server import Answer, Request
from interfere.serving.adapters.kubernetes.objects.reading import read_pod

CLAIM_ENTRY = "interfere-gpu"  # name of the claim inside the pod
Patch = list[dict[str, Any]]


def review(request: Request, *, add_claim: bool) -> Answer:
    """Answer an AdmissionReview (admission.k8s.io/v1). Raises InvalidInputError for anything else."""
    try:
        document = json.loads(request.body)
        admission = document["request"]
        uid, pod = str(admission["uid"]), admission["object"]
        if not isinstance(pod, dict):
            raise TypeError("object is no pod")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"this is no AdmissionReview ({error})", value=repr(request.body[:60]), remedy="POST one of v1"
        ) from None
    patch = mutation(pod, uid, add_claim=add_claim) if admission.get("operation", "CREATE") == "CREATE" else []
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return Answer(document={"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def mutation(pod: Mapping[str, Any], uid: str, *, add_claim: bool) -> Patch:
    """A JSON patch (RFC 6902) that gates a pod; empty for a pod that is left as it is."""
    spec = pod.get("spec")
    record = read_pod(dict(pod))
    if not isinstance(spec, dict) or record.node or record.gated or not record.workload:
        return []
    if record.note(names.OPT_OUT) == "true":
        return []
    patch: Patch = []
    if record.source is None:
        patch = _claim(spec, uid) if add_claim else []
    if record.special not in ("", "no GPU") or (record.source is None and not patch):
        return []  # the controller would leave it to Kubernetes anyway
    return patch + _append(spec, "schedulingGates", {"name": names.GATE})


def _claim(spec: Mapping[str, Any], uid: str) -> Patch:
    """Name a claim, which the controller creates later, and give it to the first container. A pod of a controller has
    no name yet, so the claim is named after the request."""
    containers = spec.get("containers")
    if spec.get("resourceClaims") or not isinstance(containers, list) or not containers:
        return []
    name = f"interfere-{''.join(c for c in uid.lower() if c.isalnum())[:20]}"
    patch = _append(spec, "resourceClaims", {"name": CLAIM_ENTRY, "resourceClaimName": name})
    resources = containers[0].get("resources") if isinstance(containers[0], dict) else None
    if not isinstance(resources, dict):
        patch.append(
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"claims": [{"name": CLAIM_ENTRY}]}}
        )
        return patch
    claims = resources.get("claims")
    value: Any = {"name": CLAIM_ENTRY} if isinstance(claims, list) else [{"name": CLAIM_ENTRY}]
    end = "/-" if isinstance(claims, list) else ""
    return [*patch, {"op": "add", "path": f"/spec/containers/0/resources/claims{end}", "value": value}]


def _append(spec: Mapping[str, Any], field: str, value: Mapping[str, Any]) -> Patch:
    if isinstance(spec.get(field), list):
        return [{"op": "add", "path": f"/spec/{field}/-", "value": dict(value)}]
    return [{"op": "add", "path": f"/spec/{field}", "value": [dict(value)]}]
