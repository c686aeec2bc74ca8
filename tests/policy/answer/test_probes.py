"""A job that the model abstains from gets a probe: a start beside the resident that teaches most about it."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.decide import decide
from interfere.predict.residual import OnlineModel
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    Plan,
    Prediction,
    Progress,
    Promise,
    RuleKind,
    ScopeLedger,
    Snapshot,
    Source,
)
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NAMES = ("a", "b", "c", "new", "newer")
RESIDENTS = NAMES[:3]
SLOWDOWN = {(v, n): 1.2 for v in NAMES for n in NAMES}


class AbstainingTable(TablePredictor):
    """Abstains from all pairs of the new workloads, unless it may extrapolate."""

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        answer = super().predict_pairs(batch)
        names = [job.workload for job in batch.jobs]
        novel = np.array(["new" in names[i] + names[j] for i, j in zip(batch.victim, batch.neighbour, strict=True)])
        if batch.allow_extrapolation or not novel.any():
            return answer
        values = {name: np.where(novel, np.nan, getattr(answer, name)) for name in ("median", "lower", "upper")}
        source = tuple(Source.ABSTAINED if new else Source.MODEL for new in novel)
        return replace(answer, **values, source=source, reason=("novel",) * len(novel))

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        answer = super().predict_matrix(batch, quantile=quantile)
        if batch.allow_extrapolation:
            return answer
        novel = np.array([["new" in v.workload + n.workload for n in batch.neighbours] for v in batch.victims])
        values = {
            name: np.where(novel.reshape(batch.shape), np.nan, getattr(answer, name)).astype(np.float32)
            for name in ("victim_slowdown", "neighbour_slowdown")
        }
        return replace(answer, **values)


class Site:
    """Three devices with one known resident each, and a server's online model."""

    def __init__(self, slowdown: dict[tuple[str, str], float] = SLOWDOWN, spread: float = 1.05) -> None:
        self.model = OnlineModel(AbstainingTable(slowdown, spread=spread))
        self.devices = [
            Device(id=f"on {name}", type=DEVICE, residents=(Job(id=f"r {name}", workload=name),)) for name in RESIDENTS
        ]

    def plan(self, *waiting: str, promises: tuple[Promise, ...] = (), **limits: object) -> Plan:
        snapshot = Snapshot(
            snapshot_id="",
            pending=tuple(Job(id=f"j {k}", workload=name) for k, name in enumerate(waiting)),
            devices=tuple(self.devices),
            limits=Limits.of(**limits),
            now_s=100.0,
        )
        ledger = ScopeLedger(scope="default", promises=promises)
        asked = context(snapshot, self.model, resolver(*map(profile, NAMES)))
        return decide(asked, ledger).plan

    def observe(self, victim: str, neighbour: str, slowdown: float) -> None:
        window = Progress(
            observation_id=f"{victim} {neighbour} {self.model.state.observation_count}",
            job_id=victim,
            workload=victim,
            company=(neighbour,),
            device_type=DEVICE,
            start_s=0.0,
            end_s=10.0,
            slowdown=slowdown,
        )
        self.model.observe(window, lambda name, _: profile(name))


def probes(plan: Plan) -> list[Action]:
    return [action for action in plan.actions if action.rule and action.rule.kind is RuleKind.PROBE]


