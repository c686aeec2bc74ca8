"""Laws of the decision problem and of the writes, on random clusters."""

import math
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interfere.records import Action, ActionKind
from interfere.serving.adapters.kubernetes import names, writes
from interfere.serving.adapters.kubernetes.claims import any_spec, claim_body, claim_sizes, seat_spec
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.problem import ClusterProblem, build
from interfere.serving.adapters.kubernetes.records import ClusterState, Pod, PodState
from interfere.serving.adapters.kubernetes.releasing import releases
from interfere.serving.adapters.kubernetes.settings import Mode
from interfere.serving.adapters.kubernetes.writes import WriteKind
from interfere.serving.adapters.observations import Decision
from tests.serving.adapters.kubernetes.facts import DRIVER, GIB, node, pod, resource_slice, settings

NOW = 1_800_000_000.0
CHOSEN = settings()
CLASS = {"metadata": {"name": DRIVER}, "spec": {}}


def state(pods: list[dict[str, Any]], claims: list[dict[str, Any]] = (), **given_nodes: Any) -> ClusterState:
    for k, row in enumerate(pods):
        row["metadata"] |= {"uid": f"u{k}", "resourceVersion": "1", "creationTimestamp": "2027-01-15T07:59:50Z"}
    nodes = [node("n0"), node("n1")]
    return cluster_state(CHOSEN, pods, nodes, [resource_slice("n0"), resource_slice("n1")], claims, classes=[CLASS])


def placed(name: str, device: str, age_s: float = 1.0) -> dict[str, Any]:
    notes = {names.STATE: "placed", names.DEVICE: device, names.DECIDED_AT: str(NOW - age_s)}
    return pod(name, gated=False, notes=notes)


def decided(job: Pod, action: Action) -> Decision[Pod]:
    return Decision(job=job, action=action, decision_id="d1")


def seats(view: ClusterProblem) -> int:
    return sum(2 - len(each.residents) for each in view.snapshot.devices) if view.snapshot else 0


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=4, unique=True))
def test_a_seat_is_offered_once(places: list[tuple[int, int]]) -> None:
    rows = [placed(f"r{k}", f"n{a}/GPU-n{a}-{b}") for k, (a, b) in enumerate(places)]
    view = build(state([*rows, pod("new")]), CHOSEN, NOW)
    assert seats(view) == 8 - len(places)
    assert [each.name for each in view.candidates] == ["new"]


def test_a_placement_that_was_lost_frees_its_seat() -> None:
    assert seats(build(state([placed("r", "n0/GPU-n0-0", age_s=61.0), pod("new")]), CHOSEN, NOW)) == 8


def test_a_gpu_with_a_pod_of_unknown_workload_is_not_offered() -> None:
    stranger = pod("s", gated=False, nodeName="n0")
    del stranger["metadata"]["annotations"][names.WORKLOAD]
    result = {"request": "gpu", "driver": "gpu.interfere.dev", "pool": "n0", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "u0"}]}
    claim = {"metadata": {"name": "s-gpu", "namespace": "ml"}, "status": status}
    view = build(state([stranger, pod("new")], [claim]), CHOSEN, NOW)
    assert view.snapshot is not None
    assert "n0/GPU-n0-0" not in {each.id for each in view.snapshot.devices}


def test_a_gpu_that_unknown_claims_hold_is_not_offered() -> None:
    """A claim of several devices, and one whose pod is not there."""
    results = [{"driver": "gpu.interfere.dev", "pool": "n1", "device": f"gpu-{k}"} for k in range(2)]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "other"}]}
    claim = {"metadata": {"name": "other", "namespace": "ml"}, "status": status}
    view = build(state([pod("new")], [claim]), CHOSEN, NOW)
    assert view.snapshot is not None
    assert {each.node for each in view.snapshot.devices} == {"n0"}


def test_the_claim_of_a_template_says_where_its_pod_runs() -> None:
    made = pod("t", gated=False, nodeName="n0", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "x"}])
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "t-gpu-abc"}]
    status = {
        "allocation": {"devices": {"results": [{"driver": "gpu.interfere.dev", "pool": "n0", "device": "gpu-1"}]}}
    }
    claim = {"metadata": {"name": "t-gpu-abc", "namespace": "ml"}, "status": status}
    view = build(state([made, pod("new")], [claim]), CHOSEN, NOW)
    assert view.snapshot is not None
    residents = {each.id: [job.workload for job in each.residents] for each in view.snapshot.devices}
    assert residents["n0/GPU-n0-1"] == ["gemm"]
    assert sum(map(len, residents.values())) == 1


