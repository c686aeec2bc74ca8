"""The score of a model depends on the pairs of its window alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import Case, score, speed_error
from interfere.predict.onnx import load_model
from interfere.sharing_modes import parse_sharing_mode
from tests.models import DEVICE_TYPE, MODE, WORKLOADS, expected, profile, publish


@pytest.fixture
def log() -> list[Case]:
    """Every pair of the tiny model; every second was observed, at twice its slowdown."""
    jobs = [profile(name) for name in WORKLOADS]
    return [
        Case(
            victim=victim,
            neighbours=(neighbour,),
            device_type=DEVICE_TYPE,
            mode=parse_sharing_mode(MODE),
            slowdown=2.0 * expected(victim.workload, neighbour.workload) if (i + j) % 2 else float("nan"),
        )
        for i, victim in enumerate(jobs)
        for j, neighbour in enumerate(jobs)
    ]


def test_windows_are_scored_by_themselves(tmp_path: Path, log: list[Case]) -> None:
    model = load_model(publish(tmp_path / "model"), FeatureEncoder())
    (whole,) = score(model, log, [slice(None)])
    for window in (slice(0, 5), slice(5, None), slice(3, 3)):
        (part,) = score(model, log, [window])
        for name in ("median", "lower", "upper", "abstains", "error"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[window])
    predicted = np.array([expected(pair.victim.workload, pair.neighbours[0].workload) for pair in log])
    observed = np.array([pair.slowdown for pair in log])
    np.testing.assert_allclose(whole.median, predicted, rtol=1e-5)
    np.testing.assert_allclose(whole.error, speed_error(np.log(observed), np.log(predicted)), rtol=1e-4)
    assert not whole.unusable.any()
    assert not whole.disagrees(whole).any()


def test_an_unknown_domain_is_scored_and_counts_as_abstained(tmp_path: Path, log: list[Case]) -> None:
    model = load_model(publish(tmp_path / "model"), FeatureEncoder())
    elsewhere = [replace(pair, device_type="another") for pair in log[:4]]
    (mixed,) = score(model, [*log[:4], *elsewhere], [slice(None)])
    assert mixed.abstains.tolist() == [False] * 4 + [True] * 4
    assert np.isfinite(mixed.median).all()
