"""AdviseMode over the wire: what the model knows, what follows from profiles in slices, and what neither does."""

import json
import math

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.advise.command import app
from interfere.errors import InvalidInputError
from interfere.records import Device, Job, JobProfile, Progress, Snapshot
from interfere.records.documents import from_document, to_document
from interfere.records.mode_advice import ModeAdvice, ModeOutlook, ModeReasonKind, ModeSource
from interfere.serving.server import RunningServer
from interfere.sharing_modes import SharingMode
from tests.models import DEVICE_TYPE, MEASURED, expected

GPU = "a100-80gb"


def outlook(advice: ModeAdvice, mode: str) -> ModeOutlook:
    return next(each for each in advice.modes if each.mode == mode)


def slice_profile(workload: str, device_type: str, step_time_s: float) -> JobProfile:
    return JobProfile(workload=workload, device_type=device_type, source="user", step_time_s=step_time_s)


def test_a_known_mode_is_told_as_it_is_predicted_and_the_others_are_not_guessed(client: PolicyClient) -> None:
    advice = client.advise_mode(["infer", "stream"])
    assert advice.device_type == DEVICE_TYPE
    timeslice = outlook(advice, "timeslice")
    assert timeslice.source is ModeSource.PREDICTED
    assert timeslice.jobs[0].slowdown == pytest.approx(expected("infer", "stream"), rel=1e-4)
    predicted = client.predict(["infer", "stream"]).prediction
    assert [job.upper for job in timeslice.jobs] == pytest.approx(predicted.upper.tolist())
    assert {each.mode for each in advice.modes if each.known} == {"timeslice"}
    assert all("import or measure" in outlook(advice, mode).reason for mode in ("priority", "spatial"))
    assert advice.recommendation.mode in ("timeslice", "")
    assert advice.model_version == client.model().version


@pytest.mark.parametrize(
    ("device_type", "modes"),
    [
        (DEVICE_TYPE, {"timeslice", "priority", "spatial"}),
        (GPU, {"timeslice", "mps", "mig", "stream", "priority"}),
        ("v100", {"timeslice", "mps", "stream", "priority"}),
        ("a site's own accelerator", set(SharingMode)),
    ],
)
def test_only_modes_that_the_device_can_have_are_compared_and_measured(
    client: PolicyClient, device_type: str, modes: set[str]
) -> None:
    for extrapolate in (False, True):
        advice = client.advise_mode(["infer", "stream"], device_type=device_type, allow_extrapolation=extrapolate)
        assert {each.mode for each in advice.modes} == modes
        assert {each.mode for each in advice.measure} <= modes | {""}
        assert advice.recommendation.mode in modes | {""}


def test_three_jobs_are_told_as_a_group(client: PolicyClient) -> None:
    names = ["infer", "stream", "train"]
    advice = client.advise_mode(names)
    group = client.predict(names, pairs=[(0, 1, 2)]).prediction
    assert outlook(advice, "timeslice").jobs[0].slowdown == pytest.approx(float(group.median[0]))


def test_a_measured_pair_is_so_called_only_where_both_directions_are(client: PolicyClient) -> None:
    (victim, neighbour), slowdown = next(iter(MEASURED.items()))
    timeslice = outlook(client.advise_mode([victim, neighbour]), "timeslice")
    assert timeslice.jobs[0].source is ModeSource.MEASURED
    assert timeslice.jobs[0].slowdown == pytest.approx(slowdown)
    assert timeslice.source is ModeSource.PREDICTED


def test_what_is_observed_moves_the_advice(client: PolicyClient) -> None:
    before = outlook(client.advise_mode(["infer", "stream"]), "timeslice").jobs[0].slowdown
    seen = {"job_id": "j", "workload": "infer", "company": ("stream",), "device_type": DEVICE_TYPE}
    windows = [
        Progress(observation_id=f"o{k}", start_s=60.0 * k, end_s=60.0 * (k + 1), slowdown=3 * before, **seen)  # type: ignore[arg-type]
        for k in range(8)
    ]
    client.observe(windows)
    assert outlook(client.advise_mode(["infer", "stream"]), "timeslice").jobs[0].slowdown > 1.3 * before


