"""Single cases of reading: labels of every kind, and jobs whose progress says nothing of sharing."""

import math
from itertools import pairwise

import numpy as np
import pytest

from interfere.monitoring.company_windows import cut_at_cells
from interfere.monitoring.job_progress import JobProgress, intersect
from interfere.monitoring.naming_hints import naming_hint
from interfere.monitoring.reading import CompanyWindow, NotMeasured, SiteReading, read_cell
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from interfere.monitoring.watcher import SoloFacts, progress_observations

CELL = (0.0, 3600.0)
Labels = dict[str, str]


def gauge(
    pod: str, ticks: range, *, name: str = "DCGM_FI_DEV_GPU_UTIL", value: float = 50.0, **more: str
) -> SampleSeries:
    labels = {"UUID": "GPU-1", "modelName": "NVIDIA A100-SXM4-80GB", "namespace": "ml"} | ({"pod": pod} if pod else {})
    times_s = 15.0 * np.array(ticks, dtype=np.float64)
    return SampleSeries.from_samples(name, labels | more, times_s, np.full(len(times_s), value))


def counter(labels: Labels, ticks: range, rate: float, *, start: float = 0.0) -> SampleSeries:
    times_s = 15.0 * np.array(ticks, dtype=np.float64) + 4.0
    return SampleSeries.from_samples("steps_total", labels, times_s, start + rate * (times_s - times_s[0]))


def pod(name: str, **more: str) -> Labels:
    return {"namespace": "ml", "pod": name} | more


def read(device: list[SampleSeries], counters: list[SampleSeries], **settings: object) -> SiteReading:
    given = MonitoringSettings(**({"progress": "steps_total"} | settings))  # type: ignore[arg-type]
    block = SampleBlock(device=tuple(device), progress=tuple(counters))
    return read_cell(block, SiteLabels(given, block.label_names), given, CELL)


def reasons(window: CompanyWindow) -> dict[str, NotMeasured | None]:
    return {each.job.workload: each.not_measured for each in window.jobs}


SHARED = range(10, 30)
PAIR = [gauge("a", SHARED), gauge("b", SHARED)]


def test_a_neighbour_that_makes_no_step_teaches_nothing() -> None:
    (window,) = read(PAIR, [counter(pod("a"), SHARED, 4.0), counter(pod("b"), SHARED, 0.0)]).windows
    assert reasons(window) == {"a": NotMeasured.NEIGHBOUR_STOOD_STILL, "b": NotMeasured.STOOD_STILL}


def test_a_neighbour_without_a_counter_is_company_all_the_same() -> None:
    (window,) = read(PAIR, [counter(pod("a"), SHARED, 4.0)]).windows
    assert reasons(window) == {"a": None, "b": NotMeasured.NO_COUNTER}
    (observation,) = progress_observations([window], MonitoringSettings())
    assert (observation.workload, observation.company) == ("a", ("b",))
    assert observation.steps / (observation.end_s - observation.start_s) == pytest.approx(4.0)


def test_a_window_of_three_jobs_is_no_observation_and_its_hours_are_counted() -> None:
    device = [*PAIR, gauge("c", SHARED)]
    reading = read(device, [counter(pod(name), SHARED, 4.0) for name in "abc"])
    (window,) = reading.windows
    assert [each.measured is not None for each in window.jobs] == [True, True, True]
    assert progress_observations([window], MonitoringSettings()) == ()
    assert [(each.workloads, each.seconds) for each in reading.shared] == [(("a", "b", "c"), 300.0)]


def test_a_job_on_two_devices_teaches_nothing_to_either() -> None:
    device = [*PAIR, gauge("a", SHARED, UUID="GPU-2")]
    windows = read(device, [counter(pod("a"), SHARED, 4.0), counter(pod("b"), SHARED, 4.0)]).windows
    assert {reason for window in windows for reason in reasons(window).values()} == {NotMeasured.SEVERAL_DEVICES}
    assert progress_observations(windows, MonitoringSettings()) == ()


