"""Measured groups: written and read back, refused where a rule is broken, absent from tables that have none."""

import math
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interfere.data.quality import block_slowdowns, group_quality
from interfere.data.tables import Table, add_profiles, read_table, table_digest, write_table
from interfere.errors import InvalidInputError, TableError
from interfere.records import GroupMeasurement
from tests.data.cards.page_tables import card_text, table_page
from tests.data.sample_table import GROUP, GROUPS, JOBS, TABLE, WITH_GROUPS
from tests.data.test_tables import rewrite, same


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path / "t", WITH_GROUPS)
    return tmp_path / "t"


def test_groups_read_back_as_they_were_written(folder: Path) -> None:
    assert same(asdict(read_table(folder)), asdict(replace(WITH_GROUPS, name="t")))
    columns = pq.read_schema(folder / "groups.parquet").names
    assert sorted(columns) == sorted([*(field.name for field in fields(GroupMeasurement)), "feasible"])


def test_a_group_names_its_members_and_the_copies_of_its_victim() -> None:
    assert [group.members for group in GROUPS] == [("a", "a", "b"), ("a", "a", "b"), ("b", "b", "b", "b")]
    assert [group.copies for group in GROUPS] == [2, 1, 4]


def test_a_table_without_groups_has_no_file_and_its_digest_stays(folder: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "none", TABLE)
    assert not (tmp_path / "none" / "groups.parquet").exists()
    assert read_table(tmp_path / "none").groups == ()
    assert table_digest(folder) != table_digest(tmp_path / "none")
    write_table(folder, TABLE)  # the groups of an earlier table do not stay behind
    assert read_table(folder).groups == ()
    assert table_digest(folder) == table_digest(tmp_path / "none")


def test_new_profiles_leave_the_groups(folder: Path) -> None:
    add_profiles(folder, (replace(JOBS[0], workload="c"),))
    assert same([asdict(g) for g in read_table(folder).groups], [asdict(g) for g in GROUPS])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"company": ("b",)}, "company: must hold at least 2 jobs"),
        ({"company": ("b", "a")}, "company: must be sorted"),
        ({"company": ("", "a")}, "company: must hold printable names"),
        ({"slowdown": 500.0}, "slowdown: must lie in"),
        ({"metric": "speed"}, "metric: unknown metric"),
    ],
)
def test_a_wrong_group_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        replace(GROUP, **change)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ((*GROUPS, GROUP), "groups.parquet, row 3, columns victim, company, .*: same as row 0"),
        ((replace(GROUP, company=("a", "c")),), "groups.parquet, row 0, column company: no profile of it on cpu-core"),
        ((replace(GROUP, steal_frac=40.0),), "groups.parquet, row 0, column steal_frac"),
        ((replace(GROUP, lower=3.0),), "groups.parquet, row 0, column lower"),
    ],
)
def test_a_broken_table_of_groups_does_not_replace_the_old_one(
    folder: Path, groups: tuple[GroupMeasurement, ...], said: str
) -> None:
    before = table_digest(folder)
    with pytest.raises(TableError, match=said):
        write_table(folder, replace(WITH_GROUPS, groups=groups))
    assert table_digest(folder) == before


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("company", [["a", None]] * 3, r"column company\[1\]: must be a text"),
        ("status", ["good"] * 3, "column status: unknown"),
        ("feasible", [False] * 3, "column feasible: contradicts status ok"),
    ],
)
def test_a_broken_cell_is_named(folder: Path, column: str, value: list[Any], said: str) -> None:
    rewrite(
        folder / "groups.parquet", lambda t: t.set_column(t.schema.get_field_index(column), column, pa.array(value))
    )
    with pytest.raises(TableError, match=f"groups.parquet, row 0, {said}"):
        read_table(folder)


def test_copies_of_the_victim_count_once_a_block() -> None:
    assert block_slowdowns(GROUP) == pytest.approx((math.sqrt(2.4 * 2.5), math.sqrt(2.5 * 2.6)))
    assert block_slowdowns(GROUPS[1]) == (1.75, 1.85)


def test_quality_is_that_of_each_size() -> None:
    three, four = group_quality(WITH_GROUPS)
    assert (three.size, three.groups, three.jobs, three.slowdown_max) == (3, 1, 2, 2.5)
    assert dict(four.rows_by_status) == {"ok": 0, "unstable": 1, "infeasible": 0}
    assert math.isnan(four.icc)
    assert group_quality(TABLE) == ()


def test_card_and_page_show_the_groups() -> None:
    card = card_text(WITH_GROUPS)
    counts = "1 groups of 2 jobs, 2 blocks a row, rows by status: ok 2, unstable 0"
    assert f"- cpu-core, timeslice, groups of 3: {counts}" in card
    assert "## Groups of three and more" in card
    assert "`groups.parquet`" in card
    text = table_page(WITH_GROUPS)
    assert text.count(counts) == 1
    assert "a, b" in text
    assert "the clock drifted" in text
    assert "Groups of three" not in table_page(TABLE)
    assert "Groups" not in card_text(TABLE)


def test_a_page_of_groups_alone_says_so() -> None:
    alone = Table(name="alone", jobs=JOBS, pairs=(), groups=GROUPS)
    text = table_page(alone)
    assert "profiles alone" not in text
    assert "Groups of three and more" in text


def test_card_and_page_show_each_role_of_mode_priority_by_itself() -> None:
    before = replace(TABLE.pairs[0], mode="priority", important="victim", slowdown=1.05, lower=1.0, upper=1.1)
    behind = replace(before, important="neighbour", slowdown=3.0, lower=2.9, upper=3.1)
    table = replace(TABLE, pairs=(before, behind))
    card, page = card_text(table), table_page(table)
    assert "\n| cpu-core, priority, neighbour important |" in card
    assert "\n| cpu-core, priority, victim important |" in card
    assert "SCHED_IDLE" in card
    assert "time-sliced" not in card
    assert "cpu-core, priority, victim important" in page
    assert "SCHED_IDLE" in page


def test_roles_are_written_and_read_back(tmp_path: Path) -> None:
    pair = replace(TABLE.pairs[0], mode="priority", important="victim")
    write_table(tmp_path / "t", replace(TABLE, pairs=(pair, replace(pair, important="neighbour"))))
    assert [row.important for row in read_table(tmp_path / "t").pairs] == ["victim", "neighbour"]
    old = pq.read_table(tmp_path / "t" / "pairs.parquet").drop_columns(["important"])  # as earlier releases wrote it
    pq.write_table(old.slice(0, 1), tmp_path / "t" / "pairs.parquet")
    assert [row.important for row in read_table(tmp_path / "t").pairs] == [""]
    with pytest.raises(InvalidInputError, match="who had priority"):
        replace(pair, important="both")


def test_groups_of_another_machine_are_named_as_such() -> None:
    elsewhere = tuple(replace(group, device_name="another processor", measured_at_s=1.8e9) for group in GROUPS)
    card = card_text(replace(TABLE, groups=elsewhere))
    assert "- machine: a processor\n- measured: 2023-11-14; source: cpu\n" in card
    assert "- groups: on another processor, measured 2027-01-15" in card
    assert "- groups: on" not in card_text(WITH_GROUPS)
