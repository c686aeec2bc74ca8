"""Every stream of the online belief over many seeds: honest noise, liars, changed jobs."""

import os

import pytest

from tests.predict.online.belief_streams import LIES, Stream, run_stream

NOISES = (0.02, 0.05, 0.1, 0.2)
SEEDS = range(20 if "SOAK_ROUNDS" in os.environ else 1)  # make soak: 20


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("reporters", "liars"), [(4, (0,)), (8, (0, 1))])
def test_liars_harm_nobody_else_and_honest_windows_count(noise: float, reporters: int, liars: tuple[int, ...]) -> None:
    worse: list[tuple[int, str, float]] = []
    for seed in SEEDS:
        honest = run_stream(Stream(noise=noise, seed=seed, reporters=reporters))
        assert honest.honest_outliers <= 0.02
        for lie in LIES:
            lied = run_stream(Stream(noise=noise, seed=seed, reporters=reporters, lie=lie, liars=liars))
            ratio = lied.error(lied.honest_jobs) / honest.error(lied.honest_jobs)
            assert lied.honest_outliers <= 0.02
            worse += [(seed, lie, ratio)] if ratio > 1.2 else []
    assert not worse


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("change", [0.6, 1.5, 3.0])
def test_a_changed_job_is_learned_within_forty_of_its_windows(noise: float, change: float) -> None:
    needed = [run_stream(Stream(noise=noise, seed=seed, change=change, windows=3000)) for seed in SEEDS]
    assert [0 < result.windows_to_learn_change <= 40 for result in needed] == [True] * len(needed)
