"""The nodes that a pod's volumes are reachable from. Pure functions.

A volume of one zone, or a node's own disk, says so in its node affinity; a claim that is not bound yet leaves the
choice to the scheduler. Source: kube-scheduler's VolumeBinding.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from interfere.serving.adapters.kubernetes.objects.node_selectors import selector_terms
from interfere.serving.adapters.kubernetes.records import JsonObject, SelectorTerms

VolumeTerms = Mapping[tuple[str, str], SelectorTerms]
"""Terms of the volume that a claim is bound to, by namespace and name of the claim."""


def terms_by_claim(claims: Iterable[JsonObject], volumes: Iterable[JsonObject]) -> VolumeTerms:
    """The node affinity of every bound volume that has one."""
    terms = {}
    for row in volumes:
        affinity = _map(_map(row.get("spec")).get("nodeAffinity"))
        if found := selector_terms(affinity.get("required")):
            terms[str(_map(row.get("metadata")).get("name"))] = found
    bound = {}
    for row in claims if terms else ():
        metadata, volume = _map(row.get("metadata")), str(_map(row.get("spec")).get("volumeName") or "")
        if volume in terms:
            bound[str(metadata.get("namespace")), str(metadata.get("name"))] = terms[volume]
    return bound


def terms_of_pod(row: JsonObject, terms: VolumeTerms) -> tuple[SelectorTerms, ...]:
    """The terms that a node of the pod must fulfil, one entry a volume. An ephemeral volume's claim is named after pod
    and volume."""
    metadata, found = _map(row.get("metadata")), []
    volumes = _map(row.get("spec")).get("volumes")
    for volume in map(_map, volumes if isinstance(volumes, list) else ()):
        name = str(_map(volume.get("persistentVolumeClaim")).get("claimName") or "")
        if volume.get("ephemeral"):
            name = f"{metadata.get('name')}-{volume.get('name')}"
        if of_volume := terms.get((str(metadata.get("namespace")), name)):
            found.append(of_volume)
    return tuple(found)


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
