"""A model folder with right hashes and wrong answers is never served: its golden requests are asked first."""

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_GPU_MODEL, SHIPPED_MODEL, Settings
from interfere.errors import LimitError, ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import PARITY_BUDGET, RequestKind, read_goldens
from interfere.predict.manifest import GOLDENS_FILE, published_version
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.records import JobRef, PairBatch
from interfere.serving.server import RunningServer
from interfere.serving.state import load_served_model
from interfere.training.publishing.goldens import unknown_jobs
from interfere.training.publishing.publication import replace_folder
from tests.models import reseal
from tests.serving.models.edits import BAD_MODELS, random_edit, read, write
from tests.serving.workers.test_pool import wait_ready
from tests.waiting import PATIENCE_S, wait_until

EDITS = 200 if "SOAK_ROUNDS" in os.environ else 25  # make soak


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED_MODEL, tmp_path / "model"))


@pytest.mark.parametrize("shipped", [SHIPPED_MODEL, SHIPPED_GPU_MODEL])
def test_shipped_folders_answer_their_golden_requests(shipped: Path) -> None:
    load_served_model(shipped)
    goldens, stated = read_goldens(shipped)
    assert 0 < stated.least < 1 < stated.most < 100
    assert {golden.request.kind for golden in goldens} == set(RequestKind)
    jobs = [job for golden in goldens for job in golden.request.jobs]
    assert any(not isinstance(job, str) for job in jobs)  # unknown to training
    manifest = read(shipped)
    assert set(manifest["workloads"]) <= {job for job in jobs if isinstance(job, str)}
    assert {golden.request.device_type for golden in goldens} == {each["device_type"] for each in manifest["domains"]}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_with_right_hashes_is_refused(folder: Path, name: str) -> None:
    BAD_MODELS[name](folder)
    reseal(folder)
    with pytest.raises(ModelError, match="remedy"):
        load_served_model(folder)


def test_the_refusal_names_request_expected_got_and_remedy(folder: Path) -> None:
    BAD_MODELS["e^50, pairs"](folder)
    reseal(folder)
    told = (
        r"'one pair' on cpu-core/timeslice: expected 1\.\d+ in \[.*got median\[0\] = \d\S*e\+2\d(.|\n)*publish it again"
    )
    with pytest.raises(ModelError, match=told):
        load_served_model(folder)


def test_a_folder_of_an_earlier_release_is_refused_with_the_remedy_to_publish_again(folder: Path) -> None:
    (folder / GOLDENS_FILE).unlink()
    manifest = read(folder) | {"format": 3}
    del manifest["files"][GOLDENS_FILE]
    write(folder, manifest)
    with pytest.raises(ModelError, match=r"no golden requests(.|\n)*publish it again"):
        load_served_model(folder)
    load_model(folder, FeatureEncoder())  # training can still compare with it


def test_the_version_is_the_digest_of_the_manifest_too(folder: Path) -> None:
    before = read(folder)
    write(folder, before | {"created_at": "2030-01-01T00:00:00+00:00"})  # equal models have equal versions
    load_served_model(folder)
    write(folder, before | {"selected_by": "request"})
    with pytest.raises(ModelError, match="not the digest"):
        load_served_model(folder)


def test_random_edits_are_served_only_where_every_golden_request_agrees(tmp_path: Path) -> None:
    before = {golden: _medians(load_model(SHIPPED_MODEL, FeatureEncoder()), golden) for golden in range(2)}
    served = []
    for k in range(EDITS):
        folder = Path(shutil.copytree(SHIPPED_MODEL, tmp_path / str(k)))
        what = random_edit(folder, np.random.default_rng([k, 17]))
        try:
            model = load_served_model(folder)
        except ModelError:
            pass
        else:
            served.append(what)
            for golden, medians in before.items():
                difference = np.log(_medians(load_model(model.folder, FeatureEncoder()), golden)) - np.log(medians)
                assert np.abs(difference).max() <= 2 * PARITY_BUDGET, (k, what)
        shutil.rmtree(folder)
    print(f"{EDITS} edits, {len(served)} served: {sorted(served)}")


@pytest.mark.journey
@pytest.mark.parametrize("workers", [0, 1])
def test_random_edits_reach_a_server_under_load_and_every_answer_is_of_one_model(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path, workers: int
) -> None:
    published = Path(shutil.copytree(SHIPPED_MODEL, tmp_path / "published"))
    pristine = published_version(published)
    server = serve(replace(settings, model=published, model_poll_s=0.05, decision_workers=workers))
    if workers:
        wait_ready(server)
    load = _Load(server.address)
    load.start()
    refused = 0
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for k in range(EDITS):
            before = client.model().version
            version = _publish_edited(published, k)
            if k % 2:  # by call; the watch may have been faster, and calls may be few in a short time
                with suppress(ModelError, LimitError):
                    client.load_model()
            try:
                load_served_model(published)  # all golden requests agree
            except ModelError:
                wait_until(lambda v=version: v in client.list_models().refused, f"edit {k} is refused")
                assert client.model().version == before
                refused += 1
            else:
                wait_until(lambda v=version: client.model().version == v, f"edit {k} is served")
        answered = load.answered
        wait_until(lambda: load.answered > answered + 1, "the load goes on")
    load.over.set()
    load.join()
    assert load.faults == []
    assert all(len(medians) == 1 for medians in load.medians.values()), load.medians
    assert pristine in load.medians
    print(f"{EDITS} edits, {refused} refused, {load.answered} answers of {len(load.medians)} models, 0 failed")
    assert refused >= EDITS // 4


def _publish_edited(published: Path, k: int) -> str:
    """Replace what is published by the k-th edit of the shipped model; its version."""

    def fill(folder: Path) -> None:
        shutil.copytree(SHIPPED_MODEL, folder, dirs_exist_ok=True)
        random_edit(folder, np.random.default_rng([k, 23]))

    replace_folder(published, fill)
    return published_version(published)


class _Load(threading.Thread):
    """Asks without a pause, and keeps every failure and the answers of each model."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.over = address, threading.Event()
        self.answered, self.faults = 0, list[str]()
        self.medians: dict[str, set[bytes]] = {}

    def run(self) -> None:
        with PolicyClient(self.address, timeout_s=PATIENCE_S) as client:
            known = load_model(SHIPPED_MODEL, FeatureEncoder()).profiles
            unmeasured = unknown_jobs(next(iter(known.values())))[0]
            jobs = [*client.model().workloads[:3], JobRef(profile=unmeasured)]
            pairs = [(i, j) for i in range(4) for j in range(4)]
            while not self.over.is_set():
                try:
                    answer = client.predict(jobs, pairs=pairs, allow_extrapolation=True)
                    self.medians.setdefault(answer.model_version, set()).add(answer.prediction.median.tobytes())
                except Exception as error:
                    self.faults.append(repr(error))
                self.answered += 1


def _medians(model: OnnxPredictor, place: int) -> np.ndarray:
    """What the bare graphs answer to one golden list of the shipped model, asked without the code of the replay."""
    request = read_goldens(SHIPPED_MODEL)[0][place].request
    return model.predict_pairs(
        PairBatch(
            jobs=request.profiles(model.profiles),
            victim=np.array(request.victims),
            neighbour=np.array(request.neighbours),
            device_type=request.device_type,
            mode=request.mode,
            allow_extrapolation=True,
        )
    ).median