def test_loading_before_the_first_step_and_the_end_after_the_last_are_left_out() -> None:
    ticks = range(10, 60)
    times_s = 15.0 * np.array(ticks) + 4.0
    steps = np.clip(times_s - 350.0, 0.0, 300.0) * 4.0
    loading = SampleSeries.from_samples("steps_total", pod("a"), times_s, steps)
    (window,) = read([gauge("a", ticks)], [loading]).windows
    (observation,) = progress_observations([window], MonitoringSettings())
    assert observation.start_s >= 350.0
    assert observation.end_s <= 665.0
    assert observation.steps / (observation.end_s - observation.start_s) == pytest.approx(4.0, rel=0.05)


def test_a_reset_ends_the_windows_of_both_jobs() -> None:
    restarted = [counter(pod("b"), range(10, 20), 4.0), counter(pod("b"), range(20, 30), 4.0)]
    joined = SampleSeries.from_samples(
        "steps_total",
        pod("b"),
        np.concatenate([each.times_s for each in restarted]),
        np.concatenate([each.values for each in restarted]),
    )
    windows = read(PAIR, [counter(pod("a"), SHARED, 4.0), joined]).windows
    assert len(windows) == 2
    assert windows[0].end_s < windows[1].start_s


def test_labels_of_the_counter_can_be_mapped_and_a_missing_namespace_may_be_any() -> None:
    mapped = [counter({"job_pod": name}, SHARED, 4.0) for name in "ab"]
    assert {r for w in read(PAIR, mapped).windows for r in reasons(w).values()} == {NotMeasured.NO_COUNTER}
    (window,) = read(PAIR, mapped, label_map=(("pod", "job_pod"),)).windows
    assert reasons(window) == {"a": None, "b": None}
    (window,) = read(PAIR, [counter({"pod": name}, SHARED, 4.0) for name in "ab"]).windows
    assert reasons(window) == {"a": None, "b": None}
    reading = read(PAIR, [counter({"pod": "else"}, SHARED, 4.0)])
    assert reading.left_out == {"progress series of no job on a device": 1}


def test_labels_that_prometheus_renamed_name_the_jobs_and_the_exporters_own_do_not() -> None:
    own = {"exported_namespace": "ml"}
    device = [
        gauge("dcgm-x", SHARED, exported_pod="a", exported_container="main", **own),
        gauge("dcgm-x", SHARED, exported_pod="b", exported_container="side", **own),
        gauge("dcgm-x", range(40, 60)),
    ]
    (window,) = read(device, [counter(pod("a"), SHARED, 4.0)]).windows
    assert [each.job.id for each in window.jobs] == ["ml/a", "ml/b"]
    (window,) = read(device, [], by="namespace+container").windows
    assert [each.job.workload for each in window.jobs] == ["ml/main", "ml/side"]


def test_ranks_of_one_job_are_one_job_and_the_one_with_most_steps_stands_for_it() -> None:
    ranks = [counter(pod("a", rank=str(k)), SHARED, rate) for k, rate in enumerate((3.9, 4.0))]
    (window,) = read([gauge("a", SHARED)], ranks).windows
    (observation,) = progress_observations([window], MonitoringSettings())
    assert observation.steps / (observation.end_s - observation.start_s) == pytest.approx(4.0)


def test_a_rate_is_added_up_and_looks_back_over_its_range_only() -> None:
    settings = MonitoringSettings(progress="sum by (pod) (rate(steps_total[1m]))")
    assert not settings.progress_is_counter
    assert settings.progress_range_s == 60.0
    times_s = 15.0 * np.array(SHARED, dtype=np.float64)
    rates = SampleSeries.from_samples("", {"pod": "a"}, times_s, np.full(len(times_s), 4.0))
    (window,) = read([gauge("a", SHARED)], [rates], progress=settings.progress).windows
    (observation,) = progress_observations([window], settings)
    assert observation.start_s >= times_s[0] + 60.0
    assert observation.steps / (observation.end_s - observation.start_s) == pytest.approx(4.0)


def test_an_instance_of_a_partitioned_device_is_a_device_of_its_own() -> None:
    parts = [{"GPU_I_ID": str(k), "GPU_I_PROFILE": "1g.10gb"} for k in (1, 2)]
    windows = read([gauge(name, SHARED, **part) for name, part in zip("ab", parts, strict=True)], []).windows
    assert [len(window.jobs) for window in windows] == [1, 1]
    assert {window.device.type for window in windows} == {"a100-80gb-1g.10gb"}


