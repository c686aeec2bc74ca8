"""Sets of devices for jobs that take several at once (gangs).

Law: a set of devices spans no more nodes than it must.
"""

from collections.abc import Sequence

from interfere.records import Device


def device_sets(empty: Sequence[Device], size: int, max_sets: int) -> list[tuple[Device, ...]]:
    """At most `max_sets` sets of `size` of these devices, which are of one class.

    Each set spans as few nodes as possible: it takes the node with the fewest free devices that holds it whole; where
    none does, the nodes with the most free devices first, and then the node with the fewest that holds what is missing.
    """
    if size == 1:
        return [(device,) for device in empty[:max_sets]]
    free_by_node: dict[str, list[Device]] = {}
    for device in empty:
        free_by_node.setdefault(device.node, []).append(device)
    sets = []
    for _ in range(min(max_sets, len(empty) // size)):
        members: list[Device] = []
        while len(members) < size:
            missing = size - len(members)
            sufficient = [node for node, free in free_by_node.items() if len(free) >= missing]
            if sufficient:
                node = min(sufficient, key=lambda name: len(free_by_node[name]))
            else:
                node = max(free_by_node, key=lambda name: len(free_by_node[name]))
            members += free_by_node[node][:missing]
            free_by_node[node] = free_by_node[node][missing:]
            if not free_by_node[node]:
                del free_by_node[node]
        sets.append(tuple(members))
    return sets
