"""Objects of the API server become records; whatever the shape, nothing raises."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.constraints import admits
from interfere.serving.adapters.kubernetes.objects.gpus import gpus_of_nodes, gpus_of_slices
from interfere.serving.adapters.kubernetes.objects.reading import read_claim, read_node, read_pod
from interfere.serving.adapters.kubernetes.objects.values import bytes_text, quantity, unix_s
from interfere.serving.adapters.kubernetes.records import GpuSource
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from tests.serving.adapters.kubernetes.facts import GIB, node, pod, resource_slice, settings

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("resourceClaims", "schedulingGates", "containers", "affinity", "tolerations", "nodeSelector", "priority")


@given(st.dictionaries(st.sampled_from(FIELDS), values), values, values)
@example({"priority": True}, None, None)
def test_a_pod_of_any_shape_gives_a_record(spec: dict, status: object, metadata: object) -> None:
    record = read_pod({"metadata": metadata, "spec": spec, "status": status}, settings())
    assert record.phase
    read_node({"metadata": metadata, "spec": spec, "status": status})
    read_claim({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("text", "number"), [("80Gi", 80 * GIB), ("500m", 0.5), ("1e3", 1000.0), ("2", 2.0), ("16384Mi", 16 * GIB)]
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


@given(st.floats(min_value=2**20, max_value=2**50))
def test_a_request_is_never_larger_than_what_was_decided(amount: float) -> None:
    assert amount - 2**20 < quantity(bytes_text(amount)) <= amount


def test_times_are_unix_seconds() -> None:
    assert unix_s("2026-11-22T10:00:00Z") == unix_s("2026-11-22T11:00:00+01:00") > 1.7e9
    assert unix_s("never") == unix_s(None) == 0.0


def test_gpus_of_a_resource_slice() -> None:
    old = resource_slice("n0", gpus=3, generation=1)
    gpus = gpus_of_slices([old, resource_slice("n0", gpus=2, generation=2)], settings())
    assert [gpu.id for gpu in gpus] == ["n0/GPU-n0-0", "n0/GPU-n0-1"], "an older generation of a pool does not count"
    assert {(gpu.type, gpu.memory_bytes, gpu.source) for gpu in gpus} == {("cpu-core", 80 * GIB, GpuSource.DRA)}
    exclusive = resource_slice("n1")
    for device in exclusive["spec"]["devices"]:
        del device["allowMultipleAllocations"]
    assert gpus_of_slices([exclusive], settings()) == ()


def test_gpus_of_hami_in_both_formats() -> None:
    row = node("n0", gpus=2, hami=True)
    text = gpus_of_nodes([row], settings())
    rows = [{"id": f"GPU-n0-{k}", "count": 2, "devmem": 16384, "type": "TEST-GPU", "health": True} for k in range(2)]
    row["metadata"]["annotations"][names.HAMI_REGISTER] = json.dumps(rows)
    assert gpus_of_nodes([row], settings()) == text
    assert [(gpu.id, gpu.memory_bytes, gpu.seats) for gpu in text] == [
        ("n0/GPU-n0-0", 16 * GIB, 2),
        ("n0/GPU-n0-1", 16 * GIB, 2),
    ]


def test_the_gpus_that_the_plain_device_plugin_shares() -> None:
    (gpu,) = gpus_of_nodes([node(gpus=1)], settings())
    assert (gpu.id, gpu.type, gpu.mode, gpu.seats) == ("n0/gpu-0", "cpu-core", "timeslice", 2)
    several = gpus_of_nodes([node(gpus=2)], settings())
    assert [(gpu.id, gpu.seats, gpu.siblings) for gpu in several] == [("n0/gpu-0", 2, 2), ("n0/gpu-1", 2, 2)]
    assert gpus_of_nodes([node(gpus=2, replicas=0)], settings()) == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"schedulerName": "volcano"}, "other scheduler"),
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "pod affinity"),
        ({"schedulingGates": [{"name": names.GATE}, {"name": "kueue.x-k8s.io/admission"}]}, "other gates"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}, "claim template"),
        ({"resourceClaims": [{"name": k, "resourceClaimName": k} for k in ("a", "b")]}, "several GPUs"),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}, "host ports"),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}, ""),
        ({"schedulingGroup": {"podGroupName": "workers"}}, "pod group"),
        ({"workloadRef": {"name": "w", "podGroup": "workers"}}, "pod group"),
    ],
)
def test_pods_that_are_left_to_kubernetes(changes: dict, reason: str) -> None:
    assert read_pod(pod("p", **changes), settings()).special == reason


def container(cpu: str, gpus: str = "", **more: str) -> dict:
    limits = {names.GPU_RESOURCE: gpus} if gpus else {}
    return {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": limits}} | more


@pytest.mark.parametrize(
    ("spec", "cpu", "special"),
    [
        ({"containers": [container("1", "1"), container("2")]}, 3.0, ""),
        ({"containers": [container("1", "1")], "initContainers": [container("8", "1"), container("4")]}, 8.0, ""),
        ({"containers": [container("1", "1"), container("2", "1")]}, 3.0, "several GPUs"),
        (
            {
                "containers": [container("1", "1")],
                "initContainers": [container("2", restartPolicy="Always"), container("3")],
            },
            5.0,
            "",
        ),
        (
            {"containers": [container("1", "1")], "initContainers": [container("2", "1", restartPolicy="Always")]},
            3.0,
            "several GPUs",
        ),
        ({"containers": [container("1", "1")], "resources": {"requests": {"cpu": "6"}}}, 6.0, ""),
        ({"containers": [container("1", "1")], "overhead": {"cpu": "250m"}}, 1.25, ""),
    ],
)
def test_what_a_pod_takes_of_its_node(spec: dict, cpu: float, special: str) -> None:
    record = read_pod({"metadata": {"name": "p"}, "spec": spec}, settings())
    assert (record.constraints.cpu, record.special) == (cpu, special)


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({}, False),  # the taint
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"key": "gpu", "value": "no"}]}, False),
        ({"tolerations": [{"key": "gpu", "value": "yes", "operator": "Gt"}]}, False),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "b"}}, False),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "a"}}, True),
    ],
)
def test_taints_and_selectors_decide_which_nodes_admit_a_pod(spec: dict, admitted: bool) -> None:
    row = node(zone="a")
    row["spec"]["taints"] = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    record = read_node(row)
    assert admits(record, read_pod(pod("p", **spec), settings()).constraints) == admitted


@pytest.mark.parametrize(
    ("operator", "given_values", "admitted"),
    [
        ("In", ["a"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["1"], False),  # not a number
        ("Unknown", ["1"], False),
    ],
)
def test_node_affinity(operator: str, given_values: list[str], admitted: bool) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": operator, "values": given_values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    record = read_node(node(zone="a"))
    wanted = read_pod(pod("p", affinity={"nodeAffinity": required}), settings()).constraints
    assert admits(record, wanted) == admitted


def test_settings_observe_unless_told_to_gate(tmp_path) -> None:
    assert KubernetesSettings.load(None, {}).mode is Mode.OBSERVE
    file = tmp_path / "kubernetes.toml"
    file.write_text('mode = "gate"\nwindow_s = 30\n[device_types]\n"NVIDIA A100" = "a100"\n')
    found = KubernetesSettings.load(file, {"window_s": None, "interval_s": 1.0})
    assert (found.mode, found.window_s, found.device_type("NVIDIA A100")) == (Mode.GATE, 30, "a100")
    file.write_text('windw_s = 3\nmode = "force"\nseats = "2"\n')
    with pytest.raises(InvalidInputError) as caught:
        KubernetesSettings.load(file, {})
    assert sorted(each.field for each in caught.value.violations) == ["mode", "seats", "windw_s"]
    assert [v.remedy for v in caught.value.violations if v.field == "windw_s"] == ["did you mean window_s?"]


@pytest.mark.parametrize(
    ("name", "value"), [("device_class", "My GPUs"), ("device_class", ""), ("request_name", "a.b"), ("namespace", "A")]
)
def test_a_name_that_the_api_server_would_refuse_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        settings(**{name: value})
    assert [each.field for each in caught.value.violations] == [name]
