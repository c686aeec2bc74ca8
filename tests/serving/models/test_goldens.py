"""A model folder with right hashes and wrong answers is never served: its golden requests are asked first."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from interfere.config import SHIPPED_GPU_MODEL, SHIPPED_MODEL
from interfere.errors import ModelError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import PARITY_BUDGET, RequestKind, read_goldens
from interfere.predict.manifest import GOLDENS_FILE
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.records import PairBatch
from interfere.serving.state import load_served_model
from tests.models import reseal
from tests.serving.models.edits import BAD_MODELS, random_edit, read, write

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
