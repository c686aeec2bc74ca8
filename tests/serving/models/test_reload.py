"""A running server takes newly published models: no request fails, no answer mixes two, bad ones are refused."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tests.models as tiny
from interfere.client import PolicyClient
from interfere.client.served_model import served_note
from interfere.config import Settings
from interfere.errors import ModelError, NotFoundError
from interfere.records import Device, Job, Snapshot
from interfere.serving.server import RunningServer
from interfere.training.publishing.publication import replace_folder
from tests.models import DEVICE_TYPE, publish, reseal
from tests.serving.models.edits import BAD_MODELS
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.serving.workers.test_pool import wait_ready
from tests.waiting import PATIENCE_S, wait_until

LONG = "SOAK_ROUNDS" in os.environ  # make soak
SWAPS, BAD, ROLLBACKS = (20, 9, 3) if LONG else (4, 2, 2)


@contextmanager
def base(value: float) -> Iterator[None]:
    """Models published inside predict other slowdowns."""
    before, tiny.BASE = tiny.BASE, value
    try:
        yield
    finally:
        tiny.BASE = before


def base_of(k: int) -> float:
    """What the k-th model tells of a pair: small for each of the swaps, so that two jobs always share."""
    return 0.1 + (0.015 if k <= 20 else 0.05) * k


def put(target: Path, k: int, *, damage: Callable[[Path], None] = lambda _: None) -> str:
    """Publish the k-th model in place of what is there; its version."""
    version = f"version{k:03d}"

    def write(folder: Path) -> None:
        with base(base_of(k)):
            publish(folder, version=version)
        damage(folder)

    replace_folder(target, write)
    return version


def expected(version: str) -> float:
    """What the model of a version predicts for infer beside stream."""
    with base(base_of(int(version[-3:]))):
        return tiny.expected("infer", "stream")


def wait_served(client: PolicyClient, version: str) -> None:
    wait_until(lambda: client.model().version == version, f"{version} is served")


class Load(threading.Thread):
    """Asks without a pause, and keeps what went wrong."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.over = address, threading.Event()
        self.answered, self.faults = 0, list[str]()
        self.versions: set[str] = set()

    def goes_on(self, answered: int) -> bool:
        """Whether more than so many rounds of requests are answered."""
        return self.answered > answered

    def run(self) -> None:
        device = Device(id="d", type=DEVICE_TYPE)
        with PolicyClient(self.address, timeout_s=PATIENCE_S) as client:
            while not self.over.is_set():
                try:
                    answer = client.predict(["infer", "stream"], pairs=[(0, 1)] * 50)
                    medians = answer.prediction.median
                    if not np.allclose(medians, expected(answer.model_version), rtol=1e-5):
                        self.faults.append(f"{answer.model_version} answered {medians[:3]}")
                    jobs = (Job(id="a", workload="infer"), Job(id="b", workload="stream"))
                    plan = client.match(Snapshot(pending=jobs, devices=(device,)))
                    slowdown = next(action.slowdown for action in plan.actions if action.job_id == "a")
                    if not np.isclose(slowdown, expected(plan.model_version), rtol=1e-5):
                        self.faults.append(f"{plan.model_version} decided with {slowdown}")
                    self.versions.add(answer.model_version)
                except Exception as error:
                    self.faults.append(repr(error))
                self.answered += 1


def truncate(folder: Path) -> None:
    raw = (folder / "pair.onnx").read_bytes()
    (folder / "pair.onnx").write_bytes(raw[: len(raw) // 2])


def other_encoder(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"fingerprint": "0" * 16}))


def unlisted_arrays(folder: Path) -> None:
    np.savez(folder / "residual.npz", anything=np.zeros(3))


def absurd(folder: Path) -> None:
    with base(40.0):
        publish(folder, version="absurd")


def outside(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"version": "../../outside"}))


def sealed(edit: Callable[[Path], None]) -> Callable[[Path], None]:
    """An edit whose hashes are made right afterwards."""

    def edited(folder: Path) -> None:
        edit(folder)
        reseal(folder)

    return edited


