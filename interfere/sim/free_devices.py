"""Free devices of a cluster, indexed by node, so that devices for a job are found without a scan of all of them.

Placement is best fit: a job takes its devices on the node with the fewest free devices that holds it whole; where none
does, it takes the nodes with the most free devices first, then the node with the fewest that holds what is missing.
Law: the choice depends on which devices are free, never on the order in which they came free: among equal nodes, and
devices of a node, the first in the order of the world is taken.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from interfere.records import Device


class DevicePlaces:
    """The position of each device of a world: class (pool and type), node, and index. Positions never change."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.classes: dict[tuple[str, str], int] = {}  # (pool, type) -> number
        self.positions: dict[str, tuple[int, int, int]] = {}  # device id -> (class, node, position in the world)
        nodes: dict[tuple[int, str], int] = {}
        for position, device in enumerate(devices):
            number = self.classes.setdefault((device.pool, device.type), len(self.classes))
            node = nodes.setdefault((number, device.node), len(nodes))
            self.positions[device.id] = (number, node, position)
        self.pools = tuple(pool for pool, _ in self.classes)


class FreeDevices:
    """A set of free devices that finds devices for jobs. A copy is cheap, so drafts of decisions change copies."""

    def __init__(self, places: DevicePlaces, devices: Iterable[Device] = ()) -> None:
        self._places = places
        self._classes = [_FreeClass() for _ in places.classes]
        self._count = 0
        self.add(devices)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, device_id: str) -> bool:
        number, node, position = self._places.positions[device_id]
        return any(entry[0] == position for entry in self._classes[number].nodes.get(node, ()))

    def __iter__(self) -> Iterator[Device]:
        """Iterate over the free devices in the order of the world."""
        entries = [entry for free in self._classes for node in free.nodes.values() for entry in node]
        return iter([device for _, device in sorted(entries, key=_position)])

    def copy(self) -> "FreeDevices":
        """Return an independent set with the same devices."""
        twin = FreeDevices.__new__(FreeDevices)
        twin._places, twin._count = self._places, self._count
        twin._classes = [free.copy() for free in self._classes]
        return twin

    def only(self, devices: Iterable[Device]) -> "FreeDevices":
        """Return an independent set that holds the given devices of the same world as free."""
        return FreeDevices(self._places, devices)

    def prefer(self, found: Iterable[Device], key: Callable[[Device], float]) -> tuple[Device, ...]:
        """Return as many free devices of each node as `found` has there, choosing the devices with the smallest
        keys."""
        counts = Counter(self._places.positions[device.id][:2] for device in found)
        return tuple(
            device
            for (number, node), count in counts.items()
            for device in sorted((device for _, device in self._classes[number].nodes[node]), key=key)[:count]
        )

    def most_of_one_pool(self) -> int:
        """Return the largest number of free devices in one pool."""
        by_pool: dict[str, int] = {}
        for pool, free in zip(self._places.pools, self._classes, strict=True):
            by_pool[pool] = by_pool.get(pool, 0) + free.count
        return max(by_pool.values(), default=0)

    def add(self, devices: Iterable[Device]) -> None:
        """Add devices to the set. Devices that are free already stay in the set."""
        for number, node, entries in self._by_node(devices):
            free = self._classes[number]
            present = free.nodes.get(node, ())
            merged = tuple(sorted(dict((*present, *entries)).items()))  # positions are distinct: no device is compared
            self._count += len(merged) - len(present)
            free.put(node, present, merged)

    def remove(self, devices: Iterable[Device]) -> None:
        """Remove devices from the set. Devices that are not free are ignored."""
        for number, node, entries in self._by_node(devices):
            free = self._classes[number]
            present = free.nodes.get(node, ())
            taken = {position for position, _ in entries}
            remaining = tuple(entry for entry in present if entry[0] not in taken)
            self._count -= len(present) - len(remaining)
            free.put(node, present, remaining)

    def find(self, gpus: int, pools: tuple[str, ...] = (), node_gpus: int = 0) -> tuple[Device, ...]:
        """Return free devices of one pool and type for a job; empty where there are too few.

        `pools`: pools that the job may use; empty allows all pools. `node_gpus`: devices of a node, with which the job
        takes no more nodes than it would on an empty cluster; 0 allows any number of nodes.
        """
        if gpus > self._count:
            return ()
        max_nodes = -(-gpus // node_gpus) if node_gpus else gpus
        for pool, free in zip(self._places.pools, self._classes, strict=True):
            if free.count >= gpus and (not pools or pool in pools):
                nodes = free.choose(gpus, max_nodes)
                if nodes:
                    entries = [entry for node, count in nodes for entry in free.nodes[node][:count]]
                    return tuple(device for _, device in entries)
        return ()

    def _by_node(self, devices: Iterable[Device]) -> Iterator[tuple[int, int, list["_Entry"]]]:
        grouped: dict[tuple[int, int], list[_Entry]] = {}
        for device in devices:
            number, node, position = self._places.positions[device.id]
            grouped.setdefault((number, node), []).append((position, device))
        return ((number, node, entries) for (number, node), entries in grouped.items())


_Entry = tuple[int, Device]
"""(position in the world, device)."""


def _position(entry: _Entry) -> int:
    return entry[0]


class _FreeClass:
    """The free devices of one pool and type by node, and the nodes by their number of free devices."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[_Entry, ...]] = {}  # node -> its free devices in order
        self.by_count: list[list[int]] = [[]]  # number of free devices -> nodes in order
        self.count = 0

    def copy(self) -> "_FreeClass":
        twin = _FreeClass()
        twin.nodes, twin.count = self.nodes.copy(), self.count
        twin.by_count = [nodes.copy() for nodes in self.by_count]
        return twin

    def put(self, node: int, before: tuple[_Entry, ...], after: tuple[_Entry, ...]) -> None:
        """Replace the free devices of a node, `before` by `after`, and keep the index by count up to date."""
        if len(before) == len(after):
            return
        if before:
            nodes = self.by_count[len(before)]
            del nodes[bisect_left(nodes, node)]
            del self.nodes[node]
        if after:
            while len(self.by_count) <= len(after):
                self.by_count.append([])
            insort(self.by_count[len(after)], node)
            self.nodes[node] = after
        self.count += len(after) - len(before)

    def choose(self, gpus: int, max_nodes: int) -> list[tuple[int, int]]:
        """Return pairs (node, number of devices to take) for a job; empty where more than `max_nodes` are needed."""
        by_count = self.by_count
        for count in range(gpus, len(by_count)):  # the usual case: one node holds it
            if by_count[count]:
                return [(by_count[count][0], gpus)]
        chosen: list[tuple[int, int]] = []
        largest_first = ((node, count) for count in range(len(by_count) - 1, 0, -1) for node in by_count[count])
        for node, count in largest_first:
            if len(chosen) == max_nodes:
                return []
            missing = gpus - sum(taken for _, taken in chosen)
            if count >= missing:
                used = {node for node, _ in chosen}
                last = next(n for c in range(missing, count + 1) for n in by_count[c] if n not in used)
                return [*chosen, (last, missing)]
            chosen.append((node, count))
        return []
