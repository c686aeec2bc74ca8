"""SuggestProbes over the wire and `interfere probe`: beside whom a new job should run first, and what that teaches."""

import json

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.profile.probe import app
from interfere.errors import InvalidInputError
from interfere.records import ActionKind, Device, Job, JobProfile, Limits, Progress, RuleKind, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, profile

NEW = profile("newcomer")


def window(victim: str, neighbour: str, slowdown: float) -> Progress:
    return Progress(
        observation_id=f"{victim}-{neighbour}",
        job_id=victim,
        workload=victim,
        company=(neighbour,),
        device_type=DEVICE_TYPE,
        start_s=0.0,
        end_s=10.0,
        slowdown=slowdown,
    )


def test_each_probe_lowers_the_expected_error_and_none_is_chosen_twice(client: PolicyClient) -> None:
    answer = client.suggest_probes(NEW, count=4)
    assert sorted(each.neighbour for each in answer.probes) == ["gemm", "infer", "stream", "train"]
    errors = [answer.error_now, *(each.error_after for each in answer.probes)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < errors[0]
    gains = [each.gain for each in answer.probes]
    assert gains == sorted(gains, reverse=True)
    assert (answer.device_type, answer.model_version) == (DEVICE_TYPE, client.model().version)


def test_only_named_candidates_are_chosen_and_the_job_is_none_of_them(client: PolicyClient) -> None:
    answer = client.suggest_probes("train", neighbours=["gemm", "train", "infer"], count=16)
    assert sorted(each.neighbour for each in answer.probes) == ["gemm", "infer"]


def test_a_reported_probe_is_not_suggested_first_again_and_the_error_falls(client: PolicyClient) -> None:
    client.register_profiles([NEW])
    before = client.suggest_probes("newcomer")
    first = before.probes[0].neighbour
    client.observe([window("newcomer", first, 1.6), window(first, "newcomer", 1.3)])
    after = client.suggest_probes("newcomer")
    assert after.error_now < before.error_now
    assert after.error_now == pytest.approx(before.probes[0].error_after, rel=0.25)
    assert after.probes[0].neighbour != first


@pytest.mark.parametrize(
    ("job", "neighbours", "path"),
    [("nobody", [], "job"), ("train", ["gemm", "nobody"], "neighbours[1]"), ("train", ["train"], "neighbours")],
)
def test_jobs_without_a_profile_and_empty_choices_are_named(
    client: PolicyClient, job: str, neighbours: list[str], path: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        client.suggest_probes(job, neighbours=neighbours)
    assert [violation.field for violation in refused.value.violations] == [path]
    assert client.suggest_probes("train").probes


def test_a_job_of_another_device_type_is_asked_about_all_the_same(client: PolicyClient) -> None:
    elsewhere = JobProfile(workload="newcomer", device_type="a100-80gb", source="user", step_time_s=0.02)
    assert client.suggest_probes(elsewhere, device_type=DEVICE_TYPE).probes


def test_the_command_says_what_each_probe_is_worth(server: RunningServer) -> None:
    options = ["train", "--target", server.address, "--count", "2"]
    told = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert "known to ±" in told.stdout
    document = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    assert [each["beside"] in told.stdout for each in document["probes"]] == [True, True]
    nobody = CliRunner().invoke(app, ["nobody", "--target", server.address])
    assert "no profile of workload" in str(nobody.exception)


def test_match_starts_a_probe_in_a_sharing_mode_that_the_model_never_saw_and_explains_it(client: PolicyClient) -> None:
    devices = [
        Device(id=f"on {name}", type=DEVICE_TYPE, mode="mps", residents=(Job(id=f"r {name}", workload=name),))
        for name in ("gemm", "infer")
    ]

    def asked(snapshot_id: str, **limits: object) -> Snapshot:
        pending = (Job(id="j", workload="train"),)
        chosen = Limits.of(**limits)
        return Snapshot(snapshot_id=snapshot_id, pending=pending, devices=tuple(devices), limits=chosen, now_s=50.0)

    (waits,) = client.match(asked("1")).actions
    assert waits.kind is ActionKind.WAIT
    plan = client.match(asked("2", probe_devices=2, probe_cap=3.0))
    (probe,) = plan.actions
    assert (probe.kind, probe.rule and probe.rule.kind) == (ActionKind.START_SHARED, RuleKind.PROBE)
    assert probe.rule is not None
    assert 0.0 < probe.rule.taught_share <= 1.0
    assert probe.promised_by_s > 50.0
    explanation = client.explain(plan.decision_id, "j")
    assert explanation.action.reason == probe.reason
    (again,) = client.match(asked("3", probe_devices=2, probe_cap=3.0)).actions
    assert again.device_id == probe.device_id, "the probe is promised"
