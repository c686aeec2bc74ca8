"""Explain over the wire: why a job got what it got, also after a restart, in another scope, and when more is known."""

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import NotFoundError
from interfere.predict.online.prior import PRIOR_FILE
from interfere.records import ActionKind, Device, Explanation, Job, Limits, Plan, Progress, Source
from interfere.serving.kept_decisions import LEARNED, MEASURED
from interfere.serving.server import RunningServer
from interfere.training.publishing.residual_prior import residual_prior_file
from tests.models import DEVICE_TYPE, SLOPE, STEP_TIME_S, WORKLOADS, add_file, expected, profile, publish
from tests.serving.test_decisions import snapshot
from tests.serving.test_log import cold_prior
from tests.serving.test_observations import window


def test_a_shared_start_has_its_predictions_their_causes_and_its_alternatives(client: PolicyClient) -> None:
    plan = client.match(snapshot())
    said = client.explain(plan.decision_id, "j-train")
    assert (said.decision_id, said.scope, said.workload, said.changed) == (plan.decision_id, "default", "train", ())
    assert said.model_version == plan.model_version
    assert said.action == plan.actions[0]
    partner = said.action.partner_id
    assert [(pair.victim_id, pair.neighbour_id) for pair in said.pairs] == [("j-train", partner), (partner, "j-train")]
    assert said.pairs[0].median == pytest.approx(said.action.slowdown, rel=1e-6)
    assert (said.pairs[0].lower, said.pairs[0].upper) == (said.action.slowdown_lower, said.action.slowdown_upper)
    assert said.pairs[1].median == pytest.approx(said.action.partner_slowdown, rel=1e-6)
    _check_alternatives(plan, said)
    kinds = [one.kind for one in said.alternatives]
    assert kinds.count(ActionKind.START_SHARED) == 3
    assert kinds.count(ActionKind.START_ALONE) == kinds.count(ActionKind.WAIT) == 1


def _check_alternatives(plan: Plan, said: Explanation) -> None:
    (chosen,) = [one for one in said.alternatives if one.chosen]
    assert said.alternatives[0] == chosen
    assert (chosen.kind, chosen.partner_id) == (said.action.kind, said.action.partner_id)
    assert chosen.cost == pytest.approx(plan.cost, rel=1e-6)
    assert all(one.proven for one in said.alternatives)


def test_contributions_are_those_of_the_served_model(client: PolicyClient) -> None:
    plan = client.match(
        snapshot(pending=(Job(id="a", workload="train"), Job(id="b", workload="stream")), devices=one())
    )
    pair = client.explain(plan.decision_id, "a").pairs[0]
    assert pair.source is Source.MODEL
    assert pair.note == ""
    assert pair.median == pytest.approx(expected("train", "stream"), rel=1e-5)
    facts = {(fact.job_id, fact.name): fact for fact in pair.contributions}
    step = facts["a", "step time alone"]
    usual = sorted(STEP_TIME_S.values())
    assert (step.value, step.unit) == (STEP_TIME_S["train"], "s")
    assert step.reference == pytest.approx((usual[1] + usual[2]) / 2)
    assert step.log_change == pytest.approx(SLOPE * math.log(step.value / step.reference), rel=1e-3)
    assert all(fact.name in ("step time alone", "being a workload of the training data") for fact in facts.values())


def one() -> tuple[object, ...]:
    """One empty device, so that two jobs have to share it."""
    return snapshot().devices[:1]


def test_a_measured_pair_says_that_its_number_is_a_measurement(client: PolicyClient) -> None:
    plan = client.match(snapshot(pending=(Job(id="a", workload="train"), Job(id="b", workload="gemm")), devices=one()))
    pair, back = client.explain(plan.decision_id, "a").pairs
    assert (pair.source, pair.median) == (Source.MEASURED, pytest.approx(2.2))
    model = expected("train", "gemm")
    assert f"the model would say {model:.2f} ×" in pair.note
    (measured,) = [fact for fact in pair.contributions if fact.name == MEASURED]
    assert (measured.job_id, measured.log_change) == ("", pytest.approx(math.log(2.2 / model), rel=1e-4))
    assert (back.source, back.note) == (Source.MODEL, "")


