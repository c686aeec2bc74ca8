"""Answers to changes of snapshots are those to whole snapshots: two servers decide the same rounds.

Two clients take turns on one scope. Those of the first server send changes; every request to the second is whole. Jobs
and devices come, go, come back, change and change places; now and then an id is given twice, a snapshot is sent again,
or the server has lost its snapshots or is started again.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InterfereError, InvalidInputError, NotFoundError
from interfere.records import ActionKind, Device, Explanation, Job, Limits, ObjectiveKind, Plan, Snapshot
from interfere.serving.server import RunningServer, start_server
from interfere.v1 import policy_pb2 as pb
from interfere.wire.snapshots import KnownSnapshots, ReceivedSnapshot
from tests.models import DEVICE_TYPE, WORKLOADS, publish

ROUNDS = 20 * int(os.environ.get("SOAK_ROUNDS", "1"))  # make soak: 1,000


class Cluster:
    """A cluster that changes at random; jobs start where a plan starts them, or elsewhere, or not."""

    def __init__(self, seed: int) -> None:
        self.rng, self.names, self.now_s = random.Random(seed), 0, 100.0
        self.gone: list[Job] = []
        self.pending = [self.job() for _ in range(6)]
        self.devices = [self.device() for _ in range(9)]

    def job(self) -> Job:
        self.names += 1
        rng = self.rng
        times = {"remaining_s": rng.uniform(10.0, 9e3), "attained_s": 0.0} if rng.random() < 0.6 else {}
        return Job(
            id=f"j{self.names}",
            workload=rng.choice(WORKLOADS),
            weight=rng.choice((1.0, 2.0)),
            priority=rng.choice((0, 0, 0, 3)),
            gpus=rng.choice((1, 1, 1, 2)),
            elapsed_s=rng.uniform(0.0, 50.0),
            memory_peak_bytes=rng.choice((1e9, 4e9)),
            **times,
        )

    def device(self) -> Device:
        self.names += 1
        granule = {"granule_bytes": 2e9} if self.rng.random() < 0.3 else {}
        return Device(id=f"d{self.names}", type=DEVICE_TYPE, node=f"n{self.names % 3}", memory_bytes=16e9, **granule)

    def advance(self, plan: Plan | None) -> None:
        rng = self.rng
        step_s = rng.choice((1.0, 30.0, 200.0))
        self.now_s += step_s
        starts = [action for action in plan.actions if action.places] if plan else []
        for action in starts:
            job = next((each for each in self.pending if each.id == action.job_id), None)
            on = [k for k, device in enumerate(self.devices) if device.id in action.places]
            if job is None or len(on) < job.gpus or rng.random() < 0.2:
                continue
            self.pending.remove(job)
            for k in on:
                started = replace(job, since_s=self.now_s)
                self.devices[k] = replace(self.devices[k], residents=(*self.devices[k].residents, started))
        ended = {job.id for device in self.devices for job in device.residents if rng.random() < 0.15}
        self.gone += [job for job in self.pending if rng.random() < 0.05]
        self.pending = [self._aged(job, step_s) for job in self.pending if job not in self.gone]
        for k, device in enumerate(self.devices):
            stay = tuple(self._aged(job, step_s) for job in device.residents if job.id not in ended)
            self.devices[k] = replace(device, residents=stay)
        for _ in range(rng.randrange(4)):
            job = self.gone.pop() if self.gone and rng.random() < 0.3 else self.job()
            self.pending.insert(rng.randrange(len(self.pending) + 1), job)
        if rng.random() < 0.1:
            rng.shuffle(self.pending)
        if rng.random() < 0.1:
            rng.shuffle(self.devices)
        if rng.random() < 0.1:
            self.devices.insert(rng.randrange(len(self.devices)), self.device())
        free = [device for device in self.devices if not device.residents]
        if free and len(self.devices) > 6 and rng.random() < 0.1:
            self.devices.remove(rng.choice(free))

    def _aged(self, job: Job, step_s: float) -> Job:
        attained_s = job.attained_s + step_s if job.since_s == job.since_s else job.attained_s
        return replace(
            job,
            elapsed_s=job.elapsed_s + step_s,
            attained_s=attained_s,
            remaining_s=max(1.0, job.remaining_s - step_s) if job.since_s == job.since_s else job.remaining_s,
            weight=3.0 if self.rng.random() < 0.03 else job.weight,
        )

    def snapshot(self, number: int) -> Snapshot:
        rng = self.rng
        allowed = Limits().allowed | rng.choice((frozenset(), frozenset({ActionKind.KEEP})))
        given = Snapshot(
            pending=tuple(self.pending),
            devices=tuple(self.devices),
            scope="s",
            snapshot_id=f"r{number}" if rng.random() < 0.6 else "",
            limits=Limits.of(allowed=allowed, max_slowdown=rng.choice((2.0, 4.0))),
            objective=rng.choice((ObjectiveKind.AUTO, ObjectiveKind.WEIGHTED_EXCESS)),
            now_s=self.now_s,
        )
        if rng.random() < 0.03:  # an id twice, or a job that waits and runs
            return replace(given, pending=(*given.pending, rng.choice((*given.pending, self.job()))))
        if rng.random() < 0.03:
            return replace(given, devices=(*given.devices, given.devices[0]))
        if rng.random() < 0.02:
            return replace(given, now_s=self.now_s - 90.0)
        return given


@contextmanager
def started(settings: Settings) -> Iterator[list[RunningServer]]:
    """A server in a list, to be replaced by the next."""
    servers = [start_server(settings)]
    try:
        yield servers
    finally:
        servers[-1].stop()


def answer_of(client: PolicyClient, snapshot: Snapshot) -> Plan | InterfereError:
    try:
        return client.match(snapshot)
    except InterfereError as error:
        return error


def told(answer: Plan | Explanation | InterfereError, ids: list[str]) -> str:
    """The answer without what differs from call to call: times that it took, and the names of decisions."""
    if isinstance(answer, InterfereError):
        violations = answer.violations if isinstance(answer, InvalidInputError) else ()
        return f"{type(answer).__name__}: {answer} {violations}"
    if isinstance(answer, Plan):
        answer = replace(answer, cpu_s=0.0, wall_s=0.0)
    if answer.decision_id not in ids:
        ids.append(answer.decision_id)
    text = repr(answer)
    for k, name in enumerate(ids):
        text = text.replace(name, f"decision {k}")
    return text


def lost(_: KnownSnapshots, scope: str, base_id: str) -> ReceivedSnapshot:
    """In place of `KnownSnapshots._base`: nothing is kept any longer."""
    raise NotFoundError("lost", value=(scope, base_id))


@pytest.mark.timeout(1800)
def test_changes_are_answered_as_the_whole_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfere.wire.snapshots.MIN_RECORDS", 1)
    monkeypatch.setattr("interfere.wire.snapshots.MAX_CHANGED_SHARE", 2.0)
    model = publish(tmp_path / "model")
    first, second = (
        Settings(model=model, work=tmp_path / name, port=0, grace_s=1.0, decision_workers=0) for name in ("a", "b")
    )
    base_of, sent = KnownSnapshots._base, list[pb.MatchRequest]()
    cluster, ids, failures, restarts = Cluster(1), ([], []), 0, 0
    with started(first) as servers, started(second) as others:
        clients = [PolicyClient(servers[0].address) for _ in range(2)]
        whole = PolicyClient(others[0].address)
        for client in clients:
            ask = client._call
            client._call = lambda method, request, ask=ask, **more: (
                sent.append(request),
                ask(method, request, **more),
            )[1]
        for number in range(ROUNDS):
            snapshot = cluster.snapshot(number)
            client = cluster.rng.choice(clients)
            monkeypatch.setattr(KnownSnapshots, "_base", lost if cluster.rng.random() < 0.04 else base_of)
            calls = 2 if cluster.rng.random() < 0.1 else 1  # the same again: stored where it has an id
            for _ in range(calls):
                whole._sent._kept.clear()
                answers = answer_of(client, snapshot), answer_of(whole, snapshot)
                assert told(answers[0], ids[0]) == told(answers[1], ids[1]), f"round {number}"
            plan = answers[0] if isinstance(answers[0], Plan) else None
            failures += plan is None
            if plan and plan.actions:
                job_id = cluster.rng.choice(plan.actions).job_id
                explained = [
                    told(each.explain(answer.decision_id, job_id), names)
                    for each, answer, names in zip((client, whole), answers, ids, strict=True)
                    if isinstance(answer, Plan)
                ]
                assert explained[0] == explained[1], f"round {number}"
                assert client.scope("s").devices == whole.scope("s").devices
            cluster.advance(plan)
            if cluster.rng.random() < 0.01:
                restarts += 1
                servers[0].stop()
                servers[0] = start_server(replace(first, port=servers[0].port))
    deltas = [request for request in sent if isinstance(request, pb.MatchRequest) and request.HasField("delta")]
    print(f"\n{ROUNDS} rounds, {len(deltas)} deltas, {failures} refused, {restarts} restarts")
    assert len(deltas) > ROUNDS / 3
