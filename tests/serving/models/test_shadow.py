"""A new model answers recent calls beside the present one before it is taken, and goes again where it errs more."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tests.models as tiny
from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import ModelError
from interfere.predict.acceptance.score import Case, score
from interfere.records import Device, Job, Snapshot
from interfere.serving.models.trial import (
    MAX_OBSERVED,
    MIN_OBSERVED,
    Comparison,
    Observed,
    Promises,
    compare,
    least_coverage,
)
from interfere.serving.server import RunningServer
from interfere.serving.state import load_served_model
from interfere.sharing_modes import parse_sharing_mode
from tests.models import DEVICE_TYPE, MODE, WORKLOADS, profile
from tests.serving.models.test_reload import base, base_of, expected, put, wait_served
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.waiting import PATIENCE_S, wait_until

FAR = 30  # version030 predicts e^1.5 times the slowdowns of version000


@pytest.fixture
def published(tmp_path: Path) -> Path:
    target = tmp_path / "champion"
    put(target, 0)
    return target


@pytest.fixture
def server(serve: Callable[..., RunningServer], settings: Settings, published: Path) -> RunningServer:
    return serve(replace(settings, model=published, model_poll_s=0.05, metrics_port=0))


def ask(client: PolicyClient, times: int = 5) -> None:
    for _ in range(times):
        client.predict(list(WORKLOADS))


def pairs(slowdown: float = float("nan")) -> list[Case]:
    """Every pair of two different jobs of the tiny model that was not measured."""
    return [
        Case(
            victim=profile(victim),
            neighbours=(profile(neighbour),),
            device_type=DEVICE_TYPE,
            mode=parse_sharing_mode(MODE),
            slowdown=slowdown,
        )
        for victim in WORKLOADS
        for neighbour in WORKLOADS
        if victim != neighbour and (victim, neighbour) != ("train", "gemm")
    ] * 2


def test_a_model_that_disagrees_about_recent_calls_is_refused_unless_the_change_is_meant(
    server: RunningServer, published: Path
) -> None:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        ask(client)
        version = put(published, FAR)
        wait_until(lambda: "recent calls" in client.list_models().refused, "the watch refuses it")
        with pytest.raises(ModelError, match=r"60 recent pairs: 0.0% newly silent, \d+.\d% disagree(.|\n)*--no-shadow"):
            client.load_model()
        assert client.model().version == "version000"
        assert client.load_model(shadow=False).version == version
    assert 'interfere_model_changes_total{result="refused"} 0.0' not in scrape(server)


@pytest.mark.parametrize("workers", [0, 1])
def test_decisions_are_recent_calls_too(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, workers: int
) -> None:
    server = serve(replace(settings, model=published, model_poll_s=3600.0, decision_workers=workers))
    jobs = tuple(Job(id=name, workload=name) for name in (*WORKLOADS, "unheard-of"))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for _ in range(3):
            client.match(Snapshot(pending=jobs, devices=(Device(id="d", type=DEVICE_TYPE),)))
        put(published, FAR)
        with pytest.raises(ModelError, match="36 recent pairs"):
            client.load_model()
        put(published, 1)
        assert client.load_model().version == "version001"


def test_a_model_that_agrees_is_taken(server: RunningServer, published: Path) -> None:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        ask(client)
        wait_served(client, put(published, 1))
        assert not client.list_models().refused


def test_a_model_that_does_not_know_what_is_asked_is_refused(published: Path, tmp_path: Path) -> None:
    present = load_served_model(published).predictor
    elsewhere = [replace(pair, mode=parse_sharing_mode("mps")) for pair in pairs()]

    class KnowsAll:
        """The present model, where it was trained on the other mode too."""

        version = present.version
        knows, predict_matrix = present.knows, present.predict_matrix

        def predict_pairs(self, batch):
            return present.predict_pairs(replace(batch, allow_extrapolation=True))

    promises = Promises(silent=0.1, disagreeing=0.2)
    assert "100.0% newly silent" in compare(KnowsAll(), present, elsewhere).broken_promise(promises)
    assert compare(present, present, elsewhere).broken_promise(promises) == ""
    assert compare(present, present, []) == Comparison()


def report(client: PolicyClient, rng: np.random.Generator, *, until: Callable[[], bool]) -> int:
    """Report slowdowns of what version000 predicts, with noise, until something happens; how many."""
    sent = 0
    while not until() and sent < MAX_OBSERVED:
        observed = [
            window(f"{rng.integers(2**40)}", "infer", "stream", slowdown=expected("version000") * np.exp(noise))
            for noise in rng.normal(scale=0.05, size=10)
        ]
        client.observe(observed)
        sent += len(observed)
    return sent


def test_a_model_whose_observed_error_jumps_is_rolled_back_within_200_observations(
    server: RunningServer, published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        version = put(published, FAR)
        wait_served(client, version)  # nobody had asked: there was no call to compare it on
        sent = report(client, np.random.default_rng(0), until=lambda: client.model().version == "version000")
        wait_served(client, "version000")
        wait_until(lambda: client.list_models().pinned, "it is recorded")
        assert f"{version}: rolled back, error of speed" in client.list_models().refused
        wait_until(lambda: "rolled_back" in scrape(server), "it is counted")
    assert sent <= MAX_OBSERVED
    assert f"model {version} is rolled back to version000" in caplog.text
    assert 'interfere_model_changes_total{result="rolled_back"} 1.0' in scrape(server)


def test_a_model_that_errs_no_more_stays(
    server: RunningServer, published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        version = put(published, 1)
        wait_served(client, version)
        report(client, np.random.default_rng(1), until=lambda: False)
        wait_until(lambda: f"model {version} stays" in caplog.text, "the trial is over")
        assert client.model().version == version


def test_a_model_is_on_trial_beside_what_the_server_had_learned(
    server: RunningServer, published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A retrained model agrees with what was learned of an upgraded site, not with what was published before."""
    caplog.set_level("INFO")
    rng = np.random.default_rng(2)
    with base(base_of(FAR)):
        upgraded = {(i, j): tiny.expected(i, j) for i in WORKLOADS for j in WORKLOADS if i != j}
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for _ in range(4):
            noise = rng.normal(scale=0.02, size=len(upgraded))
            client.observe(
                [
                    window(f"{rng.integers(2**40)}", victim, neighbour, slowdown=slowdown * np.exp(error))
                    for ((victim, neighbour), slowdown), error in zip(upgraded.items(), noise, strict=True)
                ]
            )
        ask(client)
        wait_served(client, put(published, FAR))
        assert "60 recent pairs" in client.list_models().trial
    assert "rolled back" not in caplog.text


