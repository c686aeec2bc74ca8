"""The shipped GPU model: small, without measured pairs, with its notices, and served by its name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_GPU_MODEL, Settings
from interfere.data.public_tables import public_tables
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import read_manifest, shipped_profiles
from interfere.predict.measured import read_measured_table
from interfere.profiling.static.profiles import static_profile
from interfere.profiling.static.trace import trace_step
from interfere.records import JobRef
from interfere.serving.server import RunningServer
from tests.profiling.static import sample_factories
from tests.serving.models.test_shipped_models import run
from tests.serving.one_answer import LARGE, assert_one_answer, different_jobs

MAX_BYTES = 1_000_000


def test_it_is_small_and_holds_no_measurement_of_a_pair() -> None:
    manifest = read_manifest(SHIPPED_GPU_MODEL, FeatureEncoder().fingerprint)
    assert sum(file.stat().st_size for file in SHIPPED_GPU_MODEL.iterdir()) <= MAX_BYTES
    assert {domain.device_type for domain in manifest.domains} == {"k80", "p100", "v100"}
    assert len(manifest.workloads) == 26
    assert not read_measured_table(SHIPPED_GPU_MODEL, manifest)
    with np.load(SHIPPED_GPU_MODEL / "arrays.npz") as arrays:
        assert all(arrays[name].size == 0 for name in arrays if name.startswith(("measured_", "unseen_")))
    errors = {split: {name: each["mae"] for name, each in of.items()} for split, of in manifest.scores.items()}
    for split, baseline, most in (("pair", "additive", 0.5), ("job", "additive", 0.5), ("family", "additive", 1.0)):
        assert errors[split][manifest.model] < most * errors[split][baseline]


def test_its_card_carries_licence_address_digest_and_citation() -> None:
    card = (SHIPPED_GPU_MODEL / "card.md").read_text(encoding="utf-8")
    (gavel,) = (table for table in public_tables() if table.kind == "gavel")
    assert gavel.sha256 in card
    assert gavel.upstream.split()[0] in card
    for part in ("MIT License", "Copyright (c) 2020 Stanford Future Data Systems", "shall be included", "OSDI 2020"):
        assert part in card


@pytest.fixture
def address(serve: Callable[..., RunningServer], settings: Settings) -> str:
    return serve(replace(settings, model=Path("gpu"))).address


def test_it_is_served_and_asked_by_its_name(address: str) -> None:
    status, printed = run("match", "gpu", "--example", "--target", address, "--json")
    plan = json.loads(printed)
    assert status == 0
    assert {device["type"] for device in plan["request"]["devices"]} == {"k80", "p100", "v100"}
    assert len(plan["actions"]) == 8
    assert plan["pairs"]


def test_it_gives_one_answer_however_it_is_asked(address: str) -> None:
    profiles = [profile for profile in shipped_profiles(SHIPPED_GPU_MODEL) if profile.device_type == "v100"]
    with PolicyClient(address, timeout_s=60.0) as client:
        assert_one_answer(client, different_jobs(profiles, LARGE), "mps")


@pytest.mark.journey
def test_a_new_pytorch_model_is_predicted_from_a_static_profile(address: str) -> None:
    """Nothing of it ran: FLOPs, traffic and memory come from a trace, the step time from the device's rates."""
    traced = static_profile(trace_step(sample_factories.convolution), "new-convolution", "v100")
    with PolicyClient(address) as client:
        known = client.model().workloads[0]
        jobs = [JobRef(profile=traced), known]
        answer = client.predict(jobs, device_type="v100", mode="mps", allow_extrapolation=True).prediction
        assert (answer.median > 0.5).all()
        assert (answer.lower < answer.median).all()
        careful = client.predict(jobs, device_type="v100", mode="mps").prediction
        for source, reason in zip(careful.source, careful.reason, strict=True):
            assert source.value == "model" or "unlike" in reason
