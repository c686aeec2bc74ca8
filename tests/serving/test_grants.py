"""Grants over the wire, in a real SQLite file: kept over restarts, never given twice; overuse ends jobs and teaches."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.grants import app, of_device
from interfere.config import Settings
from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import (
    Action,
    ActionKind,
    Device,
    GrantLine,
    Job,
    Limits,
    MemoryUsage,
    ObservationResult,
    Outcome,
    OutcomeKind,
    Rollback,
    SlotRange,
    Snapshot,
)
from interfere.serving.metrics import Metrics
from interfere.serving.server import RunningServer
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE
from tests.serving.test_server import scrape

GIB = 2.0**30
EVERYTHING = Limits(allowed=frozenset(ActionKind))


def job(name: str, gib: float = 8.0, **given: object) -> Job:
    return Job(id=name, workload="gemm", grant_bytes=gib * GIB, **given)  # type: ignore[arg-type]


def device(name: str, *residents: Job, ratio: float = 1.0) -> Device:
    return Device(
        id=name,
        type=DEVICE_TYPE,
        memory_bytes=80 * GIB,
        granule_bytes=2 * GIB,
        oversubscription_ratio=ratio,
        residents=residents,
    )


def snapshot(now_s: float, *pending: Job, devices: tuple[Device, ...], **given: object) -> Snapshot:
    return Snapshot(**({"pending": pending, "devices": devices, "now_s": now_s, "limits": EVERYTHING} | given))  # type: ignore[arg-type]


def used(start_s: float, end_s: float, gib: float, name: str = "a", **given: object) -> MemoryUsage:
    values: dict[str, object] = {
        "observation_id": f"{name} {start_s:g} {end_s:g}",
        "job_id": name,
        "workload": "gemm",
        "bytes": gib * GIB,
        "min_bytes": gib * GIB,
        "device_type": DEVICE_TYPE,
        "start_s": start_s,
        "end_s": end_s,
        "device_id": "d",
    }
    return MemoryUsage(**(values | given))  # type: ignore[arg-type]


def ends(actions: tuple[Action, ...]) -> dict[str, str]:
    return {action.job_id: action.reason for action in actions if action.kind is ActionKind.END}


def test_both_tables_say_who_holds_what(client: PolicyClient) -> None:
    assert client.grants().devices == client.grants(scope="s").grants == ()
    plan = client.match(snapshot(5.0, job("b", 7), devices=(device("d", job("a", 3), ratio=1.5),)))
    client.observe([used(5, 20, 3.5), used(20, 40, 4.5), used(40, 50, 4)])
    tables = client.grants()
    assert (tables.scope, tables.now_s) == ("default", 5.0)
    (slots,) = tables.devices
    assert (slots.granules, slots.granted, slots.free) == (60, 6, 54)
    assert (slots.oversubscription_ratio, slots.granule_bytes, slots.device_type) == (1.5, 2 * GIB, DEVICE_TYPE)
    running, planned = tables.grants
    assert running == GrantLine(
        job_id="a",
        device_id="d",
        granules=2,
        bytes=4 * GIB,
        since_s=5.0,
        last_use_bytes=4 * GIB,
        times_exceeded=1,
        slots=(SlotRange(device_id="d", first=0, last=1),),
    )
    assert planned.slots == plan.actions[0].slots == (SlotRange(device_id="d", first=2, last=5),)
    assert (planned.job_id, planned.granules, planned.planned, planned.times_exceeded) == ("b", 4, True, 0)


def test_what_hosts_reserve_is_shown_by_device_and_by_node(client: PolicyClient, server: RunningServer) -> None:
    """(ratio - 1) of a device's memory is reserved on its host; where the host backs less, less is granted."""
    devices = (
        replace(device("d", ratio=1.5), node="n0"),
        replace(device("e", ratio=1.5), node="n0", host_reserve_bytes=20.0 * GIB),
        replace(device("f"), node="n0"),
    )
    client.match(snapshot(5.0, devices=devices))
    full, backed, plain = client.grants().devices
    assert [(one.node, one.host_reserve_bytes / GIB) for one in (full, backed)] == [("n0", 40.0), ("n0", 20.0)]
    assert plain.node is None
    assert [one.granules for one in (full, backed, plain)] == [60, 50, 40]
    # What the host cannot back is not granted: 50 granules of 2 GiB hold one job of 90 GiB, and no other of 20.
    plan = client.match(snapshot(6.0, job("b", 90), job("c", 20), devices=devices[1:2]))
    assert [action.kind for action in plan.actions] == [ActionKind.START_ALONE, ActionKind.WAIT]
    client.match(snapshot(7.0, devices=devices))
    page = CliRunner().invoke(app, ["--target", server.address]).stdout
    row = next(line for line in page.splitlines() if "n0" in line)
    assert "what hosts keep free" in page
    assert row.split()[-4:] == ["n0", "2", "60", "GiB"]
    assert [one.device_id for one in of_device(client.grants(), "e").devices] == ["e"]
    with pytest.raises(NotFoundError, match="one of d, e, f"):
        of_device(client.grants(), "GPU-0")
    with pytest.raises(NotFoundError, match="send match devices with granule_bytes, or name another --scope"):
        of_device(client.grants(scope="empty"), "GPU-0")