def test_calls_after_a_model_was_taken_count_too(server: RunningServer, published: Path) -> None:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        version = put(published, FAR)
        wait_served(client, version)
        assert "no recent calls" in client.list_models().trial
        ask(client)
        wait_served(client, "version000")
        wait_until(lambda: client.list_models().refused, "it is told")
        assert f"{version}: rolled back, 60 recent pairs" in client.list_models().refused
        assert not client.list_models().trial


@pytest.mark.parametrize("published_meanwhile", [False, True])
def test_a_trial_goes_on_after_a_restart(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, *, published_meanwhile: bool
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05)
    server = serve(given)
    sent, version = 0, f"version{FAR:03d}"
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        if not published_meanwhile:
            wait_served(client, put(published, FAR))
            sent = report(client, np.random.default_rng(0), until=lambda: sent_before_restart(client))
    server.stop()
    if published_meanwhile:
        put(published, FAR)
    with PolicyClient(serve(given).address, timeout_s=PATIENCE_S) as client:
        assert client.model().version == version
        assert f"{version} beside version000" in client.list_models().trial
        sent += report(client, np.random.default_rng(1), until=lambda: client.model().version == "version000")
        wait_served(client, "version000")
    assert sent <= MAX_OBSERVED


def sent_before_restart(client: PolicyClient) -> bool:
    return client.model().online.observations >= MIN_OBSERVED // 2


def test_shares_that_are_promised_come_from_the_cards(published: Path) -> None:
    manifest = load_served_model(published).manifest
    stated = replace(
        manifest, scores={"pair": {"additive": {"coverage": 0.95}}, "job": {"additive": {"coverage": 0.8}}}
    )
    assert least_coverage(manifest) == 0.9
    assert least_coverage(stated) == 0.8
    assert Promises.of(manifest, stated).disagreeing == pytest.approx(0.3)


SCOPES = ("lab", "prod")


def decided_by(client: PolicyClient, scope: str) -> str:
    """The model that decides for a scope."""
    jobs = tuple(Job(id=name, workload=name) for name in WORKLOADS)
    return client.match(Snapshot(scope=scope, pending=jobs, devices=(Device(id="d", type=DEVICE_TYPE),))).model_version


@pytest.mark.parametrize("workers", [0, 1])
def test_a_canary_tries_a_model_on_its_scopes_before_all_take_it(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, workers: int
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05, canary="lab, test", decision_workers=workers)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        version = put(published, 1)
        wait_until(lambda: decided_by(client, "lab") == version, "the canary tries it")
        assert decided_by(client, "prod") == client.model().version == "version000"
        assert "for the scopes lab, test alone" in client.list_models().trial
        report(client, np.random.default_rng(3), until=lambda: sent_before_restart(client))
    server.stop()
    with PolicyClient(serve(given).address, timeout_s=PATIENCE_S) as client:
        assert [decided_by(client, scope) for scope in SCOPES] == [version, "version000"]
        report(client, np.random.default_rng(4), until=lambda: client.model().version == version)
        wait_served(client, version)
        assert [decided_by(client, scope) for scope in SCOPES] == [version, version]
        assert not client.list_models().trial


def test_a_canary_that_errs_more_ends_and_is_not_tried_again(
    serve: Callable[..., RunningServer], settings: Settings, published: Path
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05, canary="lab", decision_workers=1, metrics_port=0)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        version = put(published, FAR)
        wait_until(lambda: client.list_models().trial, "the canary tries it")
        report(client, np.random.default_rng(5), until=lambda: not client.list_models().trial)
        wait_until(lambda: "rolled back" in client.list_models().refused, "it is told")
        assert not client.list_models().pinned
    assert 'interfere_model_changes_total{result="taken"} 0.0' in scrape(server)
    server.stop()
    with PolicyClient(serve(given).address, timeout_s=PATIENCE_S) as client:
        time.sleep(0.3)
        assert [decided_by(client, scope) for scope in SCOPES] == ["version000"] * 2
        assert f"{version}: rolled back" in client.list_models().refused
        assert client.load_model(shadow=False).version == version  # an operator means it
        assert decided_by(client, "prod") == version


def test_the_score_is_equal_offline_and_live(tmp_path: Path) -> None:
    put(tmp_path / "old", 0)
    put(tmp_path / "new", FAR)
    old, new = (load_served_model(tmp_path / name).predictor for name in ("old", "new"))
    observed = pairs(expected("version000"))
    (before,), (after,) = score(old, observed, [slice(None)]), score(new, observed, [slice(None)])
    both = Observed.of(before, after)
    assert both.jumped
    assert both.before == pytest.approx(before.error.mean())
    assert both.new == pytest.approx(after.error.mean())
    assert not Observed.of(before, before).jumped
    assert not Observed.of(after, before).jumped