def test_pods_go_only_to_nodes_that_admit_them() -> None:
    rows = [
        pod("anywhere"),
        pod("n1-only", nodeSelector={names.HOSTNAME: "n1"}),
        pod("nowhere", nodeSelector={"a": "b"}),
    ]
    view = build(state(rows), CHOSEN, NOW)
    assert view.snapshot is not None
    jobs = {job.id.split("/")[1]: job for job in view.snapshot.pending}
    nodes = {
        name: {each.node for each in view.snapshot.devices if each.pool in job.pools} for name, job in jobs.items()
    }
    assert nodes == {"anywhere": {"n0", "n1"}, "n1-only": {"n1"}}
    assert [each.name for each in view.impossible] == ["nowhere"]


def test_a_node_without_free_cpu_is_not_offered() -> None:
    large = pod("new")
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "33"
    assert build(state([large]), CHOSEN, NOW).snapshot is None


@given(st.booleans(), st.booleans(), st.sampled_from(["u0", "other"]), st.booleans())
def test_a_claim_that_is_held_or_not_ours_is_never_deleted(ours: bool, held: bool, owner: str, gated: bool) -> None:
    metadata = {"name": "p-gpu", "namespace": "ml", "uid": "c", "resourceVersion": "7"}
    metadata |= {"labels": {names.MANAGED_BY: names.MANAGER} if ours else {}}
    metadata |= {"annotations": {names.CLAIM_FOR: "n1/GPU-n1-0"}, "ownerReferences": [{"kind": "Pod", "uid": owner}]}
    status = {"reservedFor": [{"uid": "other"}]} if held else {}
    now = state([pod("p", gated=gated)], [{"metadata": metadata, "status": status}])
    claim, waiting, gpu = now.claims[0], now.pods[0], now.gpus[0]
    asked = waiting.claim_spec
    assert asked is not None
    specs = {
        gpu.id: seat_spec(asked, gpu, 40.0 * GIB),
        names.ANY_DEVICE: any_spec(asked, claim_sizes(now.gpus), math.nan),
    }
    for target, spec in specs.items():
        made = writes.claim_writes(waiting, claim, claim_body(waiting, target, spec))
        deleted = [write for write in made if write.kind is WriteKind.DELETE_CLAIM]
        assert bool(deleted) == (ours and not held)
    candidates = build(now, CHOSEN, NOW).candidates
    assert bool(candidates) == (ours and not held and owner == "u0")


def test_a_claim_of_a_share_beside_other_company_is_made_anew() -> None:
    def claim(gib: int) -> dict[str, Any]:
        metadata = {"name": "p-gpu", "namespace": "ml", "uid": "c", "resourceVersion": "7"}
        metadata |= {"labels": {names.MANAGED_BY: names.MANAGER}, "annotations": {names.CLAIM_FOR: "n1/GPU-n1-0"}}
        metadata |= {"ownerReferences": [{"kind": "Pod", "uid": "u0"}]}
        exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": f"{gib}Gi"}}}
        return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}

    for gib, is_kept in ((40, True), (30, False)):
        now = state([pod("p")], [claim(gib)])
        (waiting,), gpu = now.pods, next(gpu for gpu in now.gpus if gpu.id == "n1/GPU-n1-0")
        assert waiting.claim_spec is not None
        body = claim_body(waiting, gpu.id, seat_spec(waiting.claim_spec, gpu, 40.0 * GIB))
        made = [write.kind for write in writes.claim_writes(waiting, now.claims[0], body)]
        assert made == ([] if is_kept else [WriteKind.DELETE_CLAIM, WriteKind.CREATE_CLAIM])