def test_what_was_learned_since_is_told_and_everything_is_of_now(client: PolicyClient) -> None:
    jobs = (Job(id="a", workload="train"), Job(id="b", workload="stream"))
    plan = client.match(snapshot(pending=jobs, devices=one()))
    seen = Progress(
        observation_id="o",
        job_id="a",
        workload="train",
        company=("stream",),
        device_type=DEVICE_TYPE,
        start_s=0.0,
        end_s=600.0,
        slowdown=1.2 * expected("train", "stream"),
    )
    client.observe([seen])
    client.register_profiles([profile("stream", step_time_s=0.5)])
    said = client.explain(plan.decision_id, "a")
    assert said.changed == ("log entries: 1", "newer profiles")
    pair = said.pairs[0]
    now = float(client.predict(["train", "stream"], pairs=[(0, 1)]).prediction.median[0])
    assert pair.median == pytest.approx(now)
    (learned,) = [fact for fact in pair.contributions if fact.name == LEARNED]
    assert learned.log_change == pytest.approx(math.log(now / expected("train", "stream")), rel=1e-3)
    assert said.action == plan.actions[0]
    (chosen,) = [choice for choice in said.alternatives if choice.chosen]
    assert chosen.cost != pytest.approx(plan.cost, rel=1e-3)


def test_a_job_that_waits_hears_which_rules_bind_and_what_starting_it_would_cost(client: PolicyClient) -> None:
    capped = snapshot(limits=Limits.of(max_slowdown=1.0))
    plan = client.match(capped)
    name = next(action.job_id for action in plan.actions if action.kind is ActionKind.WAIT)
    said = client.explain(plan.decision_id, name)
    assert said.pairs == ()
    assert (said.refused_total, len(said.refused)) == (3, 3)
    assert {refusal.job_id for refusal in said.refused} == {name}
    assert all("slowdown cap" in refusal.reason for refusal in said.refused)
    assert {choice.kind for choice in said.alternatives} == {ActionKind.WAIT, ActionKind.START_ALONE}
    assert {choice.waiting for choice in said.alternatives} == {2}


def test_a_job_of_an_unknown_workload_is_explained_without_predictions(client: PolicyClient) -> None:
    plan = client.match(snapshot(pending=(Job(id="new", workload="nobody"), Job(id="old", workload="infer"))))
    said = client.explain(plan.decision_id, "new")
    assert said.pairs == ()
    assert "no profile" in said.refused[0].reason
    assert said.alternatives[0].chosen


