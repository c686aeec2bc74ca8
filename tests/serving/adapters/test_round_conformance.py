"""Laws of the round, on every port: Slurm, Kubernetes, and the queue in a JSON file of docs/architecture.md."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.errors import InvalidInputError, UnavailableError
from interfere.records import Action, ActionKind, Plan, Snapshot
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.problem import STARTS
from interfere.serving.adapters.round import Advisor, one_round
from interfere.serving.adapters.settings import AdapterSettings
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer, start_server
from tests.docs.test_extending import module

WORKLOADS = ("gemm", "resnet-train", "request-server", "rl-rollout")  # the shipped model knows the four
NAMES = tuple(f"{workload}-{k}" for k in range(3) for workload in WORKLOADS)  # twelve jobs
DEVICES = 4  # of two seats


class World(Protocol):
    """A scheduler with twelve pending jobs and four devices of two seats."""

    def advisor(self, client: PolicyClient, *, dry_run: bool = False) -> Advisor[Any, Any, Any]:
        """An advisor of it, as after a restart."""

    def places(self) -> dict[str, str]:
        """The devices of the jobs that were placed, by their ids in decisions."""

    def start(self) -> None:
        """The scheduler starts whatever was placed."""

    def written(self) -> Any:
        """Everything that an advisor may have changed."""

    def say_how_long(self, alone_s: float) -> None:
        """Every job says what it takes alone."""

    def pass_time(self, seconds: float) -> None:
        """The clock of the newest advisor goes on."""

    def end(self, job_id: str) -> None:
        """A running job ends."""


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let `time.time` go on by so much."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


class ToyWorld:
    """The queue in a JSON file."""

    def __init__(self, folder: Path) -> None:
        self._file, self._example, self._port = folder / "state.json", module("adapter"), None
        jobs = [{"id": name, "workload": name.rpartition("-")[0]} for name in NAMES]
        self._file.write_text(json.dumps({"devices": [f"d{k}" for k in range(DEVICES)], "jobs": jobs}))

    def advisor(self, client: PolicyClient, *, dry_run: bool = False) -> Advisor[Any, Any, Any]:
        port = self._port = self._example.JsonQueue(self._file, time.time())
        if dry_run:
            port.dry_run, port.apply = True, lambda changes: ()
        marks = CombinedMarks[Any]()
        return Advisor(port, client, marks, AdapterSettings(cluster="c"), AdapterMetrics("toy", {}))

    def places(self) -> dict[str, str]:
        return {job["id"]: job["device"] for job in json.loads(self.written())["jobs"] if job.get("device")}

    def start(self) -> None:
        """A job that was placed runs at once."""

    def written(self) -> str:
        return self._file.read_text()

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        state = json.loads(self.written())
        jobs = [job for job in map(change, state["jobs"]) if job is not None]
        self._file.write_text(json.dumps(state | {"jobs": jobs}))

    def say_how_long(self, alone_s: float) -> None:
        self._change(lambda job: job | {"remaining_s": alone_s})

    def pass_time(self, seconds: float) -> None:
        self._port.now_s += seconds

    def end(self, job_id: str) -> None:
        self._change(lambda job: None if job["id"] == job_id else job)


class SlurmWorld:
    """Slurm's commands answer from files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import os

        from tests.serving.adapters.slurm.facts import job_row, node_row, sinfo, squeue
        from tests.serving.adapters.slurm.shims import fake

        self._write, self._spool, now = squeue, folder / "spool", int(time.time())
        self._monkeypatch = monkeypatch
        self._rows = {
            str(k): job_row(k, name.rpartition("-")[0], submit_time=now, eligible_time=now + 20)
            for k, name in enumerate(NAMES, start=1)
        }
        nodes = sinfo([node_row("n0"), node_row("n1")])
        self._folder = fake(folder / "slurm", squeue(list(self._rows.values())), nodes)
        monkeypatch.setenv("PATH", f"{self._folder}:{os.environ['PATH']}")

    def advisor(self, client: PolicyClient, *, dry_run: bool = False) -> Advisor[Any, Any, Any]:
        from interfere.serving.adapters.slurm.port import slurm_advisor, slurm_metrics
        from interfere.serving.adapters.slurm.scontrol import SlurmCommands
        from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings

        self._obey()
        settings = SlurmSettings(devices=(DeviceRule(type="cpu-core"),), cluster="c", spool=self._spool)
        return slurm_advisor(settings, SlurmCommands(60.0), client, slurm_metrics(), dry_run=dry_run)

    def _obey(self) -> None:
        """Do what scontrol was told."""
        from tests.serving.adapters.slurm.shims import told

        for line in told(self._folder):
            words = dict(word.partition("=")[::2] for word in line.split()[1:])
            for job in words["JobId"].split(","):
                row = self._rows[job]
                row["admin_comment"] = words.get("AdminComment", row["admin_comment"])
                row["tres_per_node"] = words.get("TresPerNode", row["tres_per_node"])
        (self._folder / "jobs.json").write_text(self._write(list(self._rows.values())))

    def _notes(self) -> dict[str, Any]:
        from interfere.serving.adapters.slurm.jobs import Note

        self._obey()
        notes = {job: Note.parse(str(row["admin_comment"])) for job, row in self._rows.items()}
        return {job: note for job, note in notes.items() if note is not None and note.to is not None}

    def places(self) -> dict[str, str]:
        return {job: str(note.to) for job, note in self._notes().items()}

    def start(self) -> None:
        for job, note in self._notes().items():
            held = [f"shard:{note.to.gres}:1(IDX:0)"]
            running = {"job_state": "RUNNING", "nodes": note.to.node, "gres_detail": held}
            self._rows[job] |= {**running, "start_time": int(time.time())}
        self._obey()

    def written(self) -> str:
        return (self._folder / "told").read_text()

    def say_how_long(self, alone_s: float) -> None:
        for row in self._rows.values():
            row["comment"] += f";remaining_s={alone_s:g}"

    def pass_time(self, seconds: float) -> None:
        later(self._monkeypatch, seconds)

    def end(self, job_id: str) -> None:
        self._rows[job_id] |= {"job_state": "COMPLETED", "end_time": int(time.time()), "gres_detail": []}
        self._obey()