def test_a_planned_grant_goes_with_its_promise(client: PolicyClient) -> None:
    plan = client.match(snapshot(5.0, job("b"), devices=(device("d", job("a")),)))
    assert [grant.job_id for grant in client.grants().grants] == ["a", "b"]
    outcome = Outcome(
        observation_id="o", job_id="b", kind=OutcomeKind.REFUSED, at_s=6.0, decision_id=plan.decision_id, reason="no"
    )
    client.observe([outcome])
    assert [grant.job_id for grant in client.grants().grants] == ["a"]
    assert client.grants().devices[0].free == 36


def test_overuse_ends_a_job_whatever_order_it_was_told_in_also_over_a_restart(
    serve: Callable[..., RunningServer],
) -> None:
    server = serve()
    here = (device("d", job("a"), job("b")),)
    with PolicyClient(server.address) as client:
        client.match(snapshot(0.0, devices=here))
        client.observe([used(70, 130, 9.1)])
        assert ends(client.match(snapshot(130.0, devices=here)).actions) == {}
    server.stop()
    with PolicyClient(serve().address) as client:
        assert [grant.since_s for grant in client.grants().grants] == [0.0, 0.0]
        late, again = used(0, 70, 9), used(70, 130, 9.1)
        assert [one.result for one in client.observe([late, again])] == [
            ObservationResult.APPLIED,
            ObservationResult.DUPLICATE,
        ]
        plan = client.match(snapshot(140.0, devices=here))
        assert ends(plan.actions) == {"a": "held 9.1 GiB of 8 GiB granted for 130 s"}
        assert client.explain(plan.decision_id, "a").action.kind is ActionKind.END
        limits = Limits(allowed=EVERYTHING.allowed - {ActionKind.END})
        warned = client.match(snapshot(141.0, devices=here, limits=limits)).actions
        assert "warning: it held 9.1 GiB of 8 GiB granted for 130 s" in warned[0].reason
        client.observe([used(100, 142, 7)])  # one dip
        assert ends(client.match(snapshot(150.0, devices=here)).actions) == {}
        over = client.match(snapshot(160.0, devices=(device("d", job("b")),)))
        assert [(one.job_id, one.kind) for one in over.actions] == [("b", ActionKind.KEEP)]
        assert client.grants().devices[0].free == 36


def test_use_teaches_what_the_workload_needs_next_time_until_a_rollback(serve: Callable[..., RunningServer]) -> None:
    def granted(client: PolicyClient, now_s: float) -> Action:
        (action,) = client.match(snapshot(now_s, Job(id=f"x{now_s:g}", workload="new"), devices=(device("d"),))).actions
        return action

    server = serve()
    with PolicyClient(server.address) as client:
        assert granted(client, 0.0).reason.endswith("no grant: its memory demand is unknown")
        client.observe([used(0, 60, 9.1, "x0", workload="new"), used(60, 120, 5, "x0", workload="new")])
        assert granted(client, 1.0).reason.endswith("granted 10 GiB (5 granules) for 9.1 GiB (measured use)")
        client.observe([used(0, 60, 15, "y", workload="new", device_type="other")])
    server.stop()
    with PolicyClient(serve().address) as client:
        assert granted(client, 2.0).grant_bytes == 10 * GIB
        beside = client.rank(Job(id="z", workload="new"), (device("d", job("r", 72)),), scope="nobody").rankings[0]
        assert not beside.feasible
        client.observe([Rollback(observation_id="r", to_sequence=0, reason="a broken reporter")])
        assert "no grant" in granted(client, 3.0).reason


