"""Facts of one workload from several sources: combined by precedence, in any order, and shown with their sources."""

import json
import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from interfere.commands.data.group import app
from interfere.data.facts import SourceKind, combine_facts, known_facts, source_kind, split_static
from interfere.data.tables import add_profiles, read_table
from interfere.errors import InterfereError
from interfere.records import JobProfile, KernelStat
from interfere.store.store import SqliteStore
from tests.data.importers.kernels.test_nsight import RAW
from tests.monitoring.monitored_site import answer, gauge, write

KERNELS = (KernelStat(name="gemm", mean_s=1e-3, count=4.0),)


def said(source: str, **facts: object) -> JobProfile:
    values = {"step_time_s": math.nan, **facts}
    return JobProfile(workload="net", device_type="a100", source=source, **values)  # type: ignore[arg-type]


MEASURED = said("cuda", step_time_s=0.1, step_time_sd_s=0.01, memory_peak_bytes=5e9)
MONITORED = said("dcgm", step_time_s=0.11, memory_peak_bytes=6e9, sm_active_frac=0.5, measured_at_s=1e9)
PROFILED = said("nsight", step_time_s=0.08, kernels=KERNELS)
DECLARED = said("declared", step_time_s=0.2, memory_peak_bytes=8e9, family="Net")
STATIC = said("static", step_time_s=0.05, static_step_time_s=0.05, flops_per_step=1e12, memory_model_bytes=1e9)
ALL = (MEASURED, MONITORED, PROFILED, DECLARED, STATIC)


def test_each_fact_comes_from_the_first_source_that_knows_it_in_every_order() -> None:
    for order in permutations(ALL):
        combined = combine_facts(order)
        assert repr(combined) == repr(combine_facts(ALL))
    assert (combined.step_time_s, combined.step_time_sd_s, combined.memory_peak_bytes) == (0.1, 0.01, 5e9)
    assert (combined.sm_active_frac, combined.kernels, combined.family) == (0.5, KERNELS, "Net")
    assert (combined.flops_per_step, combined.memory_model_bytes) == (1e12, 1e9)
    assert (combined.source, combined.measured_at_s) == ("cuda+dcgm+nsight+declared+static", 1e9)


def test_a_step_time_with_its_spread_is_of_one_source_and_a_declared_one_beats_a_sum_of_kernels() -> None:
    without_spread = combine_facts([MONITORED, said("nsight", step_time_s=0.08, step_time_sd_s=0.3)])
    assert without_spread.step_time_s == 0.11
    assert math.isnan(without_spread.step_time_sd_s)
    assert combine_facts([PROFILED, DECLARED]).step_time_s == 0.2
    assert combine_facts([PROFILED, STATIC]).step_time_s == 0.08


def test_a_source_that_speaks_again_replaces_all_that_it_said() -> None:
    again = said("dcgm", sm_active_frac=0.7)
    assert combine_facts([said("static", memory_optimizer_bytes=0), PROFILED]).memory_optimizer_bytes == 0
    combined = combine_facts([MONITORED, PROFILED, again])
    assert combined.sm_active_frac == 0.7
    assert math.isnan(combined.memory_peak_bytes)
    assert combine_facts([MONITORED, again]) is again


def test_of_two_sources_of_one_kind_the_later_measurement_wins() -> None:
    earlier, later = said("dcgm:a", power_w=100.0, measured_at_s=1.0), said("dcgm:b", power_w=200.0, measured_at_s=2.0)
    for order in ((earlier, later), (later, earlier)):
        assert combine_facts(order).power_w == 200.0
    undated = said("dcgm:c", power_w=300.0)
    assert combine_facts([undated, earlier]).power_w == 100.0, "the one that came later, where a time is unknown"
    assert (source_kind("dcgm:a"), source_kind("my-lab")) == (SourceKind.MONITORED, SourceKind.MEASURED)


@given(st.lists(st.sampled_from((*ALL, said("dcgm", power_w=1.0), said("cuda", busy_frac=0.5))), min_size=1))
def test_laws(profiles: list[JobProfile]) -> None:
    """Every fact is one of a source; combining again changes nothing; the shown winners are the combined profile."""
    combined = combine_facts(profiles)
    assert repr(combine_facts([*profiles, profiles[-1]])) == repr(combined)
    winners = {fact.name: fact.value for fact in known_facts(profiles) if fact.wins}
    assert all(getattr(combined, name) == value for name, value in winners.items())
    assert all(fact.reason for fact in known_facts(profiles))


