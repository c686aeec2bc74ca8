"""Devices that kube-scheduler may allocate, by rules of its source: the stand-in gives these, the adapter offers them.

Source: kubernetes/kubernetes, staging/src/k8s.io/dynamic-resource-allocation/structured/internal (1.34 to 1.36):
consumable_capacity.go, pools_incubating.go, allocator_incubating.go; resourceclaim/devicetoleration.go. Each case names
the function whose rule it states, and the devices of which a claim for a single one would be given by it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.port import PATHS
from interfere.serving.adapters.kubernetes.problem import build
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, TEMPLATE
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, settings

Row = dict[str, Any]
GIB = "80Gi"


class Case(NamedTuple):
    """Slices, a request, what other claims hold, and the names of the devices that the request may be given."""

    rule: str
    slices: Sequence[Row]
    given: set[str]
    request: Mapping[str, Any] = MappingProxyType({})
    held: Sequence[tuple[str, Row]] = ()  # device, and the capacities that a claim holds of it
    of_class: str = "true"


def device(name: str = "gpu-0", **more: Any) -> Row:
    capacity = more.pop("capacity", {"memory": {"value": GIB, "requestPolicy": {"default": "1Gi"}}})
    row = {"name": name, "allowMultipleAllocations": True, "capacity": capacity}
    return row | {"attributes": {"uuid": {"string": f"GPU-{name}"}} | more.pop("attributes", {})} | more


def published(*devices: Row, generation: int = 1, count: int = 1, **place: Any) -> Row:
    pool = {"name": "n0", "generation": generation, "resourceSliceCount": count}
    return {"driver": DRIVER, "pool": pool, "devices": list(devices)} | (place or {"nodeName": "n0"})


def sized(policy: Row | None, value: str = "100") -> Row:
    """A device with a capacity `cores` of such a policy."""
    cores: Row = {"value": value} | ({"requestPolicy": policy} if policy else {})
    return device(capacity={"memory": {"value": GIB, "requestPolicy": {"default": "1Gi"}}, "cores": cores})


def asks(**capacities: str) -> Row:
    return {"capacity": {"requests": capacities}}


def partitions(*sizes: int) -> list[Row]:
    """A GPU of 4 counters, and partitions that consume so many of them."""

    def consuming(name: str, amount: int) -> Row:
        consumption = {"counterSet": "gpu", "counters": {"slices": {"value": str(amount)}}}
        memory = {"memory": {"value": f"{20 * amount}Gi", "requestPolicy": {"default": "1Gi"}}}
        return device(name, capacity=memory, consumesCounters=[consumption])

    shared = [{"name": "gpu", "counters": {"slices": {"value": "4"}}}]
    devices = [consuming("whole", 4), *(consuming(f"part-{k}", size) for k, size in enumerate(sizes))]
    return [published(*devices) | {"sharedCounters": shared}]


def tainted(effect: str, key: str = "sick", value: str = "yes") -> Row:
    return device(taints=[{"key": key, "value": value, "effect": effect}])


RANGE = {"default": "10", "validRange": {"min": "10", "max": "80", "step": "20"}}
OPEN = {"default": "10", "validRange": {"min": "10"}}
VALUES = {"default": "25", "validValues": ["25", "50", "100"]}
ALL = {"gpu-0"}
HALF: tuple[tuple[str, Row], ...] = (("gpu-0", {"memory": "20Gi", "cores": "50"}),)
TERMS = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
CASES = [
    # calculateConsumedCapacity, violatesPolicy, CmpRequestOverCapacity
    Case("a request is rounded up to a step, and fits", [published(sized(RANGE))], ALL, asks(cores="45"), HALF),
    Case("rounded up to a step, it is too much", [published(sized(RANGE))], set(), asks(cores="55"), HALF),
    Case("rounded up past the largest request", [published(sized(RANGE))], set(), asks(cores="71")),
    Case("below the range it is the smallest request", [published(sized(RANGE))], ALL, asks(cores="1")),
    Case("a range without steps takes it as it is", [published(sized(OPEN))], ALL, asks(cores="50"), HALF),
    Case("a range without an end ends with the device", [published(sized(OPEN))], set(), asks(cores="101")),
    Case("a request is rounded up to a valid value", [published(sized(VALUES))], ALL, asks(cores="26"), HALF),
    Case("the next valid value is too much", [published(sized(VALUES))], set(), asks(cores="51"), HALF),
    Case("no valid value is so large", [published(sized(VALUES))], set(), asks(cores="101")),
    Case("without a policy a request is taken as it is", [published(sized(None))], ALL, asks(cores="50"), HALF),
    Case("without a policy, more than is left", [published(sized(None))], set(), asks(cores="51"), HALF),
    # requestsContainNonExistCapacity: names are compared as they are written
    Case("a capacity that the device lacks", [published(device())], set(), asks(cores="1")),
    Case(
        "a name without the domain is another capacity",
        [published(device(capacity={f"{DRIVER}/memory": {"value": GIB, "requestPolicy": {"default": "1Gi"}}}))],
        set(),
        asks(memory="1Gi"),
    ),
    Case("a device that has it beside one that lacks it", [published(sized(None), device("b"))], ALL, asks(cores="9")),
    # GatherPools, poolIsInvalid
    Case("slices of an older generation", [published(device()), published(device("b"), generation=2)], {"b"}),
    Case("a pool that is not published as a whole", [published(device(), count=2)], set()),
    Case("two slices of two", [published(device(), count=2), published(device("b"), count=2)], {"gpu-0", "b"}),
    Case("a name twice makes the pool invalid", [published(device(), device(), device("b"))], set()),
    # NodeMatches
    Case("a slice of another node", [published(device(), nodeName="n9")], set()),
    Case("a slice of the nodes with a label", [published(device(), nodeSelector={"nodeSelectorTerms": TERMS})], ALL),
    Case(
        "a device that selects its nodes by itself",
        [published(device(nodeName="n0"), device("b", nodeName="n9"), perDeviceNodeSelection=True)],
        ALL,
    ),
    # taintPreventsAllocation, ToleratesTaint
    Case("NoSchedule keeps claims off", [published(tainted("NoSchedule"), device("b"))], {"b"}),
    Case("NoExecute keeps claims off", [published(tainted("NoExecute"))], set()),
    Case("None keeps nobody off", [published(tainted("None"))], ALL),
    Case(
        "a toleration of the value",
        [published(tainted("NoSchedule"))],
        ALL,
        {"tolerations": [{"key": "sick", "value": "yes", "effect": "NoSchedule"}]},
    ),
    Case(
        "a toleration of another value",
        [published(tainted("NoSchedule"))],
        set(),
        {"tolerations": [{"key": "sick", "value": "no"}]},
    ),
    Case(
        "a toleration of all taints", [published(tainted("NoExecute"))], ALL, {"tolerations": [{"operator": "Exists"}]}
    ),
    Case(
        "a toleration of another effect",
        [published(tainted("NoExecute"))],
        set(),
        {"tolerations": [{"key": "sick", "operator": "Exists", "effect": "NoSchedule"}]},
    ),
    # checkAvailableCounters; a device in use consumes its counters once
    Case(
        "a partition beside another, within the counters",
        partitions(2, 2),
        {"part-1", "part-0"},
        {},
        [("part-0", {"memory": "1Gi"})],
    ),
    Case(
        "a partition for which no counters are left", partitions(3, 2), {"part-0"}, {}, [("part-0", {"memory": "1Gi"})]
    ),
    Case("the whole GPU, in use, takes more claims", partitions(2), {"whole"}, {}, [("whole", {"memory": "1Gi"})]),
    # isSelectable, selectorsMatch
    Case(
        "class and claim must both select",
        [published(device(attributes={"kind": {"string": "a"}}), device("b", attributes={"kind": {"string": "b"}}))],
        {"b"},
        {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind != "a"'}}]},
        of_class=f'device.driver == "{DRIVER}"',
    ),
    Case("a class of another driver", [published(device())], set(), of_class='device.driver == "other.dev"'),
    Case("a class of shared devices", [published(device())], ALL, of_class="device.allowMultipleAllocations"),
    Case(
        "a class by the size of the memory",
        [published(device(), device("b", capacity={"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi"}}}))],
        ALL,
        of_class=f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))',
    ),
]


def cluster(case: Case) -> Memory:
    memory = Memory()
    memory.add(NODE, node("n0", zone="a"))
    memory.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {"selectors": [{"cel": {"expression": case.of_class}}]}})
    for k, spec in enumerate(case.slices):
        memory.add(SLICE, {"metadata": {"name": f"s{k}"}, "spec": spec})
    for k, (held, amounts) in enumerate(case.held):
        row = pod(f"held{k}", gated=False, nodeName="n0", notes={names.MEMORY_GIB: "1"})
        row["status"]["phase"] = "Running"
        memory.add(POD, row)
        result = {"driver": DRIVER, "pool": "n0", "device": held, "consumedCapacity": amounts}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": f"held{k}"}]}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
        memory.add(CLAIM, {"metadata": {"name": f"held{k}-gpu", "namespace": "ml"}, "spec": spec, "status": status})
    return memory


def spec_of(case: Case, *selectors: Row) -> Row:
    exactly = {"deviceClassName": DRIVER} | case.request
    return {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": exactly | {"selectors": [*exactly.get("selectors", []), *selectors]}}
            ]
        }
    }


def device_names(case: Case) -> list[str]:
    return sorted({each["name"] for spec in case.slices for each in spec["devices"]})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_stand_in_allocates_by_the_rule(case: Case) -> None:
    """Each device is asked for by a claim of its own, in a cluster of its own."""
    given = set()
    for name in device_names(case):
        memory = cluster(case)
        own = {"cel": {"expression": f'device.attributes["{DRIVER}"].uuid == "GPU-{name}"'}}
        memory.add(CLAIM, {"metadata": {"name": "p-gpu", "namespace": "ml"}, "spec": spec_of(case, own)})
        memory.add(POD, pod("p", gated=False))
        scheduler = StandInScheduler(memory)  # type: ignore[arg-type]  # it reads and writes objects alone
        scheduler.deallocates = False  # the claims of others are held
        scheduler.once()
        given |= {name} if scheduler.bound else set()
    assert given == case.given


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_adapter_offers_by_the_rule(case: Case) -> None:
    """Where devices exclude one another it offers those that can all be allocated."""
    memory = cluster(case)
    memory.add(TEMPLATE, {"metadata": {"name": "one", "namespace": "ml"}, "spec": {"spec": spec_of(case)}})
    memory.add(POD, pod("p", notes={names.TEMPLATE: "one", names.MEMORY_GIB: "1"}))
    chosen = settings(seats=4)
    problem = build(cluster_state(chosen, *map(memory.read, PATHS)), chosen, memory.now_s)
    offered = set()
    if problem.snapshot is not None:
        (job,) = problem.snapshot.pending
        ids = {each.id for each in problem.snapshot.devices if each.pool in job.pools}
        offered = {problem.gpus[each].dra_name for each in ids}
    assert offered == case.given