def test_rank_and_explain_know_what_is_granted_in_the_scope(client: PolicyClient) -> None:
    client.match(snapshot(0.0, devices=(device("d", job("a", 60)),)))
    unsaid = (device("d", Job(id="a", workload="gemm")),)  # the scheduler says it once
    asked = job("b", 30)
    assert client.rank(asked, unsaid).rankings[0].feasible
    (ranking,) = client.rank(asked, unsaid, scope="default").rankings
    why = "grants: 30 GiB (grant) + 60 GiB (grant) = 15 + 30 granules of 2 GiB > 40 (80 GiB × 1)"
    assert (ranking.feasible, ranking.reason) == (False, why)
    plan = client.match(snapshot(1.0, asked, devices=unsaid))
    assert plan.actions[0].kind is ActionKind.WAIT
    assert [one.reason for one in plan.refused] == [why]
    assert why in [one.reason for one in client.explain(plan.decision_id, "b").refused]


def test_without_a_clock_nothing_is_remembered(client: PolicyClient) -> None:
    client.match(snapshot(float("nan"), job("b"), devices=(device("d", job("a")),)))
    assert client.grants().devices == client.grants().grants == ()


def test_two_servers_on_one_store_grant_no_granule_twice(model_folder: Path, tmp_path: Path) -> None:
    model = load_served_model(model_folder)
    store = SqliteStore(tmp_path / "store.db")
    cores = [PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=2.0) for _ in range(2)]
    names = [f"j{k}" for k in range(6)]

    def ask(k: int) -> None:
        some = [job(name, 30) for name in names[k % 4 :] + names[: k % 4]]
        cores[k % 2].match(snapshot(0.0, *some, devices=(device("d"), device("e")), snapshot_id=str(k)), f"digest {k}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(24)))
    tables = [core.decisions.grants("default") for core in cores]
    store.close()
    assert tables[0] == tables[1]
    assert [(one.granted, one.free) for one in tables[0].devices] == [(30, 10), (30, 10)]
    assert len({grant.job_id for grant in tables[0].grants}) == 4


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (pb.Device(id="d", type="t", oversubscription_ratio=0.5), "devices[0].oversubscription_ratio"),
        (pb.Device(id="d", type="t", memory_bytes=8, granule_bytes=9), "devices[0].granule_bytes"),
        (pb.Device(id="d", type="t", granule_bytes=float("inf")), "devices[0].granule_bytes"),
        (
            pb.Device(id="d", type="t", residents=[pb.Job(id="a", workload="gemm", grant_bytes=-1)]),
            "devices[0].residents[0].grant_bytes",
        ),
    ],
)
def test_a_contradiction_names_its_field(client: PolicyClient, sent: pb.Device, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        client._call("Match", pb.MatchRequest(devices=[sent], now_s=1.0))
    assert [violation.field for violation in caught.value.violations] == [field]
    assert client.grants().now_s == 0.0


def test_the_command_prints_both_tables(client: PolicyClient, server: RunningServer, settings: Settings) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["--target", server.address, *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "no device grants memory" in run()
    client.match(snapshot(5.0, job("b", 7), devices=(device("d", job("[a]", 3)),)))
    client.observe([used(5, 20, 3.5, "[a]")])
    page = run()
    assert all(
        word in page for word in ("scope default at 5 s", "[a]", "3.5 GiB", "to start", "40", "2 GiB", "0-1", "2-5")
    )
    document = json.loads(run("--json"))
    assert [(one["job_id"], one["granules"]) for one in document["grants"]] == [("[a]", 2), ("b", 4)]
    assert document["grants"][1]["last_use_bytes"] is None
    assert document["grants"][1]["slots"] == [{"device_id": "d", "first": 2, "last": 5}]
    assert document["devices"][0]["free"] == 34
    assert json.loads(run("--scope", "other", "--json"))["devices"] == []
    assert json.loads(run("--device", "d", "--json")) == document
    refused = CliRunner().invoke(app, ["--target", server.address, "--device", "e"])
    assert isinstance(refused.exception, NotFoundError)
    assert "one of d" in str(refused.exception)


def test_granules_are_counted_for_whoever_watches(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        client.match(snapshot(5.0, job("b", 7), devices=(device("d", job("a", 3)), device("e"))))
    text = scrape(server)
    assert 'interfere_granules{scope="default",state="granted"} 6.0' in text
    assert 'interfere_granules{scope="default",state="free"} 74.0' in text