def test_profiles_in_slices_give_the_slowdowns_of_mig(client: PolicyClient) -> None:
    client.register_profiles([slice_profile(name, GPU, 0.1) for name in ("a", "b")])
    unknown = client.advise_mode(["a", "b"], device_type=GPU)
    assert unknown.recommendation.kind is ModeReasonKind.NOTHING_KNOWN
    wanted = {(each.workloads, each.device_type) for each in outlook(unknown, "mig").measure}
    assert wanted == {(("a",), f"{GPU}-3g.40gb"), (("b",), f"{GPU}-4g.40gb")}
    times = (("a", "3g.40gb", 0.12), ("a", "4g.40gb", 0.11), ("b", "3g.40gb", 0.2), ("b", "4g.40gb", 0.15))
    client.register_profiles([slice_profile(name, f"{GPU}-{size}", step_s) for name, size, step_s in times])
    advice = client.advise_mode(["a", "b"], device_type=GPU, latency_targets_s={0: 0.2, 1: 0.2})
    mig = outlook(advice, "mig")
    assert mig.source is ModeSource.DERIVED
    assert [(job.slice_type, job.slowdown) for job in mig.jobs] == [
        (f"{GPU}-3g.40gb", pytest.approx(1.2)),
        (f"{GPU}-4g.40gb", pytest.approx(1.5)),
    ]
    assert (advice.recommendation.mode, advice.recommendation.kind) == ("mig", ModeReasonKind.ONLY_KNOWN_MODE)


def test_bad_questions_are_refused_with_their_paths_and_the_server_goes_on(client: PolicyClient) -> None:
    with pytest.raises(InvalidInputError, match="2 to 48 jobs"):
        client.advise_mode(["infer"])
    with pytest.raises(InvalidInputError, match=r"jobs\[1\].latency_target_s"):
        client.advise_mode(["infer", "nobody"], latency_targets_s={1: 0.1})
    with pytest.raises(InvalidInputError, match="risk"):
        client.advise_mode(["infer", "stream"], risk=0.9)
    assert client.advise_mode(["infer", "nobody"]).recommendation.kind is ModeReasonKind.NOTHING_KNOWN
    assert not outlook(client.advise_mode(["infer", "stream"], device_type="h100"), "mps").known


def test_the_command_prints_a_table_and_json(server: RunningServer) -> None:
    options = ["--jobs", "infer,stream", "--target", server.address]
    page = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert page.exit_code == 0, page.output
    assert all(text in page.output for text in ("timeslice", "predicted", "abstained", "measure:", "on cpu-core:"))
    told = CliRunner().invoke(app, [*options, "--latency-target", "infer=0.1", "--json"])
    document = json.loads(told.output)
    assert document["modes"][0]["mode"] == "timeslice"
    assert 0 <= document["modes"][0]["jobs"][0]["miss_probability"] <= 1
    assert document["modes"][1]["throughput"] is None
    assert not {"mps", "mig", "stream"} & {each["mode"] for each in document["modes"]}
    assert "mps" not in page.output
    nobody = CliRunner().invoke(app, ["--jobs", "nobody,stream", "--target", server.address], env={"COLUMNS": "200"})
    assert nobody.output.count("no profile of workload 'nobody'") == 1, "of several modes a reason is told once"
    assert "timeslice, priority, spatial: no profile of workload 'nobody'" in nobody.output
    wrong = CliRunner().invoke(app, [*options, "--latency-target", "gemm=0.1"])
    assert wrong.exit_code == 2
    assert math.isfinite(document["recommendation"]["throughput"])


def test_more_jobs_than_slices_are_said_to_be_too_many(client: PolicyClient) -> None:
    advice = client.advise_mode(["a"] * 48, device_type=GPU)
    assert outlook(advice, "mig").reason.startswith("more jobs than slices")


def test_a_snapshot_with_modes_to_choose_comes_from_json_and_is_decided(client: PolicyClient) -> None:
    pending = tuple(Job(id=name, workload=name) for name in ("infer", "stream"))
    snapshot = Snapshot(pending=pending, devices=(Device(id="d", type=DEVICE_TYPE),))
    document = to_document(snapshot)
    document["limits"] |= {"choosable_modes": ["mps", "timeslice"]}
    chosen = from_document(Snapshot, json.loads(json.dumps(document, default=list).replace("NaN", "null")))
    assert chosen.limits.choosable_modes == {"mps", "timeslice"}
    plan = client.match(chosen)  # the model knows time slices only: there is nothing to choose
    assert [action.mode for action in plan.actions] == ["", ""]
    assert plan.cost == pytest.approx(client.match(snapshot).cost)
    document["limits"] |= {"choosable_modes": ["mpss"]}
    with pytest.raises(InvalidInputError, match="choosable_modes"):
        from_document(Snapshot, json.loads(json.dumps(document, default=list).replace("NaN", "null")))