class KubernetesWorld:
    """A stand-in for an API server, and for kube-scheduler."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("kmock", "kubernetes", "cel_expr_python"):
            pytest.importorskip(name)
        from tests.serving.adapters.kubernetes.control_plane.api_server import POD, ApiServer
        from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
        from tests.serving.adapters.kubernetes.facts import pod
        from tests.serving.adapters.kubernetes.worlds import two_nodes

        self._api, self._kind, self._controllers = ApiServer(folder), POD, list[Any]()
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("KUBECONFIG", str(self._api.kubeconfig))
        two_nodes(self._api, "hami")
        for name in NAMES:
            self._api.add(POD, pod(name, name.rpartition("-")[0], source="hami"))
        self._scheduler = StandInScheduler(self._api)

    def advisor(self, client: PolicyClient, *, dry_run: bool = False) -> Advisor[Any, Any, Any]:
        from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
        from interfere.serving.adapters.kubernetes.port import Controller
        from tests.serving.adapters.kubernetes.facts import settings
        from tests.serving.adapters.kubernetes.worlds import wait_seen

        chosen = settings()
        api = ClusterApi(chosen.timeout_s, chosen.writes_per_s, chosen.burst)
        for other in self._controllers:
            other._lease.release()
        controller = Controller(chosen, api, client, dry_run=dry_run)
        controller.cluster.start()
        assert dry_run or controller._lease.try_hold()
        self._controllers.append(controller)
        wait_seen(controller, self._api)
        return controller.advisor

    def places(self) -> dict[str, str]:
        from interfere.serving.adapters.kubernetes import names
        from interfere.serving.adapters.kubernetes.objects.reading import read_pod
        from tests.serving.adapters.kubernetes.facts import settings

        pods = [read_pod(row, settings()) for row in self._api.rows(self._kind)]
        return {pod.id: pod.note(names.DEVICE) for pod in pods if pod.note(names.DEVICE)}

    def start(self) -> None:
        self._scheduler.once()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
        for row in self._api.rows(self._kind):
            if row["spec"].get("nodeName"):
                states = [{"restartCount": 0, "state": {"running": {"startedAt": stamp}}}]
                status = {"phase": "Running", "containerStatuses": states}
                self._api.patch(self._kind, "ml", row["metadata"]["name"], {"status": status})
        self._wait_seen()

    def _wait_seen(self) -> None:
        from tests.serving.adapters.kubernetes.worlds import wait_seen

        for newest in self._controllers[-1:]:
            wait_seen(newest, self._api)

    def say_how_long(self, alone_s: float) -> None:
        from interfere.serving.adapters.kubernetes import names

        notes = {"metadata": {"annotations": {names.REMAINING_S: f"{alone_s:g}"}}}
        for name in NAMES:
            self._api.patch(self._kind, "ml", name, notes)

    def pass_time(self, seconds: float) -> None:
        later(self._monkeypatch, seconds)

    def end(self, job_id: str) -> None:
        self._api.patch(self._kind, "ml", job_id.split("/")[1], {"status": {"phase": "Succeeded"}})
        self._wait_seen()

    def written(self) -> list[Any]:
        return [write for write in self._api.writes if "/leases" not in write[1]]

    def close(self) -> None:
        for controller in self._controllers:
            controller.stop.set()
        self._api.close()


@pytest.fixture(params=["toy", "slurm", "kubernetes"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Every port's own world."""
    worlds: dict[str, Callable[[], Any]] = {
        "toy": lambda: ToyWorld(tmp_path),
        "slurm": lambda: SlurmWorld(tmp_path, monkeypatch),
        "kubernetes": lambda: KubernetesWorld(tmp_path, monkeypatch),
    }
    made = worlds[request.param]()
    yield made
    if isinstance(made, KubernetesWorld):
        made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """The shipped model, and an empty log."""
    running = start_server(Settings(model=SHIPPED_MODEL, work=tmp_path / "work", port=0, grace_s=1.0))
    yield running
    running.stop()