def test_a_row_completed_by_a_static_trace_is_two_sources() -> None:
    kernels = (KernelStat(name="gemm", mean_s=0.025, count=2),)
    row = replace(STATIC, source="gavel+static", step_time_s=0.3, kernels=kernels)
    measured, traced = split_static(row)
    assert (measured.source, measured.kernels, math.isnan(measured.flops_per_step)) == ("gavel", (), True)
    assert (traced.source, traced.kernels, traced.flops_per_step, traced.step_time_s) == ("static", kernels, 1e12, 0.05)
    assert repr(combine_facts([measured, traced])) == repr(row)
    assert combine_facts([row, PROFILED]).kernels == KERNELS


def test_a_table_keeps_every_source_and_reads_back_combined(tmp_path: Path) -> None:
    for profile in (STATIC, MONITORED, PROFILED):
        add_profiles(tmp_path, [profile])
    table = read_table(tmp_path)
    assert repr(table.jobs) == repr((combine_facts([STATIC, MONITORED, PROFILED]),))
    assert repr(table.profiles) == repr((STATIC, MONITORED, PROFILED))
    add_profiles(tmp_path, [replace(MONITORED, sm_active_frac=0.9)])
    assert read_table(tmp_path).jobs[0].sm_active_frac == 0.9
    assert len(read_table(tmp_path).profiles) == 3


def imported(tmp_path: Path, name: str, kinds: tuple[str, ...]) -> Path:
    (tmp_path / "net.csv").write_text(RAW)
    site = answer(
        gauge("DCGM_FI_DEV_FB_USED", "net", range(10), 1000), gauge("DCGM_FI_PROF_SM_ACTIVE", "net", range(10), 0.5)
    )
    path_of = {"nsight": tmp_path / "net.csv", "dcgm": write(tmp_path, site)}
    for kind in kinds:
        done = CliRunner().invoke(app, ["import", kind, str(path_of[kind]), "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    return tmp_path / name


def test_kernel_and_memory_facts_are_together_after_two_imports_in_either_order(tmp_path: Path) -> None:
    first = read_table(imported(tmp_path, "first", ("nsight", "dcgm")))
    second = read_table(imported(tmp_path, "second", ("dcgm", "nsight")))
    (job,) = first.jobs
    assert repr(second.jobs) == repr(first.jobs)
    assert (len(job.kernels), job.memory_peak_bytes, job.sm_active_frac) == (2, 1000 * 2**20, 0.5)
    card = (tmp_path / "first" / "card.md").read_text()
    assert card.startswith("# Imported `first` (dcgm)")
    assert "# Imported `first` (nsight)" in card
    again = read_table(imported(tmp_path, "first", ("dcgm",)))
    assert repr(again.jobs) == repr(first.jobs)
    assert (tmp_path / "first" / "card.md").read_text().count("# Imported") == 2


def shown(*arguments: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(app, ["facts", *arguments, "--json"])
    if done.exception is not None and isinstance(done.exception, InterfereError):
        raise done.exception
    rows: list[dict[str, object]] = json.loads(done.stdout)["facts"]
    return rows


def test_the_command_shows_every_fact_of_a_table_and_of_a_store(tmp_path: Path) -> None:
    folder = imported(tmp_path, "t", ("nsight", "dcgm"))
    add_profiles(folder, [said("cuda", memory_peak_bytes=5e9)])
    peaks = [row for row in shown("net", str(folder)) if row["fact"] == "memory_peak_bytes"]
    assert [(row["source"], row["value"], row["wins"]) for row in peaks] == [
        ("cuda", 5e9, True),
        ("dcgm", 1000.0 * 2**20, False),
    ]
    assert (peaks[1]["unit"], peaks[1]["device_type"], peaks[1]["measured_at"]) == (
        "bytes",
        "a100",
        "2023-11-14 22:15:20",
    )
    assert "cuda comes first" in str(peaks[1]["reason"])
    store = SqliteStore(tmp_path / "store.db")
    store.profiles.put([MONITORED, replace(MONITORED, sm_active_frac=0.9), PROFILED])
    store.close()
    active = [
        row
        for row in shown("net", "--store", str(tmp_path / "store.db"), "--work", str(tmp_path))
        if row["fact"] == "sm_active_frac"
    ]
    assert [(row["value"], row["wins"]) for row in active] == [(0.9, True), (0.5, False)]
    assert "spoken again" in str(active[1]["reason"])
    table = CliRunner().invoke(app, ["facts", "net", str(folder)])
    assert "memory_peak_bytes" in table.stdout
    with pytest.raises(InterfereError, match="known here: net"):
        shown("other", str(folder))
    shipped = shown("gemm", "--work", str(tmp_path / "new"))
    assert {"step_time_s", "kernels"} <= {row["fact"] for row in shipped}, "of the model that a server would serve"
    with pytest.raises(InterfereError, match="no such store"):
        shown("net", "--store", str(tmp_path / "nowhere.db"))
