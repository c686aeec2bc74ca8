"""RegisterProfiles, GetProfile, ListProfiles, GetModel."""

import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import Device, Job, JobProfile, KernelStat, Progress, Snapshot
from interfere.records.documents import to_document
from interfere.serving.profiles import MAX_VERSIONS, ProfileCatalogue
from interfere.serving.server import RunningServer
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, WORKLOADS, expected, profile
from tests.serving.test_server import scrape


def test_a_profile_comes_back_whole_also_after_a_restart(serve: Callable[..., RunningServer]) -> None:
    facts = replace(profile("mine"), busy_s=(0.1, 0.2), idle_s=(0.0, 0.1), kernels=(KernelStat(name="k", mean_s=1e-3),))
    first = serve()
    with PolicyClient(first.address) as client:
        assert client.register_profiles([facts]) == (facts.profile_id,)
    first.stop()
    with PolicyClient(serve().address) as client:
        assert to_document(client.get_profile(facts.profile_id)) == to_document(facts)
        with pytest.raises(NotFoundError, match="ffff"):
            client.get_profile("ffff")


def test_the_newest_profile_answers_and_an_old_one_becomes_newest_when_sent_again(client: PolicyClient) -> None:
    slow, fast = profile("mine", step_time_s=10.0), profile("mine", step_time_s=1e-3)

    def now() -> float:
        return float(client.predict(["mine", "gemm"], pairs=[(0, 1)]).prediction.median[0])

    client.register_profiles([slow, fast])
    assert now() == pytest.approx(expected("mine", "gemm", 1e-3), rel=1e-6)
    client.register_profiles([slow])
    assert now() == pytest.approx(expected("mine", "gemm", 10.0), rel=1e-6)
    listed = client.list_profiles(workload="mine")
    assert [(p.profile_id, p.newest) for p in listed] == [(fast.profile_id, False), (slow.profile_id, True)]


def test_listing_tells_registered_from_shipped(client: PolicyClient) -> None:
    assert [p.workload for p in client.list_profiles()] == list(WORKLOADS)
    client.register_profiles([replace(profile("mine"), device_type="other"), profile("infer", step_time_s=0.5)])
    listed = {(p.workload, p.device_type, p.registered): p.newest for p in client.list_profiles()}
    assert listed["infer", DEVICE_TYPE, False] is False
    assert listed["infer", DEVICE_TYPE, True] is True
    assert [p.workload for p in client.list_profiles(device_type="other")] == ["mine"]


def test_the_model_says_what_it_can_answer_for(client: PolicyClient) -> None:
    info = client.model()
    assert info.workloads == WORKLOADS
    assert [(d.device_type, d.mode) for d in info.domains] == [(DEVICE_TYPE, "timeslice")]
    assert (info.model, info.calibrated, info.trained_on[0].table) == ("additive", False, "tiny")
    assert {(s.split, s.model, s.metric): s.value for s in info.scores}["pair", "additive", "mae"] == 0.05
    assert info.online.observations == 0


def test_only_the_newest_profiles_of_a_workload_are_kept(serve: Callable[..., RunningServer]) -> None:
    server = serve()
    with PolicyClient(server.address) as client:
        ids = [client.register_profiles([profile("again", step_time_s=1.0 + k)])[0] for k in range(MAX_VERSIONS + 3)]
        kept = [p.profile_id for p in client.list_profiles(workload="again")]
    assert kept == ids[3:]
    server.stop()
    with PolicyClient(serve().address) as client:
        assert [p.profile_id for p in client.list_profiles(workload="again")] == kept


def test_a_profile_that_cannot_be_encoded_is_refused(client: PolicyClient) -> None:
    kernels = (KernelStat(name="k", mean_s=1e200, count=3),)
    with pytest.raises(InvalidInputError, match=r"profiles\[0\].kernels\[0\].mean_s(.|\n)*unit"):
        client.register_profiles([replace(profile("huge"), kernels=kernels)])
    assert client.list_profiles(workload="huge") == ()