@pytest.fixture
def client(server: RunningServer) -> Iterator[PolicyClient]:
    with PolicyClient(server.address, timeout_s=60.0) as connected:
        yield connected


@pytest.fixture
def away() -> Iterator[PolicyClient]:
    """A client whose server does not answer."""
    with PolicyClient("127.0.0.1:1", timeout_s=0.5) as connected:
        yield connected


def test_jobs_are_placed_as_decided_and_a_seat_is_offered_once(world: World, client: PolicyClient) -> None:
    advisor = world.advisor(client)
    done = advisor.round()
    assert done.rejected == ()
    planned = {each.job.id: each.action.device_id for each in done.decisions if each.action.kind in STARTS}
    assert world.places() == planned
    assert len(planned) == 2 * DEVICES
    assert len(done.decisions) == len(NAMES)
    for moment in ("placed", "running"):
        again = world.advisor(client).round()
        assert not [each for each in again.decisions if each.action.kind in STARTS], f"all seats are {moment}"
        assert world.places() == planned
        world.start()


def test_a_dry_run_decides_the_same_changes_nothing_and_reports_nothing(world: World, client: PolicyClient) -> None:
    before = world.written()
    dry = world.advisor(client, dry_run=True).round()
    assert world.written() == before
    assert dry.observations == {}
    done = world.advisor(client).round()
    assert [(each.job.id, each.action.device_id) for each in dry.decisions] == [
        (each.job.id, each.action.device_id) for each in done.decisions
    ]


def test_without_a_server_nothing_is_changed_and_the_loop_goes_on(world: World, away: PolicyClient) -> None:
    before, advisor = world.written(), world.advisor(away)
    with pytest.raises(UnavailableError):
        advisor.round()
    assert one_round(advisor) is None
    assert world.written() == before
    assert 'rounds_total{result="unavailable"} 1' in advisor.metrics.text()


