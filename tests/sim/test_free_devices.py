"""Free devices: found by best fit, whatever the order in which they came free."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.solve.decision_problem import device_sets
from interfere.records import Device
from interfere.sim.free_devices import DevicePlaces, FreeDevices


def cluster(sizes: list[int]) -> list[Device]:
    """Nodes of these sizes."""
    return [Device(id=f"{node}-{k}", type="t", node=f"n{node}") for node, size in enumerate(sizes) for k in range(size)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 4), st.randoms())
def test_devices_span_as_few_nodes_as_the_servers_choice(sizes: list[int], gpus: int, node_gpus: int, rng) -> None:  # type: ignore[no-untyped-def]
    devices = cluster(sizes)
    taken = [device for device in devices if rng.random() < 0.4]
    free = FreeDevices(DevicePlaces(devices), devices)
    free.remove(taken)
    present = [device for device in devices if device not in taken]
    assert list(free) == present
    assert len(free) == len(present)
    expected = device_sets(present, gpus, 1) if gpus <= len(present) else []
    nodes = {device.node for device in expected[0]} if expected else set()
    found = free.find(gpus, (), node_gpus)
    if not expected or (node_gpus and len(nodes) > -(-gpus // node_gpus)):
        assert found == ()
    else:
        assert len({device.id for device in found}) == gpus
        assert len({device.node for device in found}) == len(nodes)
        assert all(device.id in free for device in found)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 4), st.randoms())
def test_what_is_found_is_also_found_with_more_free_devices(sizes: list[int], gpus: int, node_gpus: int, rng) -> None:  # type: ignore[no-untyped-def]
    devices = [replace(device, pool=f"p{k % 2}") for k, device in enumerate(cluster(sizes))]
    busy = [device for device in devices if rng.random() < 0.7]
    free = FreeDevices(DevicePlaces(devices), (device for device in devices if device not in busy))
    for pools in ((), ("p1",), ("p0", "p1")):
        more = free.copy()
        found = []
        for device in (None, *busy):
            if device is not None:
                more.add([device])
            found.append(bool(more.find(gpus, pools, node_gpus)))
        assert found == sorted(found)


def test_the_choice_does_not_depend_on_the_past() -> None:
    devices = cluster([2, 2, 2])
    choices = set()
    for order in itertools.permutations(devices[1:4]):
        free = FreeDevices(DevicePlaces(devices), devices)
        for device in devices[1:4]:
            free.remove([device])
        for device in order:
            free.add([device])
            free.add([device])  # twice is once
        free.remove(devices[:1])
        choices.add(tuple(device.id for device in free.find(1)))
    assert choices == {("0-1",)}  # the node with the fewest free


def test_copies_are_independent_and_pools_are_heeded() -> None:
    devices = [
        Device(id="a", type="t", pool="x"),
        Device(id="b", type="t", pool="y"),
        Device(id="c", type="u", pool="y"),
    ]
    free = FreeDevices(DevicePlaces(devices), devices)
    draft = free.copy()
    draft.remove(devices[:2])
    assert (len(free), len(draft)) == (3, 1)
    assert [device.id for device in free.find(1, ("y",))] == ["b"]
    assert free.find(2) == ()  # not of two pools or types
    assert free.most_of_one_pool() == 2
    assert [device.id for device in free.only(devices[2:])] == ["c"]
