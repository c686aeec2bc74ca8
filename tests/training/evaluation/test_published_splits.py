"""Published folds never change, and splits of other packages are held to what a split is."""

import json
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.training.evaluation import splits
from interfere.training.evaluation.splits import VERSIONS, check_published, folds, splits_record
from tests.training.evaluation.published_splits import PUBLIC_TABLES, public_dataset


@pytest.mark.parametrize("name", PUBLIC_TABLES)
@pytest.mark.parametrize("version", VERSIONS)
def test_published_folds_of_public_tables_never_change(name: str, version: str) -> None:
    published = json.loads(Path(splits.__file__).with_name(f"splits_{version}.json").read_text())
    dataset = public_dataset(name)
    assert splits_record(dataset, version) == published[name]
    assert check_published(dataset, version, VERSIONS[version]).endswith(f"published as {version} for the table {name}")


def test_published_folds_depend_on_neither_the_seed_nor_the_order_of_rows() -> None:
    dataset = public_dataset("cpu")
    order = np.random.default_rng(0).permutation(len(dataset))
    for split in ("pair", "job", "family", "neighbour"):
        first, other = (folds(dataset, split, seed, version="v1") for seed in (0, 7))
        for ours, same, reordered in zip(first, other, folds(dataset.take(order), split, 0, version="v1"), strict=True):
            assert ours.test.tolist() == same.test.tolist() == sorted(order[reordered.test].tolist())


def test_a_public_table_with_other_folds_is_refused_and_a_table_of_ones_own_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = public_dataset("cpu")
    own = dataset.take(np.arange(200))
    assert "the table is none of the published ones (cpu, " in check_published(own, "v1", VERSIONS["v1"])
    draw = splits.SPLITTERS["pair"]
    in_thirds = {**splits.SPLITTERS, "pair": lambda dataset, rng, _: draw(dataset, rng, 3)}
    monkeypatch.setattr(splits, "SPLITTERS", in_thirds)
    with pytest.raises(UnfitError, match="cpu are not those published as v1: pair"):
        check_published(dataset, "v1", ("pair", "job"))
    assert "published as v1" in check_published(dataset, "v1", ("job",))


OWN = '''
def by_victim(frame, seed):
    """Leave one victim out."""
    victim = frame.index.get_level_values("victim").to_numpy()
    for name in sorted(set(victim))[:3]:
        yield (victim != name).nonzero()[0], (victim == name).nonzero()[0]


def leaking(frame, seed):
    yield range(len(frame)), range(5)


def outside(frame, seed):
    yield range(4), [len(frame)]


def failing(frame, seed):
    raise ValueError("not today")
'''


def test_a_split_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_splits.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    dataset = public_dataset("cpu")
    drawn = folds(dataset, "own_splits:by_victim", 0)
    assert [len(set(dataset.rows.victim[fold.test].tolist())) for fold in drawn] == [1, 1, 1]
    assert all(not np.intersect1d(fold.train, fold.test).size for fold in drawn)
    for name, expected in (("leaking", "no row in both"), ("outside", "from 0 on"), ("failing", "not today")):
        with pytest.raises(UnfitError, match=expected):
            folds(dataset, f"own_splits:{name}", 0)
    with pytest.raises(InvalidInputError, match=r"(?s)no such split.*pair, job"):
        folds(dataset, "own_splits:nowhere", 0)