def test_a_job_without_facts_is_explained_by_what_was_observed(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    folder = publish(tmp_path / "with-means")
    add_file(folder, PRIOR_FILE, residual_prior_file(cold_prior()))
    with PolicyClient(serve(replace(settings, model=folder)).address) as client:
        client.observe([window(f"cold {k}", "nobody", "gemm", slowdown=1.9) for k in range(8)])
        jobs = (Job(id="a", workload="nobody"), Job(id="b", workload="stream"))
        plan = client.match(snapshot(pending=jobs, devices=one()))
        pair = client.explain(plan.decision_id, "a").pairs[0]
    assert pair.median == pytest.approx(plan.actions[0].slowdown, rel=1e-6)
    assert "no profile" in pair.note
    assert pair.contributions == ()


@pytest.mark.parametrize("snapshot_id", ["s1", ""])
def test_a_decision_is_explained_after_a_restart(serve: Callable[..., RunningServer], snapshot_id: str) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        plan = client.match(snapshot(snapshot_id=snapshot_id))
        before = client.explain(plan.decision_id, "j-gemm")
    first.stop()
    with PolicyClient(serve().address) as client:
        assert repr(client.explain(plan.decision_id, "j-gemm")) == repr(before)


def test_another_model_explains_and_says_so(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        plan = client.match(snapshot())
    first.stop()
    newer = serve(replace(settings, model=publish(tmp_path / "newer", version="newer")))
    with PolicyClient(newer.address) as client:
        said = client.explain(plan.decision_id, "j-train")
    assert said.model_version == "newer"
    assert said.changed == (f"another model: {plan.model_version} decided, newer explains",)


def test_scopes_are_kept_apart(client: PolicyClient) -> None:
    plan = client.match(snapshot(snapshot_id="s1", scope="east"))
    other = client.match(snapshot(snapshot_id="s1", scope="west", pending=(Job(id="w", workload="infer"),)))
    assert client.explain(plan.decision_id, "j-train", scope="east").scope == "east"
    assert client.explain(other.decision_id, "w").scope == "west"
    with pytest.raises(NotFoundError, match="scope 'west'"):
        client.explain(plan.decision_id, "j-train", scope="west")


def test_an_unknown_decision_or_job_has_a_remedy(client: PolicyClient) -> None:
    plan = client.match(snapshot())
    with pytest.raises(NotFoundError, match="come with the answers of Match"):
        client.explain("nope", "j-train")
    with pytest.raises(NotFoundError, match="one of its 4 jobs: j-train"):
        client.explain(plan.decision_id, "nope")


def test_explaining_changes_nothing(client: PolicyClient) -> None:
    plan = client.match(snapshot(snapshot_id="s1"))
    first = client.explain(plan.decision_id, "j-train")
    assert repr(client.explain(plan.decision_id, "j-train")) == repr(first)
    assert client.match(snapshot(snapshot_id="s1")) == plan


def test_a_decision_is_made_also_while_the_store_cannot_be_written(server: RunningServer, client: PolicyClient) -> None:
    """A backup tool holds the lock: what nobody can ask for again is told, and only not explained."""
    with closing(sqlite3.connect(server.settings.store_path, isolation_level=None)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        plan = client.match(snapshot())
    assert plan.pairs
    with pytest.raises(NotFoundError):
        client.explain(plan.decision_id, "j-train")


def test_a_start_that_was_promised_before_says_by_which_decision(client: PolicyClient) -> None:
    devices = snapshot().devices
    early = (Job(id="a", workload="train"),)
    first = client.match(snapshot(pending=early, devices=devices, now_s=0.0))
    later = client.match(snapshot(pending=(*early, Job(id="b", workload="infer")), devices=devices, now_s=1.0))
    said = client.explain(later.decision_id, "a")
    assert first.decision_id in said.action.reason
    assert said.alternatives == ()
    other = client.explain(later.decision_id, "b")
    assert {one.device_id for one in other.alternatives} == {later.actions[1].device_id, ""}  # not what is promised


def test_gangs_are_explained_among_gangs_of_their_size(client: PolicyClient) -> None:
    gangs = tuple(Job(id=f"g-{name}", workload=name, gpus=2) for name in WORKLOADS[:2])
    jobs = (*gangs, Job(id="single", workload="stream"))
    plan = client.match(snapshot(pending=jobs, devices=(*snapshot().devices, Device(id="d2", type=DEVICE_TYPE))))
    said = client.explain(plan.decision_id, gangs[0].id)
    assert said.action.device_ids
    assert {one.partner_id for one in said.alternatives} == {gangs[1].id, ""}
    assert said.alternatives[0].chosen
    assert said.alternatives[0].partner_id == gangs[1].id


def test_residents_that_are_kept_are_seats_and_explained_themselves(client: PolicyClient) -> None:
    resident = Job(id="r", workload="infer")
    devices = (Device(id="d", type=DEVICE_TYPE, residents=(resident,)), Device(id="e", type=DEVICE_TYPE))
    limits = Limits(allowed=frozenset(ActionKind))
    plan = client.match(snapshot(pending=(Job(id="a", workload="train"),), devices=devices, limits=limits, now_s=5.0))
    said = client.explain(plan.decision_id, "a")
    assert {(one.kind, one.partner_id) for one in said.alternatives} == {
        (ActionKind.START_ALONE, ""),
        (ActionKind.START_SHARED, "r"),
        (ActionKind.WAIT, ""),
    }
    kept = client.explain(plan.decision_id, "r")
    assert (kept.action.kind, kept.workload, kept.alternatives) == (ActionKind.KEEP, "infer", ())
