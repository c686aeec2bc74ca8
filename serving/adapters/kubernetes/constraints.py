"""Which nodes may take a pod: nodeSelector, node affinity, taints, volumes, free CPU and memory. Pure functions.

Decisions know pools of devices, not nodes. Nodes that the same kinds of pods may use form one pool, so a decision
never names a node that the scheduler would refuse.
"""

from collections.abc import Iterable, Mapping, Sequence

from serving.adapters.kubernetes.records import Constraints, Gpu, GpuSource, Node, Pod, SelectorTerms

Kind = tuple[GpuSource | None, Constraints]


def admits(node: Node, labels: Mapping[str, str], wanted: Constraints) -> bool:
    """Whether labels and taints of the node allow a pod of these constraints."""
    if not node.usable or any(labels.get(key) != value for key, value in wanted.node_selector):
        return False
    if not all(_tolerated(taint.key, taint.value, taint.effect, wanted.tolerations) for taint in node.taints):
        return False
    if not all(fulfils(node, terms) for terms in wanted.volume_terms):
        return False
    return not wanted.affinity_terms or fulfils(node, wanted.affinity_terms)


def fulfils(node: Node, terms: SelectorTerms) -> bool:
    """Whether labels and name of the node fulfil one of the terms."""
    known = {**dict(node.labels), "metadata.name": node.name}
    return any(term and all(_holds(known, *each) for each in term) for term in terms)


def _tolerated(key: str, value: str, effect: str, tolerations: Iterable[tuple[str, str, str, str]]) -> bool:
    """Whether a pod tolerates a taint. Comparisons of numbers (Gt, Lt, from 1.35 on) are not counted on."""
    return any(
        (not t_key or t_key == key)
        and (t_effect in ("", effect))
        and (operator == "Exists" or (operator == "Equal" and t_value == value))
        for t_key, operator, t_value, t_effect in tolerations
        if t_key or operator == "Exists"
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


def free_resources(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, tuple[float, float, float]]:
    """CPU cores, bytes of memory and number of pods that each node can still take; NaN where it does not say."""
    free = {node.name: [node.cpu, node.memory_bytes, node.pods] for node in nodes}
    for pod in pods:
        if pod.node in free and not pod.ended:
            rest = free[pod.node]
            rest[0] -= pod.constraints.cpu
            rest[1] -= pod.constraints.memory_bytes
            rest[2] -= 1
    return {name: (cpu, memory, count) for name, (cpu, memory, count) in free.items()}


def pools(
    kinds: Iterable[Kind], nodes: Sequence[Node], gpus: Iterable[Gpu], free: Mapping[str, tuple[float, float, float]]
) -> tuple[dict[tuple[str, GpuSource], str], dict[Kind, tuple[str, ...]]]:
    """The pool of each (node, source), and the pools that each kind of pod may use; none where it fits nowhere."""
    kinds = list(dict.fromkeys(kinds))
    sources = {(gpu.node, gpu.source) for gpu in gpus}
    admitted: dict[tuple[str, GpuSource], frozenset[int]] = {}
    for node in nodes:
        labels = dict(node.labels)
        cpu, memory, count = free.get(node.name, (float("nan"),) * 3)
        for source in (each for each in GpuSource if (node.name, each) in sources):
            admitted[node.name, source] = frozenset(
                k
                for k, (wanted_source, wanted) in enumerate(kinds)
                if wanted_source is source
                and not (wanted.cpu > cpu or wanted.memory_bytes > memory or count < 1)
                and admits(node, labels, wanted)
            )
    numbers = {members: f"pool-{k}" for k, members in enumerate(dict.fromkeys(admitted.values()))}
    pool_of = {place: numbers[members] for place, members in admitted.items()}
    allowed = {kind: tuple(name for members, name in numbers.items() if k in members) for k, kind in enumerate(kinds)}
    return pool_of, allowed
