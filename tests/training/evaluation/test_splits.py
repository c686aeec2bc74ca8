"""Splits never show in training what they test."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.splits import SPLITS, Fold, folds, job_groups
from tests.training.worlds import additive, measurement, profile, table_of, world

HIDES_WORKLOADS = ("job", "family")
EVERY_SPLIT = tuple(split for split in SPLITS if split != "device")


def drawn_table(seed: int, workloads: int, devices: int, share: float) -> Table:
    """Some unordered pairs in some directions on some devices at some times; three families and two loners."""
    rng = np.random.default_rng(seed)
    names = [f"w{k}" for k in range(workloads)]
    jobs = tuple(
        replace(profile(name, k, f"device{d}"), family=("", "f1", "f2", "f3")[k % 4] if k > 1 else "")
        for k, name in enumerate(names)
        for d in range(devices)
    )
    pairs = tuple(
        measurement(v, n, math.exp(rng.random()), device_type=f"device{d}", measured_at_s=float(rng.integers(1, 40)))
        for d in range(devices)
        for v in names
        for n in names
        if rng.random() < share
    )
    return Table(name="drawn", jobs=jobs, pairs=pairs)


datasets = st.builds(
    drawn_table, st.integers(0, 10**6), st.integers(4, 9), st.integers(1, 3), st.sampled_from([0.4, 0.8, 1.0])
).map(lambda table: build_dataset([table], FeatureEncoder()))


def feasibility_rows(dataset: Dataset, split: str, seed: int) -> tuple[Fold, ...]:
    """Folds, or none where these rows cannot be split so."""
    try:
        return folds(dataset, split, seed)
    except UnfitError:
        return ()


@settings(max_examples=25, deadline=None)
@given(made=datasets, seed=st.integers(0, 5))
def test_no_unordered_pair_is_on_both_sides_of_any_split(made: Dataset, seed: int) -> None:
    for split in EVERY_SPLIT:
        for fold in feasibility_rows(made, split, seed):
            assert not set(made.group[fold.train]) & set(made.group[fold.test]), split


def test_a_service_is_hidden_beside_its_neighbour_at_every_load() -> None:
    names = ("api@100", "api@900", "chat@5", "chat@50", "gemm", "stream")
    rows = [measurement(v, n, 1.5) for v in names for n in names]
    jobs = tuple(profile(name, k) for k, name in enumerate(names))
    made = build_dataset([Table(name="services", jobs=jobs, pairs=tuple(rows))], FeatureEncoder())
    pair_of_row = [
        {made.workloads[k - 1].partition("@")[0] for k in pair}
        for pair in zip(made.rows.victim.tolist(), made.rows.neighbour.tolist(), strict=True)
    ]
    tested: list[int] = []
    for fold in folds(made, "service_pair", 0):
        trained = [pair_of_row[k] for k in fold.train]
        assert not any(pair_of_row[k] in trained for k in fold.test)
        tested += fold.test.tolist()
    assert sorted(tested) == list(range(len(made)))


@settings(max_examples=25, deadline=None)
@given(made=datasets, seed=st.integers(0, 5))
def test_hidden_workloads_and_later_rows_never_train(made: Dataset, seed: int) -> None:
    victim, neighbour = made.rows.victim, made.rows.neighbour
    for split in HIDES_WORKLOADS:
        for fold in feasibility_rows(made, split, seed):
            seen = set(victim[fold.train]) | set(neighbour[fold.train])
            for k in fold.test:
                assert {victim[k], neighbour[k]} - seen
    for fold in feasibility_rows(made, "neighbour", seed):
        assert not set(neighbour[fold.train]) & set(neighbour[fold.test])
    for fold in feasibility_rows(made, "time", seed):
        assert made.measured_at_s[fold.train].max() < made.measured_at_s[fold.test].min()


@settings(max_examples=25, deadline=None)
@given(made=datasets, seed=st.integers(0, 5))
def test_the_tested_device_type_trains_on_twenty_pairs_and_tests_all_others(made: Dataset, seed: int) -> None:
    types = np.array([d.device_type for d in made.domains])[made.domain]
    for fold in feasibility_rows(made, "device", seed):
        shown, asked = (made.take(side[types[side] == fold.hides]) for side in (fold.train, fold.test))
        assert set(types[fold.test]) == {fold.hides}
        assert len(np.unique(shown.group)) == 20
        assert not set(shown.group) & set(asked.group)
        assert len(shown) + len(asked) == (types == fold.hides).sum()
        assert np.isin(np.flatnonzero(types != fold.hides), fold.train).all()


@pytest.mark.parametrize("seed", range(5))
def test_no_unordered_pair_is_on_both_sides_of_a_pair_fold(dataset: Dataset, seed: int) -> None:
    for fold in folds(dataset, "pair", seed):
        assert not set(dataset.group[fold.train]) & set(dataset.group[fold.test])


def test_no_unordered_pair_is_on_both_sides_across_tables(encoder: FeatureEncoder) -> None:
    twice = build_dataset([world(additive, 5), world(additive, 5)], encoder)
    for split in ("pair", "sparse40"):
        for fold in folds(twice, split, 0):
            assert not set(twice.group[fold.train]) & set(twice.group[fold.test])


@pytest.mark.parametrize("count", [None, 3])
def test_every_row_is_tested_in_exactly_one_pair_fold(dataset: Dataset, count: int | None) -> None:
    made = folds(dataset, "pair", 0, count)
    assert len(made) == (count or 5)
    assert sorted(np.concatenate([fold.test for fold in made])) == list(range(len(dataset)))


@pytest.mark.parametrize("seed", range(5))
def test_the_job_split_tests_one_unseen_job_or_an_unseen_self_pair(dataset: Dataset, seed: int) -> None:
    victim, neighbour = dataset.rows.victim, dataset.rows.neighbour
    asked = set()
    for fold in folds(dataset, "job", seed):
        seen = set(victim[fold.train]) | set(neighbour[fold.train])
        for k in fold.test:
            unseen = {victim[k], neighbour[k]} - seen
            assert len(unseen) == 1
            assert victim[k] == neighbour[k] or len({victim[k], neighbour[k]} & seen) == 1
            asked |= unseen
    assert asked == set(victim)


def test_groups_of_workloads_are_those_of_the_published_figures() -> None:
    assert [job_groups(n) for n in (3, 7, 10, 26, 41, 300)] == [3, 7, 7, 7, 8, 8]


def family_world(families: tuple[str, ...]) -> Dataset:
    made = world(additive, len(families))
    jobs = tuple(replace(job, family=family) for job, family in zip(made.jobs, families, strict=True))
    return build_dataset([replace(made, jobs=jobs)], FeatureEncoder())


def test_each_family_is_left_out_once_and_a_workload_without_one_by_itself() -> None:
    made = family_world(("conv", "conv", "text", "", "text"))
    found = folds(made, "family", 0)
    assert [fold.hides for fold in found] == ["conv", "text", "w3"]
    conv = found[0]
    victim, neighbour = made.rows.victim[conv.test], made.rows.neighbour[conv.test]
    # w0 and w1 (ids 1, 2) beside each of three others, both ways, and each with itself; not w0 with w1.
    assert len(conv.test) == 2 * 3 * 2 + 2
    assert {(1, 1), (2, 2)} <= set(zip(victim, neighbour, strict=True))
    assert (1, 2) not in set(zip(victim, neighbour, strict=True))
    assert sorted(", ".join(sorted(fold.hides.split(", "))) for fold in folds(made, "family", 0, 3)) == sorted(
        fold.hides for fold in found
    )


def test_a_family_measured_only_with_itself_is_not_left_out() -> None:
    made = family_world(("a", "a", "b", "c", "c"))
    b = (made.rows.victim == 3) | (made.rows.neighbour == 3)
    alone = made.take(~b | (made.rows.victim == made.rows.neighbour))
    assert [fold.hides for fold in folds(alone, "family", 0)] == ["a", "c"]


def test_an_unseen_neighbour_was_seen_as_a_victim(dataset: Dataset) -> None:
    for fold in folds(dataset, "neighbour", 0):
        assert set(dataset.rows.neighbour[fold.test]) <= set(dataset.rows.victim[fold.train])


def test_the_time_split_tests_the_pairs_first_measured_last(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    made = replace(made, measured_at_s=1e9 + made.group)  # 15 pairs, one after another
    (fold,) = folds(made, "time", 0)
    assert set(made.group[fold.test]) == {12, 13, 14}
    assert set(made.group[fold.train]) == set(range(12))
    again = replace(made, measured_at_s=np.where(made.rows.victim == 1, 2e9, made.measured_at_s))  # w0 measured anew
    (fold,) = folds(again, "time", 0)
    assert again.measured_at_s[fold.train].max() < again.measured_at_s[fold.test].min()


def test_rows_without_a_time_are_no_part_of_the_split_by_time(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    when = np.where(made.rows.neighbour == 2, np.nan, 1e9 + made.group)
    (fold,) = folds(replace(made, measured_at_s=when), "time", 0)
    assert not np.isnan(when[np.concatenate([fold.train, fold.test])]).any()
    for useless in (np.nan, 1e9):
        with pytest.raises(UnfitError, match="split by time needs"):
            folds(replace(made, measured_at_s=np.full(len(made), useless)), "time", 0)


@pytest.mark.parametrize(("split", "share"), [("sparse10", 0.1), ("sparse20", 0.2), ("sparse40", 0.4)])
def test_sparse_trains_on_that_share_of_the_pairs(dataset: Dataset, split: str, share: float) -> None:
    (fold,) = folds(dataset, split, 0)
    groups = len(np.unique(dataset.group))
    assert len(np.unique(dataset.group[fold.train])) == round(share * groups)
    assert len(fold.train) + len(fold.test) == len(dataset)
    assert len(folds(dataset, split, 0, 3)) == 3


@pytest.mark.parametrize("split", ["pair", "job", "neighbour", "sparse20"])
def test_the_same_seed_gives_the_same_folds_and_another_seed_others(dataset: Dataset, split: str) -> None:
    drawn = [np.concatenate([f.test for f in folds(dataset, split, seed)]).tolist() for seed in (3, 3, 4)]
    assert [a == b for a, b in pairwise(drawn)] == [True, False]


def test_an_unknown_split_and_rows_that_cannot_be_split_are_refused(encoder: FeatureEncoder) -> None:
    star = build_dataset([table_of({("hub", f"leaf{k}"): 1.1 for k in range(3)})], encoder)
    with pytest.raises(UnfitError, match="cannot be split by job"):
        folds(star, "job", 0)
    with pytest.raises(UnfitError, match="two device types"):
        folds(star, "device", 0)
    with pytest.raises(InvalidInputError, match="choose among pair, job, family, neighbour, device, time, sparse10"):
        folds(star, "kind", 0)
    with pytest.raises(InvalidInputError, match="at least 1"):
        folds(star, "pair", 0, 0)