def test_an_exporter_that_may_be_behind_loses_the_end_of_each_stretch() -> None:
    steps = [counter(pod("a"), SHARED, 4.0)]
    (now,), (late,) = (read([gauge("a", SHARED)], steps, exporter_delay_s=delay).windows for delay in (0.0, 30.0))
    assert late.end_s <= SHARED[-1] * 15.0 - 30.0 < now.end_s


def test_memory_in_company_is_a_jobs_own_only_where_values_differ_and_never_makes_a_profile_alone() -> None:
    name = "DCGM_FI_DEV_FB_USED"
    for sizes, known in (((1000.0, 3000.0), True), ((4000.0, 4000.0), False)):
        device = [gauge(job, SHARED, name=name, value=size) for job, size in zip("ab", sizes, strict=True)]
        alone = gauge("a", range(40, 60), name=name, value=500.0)
        facts = SoloFacts()
        facts.add(read([*device, alone], []).windows)
        (profile,) = SoloFacts.from_json(facts.to_json()).new_profiles()
        assert profile.workload == "a"
        assert profile.memory_peak_bytes == (1000 if known else 500) * 2**20


def test_memory_of_several_processes_of_a_job_is_added_up() -> None:
    name = "DCGM_FI_DEV_FB_USED"
    device = [gauge("a", SHARED, name=name, value=size, pid=str(size)) for size in (100.0, 200.0)]
    facts = SoloFacts()
    facts.add(read(device, []).windows)
    assert facts.new_profiles()[0].memory_peak_bytes == 300 * 2**20


def test_a_profile_is_given_out_again_for_a_new_fact_or_twice_the_windows() -> None:
    facts = SoloFacts()

    def given(progress: list[SampleSeries]) -> int:
        facts.add(read([gauge("a", SHARED)], progress).windows)
        profiles = facts.new_profiles()
        facts.mark_registered(profiles)
        return len(profiles)

    assert [given([]), given([]), given([])] == [1, 1, 0]
    assert [given([counter(pod("a"), SHARED, 4.0)]) for _ in range(5)] == [1, 0, 0, 0, 1]


def test_series_without_device_or_type_are_counted_and_not_guessed() -> None:
    reading = read([gauge("a", SHARED, UUID=""), gauge("b", SHARED, modelName="")], [])
    assert reading.windows == ()
    assert sum(reading.left_out.values()) == 2
    assert len(read([gauge("b", SHARED, modelName="")], [], device_type="h100").windows) == 1


def test_a_hint_where_no_name_recurs() -> None:
    jobs = {f"j{k}": f"j{k}" for k in range(9)}
    assert "--by app (2 names)" in naming_hint(jobs, [("app", 2)], "pod")
    assert "no label recurs" in naming_hint(jobs, [], "pod")
    assert naming_hint(dict.fromkeys(jobs, "w"), [], "pod") == ""


def test_cuts_leave_no_short_part_and_lose_no_time() -> None:
    for window in ((10.0, 3700.0), (3590.0, 3700.0), (3000.0, 11000.0), (10.0, 50.0)):
        parts = cut_at_cells(window, 3600.0, 60.0)
        assert (parts[0][0], parts[-1][1]) == window
        assert all(a[1] == b[0] for a, b in pairwise(parts))
        assert all(b - a >= min(60.0, window[1] - window[0]) for a, b in parts)


def test_runs_and_intersections() -> None:
    times_s = np.array([0.0, 15.0, 30.0, 45.0, 200.0, 215.0, 230.0])
    progress = JobProgress(times_s=times_s, steps=np.array([1.0, 2.0, 3.0, 1.0, 5.0, 6.0, 7.0]), interval_s=15.0)
    assert progress.runs() == [(0.0, 30.0), (200.0, 230.0)]
    assert intersect([(0.0, 10.0), (20.0, 30.0)], [(5.0, 25.0)]) == [(5.0, 10.0), (20.0, 25.0)]


def test_the_range_of_an_expression_is_read_from_it() -> None:
    assert math.isclose(MonitoringSettings(progress="rate(a[5m:1m])").progress_range_s, 300.0)
