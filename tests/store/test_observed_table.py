"""Stored observations become a valid measurement table, with provenance and without invalid windows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.data.tables import read_table, write_table
from interfere.errors import UnfitError
from interfere.records import ObservationResult, PairStatus, Progress, ReporterWeight, Rollback
from interfere.store.observed_table import logged_windows, observed_table, pair_losses
from interfere.store.rows import NewObservation
from interfere.store.store import SqliteStore
from interfere.testing.stores import MEMORY, OUTCOME, append
from tests.tables import DEVICE, profile


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "s.db")
    yield opened
    opened.close()


def window(number: int, victim: str, *company: str, **given: float) -> Progress:
    return Progress(
        observation_id=str(number),
        job_id="j",
        workload=victim,
        company=company,
        device_type=DEVICE,
        start_s=10.0 * number,
        end_s=10.0 * number + 10.0,
        **given,
    )


def test_windows_of_a_pair_are_passes_of_one_row_with_its_interval(store: SqliteStore, tmp_path: Path) -> None:
    append(store, *(window(k, "a", "b", slowdown=1.5 + 0.1 * (k % 2)) for k in range(6)), MEMORY, OUTCOME)
    found = observed_table(store, [profile("a"), profile("b")])
    (row,) = found.table.pairs
    assert (row.victim, row.neighbour, row.source, row.campaign) == ("a", "b", "observed", "log 1-8")
    assert row.passes == pytest.approx((1.5, 1.6) * 3)
    assert row.slowdown == pytest.approx((1.5 * 1.6) ** 0.5)
    assert 1.48 < row.lower < row.slowdown < row.upper < 1.62
    assert row.measured_at_s == 60.0
    write_table(tmp_path / "t", found.table)
    assert repr(read_table(tmp_path / "t").pairs) == repr(found.table.pairs)


def test_steps_count_against_the_solo_rate_of_the_whole_log(store: SqliteStore) -> None:
    append(store, window(1, "a", "b", steps=50.0), window(2, "c", "b", steps=5.0))
    append(store, window(3, "a", steps=100.0), window(4, "b", steps=10.0))
    found = observed_table(store)
    assert [(p.victim, p.slowdown) for p in found.table.pairs] == [("a", pytest.approx(2.0))]
    assert {(j.workload, j.step_time_s, j.source) for j in found.table.jobs} == {
        ("a", 0.1, "observed"),
        ("b", 1.0, "observed"),
    }


def test_one_wrong_solo_window_moves_no_row(store: SqliteStore) -> None:
    """The table and the server read one rate: of two in the middle, the one nearer to what was known."""
    append(store, window(1, "a", steps=100.0), window(2, "a", steps=1.0), window(3, "a", "b", steps=50.0))
    append(store, window(4, "b", steps=10.0))
    assert [p.slowdown for p in observed_table(store).table.pairs] == [pytest.approx(2.0)]


def test_invalid_windows_are_left_out_and_jobs_without_facts_are_named(store: SqliteStore) -> None:
    good = window(1, "a", "b", slowdown=1.5)
    append(store, good, window(2, "a", "nobody", slowdown=1.5), window(3, "a", "b", "c", slowdown=1.5))
    held = NewObservation(
        observation=window(4, "a", "b", slowdown=90.0), result=ObservationResult.QUARANTINED, reason="absurd"
    )
    store.observations.append([held], 0.0)
    append(store, window(5, "a", "b", slowdown=9.0), Rollback(observation_id="r", to_sequence=4, reason="why"))
    found = observed_table(store, [profile("a"), profile("b")])
    assert [p.passes for p in found.table.pairs] == [(1.5,)]
    assert (found.table.groups, found.without_facts, found.windows) == ((), ("c", "nobody"), 1)
    assert observed_table(store, up_to=0).table.pairs == ()


def test_windows_in_company_of_two_and_more_are_rows_of_groups(store: SqliteStore, tmp_path: Path) -> None:
    append(store, window(1, "a", "c", "b", slowdown=2.0), window(2, "a", "b", "c", slowdown=2.2))
    append(store, window(3, "a", "b", "b", slowdown=2.5), window(4, "b", "a", "a", "c", slowdown=3.0))
    found = observed_table(store, [profile(name) for name in "abc"])
    rows = {(row.victim, row.company): row for row in found.table.groups}
    assert set(rows) == {("a", ("b", "c")), ("a", ("b", "b")), ("b", ("a", "a", "c"))}
    two_windows = rows["a", ("b", "c")]
    assert two_windows.passes == pytest.approx((2.0, 2.2))
    assert (two_windows.source, two_windows.campaign, two_windows.measured_at_s) == ("observed", "log 1-4", 30.0)
    assert two_windows.lower < two_windows.slowdown == pytest.approx((2.0 * 2.2) ** 0.5)
    assert (found.table.pairs, found.windows) == ((), 4)
    write_table(tmp_path / "t", found.table)
    assert repr(read_table(tmp_path / "t").groups) == repr(found.table.groups)


def test_an_outlier_of_a_group_and_what_was_rolled_back_teach_nothing(store: SqliteStore) -> None:
    append(store, *(window(k, "a", "b", "c", slowdown=2.0) for k in range(5)))
    outlier = window(6, "a", "b", "c", slowdown=60.0)
    store.observations.append([NewObservation(observation=outlier, result=ObservationResult.QUARANTINED)], 0.0)
    append(store, window(7, "a", "b", "b", slowdown=9.0), Rollback(observation_id="r", to_sequence=6, reason="why"))
    found = observed_table(store, [profile(name) for name in "abc"])
    assert [(row.company, row.slowdown) for row in found.table.groups] == [(("b", "c"), pytest.approx(2.0))]
    assert (found.windows, found.held_windows) == (5, 1)


def test_the_profiles_of_the_store_are_newer_than_those_given(store: SqliteStore) -> None:
    append(store, window(1, "a", "b", slowdown=1.5))
    store.profiles.put([replace(profile("a"), step_time_s=0.5)])
    found = observed_table(store, [profile("a"), profile("b")])
    assert {(j.workload, j.step_time_s) for j in found.table.jobs} == {("a", 0.5), ("b", 0.01)}


def test_windows_that_disagree_are_kept_as_unstable(store: SqliteStore) -> None:
    append(store, *(window(k, "a", "b", slowdown=(1.1, 3.0)[k % 2]) for k in range(8)))
    (row,) = observed_table(store, [profile("a"), profile("b")]).table.pairs
    assert row.status is PairStatus.UNSTABLE
    assert "disagree" in row.reason


def held(number: int, slowdown: float, **given: object) -> NewObservation:
    """A window that was told to be an outlier."""
    observation = window(number, "a", "b", slowdown=slowdown, **given)  # type: ignore[arg-type]
    return NewObservation(observation=observation, result=ObservationResult.QUARANTINED, reason="an outlier")


def test_outliers_that_agree_with_one_another_are_a_new_level(store: SqliteStore) -> None:
    append(store, *(window(k, "a", "b", slowdown=1.5) for k in range(20)))
    store.observations.append([held(20, 80.0)], 0.0)
    found = observed_table(store, [profile("a"), profile("b")])
    assert (found.table.pairs[0].slowdown, found.windows, found.held_windows) == (pytest.approx(1.5), 20, 1)
    store.observations.append([held(k, 2.2 + 0.01 * (k % 2)) for k in range(21, 31)], 0.0)
    found = observed_table(store, [profile("a"), profile("b")])
    assert (found.windows, found.held_windows) == (10, 21)
    assert found.table.pairs[0].slowdown == pytest.approx(2.205, rel=0.01)


def test_the_newest_campaign_counts_and_muted_reporters_do_not(store: SqliteStore) -> None:
    append(store, *(window(k, "a", "b", slowdown=1.5, campaign="driver 1") for k in range(4)))  # type: ignore[arg-type]
    append(store, window(4, "a", "b", slowdown=1.45, campaign="driver 2"))  # type: ignore[arg-type]
    append(store, ReporterWeight(observation_id="m", reporter="mallory", weight=0.0, reason="forged"))
    append(store, window(5, "a", "b", slowdown=1.9, campaign="driver 2", reporter="mallory"))  # type: ignore[arg-type]
    (row,) = observed_table(store, [profile("a"), profile("b")]).table.pairs
    assert (row.passes, row.campaign) == (pytest.approx((1.45,)), "driver 2")


def test_a_read_only_store_is_read_beside_its_server_and_never_written(store: SqliteStore, tmp_path: Path) -> None:
    append(store, window(1, "a", "b", slowdown=1.5))
    beside = SqliteStore(tmp_path / "s.db", read_only=True)
    assert beside.observations.counts() == {"progress": 1}
    append(store, window(2, "a", "b", slowdown=1.5))
    assert beside.observations.counts() == {"progress": 2}
    with pytest.raises(UnfitError, match="readonly"):
        append(beside, window(3, "a", "b", slowdown=1.5))
    beside.close()
    with pytest.raises(UnfitError):
        SqliteStore(tmp_path / "nowhere.db", read_only=True)
    assert not (tmp_path / "nowhere.db").exists()


def test_losses_are_the_hours_of_the_work_that_alone_would_take_no_time(store: SqliteStore) -> None:
    hours = 10.0 / 3600
    append(store, *(window(k, "a", "b", slowdown=2.0) for k in range(4)), window(4, "b", "a", slowdown=1.25))
    append(store, window(5, "c", steps=5.0), window(6, "b", "a", slowdown=1.25), window(7, "a", "c", slowdown=1.1))
    append(store, window(8, "a", "c", slowdown=3.0))
    append(store, Rollback(observation_id="back", to_sequence=8, reason="wrong"))
    logged, _ = logged_windows(store)
    worst, small, least = pair_losses(logged)
    assert (worst.victim, worst.company, worst.device_type, worst.windows) == ("a", ("b",), DEVICE, 4)
    assert (worst.hours, worst.slowdown, worst.lost_hours) == pytest.approx((4 * hours, 2.0, 2 * hours))
    assert (small.victim, small.lost_hours) == ("b", pytest.approx(2 * hours * 0.2))
    assert (least.victim, least.company, least.slowdown) == ("a", ("c",), pytest.approx(1.1))
    newest = pair_losses(logged, within_s=15.0)  # of the windows that end at 70 and 80 s
    assert sorted((each.victim, each.windows) for each in newest) == [("a", 1), ("b", 1)]
