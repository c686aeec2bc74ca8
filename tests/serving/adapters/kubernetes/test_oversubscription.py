"""Oversubscription of GPUs whose memory Kubernetes does not count, within what their hosts can back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.errors import InvalidInputError
from interfere.policy.rules.memory import DeviceMemory
from interfere.records import Device
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.problem import ClusterProblem, build
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from tests.serving.adapters.kubernetes.facts import GIB, node, pod, resource_slice, settings

GRANTING = {"granule_gib": 1.0, "oversubscription_ratio": 1.5}


def problem(*nodes: Any, slices: tuple[Any, ...] = (), pods: tuple[Any, ...] = (), **given_: Any) -> ClusterProblem:
    chosen = settings(**(GRANTING | given_))
    waiting = pods or (pod("a", "gemm", source="node"),)
    return build(cluster_state(chosen, waiting, nodes, slices, ()), chosen, 0.0)


def devices(found: ClusterProblem) -> tuple[Device, ...]:
    assert found.snapshot is not None
    return found.snapshot.devices


def annotated(ratio: str = "", reserve: str = "", name: str = "n0", gpus: int = 1) -> Any:
    row = node(name, gpus=gpus)
    row["metadata"]["annotations"] |= {names.RATIO: ratio} if ratio else {}
    row["metadata"]["annotations"] |= {names.HOST_RESERVE_GIB: reserve} if reserve else {}
    return row


def test_the_only_gpu_of_a_node_of_the_device_plugin_grants_more_than_its_memory() -> None:
    (device,) = devices(problem(node(gpus=1)))
    assert (device.oversubscription_ratio, device.host_reserve_bytes) == (1.5, 8 * GIB)
    assert DeviceMemory.of(device).granules == 24
    (plain,) = devices(problem(node(gpus=1), oversubscription_ratio=1.0))
    assert DeviceMemory.of(plain).granules == 16


def test_a_node_says_its_own_ratio_and_reserve_and_what_nobody_can_read_is_left_out() -> None:
    for row, granules in (
        (annotated("2"), 32),
        (annotated("1"), 16),
        (annotated(reserve="3"), 19),
        (annotated("2", "0"), 16),
        (annotated("0.5"), 24),
        (annotated("much", "-4"), 24),
    ):
        (device,) = devices(problem(row))
        assert DeviceMemory.of(device).granules == granules, row["metadata"]["annotations"]
    (less,) = devices(problem(node(gpus=1), host_reserve_gib=2.0))
    assert DeviceMemory.of(less).granules == 18


def test_a_gpu_whose_memory_a_driver_counts_or_that_the_kubelet_chooses_grants_its_own_memory() -> None:
    seen = problem(node("n1", gpus=2, hami=True), node("n2"), node("n3", gpus=2), slices=(resource_slice("n2"),))
    assert len(devices(seen)) == 6
    assert {device.oversubscription_ratio for device in devices(seen)} == {1.0}


@given(st.floats(1.0, 40.0), st.floats(0.0, 400.0) | st.none(), st.integers(1, 300))
@examples(max_examples=40, deadline=None)
def test_no_node_reserves_more_than_it_may_or_has(ratio: float, reserve: float | None, host_gib: int) -> None:
    row = annotated(str(ratio), "" if reserve is None else str(reserve))
    row["status"]["allocatable"]["memory"] = f"{host_gib}Gi"
    found = problem(row)
    if found.snapshot is None:  # the reserve leaves too little for any pod, of which each asks for a GiB
        assert found.free["n0"].memory_bytes < GIB
        return
    (device,) = devices(found)
    memory = DeviceMemory.of(device)
    allowed = min(host_gib, host_gib if reserve is None else reserve) * GIB
    beyond = memory.allocatable_bytes - device.memory_bytes
    assert beyond <= allowed + 1e-6 * GIB  # a millionth of a granule is rounding
    # What backs the grants is left free by the pods that are sent there.
    assert found.free["n0"].memory_bytes <= host_gib * GIB - beyond + 1e-6 * GIB


def test_a_pod_that_would_take_the_reserve_is_not_sent_there() -> None:
    small, large = (pod(name, "gemm", source="node") for name in ("small", "large"))
    for row, gib in ((small, 20), (large, 30)):
        row["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {})["memory"] = f"{gib}Gi"
    row = annotated()
    row["status"]["allocatable"]["memory"] = "32Gi"
    assert [each.name for each in problem(row, pods=(small, large)).candidates] == ["small"]
    plain = problem(row, pods=(small, large), oversubscription_ratio=1.0)
    assert sorted(each.name for each in plain.candidates) == ["large", "small"]


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"oversubscription_ratio": 1.5}, "granule_gib"),
        ({"oversubscription_ratio": 0.5}, "must be from 1"),
        ({"granule_gib": 1.0, "oversubscription_ratio": float("inf")}, "must be from 1"),
        ({"granule_gib": 1.0, "host_reserve_gib": -1.0}, "host_reserve_gib"),
    ],
)
def test_wrong_settings_are_told(given_: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        settings(**given_)


def test_settings_of_a_file_are_read() -> None:
    assert KubernetesSettings(granule_gib=1.0, oversubscription_ratio=1.5, host_reserve_gib=0.0).host_reserve_gib == 0