def test_a_pod_on_its_way_counts_with_the_memory_that_its_claim_asks_for() -> None:
    notes = {names.STATE: "placed", names.DEVICE: "n1/GPU-n1-0", names.DECIDED_AT: f"{NOW:.3f}", names.MEMORY_GIB: "1"}
    metadata = {"name": "p-gpu", "namespace": "ml", "uid": "c", "labels": {names.MANAGED_BY: names.MANAGER}}
    metadata |= {"annotations": {names.CLAIM_FOR: "n1/GPU-n1-0"}}
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "40Gi"}}}
    claim = {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    view = build(state([pod("p", gated=False, notes=notes), pod("new")], [claim]), CHOSEN, NOW)
    assert [job.memory_peak_bytes for job in view.residents["n1/GPU-n1-0"]] == [40.0 * GIB]


actions = st.sampled_from([ActionKind.START_ALONE, ActionKind.START_SHARED])


@given(actions, st.booleans(), st.floats(1.0, 9.0) | st.just(math.nan), st.text(max_size=40))
def test_a_placement_is_one_patch_with_the_version_that_was_read(
    kind: ActionKind, gated: bool, slowdown: float, reason: str
) -> None:
    now = state([pod("p", gated=gated)])
    action = Action(kind=kind, job_id="j", device_id="n0/GPU-n0-1", slowdown=slowdown, reason=reason)
    change = writes.place(decided(now.pods[0], action), now.gpus[1], now.nodes[0], None, 40.0 * GIB, NOW)
    assert [each.kind for each in change.writes] == [WriteKind.CREATE_CLAIM, WriteKind.PATCH_POD, WriteKind.EVENT]
    claim, patch, event = (each.body for each in change.writes)
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"memory": f"{40 * GIB // 2**20}Mi"}}
    assert request["exactly"]["selectors"][0]["cel"]["expression"] == (
        'device.driver == "gpu.interfere.dev" && "uuid" in device.attributes["gpu.interfere.dev"] '
        '&& device.attributes["gpu.interfere.dev"].uuid == "GPU-n0-1"'
    )
    assert claim["metadata"]["ownerReferences"][0]["uid"] == "u0"
    assert patch["metadata"]["resourceVersion"] == "1"
    assert set(patch.get("spec", {})) == ({"schedulingGates"} if gated else set())
    assert event["message"].isprintable()
    assert len(event["message"]) <= 1024


@given(st.floats(0.0, 1000.0), st.sampled_from(["gated", "placed", "released", "missing"]), st.booleans())
@hypothesis_settings(max_examples=60)
def test_whatever_is_overdue_is_released_and_nothing_else(age_s: float, kind: str, every: bool) -> None:
    target = names.ANY_DEVICE if kind == "released" else "n0/GPU-n0-0"
    row = pod("p") if kind == "gated" else placed("p", "n0/GPU-n0-0", age_s)
    metadata = {"name": "p-gpu", "namespace": "ml", "uid": "c", "resourceVersion": "7"}
    metadata |= {"labels": {names.MANAGED_BY: names.MANAGER}, "annotations": {names.CLAIM_FOR: target}}
    claims = [{"metadata": metadata}] if kind in ("placed", "released") else []
    now = state([row], claims)
    created_s = now.pods[0].created_s
    at_s = created_s + age_s if kind == "gated" else NOW
    changes = releases(now.pods, now.claims_by_key, CHOSEN, claim_sizes(()), at_s, every=every)
    due = {
        "gated": every or age_s >= CHOSEN.window_s,
        "placed": every or age_s >= CHOSEN.start_s + 5,
        "released": False,
        "missing": True,
    }
    assert bool(changes) == due[kind]
    for change in changes:  # afterwards it is schedulable: no gate, and a claim for any device
        assert change.state is PodState.RELEASED
        created = [each.body for each in change.writes if each.kind is WriteKind.CREATE_CLAIM]
        assert [each["metadata"]["annotations"][names.CLAIM_FOR] for each in created] == [names.ANY_DEVICE]
        (patch,) = [each.body for each in change.writes if each.kind is WriteKind.PATCH_POD]
        assert patch.get("spec", {"schedulingGates": None}) == {"schedulingGates": None}


def test_observe_only_writes_metadata_alone() -> None:
    now = state([pod("p", gated=False)])
    action = Action(kind=ActionKind.START_ALONE, job_id="j", device_id="n0/GPU-n0-0", reason="idle")
    change = writes.advise(decided(now.pods[0], action), NOW)
    assert [each.kind for each in change.writes] == [WriteKind.PATCH_POD, WriteKind.EVENT]
    assert set(change.writes[0].body) == {"metadata"}
    assert settings(mode=Mode.OBSERVE).mode is Mode.OBSERVE
