"""The shipped table, complete and as a part small enough to train on in seconds."""

from pathlib import Path

import pytest

from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from tests.training.mlflow_databases import copied_databases

__all__ = ["copied_databases"]  # for every test here
SMALL = 6  # workloads: 36 ordered pairs


@pytest.fixture(scope="session")
def encoder() -> FeatureEncoder:
    return FeatureEncoder()


@pytest.fixture(scope="session")
def shipped() -> Table:
    return read_table(shipped_table("cpu"))


@pytest.fixture(scope="session")
def dataset(shipped: Table, encoder: FeatureEncoder) -> Dataset:
    return build_dataset([shipped], encoder)


@pytest.fixture(scope="session")
def small(shipped: Table) -> Table:
    """The first workloads of the shipped table with the pairs among them."""
    jobs = shipped.jobs[:SMALL]
    names = {job.workload for job in jobs}
    return Table(name="small", jobs=jobs, pairs=tuple(p for p in shipped.pairs if {p.victim, p.neighbour} <= names))


@pytest.fixture(scope="session")
def small_folder(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "small"
    folder.mkdir()
    write_table(folder, small)
    return folder


@pytest.fixture(scope="session")
def small_dataset(small: Table, encoder: FeatureEncoder) -> Dataset:
    return build_dataset([small], encoder)
