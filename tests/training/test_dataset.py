"""Tables become arrays in which every row keeps its workloads, domain and weight."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.tables import Table
from interfere.errors import InvalidInputError, TableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.records import KernelStat
from interfere.training.dataset import build_dataset, hold_out, known_profiles, require_min_pairs
from tests.training.worlds import DEVICE, additive, measurement, not_ok, profile, table_of, world


def test_only_ok_rows_of_the_published_metric_become_rows(encoder: FeatureEncoder) -> None:
    table = table_of({("a", "b"): 1.5, ("b", "a"): 1.2})
    extra = (not_ok("a", "a"), measurement("b", "b", 3.0, metric="latency_p99"))
    made = build_dataset([replace(table, pairs=table.pairs + extra)], encoder)
    assert np.allclose(np.exp(made.log_slowdown), [1.5, 1.2])
    assert {d.metric for d in made.domains} == {"step_time_mean"}


def test_a_row_holds_its_victims_and_neighbours_columns_in_that_order(encoder: FeatureEncoder) -> None:
    table = table_of({("a", "b"): 1.5, ("b", "a"): 1.2})
    made = build_dataset([table], encoder)
    a, b = encoder.encode_jobs(table.jobs, DEVICE, "timeslice")
    width = len(encoder.job_names)
    np.testing.assert_array_equal(made.rows.pairs[0, :width], a)
    np.testing.assert_array_equal(made.rows.pairs[0, width : 2 * width], b)
    assert made.rows.victim.tolist() == [1, 2]
    assert made.rows.neighbour.tolist() == [2, 1]
    assert made.group.tolist() == [0, 0]  # one unordered pair


def test_narrower_intervals_weigh_more_and_an_absent_one_counts_as_the_median(encoder: FeatureEncoder) -> None:
    table = table_of({("a", "a"): 1.1, ("a", "b"): 1.5, ("b", "a"): 1.2})
    rows = [
        replace(row, lower=row.slowdown / math.exp(w), upper=row.slowdown * math.exp(w))
        for row, w in zip(table.pairs, (0.05, 0.5, 0.2), strict=True)
    ]
    rows.append(measurement("b", "b", 1.3, lower=math.nan, upper=math.nan))
    made = build_dataset([replace(table, pairs=tuple(rows))], encoder)
    assert made.weight[0] > made.weight[2] > made.weight[1]
    assert made.weight[3] == pytest.approx(made.weight[2])  # 0.2 is the median width
    assert made.weight.mean() == pytest.approx(1.0)
    assert made.lower[3] == made.upper[3] == pytest.approx(1.3)


def test_features_come_from_the_rows_own_table_and_the_last_row_wins(encoder: FeatureEncoder) -> None:
    old, new = table_of({("a", "b"): 1.5, ("b", "a"): 1.2}), table_of({("a", "b"): 1.9})
    new = replace(new, jobs=tuple(replace(job, step_time_s=9.0) for job in new.jobs))
    made = build_dataset([old, new], encoder)
    assert len(made) == 3  # both measurements of (a, b) are learned from
    assert not np.array_equal(made.rows.pairs[0], made.rows.pairs[2])
    latest = made.latest_rows()
    assert sorted(np.exp(latest.log_slowdown).round(6)) == [1.2, 1.9]
    assert {job.step_time_s for job in known_profiles([old, new]).jobs} == {9.0}


def test_another_tables_facts_of_another_kind_complete_a_row_and_none_of_the_same_kind(encoder: FeatureEncoder) -> None:
    own = table_of({("a", "b"): 1.5, ("b", "a"): 1.2})
    kernels = (KernelStat(name="gemm", mean_s=1e-3, count=4),)
    nsight = tuple(replace(job, step_time_s=7.0, source="nsight", kernels=kernels) for job in own.jobs)
    slower = tuple(replace(job, step_time_s=9.0) for job in own.jobs)

    def columns(*tables: Table) -> dict[str, float]:
        row = build_dataset([own, *tables], encoder).rows.pairs[0]
        return dict(zip(encoder.pair_names, row.tolist(), strict=True))

    alone = columns()
    assert repr(columns(Table(name="other", jobs=slower, pairs=()))) == repr(alone)
    completed = columns(Table(name="kernels", jobs=nsight, pairs=()))
    known = {name for name in alone if math.isnan(alone[name]) and not math.isnan(completed[name])}
    assert any("kernel" in name for name in known), known
    step_time = next(name for name in alone if name.endswith("log_step_time_s"))
    assert completed[step_time] == alone[step_time], "a measured step time comes before a kernel profiler's sum"


def test_device_types_and_modes_are_domains_but_a_pair_is_one_group_in_all(encoder: FeatureEncoder) -> None:
    jobs = tuple(profile(name, k, device) for device in ("cpu-core", "V100") for k, name in enumerate("ab"))
    pairs = tuple(
        measurement("a", "b", 1.2, device_type=d, mode=m)
        for d, m in (("cpu-core", "timeslice"), ("V100", "timeslice"), ("V100", "mps"))
    )
    made = build_dataset([Table(name="t", jobs=jobs, pairs=pairs)], encoder)
    assert [(d.device_type, d.mode) for d in made.domains] == [
        ("V100", "mps"),
        ("V100", "timeslice"),
        ("cpu-core", "timeslice"),
    ]
    assert set(made.group.tolist()) == {0}
    assert len(made.latest_rows()) == 3


def test_held_out_pairs_leave_every_table_in_both_directions(encoder: FeatureEncoder) -> None:
    tables = [world(additive, 4), world(additive, 4)]
    kept, hidden = hold_out(build_dataset(tables, encoder), frozenset({("w2", "w1")}))
    assert len(hidden) == 4  # two directions in two tables
    assert len(kept) == 28
    pairs = set(zip(kept.rows.victim.tolist(), kept.rows.neighbour.tolist(), strict=True))
    assert not pairs & {(2, 3), (3, 2)}


def test_holding_out_an_unknown_workload_is_an_error(encoder: FeatureEncoder) -> None:
    with pytest.raises(InvalidInputError, match="nobody"):
        hold_out(build_dataset([world(additive, 3)], encoder), frozenset({("w1", "nobody")}))


def test_too_few_pairs_and_no_rows_say_what_to_do(encoder: FeatureEncoder) -> None:
    require_min_pairs(build_dataset([world(additive, 4)], encoder))  # 10 unordered pairs, self pairs among them
    with pytest.raises(UnfitError, match="6 pairs are ok"):
        require_min_pairs(build_dataset([world(additive, 3)], encoder))
    with pytest.raises(UnfitError, match="no table has an ok row"):
        build_dataset([replace(world(additive, 3), pairs=(not_ok("w0", "w1"),))], encoder)


def test_a_pair_without_profile_is_a_broken_table(encoder: FeatureEncoder) -> None:
    table = world(additive, 3)
    with pytest.raises(TableError, match="w2"):
        build_dataset([replace(table, jobs=table.jobs[:2])], encoder)