def test_a_plan_about_something_else_changes_nothing(
    world: World, client: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, advisor, match = world.written(), world.advisor(client), client.match
    for wrong in ({"job_id": "another"}, {"device_id": "another Priority=9"}):

        def answer(snapshot: Any, wrong: dict[str, str] = wrong) -> Any:
            plan = match(snapshot)
            first = next(action for action in plan.actions if action.kind in STARTS)
            return replace(plan, actions=(replace(first, **wrong),))

        monkeypatch.setattr(client, "match", answer)
        with pytest.raises(InvalidInputError, match="were not in the request"):
            advisor.round()
    assert world.written() == before


def test_while_nothing_happens_a_plan_in_which_all_wait_is_kept(
    tmp_path: Path, client: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, match, asked = ToyWorld(tmp_path), client.match, list[Snapshot]()

    def all_wait(snapshot: Snapshot) -> Plan:
        asked.append(snapshot)
        waits = (Action(kind=ActionKind.WAIT, job_id=job.id, reason="not now") for job in snapshot.pending)
        return replace(match(snapshot), actions=tuple(waits))

    monkeypatch.setattr(client, "match", all_wait)
    advisor = world.advisor(client)
    decided = [[each.job.id for each in advisor.round().decisions] for _ in range(3)]
    assert decided == [list(NAMES)] * 3
    assert len(asked) == 1
    state = json.loads(world.written())
    state["jobs"].pop()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert [each.job.id for each in advisor.round().decisions] == list(NAMES[:-1])
    assert len(asked) == 2, "a job has left"
    monkeypatch.setattr(client, "match", lambda snapshot: replace(all_wait(snapshot), resolve_at_s=time.time() - 1.0))
    due = world.advisor(client)
    for _ in range(2):
        due.round()
    assert len(asked) == 4, "the plan asked to be renewed"
    stops = world.advisor(client)
    stops.port.limits = replace(stops.port.limits, allowed=stops.port.limits.allowed | {ActionKind.PREEMPT})
    for _ in range(2):
        stops.round()
    assert len(asked) == 6, "whether a running job should stop depends on more than jobs and devices"


def test_starts_are_reported_once_and_a_restart_repeats_no_id(world: World, client: PolicyClient) -> None:
    world.advisor(client).round()
    world.start()
    advisor = world.advisor(client)
    assert advisor.round().observations == {"applied": 2 * DEVICES}
    assert advisor.round().observations == {}, "every outcome was reported before"
    assert advisor.metrics.text().count("observations_total{") == 1
    assert world.advisor(client).round().observations == {"duplicate": 2 * DEVICES}, "a restart makes the same ids"
    prefix = f"{advisor.port.name}/c/"
    ids = {entry.observation.observation_id for entry in client.observation_log(limit=1000).entries}
    assert sum(each.startswith(prefix) and each.endswith("/started") for each in ids) == 2 * DEVICES


def test_what_a_job_loses_to_those_beside_it_is_still_to_be_done(
    world: World, client: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that said what it takes alone has got on by the time that it ran ÷ its slowdown, on every scheduler."""
    world.say_how_long(1e5)
    advisor, match = world.advisor(client), client.match

    def start_pairs(snapshot: Snapshot) -> Plan:
        ids, actions = [job.id for job in snapshot.pending], list[Action]()
        for job_id, partner_id, device in zip(ids[:DEVICES], ids[DEVICES:], snapshot.devices, strict=False):
            pair = {"device_id": device.id, "kind": ActionKind.START_SHARED}
            first = Action(job_id=job_id, partner_id=partner_id, slowdown=2.0, partner_slowdown=1.25, **pair)
            second = Action(job_id=partner_id, partner_id=job_id, slowdown=1.25, partner_slowdown=2.0, **pair)
            actions += [first, second]
        waits = (Action(kind=ActionKind.WAIT, job_id=job_id) for job_id in ids[2 * DEVICES :])
        return replace(match(snapshot), actions=(*actions, *waits))

    # 1. Pairs are placed, and run.
    monkeypatch.setattr(client, "match", start_pairs)
    placed = advisor.round()
    planned = {each.job.id: each.action.slowdown for each in placed.decisions if each.action.device_id}
    world.start()
    before_s = advisor.round().at_s
    world.pass_time(1000.0)
    after_s = advisor.round().at_s
    # 2. One job has ended: the next problem is about those beside whom there is a seat, and about those that wait.
    problem, built = advisor.port.problem, list[tuple[Snapshot, Snapshot]]()

    def with_and_without_losses(scope: str, lost_s: Callable[[str], float]) -> Any:
        problems = problem(scope, lost_s), problem(scope, lambda _: 0.0)
        built.append((problems[0].snapshot, problems[1].snapshot))
        return problems[0]

    monkeypatch.setattr(advisor.port, "problem", with_and_without_losses)
    monkeypatch.setattr(client, "match", match)
    world.end(next(iter(world.places())))
    now_s = advisor.round().at_s
    # 3. Each has as much more to do as it lost while it was beside another.
    lost_s = dict[str, float]()
    for device, plain in zip(built[0][0].devices, built[0][1].devices, strict=True):
        for job, same in zip(device.residents, plain.residents, strict=True):
            share, until_s = 1.0 - 1.0 / planned[job.id], now_s if len(device.residents) > 1 else after_s
            lost_s[job.id] = job.remaining_s - same.remaining_s
            assert share * (until_s - before_s) <= lost_s[job.id] + 1e-6, job.id
            assert lost_s[job.id] <= share * (until_s - placed.at_s) + 1e-6, job.id
    assert lost_s
    assert min(lost_s.values()) >= 200.0
