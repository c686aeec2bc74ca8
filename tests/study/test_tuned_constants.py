"""What was chosen on a trace is not reported on it."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.data.importers.lucid import import_helios
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.trace_worlds import redraw_days, scale_to_load, worlds_of
from interfere.sim.world import World
from interfere.study import tuned_constants
from interfere.study.tuned_constants import TunedConstant, TuningTrace, job_mark, tuned_here, tuned_note
from interfere.testing.schedulers import job
from tests.data.importers.public_files import public
from tests.sim.resampled_traces import resample_with_poisson_arrivals
from tests.sim.small_worlds import world

NAMES = ("fifo-easy", "fifo-easy-greedy", "tiresias-first-fit-greedy", "srtf-first-fit-matching", "policy")
POLICIES = [PRESETS[name] for name in NAMES]

SHIPPED = tuned_constants.TUNING_TRACES


def month(seed: int) -> World:
    rng = np.random.default_rng(seed)
    rows = zip(np.sort(rng.uniform(0, 30 * 86_400, 300)).tolist(), rng.lognormal(9, 1, 300).tolist(), strict=True)
    jobs = (job(f"{seed}-{k}", *row, user=f"u{k % 7}") for k, row in enumerate(rows))
    return replace(world(*jobs, count=4), name="month")


@pytest.fixture(autouse=True)
def tuned_on_month_0(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = sorted(job_mark(one.user, one.gpus, one.duration_s) for one in month(0).jobs if one.duration_s >= 3600)[:64]
    trace = TuningTrace(name="month 0", constants=tuple(TunedConstant), marks=frozenset(marks))
    monkeypatch.setattr(tuned_constants, "TUNING_TRACES", (trace,))


def test_the_trace_is_recognised_however_it_was_changed() -> None:
    given = month(0)
    rng = np.random.default_rng(0)
    for changed in (
        given,
        replace(given, name="another", jobs=given.jobs[:100]),
        scale_to_load(given, 0.5),
        redraw_days(given, 3),
        resample_with_poisson_arrivals(given, load=0.5, rng=rng),
    ):
        assert tuned_here([changed], POLICIES).keys() == {"fifo-easy-greedy", "srtf-first-fit-matching", "policy"}


def test_another_trace_is_not() -> None:
    assert tuned_here([month(1)], POLICIES) == {}
    assert tuned_note({}) == ""


def test_venus_is_recognised_by_one_of_its_virtual_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_constants, "TUNING_TRACES", SHIPPED)
    read = import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv")).trace
    assert read is not None
    for part in worlds_of(read, device_type="rtx3090", mode="timeslice").worlds:
        assert "fifo-easy-greedy" in tuned_here([part], POLICIES)


def test_a_constant_counts_only_where_it_acts() -> None:
    tuned = tuned_here([month(0)], POLICIES, guest_may_stay=False)
    assert tuned.keys() == {"srtf-first-fit-matching", "policy"}
    assert "64 waiting jobs" in tuned_note(tuned)