def test_a_profile_of_an_earlier_release_that_cannot_be_encoded_is_set_aside_and_removed(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    """Stored before there were bounds: the server starts, says so, and answers for all others."""
    bad = replace(profile("huge"), kernels=(KernelStat(name="k", mean_s=1e300, count=1e300),))
    store = SqliteStore(settings.store_path)
    (bad_id,) = store.profiles.put([bad])
    store.close()
    with sqlite3.connect(settings.store_path) as connection:
        connection.execute("INSERT INTO profile (id, content) VALUES ('damaged', '{\"workload\": 3')")
    server = serve(replace(settings, metrics_port=0))
    assert "interfere_quarantined_profiles 2.0" in scrape(server)
    with PolicyClient(server.address) as client:
        device = Device(id="d", type=DEVICE_TYPE)
        client.match(Snapshot(pending=(Job(id="a", workload="huge"), Job(id="b", workload="gemm")), devices=(device,)))
        problems = {p.profile_id: p.problem for p in client.list_profiles() if p.problem}
        assert problems.keys() == {bad_id, "damaged"}
        assert set(client.remove_profiles([bad_id, "damaged", "never"])) == {bad_id, "damaged"}
        assert not any(p.problem for p in client.list_profiles())
    assert "interfere_quarantined_profiles 0.0" in scrape(server)


KERNELS = (KernelStat(name="gemm", mean_s=2e-3, count=4.0),)


def said(source: str, **facts: Any) -> JobProfile:
    """What one source says of a workload that the model does not ship."""
    return JobProfile(workload="net", device_type=DEVICE_TYPE, source=source, **{"step_time_s": math.nan, **facts})


NSIGHT = said("nsight", step_time_s=8e-3, kernels=KERNELS)
DCGM = said("dcgm", memory_peak_bytes=3e9, sm_active_frac=0.5, measured_at_s=1.7e9)


@pytest.mark.parametrize("order", [(NSIGHT, DCGM), (DCGM, NSIGHT)])
def test_kernels_of_one_source_and_memory_of_another_are_used_together(
    serve: Callable[..., RunningServer], settings: Settings, order: tuple[JobProfile, ...]
) -> None:
    server = serve()
    with PolicyClient(server.address) as client:
        for registered in order:
            client.register_profiles([registered])
        assert all(summary.newest for summary in client.list_profiles(workload="net"))
        answer = client.predict(["net", "gemm"], pairs=[(0, 1)], device_memory_bytes=3.5e9).prediction
        assert answer.median[0] == pytest.approx(expected("net", "gemm", 8e-3), rel=1e-6)
        assert answer.feasibility[0] < 0.5, "3 GB of one source and 1 GiB do not fit into 3.5 GB"
    server.stop()
    store = SqliteStore(settings.store_path)
    combined = load_served_model(settings.model).catalogue(store.profiles).of_workload("net", DEVICE_TYPE)
    store.close()
    assert combined is not None
    assert (combined.kernels, combined.memory_peak_bytes, combined.source) == (KERNELS, 3e9, "dcgm+nsight")


def test_a_source_that_registers_again_replaces_its_own_facts_alone_and_can_be_taken_back(
    client: PolicyClient,
) -> None:
    def now() -> float:
        return float(client.predict(["infer", "gemm"], pairs=[(0, 1)]).prediction.median[0])

    shipped = now()
    (static_id,) = client.register_profiles([replace(profile("infer", step_time_s=5.0), source="static")])
    assert now() == shipped, "the measured step time of the model comes before a traced one"
    (mine,) = client.register_profiles([profile("infer", step_time_s=1.0)])
    assert now() == pytest.approx(expected("infer", "gemm", 1.0), rel=1e-6)
    listed = {p.profile_id: p.newest for p in client.list_profiles(workload="infer")}
    assert (listed[static_id], listed[mine], sum(listed.values())) == (True, True, 2)
    client.remove_profiles([mine, static_id])
    assert now() == shipped


def test_what_was_learned_is_the_same_after_a_replay_with_facts_of_several_sources(
    serve: Callable[..., RunningServer],
) -> None:
    server = serve()
    with PolicyClient(server.address) as client:
        client.register_profiles([NSIGHT])
        client.observe(
            [
                Progress(
                    observation_id=f"o{k}",
                    job_id="j",
                    workload="net",
                    device_type=DEVICE_TYPE,
                    mode="timeslice",
                    start_s=60.0 * k,
                    end_s=60.0 * k + 60.0,
                    slowdown=1.8,
                    company=("gemm",),
                )
                for k in range(6)
            ]
        )
        client.register_profiles([DCGM, replace(DCGM, sm_active_frac=0.7)])
        before = client.predict(["net", "gemm"]).prediction.median.tolist()
    server.stop()
    with PolicyClient(serve().address) as client:
        assert client.predict(["net", "gemm"]).prediction.median.tolist() == before


def registered(catalogue: ProfileCatalogue, profile: JobProfile) -> ProfileCatalogue:
    return catalogue.with_registered({profile.profile_id: profile})


def test_superseded_profiles_go_first_and_never_what_another_source_says() -> None:
    static = said("static", flops_per_step=1e12)
    catalogue = ProfileCatalogue({}, {static.profile_id: static})
    for k in range(2 * MAX_VERSIONS):
        catalogue = registered(catalogue, said("dcgm", power_w=100.0 + k))
    combined = catalogue.of_workload("net", DEVICE_TYPE)
    assert combined is not None
    assert (combined.flops_per_step, combined.power_w) == (1e12, 99.0 + 2 * MAX_VERSIONS)
    assert len(catalogue.summaries("net", "")) == MAX_VERSIONS
    assert ProfileCatalogue({}, catalogue.registered()).digest() == catalogue.digest()
    same = registered(catalogue, replace(static, workload="other"))
    assert same.of_workload("net", DEVICE_TYPE) is combined
