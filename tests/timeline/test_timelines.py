"""Timelines from profiles and launches: what is kept, and what is spread, drawn and declared as such."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given

from interfere.data.importers.kernels.csv_exports import NSIGHT, ORION
from interfere.data.importers.kernels.kernel_files import KernelLaunch, import_kernels
from interfere.errors import InvalidInputError, UnfitError
from interfere.records import JobProfile, KernelStat
from interfere.timeline.timelines import (
    KernelIdentity,
    PredictionTable,
    Timeline,
    timeline_from_profile,
)
from tests.data.importers.public_files import public
from tests.timeline.examples import LAW, US, kernel, run_time_error, timeline_from_launches, timelines


def profile(*kernels: KernelStat, step_us: float = 100.0, **fields: object) -> JobProfile:
    values: dict[str, object] = {
        "workload": "net",
        "device_type": "v100",
        "step_time_s": step_us * US,
        "kernels": kernels,
    }
    return JobProfile(**{**values, **fields})  # type: ignore[arg-type]


def stat(name: str, us: float, count: float = 1.0, **fields: object) -> KernelStat:
    return KernelStat(name=name, mean_s=us * US, count=count, **fields)  # type: ignore[arg-type]


def test_launches_of_one_identity_are_spread_over_the_step() -> None:
    got = timeline_from_profile(profile(stat("a", 10, 4), stat("b", 5, 2), stat("rare", 90, 0.3)))
    assert [kernel.identity.name for kernel in got.kernels] == ["a", "b", "a", "a", "b", "a"]
    assert got.order == "spread evenly by count"


def test_the_rest_of_the_step_time_is_spread_over_unknown_gaps_only() -> None:
    got = timeline_from_profile(profile(stat("a", 10, 4), stat("b", 5, 2, gap_s=15 * US), step_us=100))
    assert {kernel.identity.name: kernel.gap_s / US for kernel in got.kernels} == pytest.approx({"a": 5.0, "b": 15.0})
    assert got.solo_s == pytest.approx(100 * US)
    assert got.gaps == "spread over the step"
    known = timeline_from_profile(profile(stat("a", 10, 4, gap_s=2 * US)))
    assert (known.gaps, known.solo_s) == ("as measured", pytest.approx(48 * US))
    summed = timeline_from_profile(profile(stat("a", 10, 4), step_us=40))
    assert (summed.gaps, summed.solo_s) == ("unknown, taken as none", pytest.approx(40 * US))


def test_a_core_has_its_busy_stretches_and_long_ones_are_cut_into_steps() -> None:
    core = profile(stat("op", 10), device_type="cpu-core", busy_s=(20 * US, 300 * US), idle_s=(80 * US, 0.0))
    got = timeline_from_profile(core)
    assert [(round(k.duration_s / US), round(k.gap_s / US)) for k in got.kernels] == [
        (20, 80),
        (100, 0),
        (100, 0),
        (100, 0),
    ]
    assert timeline_from_profile(replace(core, device_type="v100")).kernels[0].identity.name == "op"
    assert len(timeline_from_profile(replace(core, device_type="v100", kernels=())).kernels) == 4


def test_a_profile_without_kernels_or_stretches_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnfitError, match=r"neither kernels nor busy stretches.*\n.*interfere data import") as caught:
        timeline_from_profile(profile())
    assert "net" in str(caught.value)
    with pytest.raises(UnfitError, match="every second step"):
        timeline_from_profile(profile(stat("rare", 10, 0.4)))


def test_launches_keep_their_order_and_times() -> None:
    launches = [KernelLaunch(name=name, duration_s=us * US, sm_used=8.0) for name, us in (("b", 3), ("a", 1), ("b", 4))]
    got = timeline_from_launches("net", launches, "v100")
    assert [(k.identity.name, round(k.duration_s / US)) for k in got.kernels] == [("b", 3), ("a", 1), ("b", 4)]
    with pytest.raises(InvalidInputError, match="none"):
        timeline_from_launches("net", [], "v100")


def test_orions_launches_are_those_of_its_profiles() -> None:
    folder = public("orion")
    for job in import_kernels("orion", folder).jobs:
        got = timeline_from_launches(job.workload, ORION.read(folder / f"{job.workload}.csv", "").launches, "v100")
        assert len(got.kernels) == sum(kernel.count for kernel in job.kernels)
        assert got.busy_s == pytest.approx(job.step_time_s)


def test_nsights_launches_keep_grid_and_block(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "net.csv"
    path.write_text(
        '"ID","Kernel Name","Grid Size","Block Size","gpu__time_duration.sum"\n"","","","","ns"\n'
        '"0","gemm","(40, 1, 1)","(256, 1, 1)","2000"\n"1","relu","(8, 1, 1)","(64, 1, 1)","1000"\n'
    )
    got = timeline_from_launches("net", NSIGHT.read(path, "").launches, "v100")
    assert [(k.identity.grid, round(k.duration_s / US)) for k in got.kernels] == [((40, 1, 1), 2), ((8, 1, 1), 1)]


# --- as a scheduler predicts them -------------------------------------------------------------------------------------


def test_each_launch_is_predicted_at_the_mean_of_its_identity_or_of_its_place() -> None:
    kernels = (kernel(10, 4, name="a"), kernel(30, 0, name="b"), kernel(20, 8, name="a"))
    job = Timeline(name="x", kernels=kernels)
    by_identity, by_place = (
        PredictionTable([job, job], by_place=by_place).predict_round(job) for by_place in (False, True)
    )
    assert [round(one.run_s / US) for one in by_identity] == [15, 30, 15]
    assert [round(one.run_s / US) for one in by_place] == [10, 30, 20]
    assert by_identity[0].gaps_s == pytest.approx([4 * US, 8 * US] * 2)
    assert by_place[2].gaps_s == pytest.approx([8 * US] * 2)
    assert run_time_error(job) == pytest.approx(10 / 60)


@LAW
@given(job=timelines())
def test_a_table_predicts_the_total_of_the_run_that_it_was_made_of(job: Timeline) -> None:
    predicted = PredictionTable([job]).predict_round(job)
    assert sum(one.run_s for one in predicted) == pytest.approx(job.busy_s)
    assert sum(fmean(one.gaps_s) for one in predicted) == pytest.approx(job.solo_s - job.busy_s, abs=1e-12)


def test_a_place_that_was_never_measured_is_predicted_by_identity_and_a_new_kernel_at_the_longest_run() -> None:
    job = Timeline(name="x", kernels=(kernel(10, 4, name="a"), kernel(30, 0, name="b")))
    table = PredictionTable([job], by_place=True)
    assert table.predict(job.kernels[0].identity, 7) == table.predict(job.kernels[0].identity, 0)
    new = table.predict(KernelIdentity(name="c"), 0)
    assert (new.run_s, new.gaps_s) == (pytest.approx(30 * US), ())


def test_orions_means_are_close_where_shapes_repeat() -> None:
    """Transformers repeat their shapes; convolutions of many shapes share Orion's one name."""
    off = {}
    for path in sorted(public("orion").glob("*.csv")):
        job = timeline_from_launches(path.stem, ORION.read(path, "").launches, "v100")
        off[path.stem] = run_time_error(job)
    assert off["bert_2_fwd"] < 0.03
    assert off["bert_8_fb1"] < 0.08
    assert max(off.values()) < 0.30
