"""Promises over the wire: told again, released, never made twice; a contradiction changes nothing that is stored."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands import scopes
from interfere.config import Settings
from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    ObservationResult,
    Outcome,
    OutcomeKind,
    Snapshot,
    Window,
)
from interfere.serving.metrics import Metrics
from interfere.serving.server import RunningServer
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE
from tests.serving.test_server import scrape


def snapshot(now_s: float, *names: str, devices: str = "d", **given: object) -> Snapshot:
    """Pending jobs of one workload and empty devices."""
    values: dict[str, object] = {
        "pending": tuple(Job(id=name, workload="gemm") for name in names),
        "devices": tuple(Device(id=name, type=DEVICE_TYPE) for name in devices),
        "now_s": now_s,
    }
    return Snapshot(**(values | given))  # type: ignore[arg-type]


def started(actions: tuple[Action, ...]) -> dict[str, str]:
    return {action.job_id: action.device_id for action in actions if action.kind is not ActionKind.WAIT}


def test_a_planned_start_is_told_again_until_it_expires(client: PolicyClient) -> None:
    first = client.match(snapshot(1000.0, "a"))
    assert first.actions[0].promised_by_s == 1120.0
    again = client.match(snapshot(1060.0, "b", "a", "c", devices="ed"))
    assert [action.job_id for action in again.actions] == ["b", "a", "c"]
    assert again.actions[1].device_id == "d"
    assert again.actions[1].promised_by_s == 1120.0
    assert again.actions[1].reason == f"promised by decision {first.decision_id}"
    assert started(again.actions) == {"b": "e", "a": "d", "c": "e"}
    late = client.match(snapshot(1120.0, "a"))
    assert "promised" not in late.actions[0].reason
    assert late.actions[0].promised_by_s == 1240.0


def test_rank_in_a_scope_plans_what_was_promised_and_gives_it_to_nobody_else(client: PolicyClient) -> None:
    told = client.match(snapshot(1000.0, "a", "b", "c", scope="s", devices="de"))
    place = started(told.actions)
    devices = snapshot(0.0, devices="def").devices
    why = f"by decision {told.decision_id}"
    for name, device in place.items():
        mine = client.rank(Job(id=name, workload="gemm"), devices, scope="s").rankings
        assert [r.planned for r in mine] == [True, False, False]
        assert (mine[0].device_id, mine[0].reason) == (device, f"promised {why}")
        assert mine[1].device_id == "f"
        assert (mine[2].feasible, mine[2].reason.endswith(why)) == (False, True)
    other = client.rank(Job(id="x", workload="gemm"), devices, scope="s").rankings
    assert [(r.device_id, r.planned) for r in other if r.feasible] == [("f", True)]
    assert all(r.feasible for r in client.rank(Job(id="x", workload="gemm"), devices).rankings)
    running = Device(id=place["a"], type=DEVICE_TYPE, residents=(Job(id="a", workload="gemm"),))
    fulfilled = client.rank(Job(id="x", workload="gemm"), (running,), scope="s").rankings
    shared = [action for action in told.actions if action.device_id == place["a"]]
    assert fulfilled[0].feasible == (len(shared) == 1)  # else its partner is still to come


def test_deadlines_are_accepted_or_declined_and_the_broken_ones_counted(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    """The device is open until 1,200 s, and taken until 1,050 s."""
    resident = Job(id="r", workload="stream", remaining_s=50.0)
    windows = (Window(from_s=0.0, until_s=1200.0),)
    device = Device(id="d", type=DEVICE_TYPE, residents=(resident,), windows=windows)
    limits = Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.DECLINE}))
    pending = tuple(
        Job(id=name, workload="gemm", remaining_s=100.0, remaining_p90_s=100.0, deadline_s=deadline_s)
        for name, deadline_s in (("ok", 1160.0), ("second", 1180.0), ("never", 1090.0))
    )
    asked = Snapshot(pending=pending, devices=(device,), now_s=1000.0, limits=limits)
    server = serve()
    with PolicyClient(server.address) as client:
        told = {action.job_id: action for action in client.match(asked).actions}
    assert [(told[one.id].kind, told[one.id].accepted) for one in pending] == [
        (ActionKind.WAIT, True),
        (ActionKind.WAIT, False),
        (ActionKind.DECLINE, False),
    ]
    assert told["never"].reason.startswith("deadline: 1.5 min are left, alone it ends in 1.67 min")
    server.stop()
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        told = {a.job_id: a for a in client.match(replace(asked, now_s=1050.0, pending=pending[1::-1])).actions}
        assert [told[name].accepted for name in ("second", "ok")] == [False, True]
        assert client.match(replace(asked, now_s=1100.0, pending=pending[:1])).actions[0].kind is ActionKind.DECLINE
        text = scrape(server)
        assert [f'interfere_accepted_deadlines_total{{result="{how}"}} 1.0' in text for how in ("kept", "broken")] == [
            False,
            True,
        ]
        with pytest.raises(InvalidInputError) as caught:
            client.rank(pending[0], (device,))
        assert caught.value.violations[0].field.endswith("now_s")


def test_a_restart_forgets_no_promise(serve: Callable[..., RunningServer]) -> None:
    server = serve()
    with PolicyClient(server.address) as client:
        told = client.match(snapshot(5.0, "a"))
    server.stop()
    with PolicyClient(serve().address) as client:
        assert client.match(snapshot(6.0, "a")).actions[0].reason == f"promised by decision {told.decision_id}"


@pytest.mark.parametrize("kind", [OutcomeKind.LOST_RACE, OutcomeKind.REFUSED, OutcomeKind.ENDED])
def test_an_outcome_releases_the_promise_at_once(client: PolicyClient, kind: OutcomeKind) -> None:
    client.match(snapshot(0.0, "a"))
    told = client.match(snapshot(1.0, "a"))  # repeats it under an id of its own
    outcome = Outcome(observation_id="o", job_id="a", kind=kind, at_s=2.0, decision_id=told.decision_id, reason="no")
    (answer,) = client.observe([outcome])
    assert answer.result is ObservationResult.APPLIED
    assert "promised" not in client.match(snapshot(3.0, "a")).actions[0].reason


def test_an_outcome_of_another_decision_or_of_success_releases_nothing(client: PolicyClient) -> None:
    told = client.match(snapshot(0.0, "a"))
    for n, (kind, decision) in enumerate(
        [(OutcomeKind.LOST_RACE, "other"), (OutcomeKind.LOST_RACE, ""), (OutcomeKind.APPLIED, told.decision_id)]
    ):
        client.observe([Outcome(observation_id=str(n), job_id="a", kind=kind, at_s=2.0, decision_id=decision)])
    assert "promised" in client.match(snapshot(3.0, "a")).actions[0].reason


def test_half_a_second_back_is_tolerated_and_the_ledger_goes_on(client: PolicyClient, settings: Settings) -> None:
    told = client.match(snapshot(50.0, "a"))
    for now_s in (49.6, 49.5, 50.0):
        again = client.match(snapshot(now_s, "a")).actions[0]
        assert again.reason == f"promised by decision {told.decision_id}"
    with pytest.raises(InvalidInputError, match="goes back"):
        client.match(snapshot(49.4, "a"))


@pytest.mark.parametrize("start_s", [0.0, 1.8e9])
def test_a_scope_whose_clock_jumped_is_reset_while_the_server_runs(
    client: PolicyClient, settings: Settings, start_s: float
) -> None:
    jump_s = start_s + 29 * 86_400.0
    client.match(snapshot(start_s, "a"))
    client.match(snapshot(jump_s, "a"))
    with pytest.raises(InvalidInputError) as caught:
        client.match(snapshot(start_s + 60.0, "a"))
    (violation,) = caught.value.violations
    assert "interfere scopes reset default" in violation.remedy
    done = CliRunner().invoke(scopes.app, ["reset", "default", "--store", str(settings.store_path), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["now_s"] == jump_s
    assert client.match(snapshot(start_s + 60.0, "a")).actions[0].kind is ActionKind.START_ALONE
    unknown = CliRunner().invoke(scopes.app, ["reset", "other", "--store", str(settings.store_path)])
    assert isinstance(unknown.exception, NotFoundError)
    assert "one of: default" in str(unknown.exception)


@pytest.mark.parametrize("kind", [OutcomeKind.LOST_RACE, OutcomeKind.REFUSED])
def test_a_start_that_did_not_happen_withdraws_no_accepted_deadline(client: PolicyClient, kind: OutcomeKind) -> None:
    job = Job(id="a", workload="gemm", remaining_s=100.0, remaining_p90_s=100.0, deadline_s=1160.0)
    device = Device(id="d", type=DEVICE_TYPE)
    told = client.match(Snapshot(pending=(job,), devices=(device,), now_s=1000.0))
    assert told.actions[0].accepted
    lost = Outcome(
        observation_id="o", job_id="a", kind=kind, at_s=1001.0, decision_id=told.decision_id, reason="it was taken"
    )
    client.observe([lost])
    taken = replace(device, residents=(Job(id="r", workload="stream", remaining_s=20.0),))
    later = Snapshot(pending=(replace(job, id="b", deadline_s=1150.0), job), devices=(taken,), now_s=1002.0)
    alone = replace(later, limits=Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT})))
    assert [action.accepted for action in client.match(alone).actions] == [False, True]


@pytest.mark.parametrize(("at_s", "result"), [(1100.0, "kept"), (1160.0, "kept"), (1170.0, "broken")])
def test_an_accepted_deadline_whose_job_is_told_to_have_ended_is_counted(
    settings: Settings, serve: Callable[..., RunningServer], at_s: float, result: str
) -> None:
    job = Job(id="a", workload="gemm", remaining_s=100.0, remaining_p90_s=100.0, deadline_s=1160.0)
    device = Device(id="d", type=DEVICE_TYPE)
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        told = client.match(Snapshot(pending=(job,), devices=(device,), now_s=1000.0))
        assert told.actions[0].accepted
        ended = Outcome(
            observation_id="o",
            job_id="a",
            kind=OutcomeKind.ENDED,
            at_s=at_s,
            decision_id=told.decision_id,
            reason="finished",
        )
        client.observe([ended])
        client.match(Snapshot(pending=(), devices=(device,), now_s=at_s))  # counts no second time
        counted = [how for how in ("kept", "broken", "unknown") if _counts(server, how) == 1.0]
        assert counted == [result]


def _counts(server: RunningServer, how: str) -> float:
    """How many accepted deadlines came to this."""
    line = f'interfere_accepted_deadlines_total{{result="{how}"}} '
    return sum(float(each.removeprefix(line)) for each in scrape(server).splitlines() if each.startswith(line))


def test_scopes_and_snapshots_without_a_clock_know_of_no_promise(client: PolicyClient) -> None:
    client.match(snapshot(0.0, "a"))
    assert "promised" not in client.match(snapshot(0.0, "a", scope="other")).actions[0].reason
    assert "promised" not in client.match(snapshot(float("nan"), "a")).actions[0].reason


def test_a_retry_of_an_old_snapshot_gets_its_old_answer(client: PolicyClient) -> None:
    told = client.match(snapshot(1.0, "a", snapshot_id="s1"))
    client.match(snapshot(50.0, "a", snapshot_id="s2"))
    assert client.match(snapshot(1.0, "a", snapshot_id="s1")) == told


CONTRADICTIONS: dict[str, tuple[pb.MatchRequest, str]] = {
    "resident on two devices": (
        pb.MatchRequest(
            devices=[pb.Device(id=d, type="t", residents=[pb.Job(id="r", workload="gemm")]) for d in "de"], now_s=9
        ),
        "devices[1].residents[0].id",
    ),
    "pending and running": (
        pb.MatchRequest(
            pending=[pb.Job(id="r", workload="gemm")],
            devices=[pb.Device(id="d", type="t", residents=[pb.Job(id="r", workload="gemm")])],
            now_s=9,
        ),
        "pending[0].id",
    ),
    "negative memory of a job": (
        pb.MatchRequest(
            pending=[pb.Job(id="a", workload="gemm", memory_peak_bytes=-1)],
            devices=[pb.Device(id="d", type="t")],
            now_s=9,
        ),
        "pending[0].memory_peak_bytes",
    ),
    "negative memory of a device": (
        pb.MatchRequest(devices=[pb.Device(id="d", type="t", memory_bytes=-1)], now_s=9),
        "devices[0].memory_bytes",
    ),
    "one job twice": (
        pb.MatchRequest(pending=[pb.Job(id="a", workload="gemm")] * 2, devices=[pb.Device(id="d", type="t")], now_s=9),
        "pending[1].id",
    ),
    "one device twice": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")] * 2, now_s=9), "devices[1].id"),
    "a clock that goes back": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=4.4), "now_s"),
    "a clock that jumps": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=5 + 31 * 86400), "now_s"),
    "a clock in milliseconds": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=1.8e12), "now_s"),
    "a clock before the first second": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=-1), "now_s"),
    "a resident from the future": (
        pb.MatchRequest(
            devices=[pb.Device(id="d", type="t", residents=[pb.Job(id="r", workload="gemm", since_s=9.5)])], now_s=9
        ),
        "devices[0].residents[0].since_s",
    ),
    "no time at all": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=float("nan")), "now_s"),
    "an endless time": (pb.MatchRequest(devices=[pb.Device(id="d", type="t")], now_s=float("inf")), "now_s"),
    "a pool that no device is in": (
        pb.MatchRequest(
            pending=[pb.Job(id="a", workload="gemm", pools=["p", "q"])],
            devices=[pb.Device(id="d", type="t", pool="p")],
            now_s=9,
        ),
        "pending[0].pools[1]",
    ),
    "a gang on fewer devices than it takes": (
        pb.MatchRequest(
            devices=[pb.Device(id=d, type="t", residents=[pb.Job(id="r", workload="gemm", gpus=3)]) for d in "de"],
            now_s=9,
        ),
        "devices[1].residents[0].gpus",
    ),
    "a promise without a life": (
        pb.MatchRequest(devices=[pb.Device(id="d", type="t")], limits=pb.Limits(promise_ttl_s=-1), now_s=9),
        "limits.promise_ttl_s",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_contradiction_names_its_field_and_changes_nothing_stored(
    client: PolicyClient, settings: Settings, name: str, validate_only: bool
) -> None:
    client.match(snapshot(5.0, "a", snapshot_id="s"))
    request, field = CONTRADICTIONS[name]
    sent = pb.MatchRequest()
    sent.CopyFrom(request)
    sent.snapshot_id, sent.validate_only = "new", validate_only
    before = stored_bytes(settings.store_path)
    with pytest.raises(InvalidInputError) as caught:
        client._call("Match", sent)  # as other languages send it
    assert field in [violation.field for violation in caught.value.violations]
    assert all(violation.value and violation.remedy for violation in caught.value.violations)
    assert stored_bytes(settings.store_path) == before


def stored_bytes(path: Path) -> dict[str, bytes]:
    files = (each for each in path.parent.glob("store.db*") if each.is_file() and not each.name.endswith("-shm"))
    return {each.name: each.read_bytes() for each in files}


def test_a_snapshot_full_of_residents_is_a_fact(client: PolicyClient) -> None:
    crowd = tuple(Job(id=str(k), workload="gemm", memory_peak_bytes=9e9) for k in range(4))
    full = Device(id="d", type=DEVICE_TYPE, memory_bytes=8e9, residents=crowd)
    (action,) = client.match(Snapshot(pending=(Job(id="a", workload="gemm"),), devices=(full,), now_s=0.0)).actions
    assert action.kind is ActionKind.WAIT


def test_a_device_that_vanished_releases_its_promise(client: PolicyClient) -> None:
    client.match(snapshot(0.0, "a"))
    assert started(client.match(snapshot(1.0, "a", devices="e")).actions) == {"a": "e"}


def test_two_servers_on_one_store_promise_no_seat_twice(model_folder: Path, tmp_path: Path) -> None:
    model = load_served_model(model_folder)
    store = SqliteStore(tmp_path / "store.db")
    cores = [PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=2.0) for _ in range(2)]
    names = [f"j{k}" for k in range(6)]

    def ask(k: int) -> tuple[Action, ...]:
        some = names[k % 4 :] + names[: k % 4]
        decided = cores[k % 2].match(snapshot(0.0, *some, devices="de", snapshot_id=str(k)), f"digest {k}")
        assert decided is not None
        return decided[0].actions

    with ThreadPoolExecutor(8) as pool:
        told = [started(actions) for actions in pool.map(ask, range(24))]
    store.close()
    assert all(one == told[0] for one in told)
    assert sorted(told[0].values()) == ["d", "d", "e", "e"]


def test_gangs_and_moves_travel_and_are_explained(client: PolicyClient) -> None:
    old = {"remaining_s": 1e4, "preemptible": True, "checkpoint_s": 1.0, "since_s": 0.0}
    pair = (Job(id="r", workload="train", **old), Job(id="s", workload="gemm", **old))
    devices = (
        Device(id="d", type=DEVICE_TYPE, pool="a", residents=pair),
        *(Device(id=name, type=DEVICE_TYPE, pool="a") for name in "efg"),
    )
    limits = Limits(allowed=frozenset(ActionKind))
    job = Job(id="g", workload="gemm", gpus=2, pools=("a",))
    plan = client.match(Snapshot(pending=(job,), devices=devices, now_s=1e3, limits=limits))
    start, move, keep = plan.actions
    assert (start.kind, start.places) == (ActionKind.START_ALONE, ("e", "f"))
    assert (move.kind, move.device_id, move.promised_by_s) == (ActionKind.MOVE, "g", 1120.0)
    assert (keep.kind, keep.device_id, keep.slowdown) == (ActionKind.KEEP, "d", 1.0)
    assert {move.job_id, keep.job_id} == {"r", "s"}
    assert plan.resolve_at_s == 1120.0
    again = client.match(Snapshot(pending=(job,), devices=devices, now_s=1001.0, limits=limits))
    assert [(a.kind, a.job_id, a.places) for a in again.actions] == [(a.kind, a.job_id, a.places) for a in plan.actions]
    for action in plan.actions:
        explained = client.explain(plan.decision_id, action.job_id)
        assert explained.action == action
    outcome = Outcome(
        observation_id="o",
        job_id=move.job_id,
        kind=OutcomeKind.REFUSED,
        at_s=2.0,
        decision_id=plan.decision_id,
        reason="no",
    )
    client.observe([outcome])
    (moved,) = (
        action
        for action in client.match(Snapshot(pending=(job,), devices=devices, now_s=1002.0, limits=limits)).actions
        if action.kind is ActionKind.MOVE
    )
    assert "promised" not in moved.reason
