"""What a model may see before it is asked."""

from itertools import pairwise

import numpy as np
import pytest

from features.pair import Encoder
from interfere.errors import InvalidInputError, UnfitError
from tests.training.worlds import additive, table_of, world
from training.dataset import Dataset, build_dataset
from training.splits import folds


@pytest.mark.parametrize("seed", range(5))
def test_no_unordered_pair_stands_on_both_sides(dataset: Dataset, seed: int) -> None:
    for fold in folds(dataset, "pair", seed):
        assert not set(dataset.group[fold.train]) & set(dataset.group[fold.test])


def test_no_unordered_pair_stands_on_both_sides_across_tables(encoder: Encoder) -> None:
    twice = build_dataset([world(additive, 5), world(additive, 5)], encoder)
    for fold in folds(twice, "pair", 0):
        assert not set(twice.group[fold.train]) & set(twice.group[fold.test])


def test_every_row_is_tested_in_exactly_one_pair_fold(dataset: Dataset) -> None:
    tested = np.concatenate([fold.test for fold in folds(dataset, "pair", 0)])
    assert sorted(tested) == list(range(len(dataset)))


@pytest.mark.parametrize("seed", range(5))
def test_the_job_split_asks_about_one_unseen_job_or_an_unseen_self_pair(dataset: Dataset, seed: int) -> None:
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


def test_the_same_seed_gives_the_same_folds_and_another_seed_others(dataset: Dataset) -> None:
    drawn = [np.concatenate([f.test for f in folds(dataset, "pair", seed)]).tolist() for seed in (3, 3, 4)]
    assert [a == b for a, b in pairwise(drawn)] == [True, False]


def test_an_unknown_split_and_rows_that_cannot_be_split_are_refused(encoder: Encoder) -> None:
    star = build_dataset([table_of({("hub", f"leaf{k}"): 1.1 for k in range(3)})], encoder)
    with pytest.raises(UnfitError, match="cannot be split by job"):
        folds(star, "job", 0)
    with pytest.raises(InvalidInputError, match="one of pair, job"):
        folds(star, "family", 0)
