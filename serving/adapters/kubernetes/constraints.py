"""Which GPUs may take a pod: selectors of nodes and devices, taints, volumes, free CPU and memory. Pure functions.

Decisions know pools of devices, not nodes. GPUs that the same kinds of pods may use form one pool, so a decision
never names a node that the scheduler would refuse.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from interfere.serving.adapters.kubernetes.objects.values import list_at, maps_at
from interfere.serving.adapters.kubernetes.records import (
    Constraints,
    DeviceRequest,
    Gpu,
    GpuSource,
    Node,
    SelectorTerms,
)


class Kind(NamedTuple):
    """What decides which GPUs a pod may use. Pods of equal kind may use the same GPUs."""

    source: GpuSource | None
    wanted: Constraints
    request: DeviceRequest | None
    is_capped: bool  # it needs to know its company: not where the kubelet chooses among GPUs in use

    def may_use(self, gpu: Gpu, requests: frozenset[DeviceRequest], *, in_use: bool) -> bool:
        """Whether a pod of this kind may use a GPU of a node that admits it. `requests`: that it may be given for."""
        is_known = not (self.is_capped and in_use and gpu.siblings > 1)
        return is_known and (self.request is None or self.request in requests)


def admits(node: Node, wanted: Constraints) -> bool:
    """Whether the labels and taints of a node allow a pod with these constraints to run there."""
    labels = dict(node.labels)
    if not node.usable or any(labels.get(key) != value for key, value in wanted.node_selector):
        return False
    if not all(tolerated(*taint, wanted.tolerations) for taint in node.taints):
        return False
    if not all(fulfils(node, terms) for terms in wanted.volume_terms):
        return False
    return not wanted.affinity_terms or fulfils(node, wanted.affinity_terms)


def selector_terms(selector: Any) -> SelectorTerms:
    """Return the terms of a NodeSelector, each as its (key, operator, values); empty for anything but a selector."""
    return tuple(
        tuple(
            (str(each.get("key")), str(each.get("operator")), tuple(map(str, list_at(each, "values"))))
            for each in (*maps_at(term, "matchExpressions"), *maps_at(term, "matchFields"))
        )
        for term in maps_at(selector, "nodeSelectorTerms")
    )


def fulfils(node: Node, terms: SelectorTerms) -> bool:
    """Whether labels and name of the node fulfil one of the terms."""
    known = {**dict(node.labels), "metadata.name": node.name}
    return any(term and all(_holds(known, *each) for each in term) for term in terms)


def tolerated(key: str, value: str, effect: str, tolerations: Iterable[tuple[str, str, str, str]]) -> bool:
    """Whether one of the tolerations, of a pod or of a claim, matches a taint of a node or of a device. Numeric
    operators (Gt and Lt, since 1.35) never match."""
    return any(
        (not t_key or t_key == key)
        and (t_effect in ("", effect))
        and (operator == "Exists" or (operator == "Equal" and t_value == value))
        for t_key, operator, t_value, t_effect in tolerations
        if t_key or operator == "Exists"
    )


def read_tolerations(row: Any) -> tuple[tuple[str, str, str, str], ...]:
    """Return the tolerations of a pod's spec or of a request for devices: key, operator, value, effect of each."""
    return tuple(
        (
            str(each.get("key") or ""),
            str(each.get("operator") or "Equal"),
            str(each.get("value") or ""),
            str(each.get("effect") or ""),
        )
        for each in maps_at(row, "tolerations")
    )


def _holds(labels: Mapping[str, str], key: str, operator: str, values: Sequence[str]) -> bool:
    present, value = key in labels, labels.get(key, "")
    if operator == "In":
        return present and value in values
    if operator == "NotIn":
        return not present or value not in values
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    try:
        bound, number = int(values[0]), int(value)
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound if operator == "Lt" else False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeResources:
    """Free CPU and host memory of a node. NaN where the node does not state an amount."""

    cpu: float
    memory_bytes: float
    pods: float

    def fits(self, wanted: Constraints) -> bool:
        """Whether one more pod of these constraints fits."""
        return not (wanted.cpu > self.cpu or wanted.memory_bytes > self.memory_bytes or self.pods < 1)

    def after(self, wanted: Constraints) -> "FreeResources":
        """Return the resources that are left once a pod with these constraints runs on the node."""
        return FreeResources(
            cpu=self.cpu - wanted.cpu, memory_bytes=self.memory_bytes - wanted.memory_bytes, pods=self.pods - 1
        )


def free_resources(nodes: Iterable[Node], taken: Iterable[tuple[str, Constraints]]) -> dict[str, FreeResources]:
    """Return the free resources of each node, given the pods on it as (node name, constraints)."""
    free = {node.name: FreeResources(cpu=node.cpu, memory_bytes=node.memory_bytes, pods=node.pods) for node in nodes}
    for node_name, constraints in taken:
        if node_name in free:
            free[node_name] = free[node_name].after(constraints)
    return free


def pools(
    kinds: Iterable[Kind],
    nodes: Sequence[Node],
    gpus: Iterable[tuple[Gpu, bool]],
    free: Mapping[str, FreeResources],
    selected: Callable[[Gpu], frozenset[DeviceRequest]],
) -> tuple[dict[str, str], dict[Kind, tuple[str, ...]]]:
    """Return the pool of each GPU by its id, and the pools that each kind of pod may use.

    `gpus`: each with whether it is in use. `selected` returns the requests that a GPU may be given for. A kind of pod
    that fits nowhere has no pools.
    """
    kinds, records = list(dict.fromkeys(kinds)), {node.name: node for node in nodes}
    nodes_of: dict[tuple[str, GpuSource], frozenset[int]] = {}  # the kinds that a node admits
    members: dict[str, frozenset[int]] = {}  # the kinds that a GPU may be used by
    for gpu, in_use in gpus:
        place = gpu.node, gpu.source
        if place not in nodes_of:
            nodes_of[place] = frozenset(
                k
                for k, kind in enumerate(kinds)
                if kind.source is gpu.source
                and free[gpu.node].fits(kind.wanted)
                and admits(records[gpu.node], kind.wanted)
            )
        requests = selected(gpu)
        members[gpu.id] = frozenset(k for k in nodes_of[place] if kinds[k].may_use(gpu, requests, in_use=in_use))
    numbers = {each: f"pool-{k}" for k, each in enumerate(dict.fromkeys(members.values()))}
    allowed = {kind: tuple(name for each, name in numbers.items() if k in each) for k, kind in enumerate(kinds)}
    return {name: numbers[each] for name, each in members.items()}, allowed
