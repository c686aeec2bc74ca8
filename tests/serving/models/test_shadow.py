"""A new model answers recent calls beside the present one before it is taken, and goes again where it errs more."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import ModelError
from interfere.predict.acceptance.score import LoggedPair, score
from interfere.records import Device, Job, Snapshot
from interfere.serving.models.shadow import MAX_OBSERVED, TrialVerdict, check_shadow
from interfere.serving.server import RunningServer
from interfere.serving.state import load_served_model
from interfere.sharing_modes import parse_sharing_mode
from tests.models import DEVICE_TYPE, MODE, WORKLOADS, profile
from tests.serving.models.test_reload import expected, put, wait_served
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


def pairs(slowdown: float = float("nan")) -> list[LoggedPair]:
    """Every pair of two different jobs of the tiny model that was not measured."""
    return [
        LoggedPair(
            victim=profile(victim),
            neighbour=profile(neighbour),
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
    assert 'interfere_model_changes_total{result="refused"}' in scrape(server)


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

    with pytest.raises(ModelError, match=r"100\.0% newly silent"):
        check_shadow(KnowsAll(), present, elsewhere)
    assert "0.0% newly silent" in check_shadow(present, present, elsewhere)
    assert check_shadow(present, present, []) == "no recent calls to compare it on"


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


def test_the_score_is_equal_offline_and_live(tmp_path: Path) -> None:
    put(tmp_path / "old", 0)
    put(tmp_path / "new", FAR)
    old, new = (load_served_model(tmp_path / name).predictor for name in ("old", "new"))
    observed = pairs(expected("version000"))
    (before,), (after,) = score(old, observed, [slice(None)]), score(new, observed, [slice(None)])
    verdict = TrialVerdict.of(before, after)
    assert verdict.jumped
    assert verdict.before == pytest.approx(before.error.mean())
    assert verdict.new == pytest.approx(after.error.mean())
    assert not TrialVerdict.of(before, before).jumped
    assert not TrialVerdict.of(after, before).jumped