nan_weights, times_e50 = (
    sealed(BAD_MODELS["NaN weights, pairs"]),
    sealed(BAD_MODELS["e^50, pairs"]),
)
wider, swapped = (sealed(BAD_MODELS[name]) for name in ("wider intervals", "swapped sides, matrix"))
DAMAGES = (nan_weights, times_e50, wider, swapped, truncate, absurd, unlisted_arrays, other_encoder, outside)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The folder that training publishes into."""
    target = tmp_path / "champion"
    put(target, 0)
    return target


@pytest.mark.parametrize("workers", [0, 1])
def test_swaps_refusals_and_rollbacks_under_load(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, workers: int
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05, metrics_port=0, decision_workers=workers)
    server = serve(given)
    if workers:
        wait_ready(server)
    loads = [Load(server.address) for _ in range(2)]
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for load in loads:
            load.start()
        try:
            for k in range(1, SWAPS + 1):
                wait_served(client, put(published, k))
                time.sleep(0.3 if LONG else 0.05)
                if k <= BAD:
                    put(published, 100 + k, damage=DAMAGES[k % len(DAMAGES)])
                    wait_until(lambda: client.list_models().refused, "the damaged model is refused")
                    assert client.model().version == f"version{k:03d}"
            for _ in range(ROLLBACKS):
                change = client.rollback_model()
                assert change.previous_version != change.version == client.model().version
            before = [load.answered for load in loads]
            for load, answered in zip(loads, before, strict=True):
                wait_until(partial(load.goes_on, answered), "the load goes on")
        finally:
            for load in loads:
                load.over.set()
            for load in loads:
                load.join()
    assert [fault for load in loads for fault in load.faults] == []
    print(f"{sum(load.answered for load in loads)} rounds of requests, versions {len(loads[0].versions)}")
    text = scrape(server)
    assert f'interfere_model_changes_total{{result="taken"}} {float(SWAPS + ROLLBACKS)}' in text
    assert f'interfere_model_changes_total{{result="refused"}} {float(BAD)}' in text


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_model_is_refused_with_its_reason_and_the_old_one_stays(
    serve: Callable[..., RunningServer],
    settings: Settings,
    published: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = serve(replace(settings, model=published, model_poll_s=3600.0))
    put(published, 1, damage=damage)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        with pytest.raises(ModelError, match="remedy"):
            client.load_model()
        assert client.model().version == "version000"
        assert client.list_models().refused
        assert caplog.text.count("the published model is refused, version000 goes on") == 1
        assert client.load_model("version000").version == "version000"


def test_pinned_models_stay_also_over_a_restart(
    serve: Callable[..., RunningServer], settings: Settings, published: Path
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        with pytest.raises(NotFoundError, match="no other model"):
            client.rollback_model()
        wait_served(client, put(published, 1))
        assert client.pin_model() == "version001"
        put(published, 2)
        time.sleep(0.3)
        assert client.model().version == "version001"
    server.stop()
    with PolicyClient(serve(given).address, timeout_s=PATIENCE_S) as client:
        models = client.list_models()
        assert (client.model().version, models.pinned) == ("version001", True)
        assert {each.version for each in models.models} == {"version000", "version001"}
        assert client.load_model("version000").previous_version == "version001"
        with pytest.raises(NotFoundError, match="version000"):
            client.load_model("../../etc")
        client.pin_model(release=True)
        wait_served(client, "version002")


def test_each_rollback_goes_one_version_further_back(
    serve: Callable[..., RunningServer], settings: Settings, published: Path
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for k in (1, 2, 3):
            wait_served(client, put(published, k))
        assert client.rollback_model().version == "version002"
        assert client.rollback_model().version == "version001"
    server.stop()
    with PolicyClient(serve(given).address, timeout_s=PATIENCE_S) as client:  # it is known over a restart
        assert client.rollback_model().version == "version000"
        with pytest.raises(NotFoundError, match="no other model"):
            client.rollback_model()
        assert client.load_model("version003").previous_version == "version000"
        assert client.rollback_model().version == "version000"


def test_a_folder_that_arrives_file_by_file_is_taken_when_it_is_whole(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, tmp_path: Path
) -> None:
    server = serve(replace(settings, model=published, model_poll_s=0.05))
    version = put(tmp_path / "elsewhere", 1)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        names = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
        for name in sorted(names, key=lambda name: name != "manifest.json"):
            content = (tmp_path / "elsewhere" / name).read_bytes()
            (published / name).write_bytes(content[: len(content) // 2])
            wait_until(lambda: client.list_models().refused, "half a folder is refused")
            assert client.model().version == "version000"
            (published / name).write_bytes(content)
            if name == "manifest.json":
                wait_until(lambda: "truncated or edited" in client.list_models().refused, "the rest is missed")
        wait_served(client, version)
        assert not client.list_models().refused


@pytest.mark.parametrize("damage", [nan_weights, times_e50])
def test_a_bad_model_is_refused_at_start(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, damage: Callable[[Path], None]
) -> None:
    put(published, 1, damage=damage)
    with pytest.raises(ModelError, match=r"golden request(.|\n)*publish it again"):
        serve(replace(settings, model=published))


def test_a_kept_model_that_was_damaged_is_refused_and_told(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05, metrics_port=0)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        wait_served(client, put(published, 1))
        nan_weights(given.served_models_path / "version000")
        for change in (client.rollback_model, partial(client.load_model, "version000")):
            with pytest.raises(ModelError, match="golden request"):
                change()
        assert client.model().version == "version001"
    assert caplog.text.count("version000 is refused, version001 goes on") == 2
    assert 'interfere_model_changes_total{result="refused"} 2.0' in scrape(server)


def test_a_new_model_learns_what_was_observed(
    serve: Callable[..., RunningServer], settings: Settings, published: Path
) -> None:
    server = serve(replace(settings, model=published, model_poll_s=3600.0))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        client.observe([window(str(k), "infer", "stream", slowdown=3.0) for k in range(20)])
        before = client.predict(["infer", "stream"], pairs=[(0, 1)]).prediction.median[0]
        put(published, 1)
        client.load_model()
        after = client.predict(["infer", "stream"], pairs=[(0, 1)]).prediction.median[0]
        assert abs(np.log(after / 3.0)) < abs(np.log(expected("version001") / 3.0)) / 2
        assert before != after
        assert client.model().online.observations == 20


def test_whoever_publishes_hears_whether_the_server_took_it(
    serve: Callable[..., RunningServer], settings: Settings, published: Path, tmp_path: Path
) -> None:
    server = serve(replace(settings, model=published, model_poll_s=0.05))
    assert served_note(server.address, put(published, 1), published).endswith("serves it now")
    refused = served_note(server.address, put(published, 2, damage=truncate), published)
    assert "serves version001: it refused version002: " in refused
    with PolicyClient(server.address) as client:
        client.pin_model()
    assert "serves version001: that one is pinned" in served_note(server.address, put(published, 3), published)
    assert "watches another folder" in served_note(server.address, "other", tmp_path)
    server.stop()
    assert "no server answers" in served_note(server.address, "other", published)


def test_a_first_champion_replaces_the_shipped_model_and_sighup_looks_at_once(tmp_path: Path) -> None:
    """The whole process: it is not killed by SIGHUP, and takes what is published then."""
    command = [sys.executable, "-m", "interfere", "serve", "--json", "--port", "0", "--work", str(tmp_path)]
    environment = {**os.environ, "INTERFERE_MODEL_POLL_S": "3600", "INTERFERE_DECISION_WORKERS": "0"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        version = put(tmp_path / "models" / "champion", 3)
        process.send_signal(signal.SIGHUP)
        with PolicyClient(ready["address"], timeout_s=PATIENCE_S) as client:
            wait_served(client, version)
            assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
