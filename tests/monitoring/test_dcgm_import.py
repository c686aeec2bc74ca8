"""Imports of monitoring data: profiles of jobs seen alone, slowdowns of pairs, and counts of all other samples."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.tables import Table, read_table, write_table
from interfere.errors import InvalidInputError, TableError
from interfere.monitoring.dcgm_import import import_dcgm
from tests.monitoring.monitored_site import answer, counter, gauge, write

ACTIVE, FB, UTIL, OCCUPANCY = (
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_SM_OCCUPANCY",
)
ALONE_A, SHARED, ALONE_B = range(10), range(10, 20), range(20, 30)
# a alone, then with b on the same device, then b alone; what DCGM says while shared is about both.
SITE = answer(
    gauge(ACTIVE, "a", ALONE_A, 0.5),
    gauge(ACTIVE, "a", SHARED, 0.9, container="x"),
    gauge(ACTIVE, "b", SHARED, 0.9),
    gauge(ACTIVE, "b", ALONE_B, 0.25, container="y"),
    gauge(FB, "a", ALONE_A, 1000),
    gauge(FB, "b", ALONE_B, 2000),
    gauge(UTIL, "a", ALONE_A, 80),
)
STEPS = (counter("a", [(ALONE_A, 4.0), (SHARED, 2.0)]), counter("b", [(SHARED, 4.0), (ALONE_B, 5.0)]))


def with_steps() -> dict[str, Any]:
    return answer(*SITE["data"]["result"], *STEPS)


def jobs(imported: ImportResult) -> dict[str, Any]:
    return {job.workload: job for job in imported.jobs}


def counts(imported: ImportResult) -> dict[str, int]:
    return {notice.subject: notice.count for notice in imported.notices}


def test_profiles_come_only_from_windows_in_which_a_job_is_alone(tmp_path: Path) -> None:
    got = import_dcgm(write(tmp_path, SITE))
    a, b = jobs(got)["a"], jobs(got)["b"]
    assert (a.device_type, a.source) == ("a100", "dcgm")
    assert (a.sm_active_frac, b.sm_active_frac) == (0.5, 0.25)
    assert (a.memory_peak_bytes, a.gpu_util_frac) == (1000 * 2**20, pytest.approx(0.8))
    assert math.isnan(b.gpu_util_frac)
    assert math.isnan(a.dram_active_frac)


def test_samples_of_shared_windows_are_counted_by_pair(tmp_path: Path) -> None:
    got = import_dcgm(write(tmp_path, SITE))
    (notice,) = (one for one in got.notices if one.subject == "samples of two jobs on one device")
    assert notice.count == 8
    assert notice.reason == "a + b: 8"
    assert counts(got)["samples at the edge of a window, or in one of under three"] == 6
    assert got.pairs == ()


def test_without_steps_no_step_time_is_made_up(tmp_path: Path) -> None:
    got = import_dcgm(write(tmp_path, SITE))
    assert all(math.isnan(job.step_time_s) for job in got.jobs)
    assert counts(got)["profiles without a step time"] == 2
    write_table(tmp_path / "out", Table(name="out", jobs=got.jobs, pairs=got.pairs))
    assert repr(read_table(tmp_path / "out").jobs) == repr(got.jobs)


def test_a_counter_of_steps_gives_step_times_and_slowdowns(tmp_path: Path) -> None:
    got = import_dcgm(write(tmp_path, with_steps()), step_metric="train_steps_total", mode="mps")
    assert jobs(got)["a"].step_time_s == pytest.approx(0.25)
    assert jobs(got)["b"].step_time_s == pytest.approx(0.2)
    rows = {(pair.victim, pair.neighbour): pair for pair in got.pairs}
    assert rows["a", "b"].slowdown == pytest.approx(2.0)
    assert rows["b", "a"].slowdown == pytest.approx(1.25)
    assert {(p.mode, p.device_name) for p in got.pairs} == {("mps", "NVIDIA A100-SXM4-40GB")}


def test_each_shared_window_is_one_pass(tmp_path: Path) -> None:
    again = (range(30, 40), range(40, 50))
    document = answer(
        *SITE["data"]["result"],
        gauge(ACTIVE, "a", again[0], 0.9),
        gauge(ACTIVE, "b", again[0], 0.9, container="z"),
        gauge(ACTIVE, "a", again[1], 0.5, container="z"),
        counter("a", [(ALONE_A, 4.0), (SHARED, 2.0), (again[0], 1.0), (again[1], 4.0)]),
        counter("b", [(SHARED, 4.0), (ALONE_B, 5.0), (again[0], 5.0)]),
    )
    got = import_dcgm(write(tmp_path, document), step_metric="train_steps_total")
    rows = {(pair.victim, pair.neighbour): pair for pair in got.pairs}
    assert rows["a", "b"].passes == pytest.approx((2.0, 4.0))
    assert rows["a", "b"].slowdown == pytest.approx(8**0.5)
    assert rows["b", "a"].passes == pytest.approx((1.25, 1.0))


def test_two_jobs_of_one_workload_are_one_self_pair_row(tmp_path: Path) -> None:
    document = copy.deepcopy(with_steps())
    for one in document["data"]["result"]:
        one["metric"]["app"] = "bert"
    got = import_dcgm(write(tmp_path, document), by="app", step_metric="train_steps_total")
    (row,) = got.pairs
    assert (row.victim, row.neighbour, len(row.passes)) == ("bert", "bert", 2)
    assert jobs(got)["bert"].step_time_s == pytest.approx(14 / (7 * 4 + 7 * 5))


def test_rates_from_a_file_give_step_times(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("workload,step_time_s\na,0.25\n")
    got = import_dcgm(write(tmp_path / "site", SITE), rates=tmp_path / "rates.csv")
    assert jobs(got)["a"].step_time_s == 0.25
    assert counts(got)["profiles without a step time"] == 1
    with pytest.raises(InvalidInputError, match="one of them"):
        import_dcgm(tmp_path / "site", rates=tmp_path / "rates.csv", step_metric="x")


def test_labels_renamed_by_prometheus_name_the_job_and_not_the_exporter(tmp_path: Path) -> None:
    document = answer(
        gauge(ACTIVE, "dcgm-exporter-x", ALONE_A, 0.5, exported_pod="a", exported_namespace="ml"),
        gauge(ACTIVE, "dcgm-exporter-x", ALONE_B, 0.0),
        counter("a", [(ALONE_A, 4.0)]),
    )
    got = import_dcgm(write(tmp_path, document), step_metric="train_steps_total")
    assert set(jobs(got)) == {"a"}
    assert jobs(got)["a"].step_time_s == pytest.approx(0.25)
    assert counts(got)["values without a job"] == 10


def test_blanks_idle_time_gangs_crowds_and_other_metrics_are_counted(tmp_path: Path) -> None:
    crowd = range(40, 50)
    document = answer(
        *SITE["data"]["result"],
        gauge(OCCUPANCY, "a", ALONE_A, 9223372036854775794),
        gauge(FB, "b", ALONE_B, float("nan"), container="nan")
        | {"values": [[1_700_000_000.0 + 15 * k, "NaN"] for k in ALONE_B]},
        gauge(ACTIVE, "", range(60, 65), 0.0, device="GPU-2"),
        gauge("DCGM_FI_DEV_SM_CLOCK", "a", ALONE_A, 1410),
        *(gauge(ACTIVE, "gang", range(5), 0.5, device=device) for device in ("GPU-3", "GPU-4")),
        *(gauge(ACTIVE, pod, crowd, 0.5, device="GPU-5") for pod in ("a", "b", "c")),
    )
    found = counts(import_dcgm(write(tmp_path, document)))
    assert found["blank values"] == 20
    assert found["values without a job"] == 5
    assert found["series of other metrics"] == 1
    assert found["samples beside or of a job on several devices"] == 6
    assert found["samples of three jobs or more on one device"] == 8


def test_a_mig_instance_is_a_device_of_its_own(tmp_path: Path) -> None:
    parts = [{"GPU_I_ID": str(k), "GPU_I_PROFILE": "1g.5gb"} for k in (1, 2)]
    document = answer(*(gauge(ACTIVE, pod, ALONE_A, 0.5, **part) for pod, part in zip("ab", parts, strict=True)))
    got = import_dcgm(write(tmp_path, document))
    assert {(job.workload, job.device_type) for job in got.jobs} == {("a", "a100-1g.5gb"), ("b", "a100-1g.5gb")}


def test_a_restarted_or_still_counter_gives_no_slowdown(tmp_path: Path) -> None:
    for rate in (-1.0, 0.0):
        steps = (counter("a", [(ALONE_A, 4.0), (SHARED, rate)]), STEPS[1])
        got = import_dcgm(write(tmp_path, answer(*SITE["data"]["result"], *steps)), step_metric="train_steps_total")
        assert [(pair.victim, pair.neighbour) for pair in got.pairs] == [("b", "a")]
        assert counts(got)["sides of shared windows without a slowdown"] == 1


def test_a_slowdown_out_of_range_is_unstable(tmp_path: Path) -> None:
    steps = (counter("a", [(ALONE_A, 4.0), (SHARED, 400.0)]), STEPS[1])
    got = import_dcgm(write(tmp_path, answer(*SITE["data"]["result"], *steps)), step_metric="train_steps_total")
    (row,) = (pair for pair in got.pairs if pair.victim == "a")
    assert row.status.value == "unstable"
    assert "0.01" in row.reason


def test_several_files_are_one_site(tmp_path: Path) -> None:
    results = SITE["data"]["result"]
    write(tmp_path / "site", answer(*results[:3]), "1.json")
    write(tmp_path / "site", answer(*results[2:]), "2.json")
    got = import_dcgm(tmp_path / "site")
    assert repr(got.jobs) == repr(import_dcgm(write(tmp_path, SITE)).jobs)
    assert len(got.files) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="no JSON file"):
        import_dcgm(tmp_path / "empty")


RESULT = ("data", "result", 0)


@pytest.mark.parametrize(
    ("keys", "value", "place"),
    [
        (("status",), "error", "key status"),
        (("data", "resultType"), "vector", "key data / resultType"),
        (("data", "result"), {}, "key data / result"),
        ((*RESULT, "metric"), [], "key data / result / 0 / metric"),
        ((*RESULT, "metric", "__name__"), "", "key data / result / 0 / metric / __name__"),
        ((*RESULT, "metric", "pod"), 7, "key data / result / 0 / metric / pod"),
        ((*RESULT, "metric", "UUID"), "", "key data / result / 0 / metric / UUID"),
        ((*RESULT, "metric", "modelName"), "", "key data / result / 0 / metric / modelName"),
        ((*RESULT, "values"), None, "key data / result / 0 / values"),
        ((*RESULT, "values", 3), [1.0], "key data / result / 0 / values / 3"),
        ((*RESULT, "values", 3, 0), "noon", "key data / result / 0 / values / 3 / 0"),
        ((*RESULT, "values", 3, 0), 5.0, "key data / result / 0 / values / 3 / 0"),
        ((*RESULT, "values", 3, 1), 0.5, "key data / result / 0 / values / 3 / 1"),
        ((*RESULT, "values", 3, 1), "0,5", "key data / result / 0 / values / 3 / 1"),
        ((*RESULT, "values", 3, 1), "1e309", "key data / result / 0 / values / 3 / 1"),
        ((*RESULT, "values", 3, 1), "50", "key data / result / 0 / values / 3 / 1"),
        ((*RESULT, "values", 3, 1), "-0.5", "key data / result / 0 / values / 3 / 1"),
    ],
)
def test_an_edited_answer_is_one_error_that_names_the_key(tmp_path: Path, keys: Any, value: Any, place: str) -> None:
    document = copy.deepcopy(SITE)
    inner: Any = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    with pytest.raises(TableError) as caught:
        import_dcgm(write(tmp_path, document))
    assert f"range.json, {place}:" in str(caught.value)
    assert caught.value.remedy


def test_contradictory_samples_are_refused(tmp_path: Path) -> None:
    results = SITE["data"]["result"]
    with pytest.raises(TableError, match="another value"):
        import_dcgm(write(tmp_path, answer(*results, gauge(ACTIVE, "a", ALONE_A, 0.6))))
    with pytest.raises(TableError, match="a second counter"):
        import_dcgm(write(tmp_path, answer(*results, STEPS[0], STEPS[0])), step_metric="train_steps_total")
    two = (gauge(ACTIVE, "a", ALONE_A, 0.5, app="x"), gauge(FB, "a", ALONE_A, 5, app="y"))
    with pytest.raises(TableError, match="another value for"):
        import_dcgm(write(tmp_path, answer(*two)), by="app")
    with pytest.raises(TableError, match="label the counter"):
        import_dcgm(write(tmp_path, answer(*results, counter("", [(ALONE_A, 1.0)]))), step_metric="train_steps_total")


def test_files_without_usable_series_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no DCGM metric of any job"):
        import_dcgm(write(tmp_path, answer()))
    with pytest.raises(TableError, match="no DCGM metric of any job"):
        import_dcgm(write(tmp_path, SITE), by="team")
    with pytest.raises(TableError, match="alone for three samples"):
        import_dcgm(write(tmp_path, answer(gauge(ACTIVE, "a", range(2), 0.5))))
    with pytest.raises(InvalidInputError, match="step metric"):
        import_dcgm(write(tmp_path, SITE), step_metric="steps")
    with pytest.raises(InvalidInputError, match="sharing mode"):
        import_dcgm(write(tmp_path, SITE), mode="magic")
    named = import_dcgm(write(tmp_path, SITE), device_type="h100")
    assert {job.device_type for job in named.jobs} == {"h100"}