def test_a_probe_starts_beside_the_resident_that_teaches_most_and_the_pair_is_then_known() -> None:
    site = Site()
    without = site.plan("new")
    (waits,) = without.actions
    assert (waits.kind, waits.rule and waits.rule.kind) == (ActionKind.WAIT, RuleKind.NOVEL_PAIR)
    assert without.refused
    assert all("probe_devices" in refusal.reason for refusal in without.refused)
    (action,) = site.plan("new", probe_devices=1).actions
    taught = site.model.teaches(profile("new"), [profile(name) for name in RESIDENTS], DEVICE, "timeslice")
    assert action.kind is ActionKind.START_SHARED
    assert action.device_id == f"on {RESIDENTS[int(np.argmax(taught))]}"
    assert action.rule is not None
    assert (action.rule.kind, action.rule.taught_share) == (RuleKind.PROBE, pytest.approx(taught.max()))
    assert "teaches" in action.reason
    assert action.promised_by_s > 100.0
    # It ran: from then on the pair is planned as any other.
    partner = action.device_id.removeprefix("on ")
    site.observe("new", partner, 1.15)
    site.observe(partner, "new", 1.1)
    (known,) = site.plan("new").actions
    assert (known.kind, known.device_id) == (ActionKind.START_SHARED, action.device_id)
    assert known.rule is not None
    assert known.rule.kind is RuleKind.LEAST_COST
    # The next probe is beside another.
    site.devices = [device for device in site.devices if device.id != action.device_id]
    (second,) = probes(site.plan("new", probe_devices=1))
    assert second.device_id != action.device_id


def test_no_more_devices_probe_than_allowed_those_that_run_and_those_that_are_promised_included() -> None:
    site = Site()
    assert [len(probes(site.plan("new", "newer", "new", "new", probe_devices=k))) for k in range(5)] == [0, 1, 2, 3, 3]
    (promised,) = probes(site.plan("new", probe_devices=1))
    promise = Promise(action=promised, decision_ids=("d",), since_s=100.0)
    again = site.plan("new", "newer", probe_devices=1, promises=(promise,))
    assert [action.kind for action in again.actions] == [ActionKind.START_SHARED, ActionKind.WAIT]
    host, *others = site.devices
    running = replace(host, residents=(*host.residents, Job(id="probing", workload="newer")))
    site.devices = [running, *others]
    assert not probes(site.plan("new", probe_devices=1))
    assert len(probes(site.plan("new", probe_devices=2))) == 1


def test_a_probe_keeps_the_caps_and_every_other_rule() -> None:
    slow = SLOWDOWN | {("new", "a"): 2.5, ("b", "new"): 2.5}
    site = Site(slow)
    (action,) = probes(site.plan("new", probe_devices=1))
    assert action.device_id == "on c", "beside a or b one of the two would be slowed beyond the cap"
    assert not probes(site.plan("new", probe_devices=1, max_slowdown=1.1))
    assert len(probes(site.plan("new", probe_devices=1, probe_cap=3.0, probe_risk=0.5))) == 1
    only_alone = frozenset({ActionKind.START_ALONE, ActionKind.WAIT})
    assert not probes(site.plan("new", probe_devices=1, allowed=only_alone))
    site.devices.append(Device(id="empty", type=DEVICE))
    (alone,) = site.plan("new", probe_devices=1).actions
    assert alone.kind is ActionKind.START_ALONE, "only a job that would wait becomes a probe"


def test_a_known_job_that_waits_is_no_probe() -> None:
    site = Site(dict.fromkeys(SLOWDOWN, 1.9))
    (action,) = site.plan("a", probe_devices=3).actions
    assert action.kind is ActionKind.WAIT


def test_a_pair_that_may_be_worth_it_is_tried_once_and_then_known() -> None:
    site = Site(dict.fromkeys(SLOWDOWN, 1.9), spread=1.8)
    (waits,) = site.plan("a").actions
    assert waits.rule is not None
    assert waits.rule.kind is RuleKind.JOINT_THROUGHPUT
    (action,) = probes(site.plan("a", probe_devices=1, probe_cap=3.0, probe_risk=0.5))
    partner = action.device_id.removeprefix("on ")
    (elsewhere,) = (device for device in site.devices if device.id == action.device_id)
    site.devices = [elsewhere]
    for _ in range(3):  # it is as bad as it seemed
        site.observe("a", partner, 1.95)
        site.observe(partner, "a", 1.95)
    assert not probes(site.plan("a", probe_devices=1, probe_cap=3.0, probe_risk=0.5))
    better = Site(dict.fromkeys(SLOWDOWN, 1.9), spread=1.8)
    better.devices = [elsewhere]
    better.observe("a", partner, 1.3)
    better.observe(partner, "a", 1.3)
    (known,) = better.plan("a").actions
    assert known.kind is ActionKind.START_SHARED
